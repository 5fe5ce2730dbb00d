"""The file of users and ACLs: after a cut at any step the old or the new state, damage is seen, never written over."""

import errno
import os
import random
import stat

import pytest

from edge_broker.errors import ErrorCode, Refusal, StorageFault
from edge_broker.security.acls import AclBinding, Operation, PatternType, Permission, ResourceType
from edge_broker.security.scram import ScramCredential
from edge_broker.security.state import SecurityState, decode, encode
from edge_broker.storage.files.atomic_files import with_head
from edge_broker.storage.files.filesystem import Disk
from edge_broker.storage.metadata.security_store import LOCK_NAME, NAME, SecurityStore
from edge_broker.testing.disk import PowerLoss, SimulatedDisk

CREDENTIAL = ScramCredential(b"salt", 4096, b"s" * 32, b"k" * 32)
ACL = AclBinding(ResourceType.TOPIC, "t", PatternType.LITERAL, "User:a", "*", Operation.READ, Permission.ALLOW)
PATH = f"/data/{NAME}"


def disk_of(seed=1, **kind):
    disk = SimulatedDisk(seed, **kind)
    disk.make_directory("/data")
    disk.sync_directory("/")
    return disk


def opened(fs, data_dir="/data"):
    return SecurityStore.open(fs, data_dir, random.Random(1).randbytes)


def with_user(name):
    return lambda state: state.with_user(name, {"SCRAM-SHA-256": CREDENTIAL})


def with_acl(state):
    return state._replace(acls=state.acls | {ACL})


def held(disk):
    """Who is there after a new start; damage fails."""
    state = opened(disk).state
    assert not state.damage
    return set(state.users), state.acls


def test_a_directory_without_the_file_has_no_users_and_no_acls():
    assert opened(disk_of()).state == SecurityState()


def test_users_and_acls_are_there_again_after_a_start():
    disk = disk_of()
    store = opened(disk)
    store.change(with_user("a"))
    store.change(with_acl)
    assert opened(disk).state == store.state
    assert store.state.users == {"a": {"SCRAM-SHA-256": CREDENTIAL}}
    assert store.state.acls == {ACL}
    assert len(store.state.secret) == 32


def test_the_secret_stays():
    disk = disk_of()
    secret = opened(disk).change(with_user("a")).secret
    assert SecurityStore.open(disk, "/data", random.Random(2).randbytes).change(with_user("b")).secret == secret


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("before", [[], [with_user("a")]], ids=["first", "another"])
def test_a_cut_at_any_step_leaves_the_old_or_the_new_state(before, ordered):
    """`before`: changes that were answered; none of them is ever lost, and after the answer the new one is not."""
    old = ({"a"}, frozenset()) if before else (set(), frozenset())
    new = (old[0] | {"b"}, frozenset())
    for seed in range(20):
        for step in range(1, 100):
            disk = disk_of(seed, ordered=ordered)
            store = opened(disk)
            for edit in before:
                store.change(edit)
            disk.crash_at = disk.steps + step
            try:
                store.change(with_user("b"))
            except PowerLoss:
                disk.crash()
                assert held(disk) in (old, new), (seed, step)
                continue
            disk.crash()
            assert held(disk) == new, seed
            break
        else:
            pytest.fail("a change takes more than 100 steps")


def test_what_a_cut_left_half_made_is_no_hindrance():
    disk = disk_of()
    store = opened(disk)
    disk.crash_at = disk.steps + 4
    with pytest.raises(PowerLoss):
        store.change(with_user("a"))
    disk.kill()
    opened(disk).change(with_user("b"))
    assert "b" in held(disk)[0]


def test_every_flipped_bit_is_seen():
    """The digit of the version apart: a lower one says nothing else."""
    disk = disk_of()
    store = opened(disk)
    store.change(with_user("a"))
    sound = disk.content(PATH)
    for position in range(len(sound)):
        for bit in range(8):
            flipped = bytearray(sound)
            flipped[position] ^= 1 << bit
            disk.put(PATH, bytes(flipped))
            state = opened(disk).state
            assert (state.damage and not state.users) or state == store.state, (position, bit)
            assert state.damage or position == len("drupelet security ")


@pytest.mark.parametrize("content", [b"", b"\x00" * 4096, b"drupelet store 1 00000000\n", b"x" * (17 << 20)])
def test_damage_fails_closed_and_is_never_written_over(content):
    disk = disk_of()
    opened(disk).change(with_user("a"))
    disk.put(PATH, content)
    store = opened(disk)
    assert store.state.damage
    assert not store.state.users
    with pytest.raises(StorageFault, match="damaged"):
        store.change(with_user("b"))
    assert disk.content(PATH) == content


def test_a_file_that_is_gone_is_damage_too():
    disk = disk_of()
    opened(disk).change(with_user("a"))
    disk.remove(PATH)
    assert "is missing" in opened(disk).state.damage
    disk.remove(f"/data/{LOCK_NAME}")
    assert opened(disk).state == SecurityState()


def test_a_disk_that_cannot_be_read_is_damage():
    disk = disk_of()
    opened(disk).change(with_user("a"))

    def fault(kind, path, _size):
        if kind == "read" and path == PATH:
            raise OSError(errno.EIO, "Input/output error", path)

    disk.fault = fault
    assert "Input/output error" in opened(disk).state.damage


@pytest.mark.parametrize("kind", ["create", "write", "datasync", "rename", "sync_directory"])
def test_a_change_that_the_disk_refuses_is_not_shown(kind):
    disk = disk_of()
    store = opened(disk)
    store.change(with_user("a"))
    before = store.state

    def fault(what, path, _size):
        if what == kind and (kind != "sync_directory" or disk.content(PATH) != sound):
            raise OSError(errno.EIO, "Input/output error", path)

    sound = disk.content(PATH)
    disk.fault = fault
    with pytest.raises(StorageFault, match="Input/output error"):
        store.change(with_user("b"))
    assert store.state == before
    assert not store.reread()
    disk.fault = None
    assert set(store.change(with_user("c")).users) >= {"a", "c"}


def test_what_an_edit_refuses_changes_nothing_and_frees_the_lock():
    disk = disk_of()
    store = opened(disk)

    def refuse(_state):
        raise Refusal(ErrorCode.INVALID_REQUEST, "no")

    with pytest.raises(Refusal) as kept:
        store.change(refuse)
    assert not disk.exists(PATH)
    store.change(with_user("a"))
    assert kept.value.message == "no"


def test_what_another_process_changes_is_seen():
    disk = disk_of()
    broker, command = opened(disk), opened(disk)
    assert not broker.reread()
    command.change(with_user("a"))
    assert broker.reread()
    assert set(broker.state.users) == {"a"}
    assert not broker.reread()
    broker.change(with_user("b"))
    assert set(command.change(with_user("c")).users) == {"a", "b", "c"}
    assert broker.reread()


def test_a_file_that_is_put_back_ends_the_damage():
    disk = disk_of()
    broker = opened(disk)
    broker.change(with_user("a"))
    sound = disk.content(PATH)
    disk.put(PATH, b"?")
    assert broker.reread()
    assert broker.state.damage
    disk.put(PATH, sound)
    assert broker.reread()
    assert set(broker.state.users) == {"a"}


def test_whoever_holds_the_lock_is_waited_for():
    disk = disk_of()
    locks = [disk.lock(f"/data/{LOCK_NAME}")]
    store = SecurityStore.open(disk, "/data", random.Random(1).randbytes, locks.clear)
    store.change(with_user("a"))
    locks = [disk.lock(f"/data/{LOCK_NAME}")]
    with pytest.raises(StorageFault, match="another process"):
        opened(disk).change(with_user("b"))


def test_only_the_owner_may_read_it(tmp_path):
    """On the real disk; whatever lay under the temporary name is not written through."""
    store = opened(Disk(), str(tmp_path))
    store.change(with_user("a"))
    for name in (NAME, LOCK_NAME):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert set(opened(Disk(), str(tmp_path)).state.users) == {"a"}
    assert (tmp_path / LOCK_NAME).read_text().startswith("there is a file")


def test_who_may_read_and_write_it_is_looked_at(tmp_path):
    """On the real disk, in a store that is open, too."""
    broker, path = opened(Disk(), str(tmp_path)), tmp_path / NAME
    broker.change(with_user("a"))
    for mode, exposed, damage in (
        (0o644, True, False),
        (0o640, True, False),
        (0o620, False, True),
        (0o602, False, True),
    ):
        path.chmod(mode)
        broker.reread()
        assert broker.state == opened(Disk(), str(tmp_path)).state
        assert (bool(broker.state.exposed), bool(broker.state.damage)) == (exposed, damage), oct(mode)
        assert set(broker.state.users) == (set() if damage else {"a"})
    path.chmod(0o644)
    broker.change(with_user("b"))
    assert not broker.state.exposed
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_of_an_older_version_has_no_marks_and_a_user_keeps_his():
    disk = disk_of()
    credentials = {"SCRAM-SHA-256": CREDENTIAL}
    document = encode(SecurityState({"a": credentials, "b": credentials}, secret=b"x" * 32))
    disk.put(PATH, with_head(NAME, 1, document.replace(b'"marks": {},', b"")))
    store = opened(disk)
    assert store.state.marks == {}
    before = store.state
    marks = store.change(with_user("c")).marks
    assert set(marks) == {"c"}
    assert not before.removed_users(store.state)
    assert store.change(with_user("a")).marks == marks
    assert store.change(lambda state: state.with_user("c", {})).marks == {}
    assert store.change(with_user("c")).marks["c"] != marks["c"]


def test_no_link_is_followed(tmp_path):
    (tmp_path / "data").mkdir()
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "data" / LOCK_NAME).symlink_to(victim)
    with pytest.raises(StorageFault):
        opened(Disk(), str(tmp_path / "data")).change(with_user("a"))
    assert victim.read_text() == "mine"


def test_what_root_makes_belongs_to_the_directory_s_owner(tmp_path, monkeypatch):
    given = {}
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "fchown", lambda file, *owner: given.update({os.fstat(file).st_ino: owner}))
    opened(Disk(), str(tmp_path)).change(with_user("a"))
    owner = tmp_path.stat()
    for name in (NAME, LOCK_NAME):
        assert given[(tmp_path / name).stat().st_ino] == (owner.st_uid, owner.st_gid)


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"[]",
        b"{}",
        b'{"secret": "", "users": {}, "acls": []}',
        b'{"secret": 1, "users": {}, "acls": []}',
        b'{"secret": "%s", "users": [], "acls": []}' % (b"A" * 43 + b"="),
        b'{"secret": "%s", "users": {"a": {"MD5": {}}}, "acls": []}' % (b"A" * 43 + b"="),
        b'{"secret": "%s", "users": {}, "acls": [[1]]}' % (b"A" * 43 + b"="),
        b'{"secret": "%s", "users": {}, "marks": [], "acls": []}' % (b"A" * 43 + b"="),
    ],
)
def test_what_is_no_state_is_refused(document):
    with pytest.raises(ValueError):  # noqa: PT011 - each has a sentence of its own
        decode(document)


def test_a_state_is_what_its_text_says():
    state = SecurityState({"b": {}, "a": {"SCRAM-SHA-256": CREDENTIAL}}, frozenset({ACL}), "", b"x" * 32, {"a": "1f"})
    assert decode(encode(state)) == state
