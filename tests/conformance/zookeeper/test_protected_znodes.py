"""With a user in ZooKeeper the znodes of a cluster are the brokers' alone: a stranger changes none, and reads none."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoAuthError, NodeExistsError, NotEmptyError
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from edge_broker.cluster.znodes.znode_codec import (
    CONTROLLER,
    DELETED,
    FORMAT,
    OWNERSHIP,
    PRODUCER_IDS,
    encode_controller,
    encode_producer_ids,
)
from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import INIT_PRODUCER_ID
from edge_broker.protocol.messages.init_producer_id import InitProducerIdRequest
from edge_broker.protocol.record_batch import build_batch
from tests.support.kafka_reading import create_topic
from tests.support.processes import EdgeBroker
from tests.support.raw_client import connected
from tests.support.waiting import CALL_S, wait_until
from tests.support.zookeeper import ZooKeeperEnsemble

PASSWORD = "what only the boards know"
OURS = make_digest_acl("boards", PASSWORD, all=True)
SESSION_MS = 2_000


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    with ZooKeeperEnsemble(tmp_path_factory.mktemp("ensemble")) as ensemble:
        yield ensemble


@contextmanager
def client(ensemble: ZooKeeperEnsemble, chroot: str, password: str = "") -> Iterator[KazooClient]:
    """A client without the boards' user, or with it."""
    found = KazooClient(ensemble.connect, timeout=10, auth_data=[("digest", f"boards:{password}")] if password else [])
    found.start(CALL_S)
    try:
        if chroot and not found.exists(chroot):
            found.create(chroot)
        found.chroot = chroot
        yield found
    finally:
        found.stop()
        found.close()


def digest_file(directory: Path, *passwords: str) -> str:
    path = directory / "zookeeper.digest"
    path.touch(0o600)
    path.write_text("".join(f"boards:{password}\n" for password in passwords or (PASSWORD,)))
    return str(path)


def board(directory: Path, ensemble: ZooKeeperEnsemble, chroot: str, digest: str, number: int = 1) -> EdgeBroker:
    settings: dict[str, str | int] = {
        "zookeeper.connect": ensemble.connect + chroot,
        "broker.id": number,
        "zookeeper.session.timeout.ms": SESSION_MS,
    }
    if digest:
        settings["edge.zookeeper.digest.file"] = digest
    return EdgeBroker(directory, name=f"board-{number}", settings=settings)


def tree(zookeeper: KazooClient, path: str = "/") -> list[str]:
    if path == "/":
        zookeeper.sync(path)
    names = zookeeper.get_children(path)
    below = [each for name in names for each in tree(zookeeper, f"{path.rstrip('/')}/{name}")]
    return [path, *below]


def foreign(zookeeper: KazooClient, password: str = PASSWORD) -> list[str]:
    """The znodes whose ACL is not exactly the brokers'."""
    acl = [make_digest_acl("boards", password, all=True)]
    return [path for path in tree(zookeeper) if zookeeper.get_acls(path)[0] != acl]


def refused(call: object, *arguments: object) -> type[KazooException] | None:
    try:
        call(*arguments)  # type: ignore[operator]
    except KazooException as error:
        return type(error)
    return None


def check_a_stranger_changes_nothing(owner: KazooClient, stranger: KazooClient) -> None:
    paths = tree(owner)
    stranger.sync("/")
    assert {FORMAT, OWNERSHIP, PRODUCER_IDS, CONTROLLER, DELETED, "/brokers/1", "/topics/t/0"} <= set(paths)
    for path in paths:
        below = f"{path.rstrip('/')}/forged"
        assert refused(stranger.create, below, b"x") is NoAuthError, path
        assert refused(stranger.set, path, b"x") is NoAuthError, path
        assert refused(stranger.get, path) is NoAuthError, path
        assert refused(stranger.get_children, path) is NoAuthError, path
        assert refused(stranger.set_acls, path, OPEN_ACL_UNSAFE) is NoAuthError, path
        if path != "/":
            assert refused(stranger.delete, path) is NoAuthError, path


@pytest.mark.timeout(120)
def test_a_stranger_removes_and_forges_nothing(ensemble: ZooKeeperEnsemble, tmp_path: Path) -> None:
    """Also the chroot: its own parent is everybody's, and it has children."""
    chroot = "/site"
    broker = board(tmp_path, ensemble, chroot, digest_file(tmp_path))
    with client(ensemble, chroot) as stranger, client(ensemble, chroot, PASSWORD) as owner, broker:
        create_topic(broker.bootstrap, "t")
        take_a_producer_id(broker, owner)
        check_a_stranger_changes_nothing(owner, stranger)
        assert foreign(owner) == []
        stranger.chroot = ""
        assert refused(stranger.delete, chroot) is NotEmptyError
        assert refused(stranger.create, chroot, b"") is NodeExistsError


def take_a_producer_id(broker: EdgeBroker, owner: KazooClient) -> None:
    def taken() -> bool:
        with connected(broker.bootstrap, 30) as asking:
            asking.ask(INIT_PRODUCER_ID, InitProducerIdRequest(transactional_id=None))
        return owner.exists(PRODUCER_IDS) is not None

    wait_until(taken, 30, "a producer id is given")


@pytest.mark.timeout(120)
def test_an_upgrade_takes_over_what_is_open_and_names_it(ensemble: ZooKeeperEnsemble, tmp_path: Path) -> None:
    """As the earlier release leaves it: the parent is everybody's, and a stranger has forged two znodes."""
    chroot = "/upgraded"
    broker = board(tmp_path, ensemble, chroot, digest_file(tmp_path))
    with client(ensemble, chroot) as stranger, client(ensemble, chroot, PASSWORD) as owner, broker:
        create_topic(broker.bootstrap, "t")
        take_a_producer_id(broker, owner)
        broker.stop()
        owner.delete(OWNERSHIP)
        owner.set_acls("/", OPEN_ACL_UNSAFE)
        stranger.sync("/")
        stranger.delete(PRODUCER_IDS)
        stranger.create(PRODUCER_IDS, encode_producer_ids(0))
        stranger.create(CONTROLLER, encode_controller(9))
        broker.start()
        assert foreign(owner) == []
        log = broker.log_path.read_text()
        assert 'znodes_taken_over count=2 names="/controller, /producer-ids"' in log
        assert "parent_znode_protected path=/upgraded" in log
        check_a_stranger_changes_nothing(owner, stranger)


@pytest.mark.night
@pytest.mark.timeout(120)
def test_a_cluster_without_a_user_gets_one(ensemble: ZooKeeperEnsemble, tmp_path: Path) -> None:
    """Not while another broker runs without: that one could not go on."""
    chroot = "/open"
    with client(ensemble, chroot), client(ensemble, chroot, PASSWORD) as owner:
        one, two = (board(tmp_path, ensemble, chroot, "", number) for number in (1, 2))
        with one, two:
            create_topic(one.bootstrap, "t")
            one.stop()
            one.command += ["--set", f"edge.zookeeper.digest.file={digest_file(tmp_path)}"]
            one.spawn()
            assert one.wait(30) != 0
            sentence = "broker 2 is registered without the user of edge.zookeeper.digest.file"
            assert sentence in one.log_path.read_text()
            assert len(foreign(owner)) == len(tree(owner))
            two.stop()
            one.start()
            two.command += ["--set", f"edge.zookeeper.digest.file={digest_file(tmp_path)}"]
            two.start()
            assert foreign(owner) == []


def health_of(broker: EdgeBroker) -> str:
    """The text of /health, also where it is a problem."""
    try:
        with urllib.request.urlopen(broker.metrics_url.replace("/metrics", "/health"), timeout=CALL_S) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return error.read().decode()


def producer_id(broker: EdgeBroker) -> int:
    with connected(broker.bootstrap, 30) as asking:
        return asking.ask(INIT_PRODUCER_ID, InitProducerIdRequest(transactional_id=None)).producer_id


def is_written(broker: EdgeBroker) -> bool:
    batch = build_batch([(None, b"value")], timestamp_ms=1)
    with connected(broker.bootstrap, 30) as writing:
        return writing.produce("t", batch).error_code == ErrorCode.NONE


@pytest.mark.timeout(120)
def test_a_foreign_znode_is_refused_and_named_until_it_is_removed(ensemble: ZooKeeperEnsemble, tmp_path: Path) -> None:
    """Only the brokers' user can create one by now: here it does so, and leaves it open."""
    chroot = "/foreign"
    broker = board(tmp_path, ensemble, chroot, digest_file(tmp_path))
    with client(ensemble, chroot, PASSWORD) as owner, broker:
        create_topic(broker.bootstrap, "t")
        take_a_producer_id(broker, owner)
        broker.stop()
        owner.delete(PRODUCER_IDS)
        owner.create(PRODUCER_IDS, encode_producer_ids(7), acl=OPEN_ACL_UNSAFE)
        owner.create(CONTROLLER, encode_controller(9), acl=OPEN_ACL_UNSAFE)
        broker.start()
        text = "2 znodes (/controller, /producer-ids) are not the brokers' alone, and not believed"
        wait_until(lambda: text in health_of(broker), 30, "health names them", seen=broker.log_tail)
        assert set(foreign(owner)) == {PRODUCER_IDS, CONTROLLER}, "none is taken over again"
        assert f"znode_refused path={PRODUCER_IDS} " in broker.log_path.read_text()
        assert producer_id(broker) == -1
        assert is_written(broker), "the broker goes on with the rest"
        owner.delete(PRODUCER_IDS)
        owner.delete(CONTROLLER)
        wait_until(lambda: producer_id(broker) >= 0, 30, "producers get ids again")
        wait_until(lambda: "not believed" not in health_of(broker), 30, "health names none")
        assert owner.exists(CONTROLLER) is not None


@pytest.mark.timeout(120)
def test_a_topic_that_is_foreign_is_not_served_and_not_deleted(ensemble: ZooKeeperEnsemble, tmp_path: Path) -> None:
    chroot = "/foreign-topic"
    broker = board(tmp_path, ensemble, chroot, digest_file(tmp_path))
    with client(ensemble, chroot, PASSWORD) as owner, broker:
        create_topic(broker.bootstrap, "t")
        wait_until(lambda: is_written(broker), 30, "a record is written")
        owner.set_acls("/topics/t/0", OPEN_ACL_UNSAFE)
        broker.stop()
        broker.start()
        wait_until(lambda: "znode_refused path=/topics/t/0 " in broker.log_path.read_text(), 30, "it is named")
        assert not is_written(broker), "nobody knows who leads it"
        owner.set_acls("/topics/t/0", [OURS])
        owner.set("/topics/t/0", owner.get("/topics/t/0")[0])
        wait_until(lambda: is_written(broker), 30, "it is served again")
        with connected(broker.bootstrap, 30) as reading:
            assert reading.end_offset("t") == 2


@pytest.mark.night
@pytest.mark.timeout(180)
def test_a_user_is_replaced_board_by_board(ensemble: ZooKeeperEnsemble, tmp_path: Path) -> None:
    """CLUSTER.md's drill: each of two boards gets the new user second, then first, then alone; both serve all along."""
    chroot, old, new = "/changing", PASSWORD, "the next one"
    files = [tmp_path / str(number) for number in (1, 2)]
    for each in files:
        each.mkdir()
    boards = [board(tmp_path, ensemble, chroot, digest_file(each, old), at) for at, each in enumerate(files, 1)]
    for each in boards:
        each.command += ["--set", "controlled.shutdown.enable=false", "--set", "default.replication.factor=2"]
    with client(ensemble, chroot), client(ensemble, chroot, old) as former, client(ensemble, chroot, new) as owner:
        both = f"{boards[0].bootstrap},{boards[1].bootstrap}"
        with boards[0], boards[1]:
            create_topic(boards[0].bootstrap, "t")
            for passwords in ((old, new), (new, old), (new,)):
                for number, broker in enumerate(boards):
                    broker.stop()
                    digest_file(files[number], *passwords)
                    broker.start()
                    wait_until(lambda: names_of(both) == {1, 2}, 30, "both know each other")
                if passwords == (old, new):
                    assert foreign(former, old) == []
                    assert "names two users" in health_of(boards[0])
                else:
                    assert foreign(owner, new) == []
            assert refused(former.get, FORMAT) is NoAuthError
            assert "names two users" not in health_of(boards[0])
            refusals = [each.log_path.read_text().count("znode_refused") for each in boards]
            assert refusals == [0, 0]


def names_of(bootstrap: str) -> set[int]:
    """The brokers that each of these brokers knows, as far as they agree."""
    clients = [AdminClient({"bootstrap.servers": each}) for each in bootstrap.split(",")]
    return set.intersection(*(set(each.list_topics(timeout=CALL_S).brokers) for each in clients))


@pytest.mark.timeout(120)
def test_below_a_root_that_is_shared_a_stranger_forges_the_controller_alone(
    ensemble: ZooKeeperEnsemble, tmp_path: Path
) -> None:
    """Another product has znodes below `/`, which so stays everybody's: what can be guarded is, the rest is named."""
    broker = board(tmp_path, ensemble, "", digest_file(tmp_path))
    shared = client(ensemble, "/another-product")
    with shared, client(ensemble, "") as stranger, client(ensemble, "", PASSWORD) as owner, broker:
        create_topic(broker.bootstrap, "t")
        take_a_producer_id(broker, owner)
        assert "another-product" in health_of(broker)
        assert "parent_znode_not_protected path=/ " in broker.log_path.read_text()
        wait_until(lambda: owner.exists(CONTROLLER) is not None, 30, "there is a controller")
        stranger.sync("/")
        for path in (FORMAT, "/brokers", "/topics"):
            assert refused(stranger.delete, path) is NotEmptyError, path
        assert refused(stranger.create, f"{DELETED}/forged", b"") is NoAuthError
        forging = stranger.transaction()
        forging.delete(CONTROLLER)
        forging.create(CONTROLLER, encode_controller(9))
        assert not any(isinstance(each, Exception) for each in forging.commit())
        text = "znode /controller is not the brokers' alone, and not believed"
        wait_until(lambda: text in health_of(broker), 30, "health names it", seen=broker.log_tail)
        owner.delete(CONTROLLER)
        wait_until(lambda: "not believed" not in health_of(broker), 30, "health names it no more")
        wait_until(lambda: owner.exists(CONTROLLER) is not None, 30, "the broker is the controller again")
        assert owner.get_acls(CONTROLLER)[0] == [OURS]
