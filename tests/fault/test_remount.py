"""The data directory is unmounted and mounted again in one boot: that counts as a cut, and a kill does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.storage.files.filesystem import mount_of
from tests.support.kafka_reading import create_topic, read_topic
from tests.support.processes import EdgeBroker, wait_until

pytestmark = pytest.mark.root
DEVICE_BYTES = 64 << 20


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command} failed: {done.stderr.strip()}"
    return done.stdout.strip()


@pytest.fixture
def card(tmp_path: Path):
    """An ext4 of its own, mounted; `again()` unmounts it and mounts it.

    A process that takes a mount namespace of its own has a copy of the mount, and the file system stays as long as that
    process does: whoever mounts it again meanwhile has the same one, which lost nothing.
    """
    image, mountpoint = tmp_path / "card.img", tmp_path / "card"
    mountpoint.mkdir()
    with image.open("wb") as file:
        file.truncate(DEVICE_BYTES)
    run("mkfs.ext4", "-q", image)
    device = Path(run("losetup", "--find", "--show", image))
    alive = Path("/sys/fs/ext4", device.name)
    run("mount", device, mountpoint)

    def again() -> None:
        run("umount", mountpoint)
        wait_until(lambda: not alive.exists(), 60, f"no mount namespace holds {device} any more")
        run("mount", device, mountpoint)

    yield mountpoint, again
    subprocess.run(["umount", "--lazy", str(mountpoint)], check=True)
    subprocess.run(["losetup", "--detach", str(device)], check=True)


def test_the_word_is_another_after_each_mount_and_the_same_in_every_namespace(card) -> None:
    mountpoint, again = card
    code = "import sys; from edge_broker.storage.files.filesystem import mount_of; print(mount_of(sys.argv[1]))"
    words = []
    for _ in range(4):
        words.append(mount_of(str(mountpoint)))
        for _ in range(2):
            assert run("unshare", "--mount", sys.executable, "-c", code, mountpoint) == words[-1]
        again()
    assert len(set(words)) == 4


def test_a_remount_is_a_cut_and_a_kill_is_none(card, tmp_path: Path) -> None:
    mountpoint, again = card
    with EdgeBroker(tmp_path, data_dir=mountpoint / "data") as broker:
        create_topic(broker.bootstrap, "t")
        for remounted in (False, True, False):
            told = len(losses(broker))
            send_acks_1(broker)
            broker.kill()
            if remounted:
                again()
            broker.start()
            new = losses(broker)[told:]
            assert [(one["cause"], one["topic"], one["last_offset"]) for one in new] == [
                ("unsynced_cut", "t", None)
            ] * remounted


def losses(broker: EdgeBroker) -> list[dict[str, object]]:
    return [json.loads(read.value or b"") for read in read_topic(broker.bootstrap, LEDGER_TOPIC)]


def send_acks_1(broker: EdgeBroker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": 1})
    for number in range(20):
        producer.produce("t", b"%d" % number)
    assert producer.flush(30) == 0
