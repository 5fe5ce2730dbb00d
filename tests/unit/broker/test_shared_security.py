"""Users and ACLs of a cluster: changed on any board they hold on all, and what is not sound lets nobody in."""

from __future__ import annotations

import errno
import random

import pytest

from edge_broker.broker.health import health_notes, health_problem
from edge_broker.broker.state.cluster_security import TRIES_MAX
from edge_broker.cluster.znodes.znode_codec import FORMAT, SECURITY, SECURITY_STATE
from edge_broker.cluster.znodes.zookeeper import Create, Delete, Get, Node, SetData
from edge_broker.configuration.config import STANDARD_AUTHORIZER
from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import ALTER_USER_SCRAM_CREDENTIALS, CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS
from edge_broker.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from edge_broker.protocol.messages.create_acls import CreateAclsRequest
from edge_broker.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from edge_broker.protocol.messages.describe_acls import DescribeAclsRequest
from edge_broker.security.acls import AclBinding, Operation, PatternType, Permission, ResourceType
from edge_broker.security.scram import ScramCredential
from edge_broker.security.state import OWN, WantedSecurity, decode_znode, encode_znode
from edge_broker.storage.metadata.security_store import NAME, SecurityStore
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.thread_checks import running_in
from tests.support.acls import ANY_AT_ALL, creation, described
from tests.support.in_cluster import InCluster
from tests.unit.broker.test_scram_credentials import deletion, upsertion

CREDENTIAL = ScramCredential(b"salt", 4096, b"s" * 32, b"k" * 32)
READ = AclBinding(ResourceType.TOPIC, "t", PatternType.LITERAL, "User:a", "*", Operation.READ, Permission.ALLOW)
WRITE = READ._replace(operation=Operation.WRITE)
EVERYBODY = {"authorizer.class.name": STANDARD_AUTHORIZER, "allow.everyone.if.no.acl.found": True}
SETTINGS = {**EVERYBODY, "super.users": "User:ANONYMOUS"}
NOBODY = AclBinding(
    ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL, "User:*", "*", Operation.ALL, Permission.DENY
)


def with_user(name):
    return lambda state: state.with_user(name, {"SCRAM-SHA-256": CREDENTIAL})


def store_on(disk):
    """As a command opens the file."""
    return SecurityStore.open(disk, "/data", random.Random(9).randbytes)


def disk_with(*edits):
    """The disk of a board that was told these before its first start."""
    disk = SimulatedDisk(1)
    disk.make_directory("/data")
    for edit in edits:
        store_on(disk).change(edit)
    return disk


def alter(cluster, board, *alterations):
    deletions = [one for one in alterations if hasattr(one, "salt") is False]
    request = AlterUserScramCredentialsRequest(
        deletions=deletions, upsertions=[one for one in alterations if one not in deletions]
    )
    results = cluster.ask(board, ALTER_USER_SCRAM_CREDENTIALS, request).results
    return [one.error_code for one in results]


def create(cluster, board, *acls):
    results = cluster.ask(board, CREATE_ACLS, CreateAclsRequest(creations=[creation(acl) for acl in acls])).results
    return [one.error_code for one in results]


def acls_of(cluster, board):
    return described(cluster.ask(board, DESCRIBE_ACLS, DescribeAclsRequest(**ANY_AT_ALL)).resources)


def states(cluster):
    return [board.broker.security.state for board in cluster.boards.values() if board.alive]


def users(cluster):
    """What each board has, which is the same."""
    found = [set(state.users) for state in states(cluster)]
    assert all(each == found[0] for each in found), found
    return found[0]


def node(cluster):
    return cluster.ensemble.servers[0].tree.read(Get(SECURITY_STATE))


def write(cluster, *requests):
    """As whoever has the password does by hand."""
    for request in requests:
        cluster.ensemble.decide(request, 0)
    cluster.settle()


def look(cluster, board):
    site = cluster.boards[board].site
    site.dispatcher.start(site.broker.security.check_file)
    cluster.settle()


def copy_of(cluster, board):
    return store_on(cluster.boards[board].site.disk).state


@pytest.fixture
def cluster():
    return InCluster(3, SETTINGS, shares_security=True)


def test_a_change_on_one_board_holds_on_all_and_lies_on_their_disks(cluster):
    assert alter(cluster, 1, upsertion("a")) == [0]
    assert "a" in cluster.boards[1].broker.security.state.users
    assert create(cluster, 2, READ) == [0]
    assert acls_of(cluster, 2) == {READ}
    cluster.settle()
    assert users(cluster) == {"a"}
    assert [acls_of(cluster, board) for board in (1, 2, 3)] == [{READ}] * 3
    generation = decode_znode(node(cluster).data).generation
    assert generation == 2
    for board in (1, 2, 3):
        copy = copy_of(cluster, board)
        assert (copy.generation, set(copy.users), copy.acls) == (2, {"a"}, {READ})
        assert copy.secret == states(cluster)[0].secret


def test_an_answer_comes_once_the_copy_of_that_board_is_synced(cluster):
    assert alter(cluster, 1, upsertion("a")) == [0]
    cluster.boards[1].stop()
    cluster.boards[1].site.disk.crash()
    assert set(copy_of(cluster, 1).users) == {"a"}


def test_what_is_deleted_is_told_by_any_board_and_gone_on_all(cluster):
    assert create(cluster, 1, READ, WRITE) == [0, 0]
    cluster.settle()
    meant = DeleteAclsFilter(**{**ANY_AT_ALL, "operation": Operation.READ})
    (result,) = cluster.ask(3, DELETE_ACLS, DeleteAclsRequest(filters=[meant])).filter_results
    assert len(result.matching_acls) == 1
    cluster.settle()
    assert [acls_of(cluster, board) for board in (1, 2, 3)] == [{WRITE}] * 3


def test_a_removed_user_s_sessions_end_on_every_board(cluster):
    alter(cluster, 1, upsertion("a"), upsertion("b"))
    cluster.settle()
    marks = states(cluster)[2].marks
    ended = []
    for board in cluster.boards.values():
        board.site.dispatcher.logins.end = ended.append
        board.site.dispatcher._appliers[13] = ended.append
    assert alter(cluster, 2, deletion("a")) == [0]
    cluster.settle()
    assert ended == [frozenset({"a"})] * 3
    assert users(cluster) == {"b"}
    assert alter(cluster, 3, upsertion("a")) == [0]
    cluster.settle()
    assert states(cluster)[0].marks["a"] != marks["a"]


def test_who_is_not_there_cannot_be_removed(cluster):
    assert alter(cluster, 2, deletion("a")) == [ErrorCode.RESOURCE_NOT_FOUND]


def test_boards_that_change_at_once_lose_nothing(cluster):
    clients = {}
    for board in (1, 2, 3):
        for number in range(3):
            client = cluster.boards[board].site.client()
            request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion(f"u{board}{number}")])
            client.send(ALTER_USER_SCRAM_CREDENTIALS, request)
            clients[client] = f"u{board}{number}"
    answered = {}

    def all_answered():
        for client, name in clients.items():
            for answer in client.answers():
                answered[name] = answer.results[0].error_code
        return len(answered) == len(clients)

    cluster.pass_until(all_answered)
    cluster.settle()
    assert TRIES_MAX >= 3, "as many as there are others"
    assert users(cluster) >= {name for name, code in answered.items() if code == 0}
    assert sum(code == 0 for code in answered.values()) == len(clients)


def test_a_change_whose_answer_is_lost_is_told_truly(cluster):
    ensemble, board = cluster.ensemble, cluster.boards[1]
    commit = ensemble.commit
    lost = []

    def commit_and_break(steps):
        commit(steps)
        if any(step.path == SECURITY_STATE for step in steps) and not lost:
            lost.append(True)
            ensemble.servers[0].drop_connections()

    ensemble.commit = commit_and_break
    assert alter(cluster, 1, upsertion("a")) == [0]
    assert lost
    cluster.settle()
    assert users(cluster) == {"a"}
    assert decode_znode(node(cluster).data).generation == 1
    assert board.alive


def test_without_zookeeper_a_board_starts_and_serves_with_the_rights_it_knew(cluster):
    alter(cluster, 1, upsertion("a"))
    create(cluster, 1, READ)
    cluster.settle()
    cluster.ensemble.cut(0)
    board = cluster.restart(2)
    state = board.broker.security.state
    assert (set(state.users), state.acls, state.damage) == ({"a"}, {READ}, "")
    assert alter(cluster, 2, upsertion("b")) == [ErrorCode.REQUEST_TIMED_OUT]
    cluster.ensemble.mend(0)
    cluster.settle()
    assert users(cluster) >= {"a"}


def test_what_was_changed_while_a_board_was_away_holds_there_when_it_is_back(cluster):
    alter(cluster, 1, upsertion("a"), upsertion("b"))
    cluster.settle()
    cluster.boards[3].stop()
    assert alter(cluster, 1, deletion("a")) == [0]
    cluster.restart(3)
    cluster.settle()
    assert users(cluster) == {"b"}


# what boards had before


def test_what_the_first_board_had_becomes_the_cluster_s():
    disks = {2: disk_with(with_user("a"), lambda state: state.with_acls(frozenset({READ})))}
    cluster = InCluster(3, SETTINGS, shares_security=True, disks=disks)
    assert users(cluster) == {"a"}
    assert all(state.acls == {READ} for state in states(cluster))
    assert copy_of(cluster, 2).generation == copy_of(cluster, 1).generation == 1
    assert not cluster.boards[2].notes


def test_what_a_later_board_had_is_set_aside_and_told():
    cluster = InCluster(
        2, SETTINGS, shares_security=True, disks={1: disk_with(with_user("a")), 2: disk_with(with_user("b"))}
    )
    (kept,) = users(cluster)
    loser = cluster.boards[2 if kept == "a" else 1]
    (note,) = loser.notes
    assert note.startswith("1 user and 0 ACLs that this board had for itself have no effect")
    assert "/data/security.aside.1" in note
    assert ({"a", "b"} - {kept}).pop().encode() in loser.site.disk.content("/data/security.aside.1")
    assert loser.site.disk.mode("/data/security.aside.1") & 0o077 == 0


def test_a_board_that_had_the_same_has_nothing_set_aside():
    same = disk_with(with_user("a"))
    other = disk_with(with_user("a"))
    cluster = InCluster(2, SETTINGS, shares_security=True, disks={1: same, 2: other})
    assert users(cluster) == {"a"}
    assert not any(board.notes for board in cluster.boards.values())


# commands beside


def test_what_a_command_wants_beside_a_board_holds_on_all(cluster, capsys):
    alter(cluster, 1, upsertion("b"))
    cluster.settle()
    store = store_on(cluster.boards[2].site.disk)
    store.change(with_user("a"))
    store.change(lambda state: state.with_user("b", {}).with_acls(frozenset({READ})))
    assert set(store.state.users) == {"b"}, "it is only wanted"
    look(cluster, 2)
    assert users(cluster) == {"a"}
    assert all(state.acls == {READ} for state in states(cluster))
    assert copy_of(cluster, 2).wanted == WantedSecurity()
    said = capsys.readouterr().err
    assert "credential-set by=command user=a" in said
    assert "credential-removed by=command user=b" in said
    assert "credential-removed by=another broker user=b" in said or 'by="another broker"' in said


def test_each_board_s_security_log_names_a_change_and_that_of_the_asked_one_who_made_it(cluster):
    """Before ZooKeeper gets it: a board that dies then has it in its own log."""
    alter(cluster, 1, upsertion("b"))
    cluster.settle()
    asked, other = (cluster.boards[board].site.disk.content("/data/security-changes.log").decode() for board in (1, 2))
    sent, made = asked.splitlines()[-2:]
    assert "change-sent principal=" in sent
    assert "users=1 generation=" in sent
    assert "credential-set principal=" in made
    assert "user=b" in made
    assert made.rpartition(" ")[2] == sent.rpartition(" ")[2]
    assert 'credential-set by="another broker" user=b' in other
    assert other.splitlines()[-1].endswith(made.rpartition(" ")[2])


def test_a_copy_that_cannot_be_written_has_its_change_named_once(cluster, capsys):
    """However often the board tries to write it; and its security log has the change meanwhile."""
    alter(cluster, 1, upsertion("a"))
    cluster.settle()
    disk = cluster.boards[2].site.disk

    def fault(kind, path, size):
        if kind == "rename" and path.endswith("/security"):
            raise OSError(errno.EIO, "Input/output error", path)
        return size

    disk.fault = fault
    alter(cluster, 1, upsertion("b"))
    cluster.settle()
    for _ in range(3):
        look(cluster, 2)
    disk.fault = None
    look(cluster, 2)
    assert set(copy_of(cluster, 2).users) == {"a", "b"}
    assert disk.content("/data/security-changes.log").decode().count("user=b") == 1


def test_what_a_command_wants_outlives_the_board_and_an_outage(cluster):
    cluster.boards[2].stop()
    store_on(cluster.boards[2].site.disk).change(with_user("a"))
    alter(cluster, 1, upsertion("b"))
    cluster.restart(2)
    cluster.settle()
    assert users(cluster) == {"b"}
    assert set(copy_of(cluster, 2).wanted.users) == {"a"}
    look(cluster, 2)
    assert users(cluster) == {"a", "b"}


def test_what_a_command_wants_and_cannot_be_is_told_once_until_something_changes(cluster, capsys):
    many = frozenset(READ._replace(name=f"{number:0>240}") for number in range(3400))
    store_on(cluster.boards[2].site.disk).change(lambda state: state.with_acls(many))
    for _ in range(3):
        look(cluster, 2)
    assert capsys.readouterr().err.count("is not done yet: users and ACLs of a cluster would take") == 1
    assert any("is not done yet" in note for note in health_notes(cluster.boards[2].broker))
    store_on(cluster.boards[2].site.disk).change(lambda state: state.with_acls(frozenset({READ})))
    look(cluster, 2)
    assert all(state.acls == {READ} for state in states(cluster))
    assert not any("is not done yet" in note for note in health_notes(cluster.boards[2].broker))


# what is not sound


def assert_closed(cluster, why):
    for board in cluster.boards.values():
        state = board.broker.security.state
        assert why in state.damage
        assert not state.users
        assert not state.acls
        assert board.broker.rights.authorizer is not None
        assert not board.broker.rights.authorizer.allows("User:x", "*", Operation.READ, ResourceType.TOPIC, "t")
        assert why in str(health_problem(board.broker))


@pytest.mark.parametrize("data", [b"", b"?", b"{}", b'{"version":2}', b'{"generation":9,"version":1}'])
def test_a_damaged_znode_lets_nobody_in_and_nothing_be_changed(cluster, data):
    alter(cluster, 1, upsertion("a"))
    cluster.settle()
    sound = node(cluster)
    assert isinstance(sound, Node)
    write(cluster, SetData(SECURITY_STATE, data, -1))
    assert_closed(cluster, "the znode /security/state")
    assert alter(cluster, 1, upsertion("b")) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert create(cluster, 2, READ) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert set(copy_of(cluster, 1).users) == {"a"}
    write(cluster, SetData(SECURITY_STATE, sound.data, -1))
    assert users(cluster) == {"a"}
    assert alter(cluster, 1, upsertion("b")) == [0]


def test_a_znode_that_is_gone_lets_nobody_in_also_on_a_board_that_is_new(cluster):
    create(cluster, 1, READ)
    cluster.settle()
    write(cluster, Delete(SECURITY_STATE), Delete(SECURITY))
    cluster.add(4)
    cluster.settle()
    assert_closed(cluster, "/security/state is gone")
    advised = "`edge-broker user restore --data-dir /data` on one board"  # test_one_board_s_copy_is_restored_by_command
    assert advised in str(health_problem(cluster.boards[1].broker))


def test_an_old_copy_of_the_znode_lets_nobody_in(cluster):
    alter(cluster, 1, upsertion("a"))
    cluster.settle()
    old = node(cluster).data
    alter(cluster, 1, deletion("a"))
    cluster.settle()
    write(cluster, SetData(SECURITY_STATE, old, -1))
    assert_closed(cluster, "is older (1) than what this broker has seen (2)")


def test_what_was_put_there_before_the_cluster_is_not_the_cluster_s():
    cluster = InCluster(1, SETTINGS)
    planted = encode_znode(with_user("evil")(states(cluster)[0]._replace(secret=b"x" * 32, generation=1)))
    write(cluster, Create(SECURITY), Create(SECURITY_STATE, planted))
    cluster.shares_security = True
    cluster.restart(1)
    cluster.settle()
    assert_closed(cluster, "was there before the cluster made it")


@pytest.mark.parametrize("lost", [True, False])
def test_one_board_s_copy_is_restored_by_command(cluster, lost):
    alter(cluster, 1, upsertion("a"))
    create(cluster, 1, READ)
    cluster.settle()
    write(cluster, *([Delete(SECURITY_STATE)] if lost else [SetData(SECURITY_STATE, b"?", -1)]))
    store_on(cluster.boards[3].site.disk).want_restored()
    look(cluster, 3)
    assert users(cluster) == {"a"}
    assert all(state.acls == {READ} for state in states(cluster))
    assert copy_of(cluster, 3).wanted == WantedSecurity()
    assert alter(cluster, 2, upsertion("b")) == [0]
    cluster.settle()
    assert users(cluster) == {"a", "b"}


def test_the_parent_of_the_znode_outlives_it_so_that_nobody_else_can_take_its_place(cluster):
    assert cluster.ensemble.decide(Delete(SECURITY), 0).name == "NOT_EMPTY"
    assert b'"security":true' in cluster.ensemble.servers[0].tree.read(Get(FORMAT)).data


# bounds, and disks that refuse


def test_more_than_a_znode_holds_is_refused_with_a_sentence(cluster):
    many = [READ._replace(name=f"{number:0>240}") for number in range(3400)]
    codes = set()
    for begin in range(0, len(many), 850):
        codes |= set(create(cluster, 1, *many[begin : begin + 850]))
    assert codes == {0, ErrorCode.POLICY_VIOLATION}
    cluster.settle()
    assert len(states(cluster)[1].acls) == 2550
    assert not states(cluster)[1].damage


def test_a_copy_that_cannot_be_written_is_told_and_written_later(cluster):
    disk = cluster.boards[2].site.disk

    def full(kind, path, size):
        if kind == "write" and path.startswith("/data/."):
            raise OSError(errno.ENOSPC, "No space left on device")

    disk.fault = full
    alter(cluster, 1, upsertion("a"))
    cluster.settle()
    assert users(cluster) == {"a"}
    assert any("could not be written" in note for note in health_notes(cluster.boards[2].broker))
    disk.fault = None
    look(cluster, 2)
    assert not any("could not be written" in note for note in health_notes(cluster.boards[2].broker))
    assert set(copy_of(cluster, 2).users) == {"a"}


def test_a_file_of_a_board_alone_is_as_it_was():
    disk = disk_with(with_user("a"))
    assert disk.content(f"/data/{NAME}").startswith(b"drupelet security 1 ")
    assert b"generation" not in disk.content(f"/data/{NAME}")
    assert store_on(disk).state.generation == OWN
    with running_in("files"):
        store_on(disk).keep_copy(store_on(disk).state._replace(generation=4), store_on(disk).state, WantedSecurity())
    assert disk.content(f"/data/{NAME}").startswith(b"drupelet security 2 ")
