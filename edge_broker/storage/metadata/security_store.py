"""Users and ACLs on disk: one file of the data directory that no API shows, replaced whole.

| file | content |
|---|---|
| `security` | a file of state of kind `security`: the first line with version and CRC, then JSON (security/state.py) |
| `security.lock` | held while a process changes the other; with a line in it once there was one, which must stay |

Both belong to the owner of the directory, not to their maker, and only the owner reads them. A change is on the disk
before it is visible. Several processes may change it (a running broker, `edge-broker user`): each reads it under the
lock.
The security log (security_log.py) names each right and user of a change, synced, before the change is on the disk.

| found | state |
|---|---|
| no file, and there never was one | no users, no ACLs |
| a file whose CRC and fields are right | what it says |
| a file that others may write | `damage`: who wrote it gave himself what rights he liked |
| a file that others may read | what it says, and `exposed` |
| a copy of a cluster's, with a generation | what the cluster's were, and what commands want changed there |
| anything else | `damage`: no users, no ACLs, and no change until the file is repaired |

Does not contain: who may log in or do what, clocks, waiting.
"""

from __future__ import annotations

import stat
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from drupelet.printable import shell_path
from edge_broker.errors import Refusal, StorageFault
from edge_broker.security.changes import ANOTHER_BROKER, COMMAND, Author, Event, change_events
from edge_broker.security.state import OWN, SECRET_BYTES, SecurityState, WantedSecurity, decode, difference, encode
from edge_broker.storage.files.atomic_files import (
    STATE_BYTES_MAX,
    checked_body,
    fault_of,
    read_whole,
    replace,
    with_head,
    write_all,
)
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.storage.files.filesystem import File, FileSystem
    from edge_broker.storage.metadata.security_log import SecurityLog

NAME = "security"
LOCK_NAME = "security.lock"
ASIDE_NAME = "security.aside"
VERSION = 1
VERSION_OF_COPY = 2
ASIDE_MAX = 100
LOCK_TRIES = 100
MARK_BYTES = 8
_WRITABLE = "see that what stands in it is yours, or restore it from a copy, then"
_READABLE = ", and give the users new passwords if somebody may have read it, as weak ones can be guessed from it"
_MADE = b"there is a file named security beside this one; without it nobody gets in\n"


class SecurityStore:
    """The file; `state` is what it said when this process last read or changed it, one value at a time."""

    def __init__(
        self,
        fs: FileSystem,
        data_dir: str,
        new_bytes: Callable[[int], bytes],
        pause: Callable[[], None],
        log: SecurityLog | None = None,
        author: Author = COMMAND,
    ) -> None:
        self.state = SecurityState()
        self._sound = self.state  # the last one without damage
        self._log = log
        self._author = author
        self._logged_generation = OWN
        self._fs = fs
        self.data_dir = data_dir
        self._path = f"{data_dir}/{NAME}"
        self._lock_path = f"{data_dir}/{LOCK_NAME}"
        self._new_bytes = new_bytes
        self._pause = pause
        self._seen = ""
        self._lock: File | None = None

    @classmethod
    def open(
        cls,
        fs: FileSystem,
        data_dir: str,
        new_bytes: Callable[[int], bytes],
        pause: Callable[[], None] = lambda: None,
        log: SecurityLog | None = None,
        author: Author = COMMAND,
    ) -> SecurityStore:
        """Read the file of a data directory that is there; what is wrong with it is in `state.damage`.

        `new_bytes` gives random bytes; `pause` is called between two tries to get the lock, LOCK_TRIES at most. Without
        a `log` no change is logged; `author` makes the changes that name no other.
        """
        store = cls(fs, data_dir, new_bytes, pause, log, author)
        store._seen, store.state = store._read()
        store._sound = SecurityState() if store.state.damage else store.state
        return store

    @property
    def log_problem(self) -> str:
        """Return the lines that the security log lacks, in one sentence; empty: none."""
        return "" if self._log is None else self._log.problem

    @runs_in("files")
    def reread(self) -> bool:
        """Read the file again if another process has replaced it; True when `state` is another one.

        The security log gets the difference, and the lines that it could not write before.
        """
        if self._log is not None and self._log.has_kept:
            self._log.retry()
        if self._identity() == self._seen:
            return False
        before = self.state
        self._seen, self.state = self._read()
        self._log_difference(self._sound, self.state, COMMAND)
        if not self.state.damage:
            self._sound = self.state
        return self.state != before

    @runs_in("files")
    def change(self, edit: Callable[[SecurityState], SecurityState], author: Author | None = None) -> SecurityState:
        """Replace the state by what `edit` makes of the newest one, synced; what `edit` raises changes nothing.

        The security log names `author`. StorageFault: the file is damaged, the disk refuses, or another process has
        kept the lock.
        """
        return self._replace_by(partial(self._apply_edit, edit), author or self._author)

    def _apply_edit(self, edit: Callable[[SecurityState], SecurityState], before: SecurityState) -> SecurityState:
        if before.damage:
            raise StorageFault(self._path, 0, f"nothing can be changed while it is damaged: {before.damage}")
        if before.generation != OWN:
            wished = edit(before.wanted.made_to(before))
            return before._replace(wanted=difference(before, wished)._replace(restore=before.wanted.restore))
        after = edit(before if before.secret else before._replace(secret=self.new_secret()))
        return after.with_marks(before, self.new_mark)

    def want_restored(self) -> SecurityState:
        """As a command: this copy is to be the cluster's users and ACLs again. ValueError: it is none. StorageFault."""

        def mark_restore_wanted(before: SecurityState) -> SecurityState:
            if before.damage:
                raise StorageFault(self._path, 0, before.damage)
            if before.generation == OWN:
                raise ValueError(f"{self._path} is no copy of a cluster's users and ACLs")
            self._write_log(
                [("restore-wanted", {**self._author, "users": len(before.users), "acls": len(before.acls)})]
            )
            return before._replace(wanted=before.wanted._replace(restore=True))

        return self._replace_by(mark_restore_wanted, None)

    @runs_in("files")
    def keep_copy(
        self, agreed: SecurityState, own: SecurityState, done: WantedSecurity, author: Author = ANOTHER_BROKER
    ) -> SecurityState:
        """Keep a cluster's state, synced; what commands want stays wanted, but for what is `done`.

        `own` is what this board had for itself and is seen to: what a command has changed of it since is wanted.
        The security log names each generation once, also if the copy cannot be written. StorageFault.
        """

        def replace_by_copy(before: SecurityState) -> SecurityState:
            is_logged = agreed.generation == self._logged_generation
            if not is_logged and (before.damage or agreed.generation != before.generation):
                self._log_copy(before, agreed, author)
            wanted = before.wanted if before.damage or before.generation != OWN else difference(own, before)
            return agreed._replace(wanted=wanted.without_done(done))

        return self._replace_by(replace_by_copy, None)

    @runs_in("files")
    def log_intent(self, before: SecurityState, after: SecurityState, author: Author) -> None:
        """Log who is about to have a cluster make its next generation, synced, before it is sent.

        The events of the change follow with the copy of that generation, from the broker that writes them.
        """
        changed = difference(before, after)
        counts = {"added": len(changed.added), "removed": len(changed.removed), "users": len(changed.users)}
        self._write_log([("change-sent", {**author, **counts, "generation": after.generation})])

    @runs_in("files")
    def set_aside(self) -> str:
        """Keep the file, if there is one, as it is under another name, synced; its path. StorageFault."""
        try:
            if not self._fs.exists(self._path):
                return ""
            names = (f"{ASIDE_NAME}.{number}" for number in range(1, ASIDE_MAX))
            name = next((each for each in names if not self._fs.exists(f"{self.data_dir}/{each}")), ASIDE_NAME)
            replace(self._fs, self.data_dir, name, read_whole(self._fs, self._path), private=True)
        except OSError as error:
            raise fault_of(error, self._path, 0) from error
        return f"{self.data_dir}/{name}"

    def new_secret(self) -> bytes:
        """The secret that false salts are made of."""
        return self._new_bytes(SECRET_BYTES)

    def new_mark(self) -> str:
        """Return a word that differs between users of the same name over time."""
        return self._new_bytes(MARK_BYTES).hex()

    def _replace_by(self, edit: Callable[[SecurityState], SecurityState], author: Author | None) -> SecurityState:
        """Replace the file by what `edit` makes of it; without an `author` the security log is the caller's."""
        self._lock = self._take_lock()
        try:
            seen, before = self._read()
            after = edit(before)
            if after != before:
                is_logged = author is not None and self._log_difference(
                    _intended_state(before), _intended_state(after), author
                )
                try:
                    self._write(after)
                except (OSError, StorageFault) as error:
                    if is_logged:
                        self._write_log([("change-failed", {**(author or {}), "error": error})])
                    raise
                after = after._replace(exposed="")
                seen = self._identity()
        except OSError as error:
            self._seen = self._identity()  # what may not be on the disk is not shown
            raise fault_of(error, self._path, 0) from error
        finally:
            self._lock = None  # here, as an error on its way holds its frames
        self._seen, self.state = seen, after
        if not after.damage:
            self._sound = after
        return after

    def _log_difference(self, before: SecurityState, after: SecurityState, author: Author) -> bool:
        """Log what differs; False: nothing does, or `after` is unknown."""
        if after.damage:
            return False
        events = change_events(before, after, author)
        self._write_log(events)
        return bool(events)

    def _log_copy(self, before: SecurityState, agreed: SecurityState, author: Author) -> None:
        """Log a generation of a cluster; how much it has, where this board had none, or its own was damaged."""
        generation = {"generation": agreed.generation}
        if before.damage or before.generation == OWN:
            counts = {"users": len(agreed.users), "acls": len(agreed.acls)}
            self._write_log([("copy-adopted", {**author, **counts, **generation})])
        else:
            events = change_events(before, agreed, author)
            self._write_log([(event, {**fields, **generation}) for event, fields in events])
        self._logged_generation = agreed.generation

    def _write_log(self, events: list[Event]) -> None:
        if self._log is not None:
            self._log.write_changes(events)

    def _take_lock(self) -> File:
        try:
            for _ in range(LOCK_TRIES):
                lock = self._fs.lock(self._lock_path, private=True)
                if lock is not None:
                    return lock
                self._pause()
        except OSError as error:
            raise fault_of(error, self._lock_path, 0) from error
        raise StorageFault(self._lock_path, 0, "another process keeps changing users or ACLs; end it, then try again")

    def _write(self, state: SecurityState) -> None:
        data = with_head(NAME, VERSION if state.generation == OWN else VERSION_OF_COPY, encode(state))
        if len(data) > STATE_BYTES_MAX:
            raise StorageFault(
                self._path, STATE_BYTES_MAX, "users and ACLs would take more bytes than that; remove some"
            )
        replace(self._fs, self.data_dir, NAME, data, private=True)
        assert self._lock is not None
        if not self._lock.size():
            write_all(self._lock, _MADE, 0)
            self._lock.datasync()

    def _make_private(self) -> str:
        return f"`chmod 600 {shell_path(self._path)}`"

    def _read(self) -> tuple[str, SecurityState]:
        """Return the file's identity, and its contents, which are on the disk."""
        seen = ""
        try:
            seen = self._identity()
            mode = self._fs.mode(self._path)
            if mode & (stat.S_IWGRP | stat.S_IWOTH):
                return seen, SecurityState(damage=f"others may write {self._path}: {_WRITABLE} {self._make_private()}")
            data = read_whole(self._fs, self._path)
            self._fs.sync_directory(self.data_dir)  # who replaced it may have been killed before that
            state = decode(checked_body(self._path, data, NAME, VERSION_OF_COPY))
            if mode & (stat.S_IRGRP | stat.S_IROTH):
                state = state._replace(exposed=f"others may read {self._path}: {self._make_private()}{_READABLE}")
            return seen, state
        except FileNotFoundError:
            return seen, SecurityState(damage=self._missing())
        except StorageFault as fault:
            return seen, SecurityState(damage=str(fault))
        except ValueError as error:
            return seen, SecurityState(damage=f"{self._path}: {error}; restore the file from a copy")
        except OSError as error:
            return seen, SecurityState(damage=str(fault_of(error, self._path, 0)))

    def _missing(self) -> str:
        try:
            was_there = self._fs.size(self._lock_path) > 0
        except FileNotFoundError:
            return ""
        except OSError as error:
            return str(fault_of(error, self._lock_path, 0))
        if not was_there:
            return ""
        return f"{self._path} is missing; restore it from a copy, or remove {LOCK_NAME} too to begin without users"

    def _identity(self) -> str:
        try:
            return self._fs.identity(self._path)
        except OSError:
            return ""


def _intended_state(state: SecurityState) -> SecurityState:
    """Return the users and ACLs that a file asks for: of a cluster's copy with what commands want changed there."""
    if state.damage:
        return SecurityState()
    try:
        return state.wanted.made_to(state)
    except Refusal:  # more than a cluster takes: the broker refuses it, and this board's file has it all the same
        return state
