"""From a bare card to records that outlive a power cut, on an emulated board: the real command, playbook and broker.

Invariants:
- the card is told apart by its contents; what `edge-board flash` was told is what the board that boots from it is;
- from the first login on ssh knows the board by the host key that its card got; nobody gets in without the user's key;
- cloud-init itself has nothing to say against what it was given;
- the real playbook makes a broker of the board that wants TLS and a log-in, a second run changes nothing;
- a record that was acked before the plug was pulled is there afterwards, at its offset, and so is who may log in.
The tests are one story and run in this order; the times of the stages are printed at the end.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from drupelet.kafka.properties import security_of
from tests.card.board import ADDRESS, DNS, GATEWAY, PREFIX, Board
from tests.support.processes import wait_until
from tests.support.runtimes import console_script

pytestmark = pytest.mark.timeout(3600)  # an emulated board takes its time, and each stage has a deadline of its own

HERE = Path(__file__).parent
ANSIBLE = HERE.parents[1] / "ansible"
ROOT_MIB = 1600
SECRET = secrets.token_hex(16)
HOST, USER, TIMEZONE = "pi-7", "site", "Europe/London"
LOGIN_S = 1200
TOPIC = "readings"
RECORDS_BEFORE = 2_000
ACKED_BEFORE_CUT = 3_000
TIMES: dict[str, float] = {}


@contextlib.contextmanager
def stage(name: str) -> Iterator[None]:
    """Note how long a stage takes."""
    started = time.monotonic()
    yield
    TIMES[name] = time.monotonic() - started
    sys.stderr.write(f"[{name}: {TIMES[name]:.0f} s]\n")


def run(*words: object, folder: Path | None = None, environment: dict[str, str] | None = None) -> str:
    """Run a program; raises with what it said when it fails."""
    command = [str(word) for word in words]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, env={**os.environ, **(environment or {})}
    )
    assert done.returncode == 0, f"{words[0]}: {done.stdout[-6000:]}{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("card")


@pytest.fixture(scope="module")
def key(folder: Path) -> Path:
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key")
    return folder / "key"


@pytest.fixture(scope="module")
def image(folder: Path) -> Path:
    """Give an image as one downloads it: laid out as Raspberry Pi OS, packed by xz."""
    with stage("root file system (kept for the next run)"):
        root = run(HERE / "root.sh").strip()
    with stage("image"):
        run(HERE / "image.sh", root, folder / "download", ROOT_MIB)
        run("xz", "-1", "--threads=0", folder / "download")
    return folder / "download.xz"


@pytest.fixture(scope="module")
def known_hosts(folder: Path) -> Path:
    """Name the file that the card's host key is put into."""
    return folder / "known_hosts"


@pytest.fixture(scope="module")
def card(folder: Path, image: Path, key: Path, known_hosts: Path) -> Path:
    """Give a card that the real command has written."""
    own, target = folder / "own.conf", folder / "card"
    own.write_text("own = 1\n")
    words = ["flash", image, "--to", target, "--host", HOST, "--user", USER, "--ssh-key", f"{key}.pub"]
    words += ["--static", f"{ADDRESS}/{PREFIX}", "--gateway", GATEWAY, "--dns", DNS, "--timezone", TIMEZONE]
    with stage("flash"):
        words += ["--known-hosts", known_hosts, "--file", f"{own}:/etc/own.conf", "--quiet"]
        said = run(console_script("edge-board"), *words)
    assert "customised as trixie" in said
    return target


@pytest.fixture(scope="module")
def board(folder: Path, card: Path, key: Path, known_hosts: Path) -> Iterator[Board]:
    found = Board(card, folder, HOST, USER, key, known_hosts)
    with stage("first boot to the login"):
        found.start()
        try:
            found.wait_for_login(LOGIN_S)
        except BaseException:
            sys.stderr.write(found.console()[-4000:])
            found.cut_power()
            raise
    yield found
    found.cut_power()
    sys.stderr.write("".join(f"{name:45} {seconds:5.0f} s\n" for name, seconds in TIMES.items()))


def test_the_board_is_what_the_card_was_told(board: Board) -> None:
    with stage("first boot to its end"):
        board.wait_for_first_boot(LOGIN_S)
    assert board.ssh("hostname").strip() == HOST
    assert board.ssh("id -un").strip() == USER
    assert board.ssh("readlink /etc/localtime").strip().endswith(TIMEZONE)
    assert f"inet {ADDRESS}/{PREFIX} " in board.ssh("ip -4 address show dev eth0")
    assert f"default via {GATEWAY} " in board.ssh("ip -4 route")
    assert board.ssh("cat /etc/own.conf") == "own = 1\n"
    assert f"127.0.1.1\t{HOST}\n" in board.ssh("cat /etc/hosts")
    assert board.ssh("sudo -n id -u").strip() == "0"


def test_the_kernel_is_told_to_count_memory(board: Board) -> None:
    assert {"cgroup_enable=memory", "systemd.watchdog_sec=60"} <= set(board.ssh("cat /proc/cmdline").split())
    assert "memory" in board.ssh("cat /sys/fs/cgroup/cgroup.controllers").split()


def test_only_the_key_opens_it(board: Board) -> None:
    refused = f"{USER}@127.0.0.1: Permission denied (publickey)."
    assert refused in board.refusal("PubkeyAuthentication=no", "PreferredAuthentications=password")
    assert board.ssh("sudo -n getent shadow " + USER).split(":")[1].startswith("!")
    assert board.ssh("sudo -n getent shadow root").split(":")[1] in {"*", "!", "!*"}
    assert "passwordauthentication no" in board.ssh("sudo -n sshd -T")


def test_the_board_has_the_host_key_of_its_card_and_no_other(board: Board, known_hosts: Path) -> None:
    known = known_hosts.read_text().split()[1:]
    assert board.ssh("cat /etc/ssh/edge_host_ed25519_key.pub").split() == known
    offered = board.ssh("sudo -n sshd -T").lower().splitlines()
    assert [line for line in offered if line.startswith("hostkey ")] == ["hostkey /etc/ssh/edge_host_ed25519_key"]
    wrong = "Host key verification failed."
    assert wrong in board.refusal("UserKnownHostsFile=/dev/null")


def test_cloud_init_itself_takes_what_it_was_given(board: Board) -> None:
    status = json.loads(board.ssh("cloud-init status --format json"))
    assert (status["status"], status["errors"], status["recoverable_errors"]) == ("done", [], {})
    for kind, name in (("cloud-config", "user-data"), ("network-config", "network-config")):
        command = f"sudo -n cloud-init schema --schema-type {kind} --config-file /boot/firmware/{name}"
        assert "Valid schema" in board.ssh(command)


@pytest.fixture(scope="module")
def bundle(folder: Path) -> Path:
    """Give the wheels for the board: it has no internet."""
    chosen = {"bundle_parts": ["wheels"], "bundle_platforms": ["trixie-arm64"], "bundle_dir": str(folder / "bundle")}
    with stage("bundle of wheels"):
        playbook("bundle.yml", folder, "-e", json.dumps(chosen))
    return folder / "bundle"


def playbook(name: str, folder: Path, *more: object) -> str:
    """Run one of the playbooks; returns what it said."""
    words = [console_script("ansible-playbook"), f"playbooks/{name}", "-e", f"wheel_dir={folder}/wheel", *more]
    return run(*words, folder=ANSIBLE)


def inventory_of(folder: Path) -> Path:
    """Name the inventory; the site's CA comes beside its folder."""
    return folder / "inventory/hosts.yml"


def provision(board: Board, folder: Path, bundle: Path) -> str:
    """Run the real playbook on the board; returns its recap."""
    host = {
        "ansible_host": "127.0.0.1",
        "ansible_port": board.ssh_port,
        "ansible_user": board.user,
        "ansible_ssh_private_key_file": str(board.key),
        "ansible_ssh_common_args": " ".join(board.ssh_words()),
        "base_ssh_port": 22,  # the board's own; the one above is the emulator's
        "broker_listen": "0.0.0.0:9092",
        "security_secret": SECRET,
        "broker_advertise": f"127.0.0.1:{board.kafka_port}",
        "drupelet_bundle": str(bundle),
    }
    groups = {name: {"hosts": {HOST: None}} for name in ("base", "broker")}
    inventory = inventory_of(folder)
    inventory.parent.mkdir(exist_ok=True)
    inventory.write_text(yaml.safe_dump({"all": {"hosts": {HOST: host}, "children": groups}}))
    said = playbook("provision.yml", folder, "-i", inventory)
    return said[said.index("PLAY RECAP") :]


def changed(recap: str) -> int:
    """Count the board's changes."""
    found = re.search(rf"^{HOST} .*changed=(\d+) .*unreachable=0 .*failed=0", recap, re.MULTILINE)
    assert found, recap
    return int(found[1])


def test_the_playbook_makes_a_broker_of_it(board: Board, folder: Path, bundle: Path) -> None:
    with stage("provision"):
        assert changed(provision(board, folder, bundle)) > 0
    with stage("provision again"):
        assert changed(provision(board, folder, bundle)) == 0
    version = board.ssh("/opt/drupelet/current/bin/edge-broker --version")
    assert version.endswith(", compiled walker\n"), "the wheel's library for aarch64 is loaded on an aarch64 board"


@pytest.fixture(scope="module")
def login(board: Board, folder: Path) -> dict[str, str]:
    """Say how to log in, in librdkafka's words, as the real playbook writes it for the tools."""
    properties = folder / "login.properties"
    told = ("-e", f"login_at={HOST}", "-e", f"login_to={properties}")
    playbook("login.yml", folder, "-i", inventory_of(folder), *told)
    found = security_of(properties)
    assert found.password is not None
    return {
        "bootstrap.servers": f"127.0.0.1:{board.kafka_port}",
        "security.protocol": found.protocol,
        "ssl.ca.location": str(found.ca_file),
        "sasl.mechanism": found.mechanism,
        "sasl.username": found.username,
        "sasl.password": found.password.text(),
    }


class Acked:
    """Values by their offset, as the broker has acked them."""

    def __init__(self) -> None:
        self.values: dict[int, bytes] = {}

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        offset, value = message.offset(), message.value()
        if error is None and offset is not None and value is not None:
            self.values[offset] = value


def producer(login: dict[str, str]) -> Producer:
    return Producer({**login, "acks": "all", "linger.ms": 5})


def read_all(login: dict[str, str]) -> dict[int, bytes]:
    """Read the topic from its start to its end, from outside."""
    own = {"group.id": "reader", "auto.offset.reset": "error", "enable.auto.commit": False}
    consumer = Consumer({**login, **own})
    try:
        start, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=60)
        consumer.assign([TopicPartition(TOPIC, 0, start)])
        found: dict[int, bytes] = {}

        def all_read() -> bool:
            for message in consumer.consume(1000, timeout=1):
                assert message.error() is None, message.error()
                found[message.offset()] = message.value()
            return len(found) >= end - start

        wait_until(all_read, 120, f"{end - start} records")
        return found
    finally:
        consumer.close()


def test_another_password_lets_nobody_in(login: dict[str, str]) -> None:
    errors: list[int] = []
    stranger = Producer({**login, "sasl.password": "another", "error_cb": lambda error: errors.append(error.code())})

    def refused() -> bool:
        with pytest.raises(KafkaException):
            stranger.list_topics(timeout=5)
        stranger.poll(0)
        return KafkaError._AUTHENTICATION in errors

    wait_until(refused, 120, "the refusal")


def test_records_are_read_back_from_outside(login: dict[str, str]) -> None:
    acked, sender = Acked(), producer(login)
    with stage(f"{RECORDS_BEFORE} records there and back"):
        for number in range(RECORDS_BEFORE):
            sender.produce(TOPIC, b"before %d" % number, partition=0, on_delivery=acked)
        assert sender.flush(120) == 0
        assert len(acked.values) == RECORDS_BEFORE
        assert read_all(login) == acked.values


def test_what_was_acked_outlives_a_power_cut(board: Board, login: dict[str, str]) -> None:
    before, acked, sender = read_all(login), Acked(), producer(login)
    for number in itertools.count():
        with contextlib.suppress(BufferError):  # the queue is full: poll makes room
            sender.produce(TOPIC, b"load %d" % number, partition=0, on_delivery=acked)
        sender.poll(0)
        if len(acked.values) >= ACKED_BEFORE_CUT and len(sender) > 0:
            board.cut_power()  # in the middle of it: some are on their way
            break
    sender.poll(0)
    sender.purge()
    assert sender.flush(60) == 0
    with stage("second boot to the login"):
        board.start()
        board.wait_for_login(LOGIN_S)
    with stage("second boot to the broker"):
        wait_until(lambda: broker_answers(login), LOGIN_S, "the broker after the power cut", poll_s=1)
    found = read_all(login)
    assert before.items() <= found.items()
    assert acked.values.items() <= found.items()
    assert board.ssh("hostname").strip() == HOST


def broker_answers(login: dict[str, str]) -> bool:
    try:
        return TOPIC in producer(login).list_topics(timeout=20).topics
    except KafkaException:
        return False
