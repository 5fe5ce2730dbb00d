"""Users and ACLs of a cluster, as one of its brokers has them: in a znode, with a copy of them on its disk.

| the znode | what becomes of it |
|---|---|
| was never made | it is made of what this board had for itself, or of nothing |
| is empty as it was made, and this board has something of its own | that is taken over, by compare-and-set |
| is there, and this board had something else of its own | that is set aside, and reported: the cluster wins |
| is there | it holds, and is kept as a copy, synced |
| is damaged, lost, older than the copy, or not the brokers' | no user has any permissions until it is repaired |
| cannot be reached | the copy holds |

| a change | |
|---|---|
| of a client | edited on the newest state, written by its version, kept as the copy, answered |
| while another broker was first | the same on what that has written, TRIES_MAX times |
| of a command | it is `wanted` in the copy, and made as a client's is; what is done is not wanted any more |
| when ZooKeeper does not answer | REQUEST_TIMED_OUT after WAIT_MS: it may hold, or come to hold |

One change is in progress at a time. Long work runs in `files`, whose jobs come in order.

Does not contain: what holds on this broker (security_state.py), znodes (security_znode.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from drupelet.printable import shell_word
from drupelet.quantities import quantity_text
from edge_broker.broker.outcomes import Outcome, Reply, RunInWorker
from edge_broker.cluster.znodes.security_znode import NodeReading, NodeState
from edge_broker.errors import ErrorCode, Refusal, StorageFault
from edge_broker.security.acls import Acls
from edge_broker.security.changes import ANOTHER_BROKER, COMMAND, Author
from edge_broker.security.state import (
    NOT_READ_YET,
    OWN,
    SecurityState,
    WantedSecurity,
    decode_znode,
    difference,
    encode_znode,
)

if TYPE_CHECKING:
    from edge_broker.broker.cluster_port import ChangeWaits, SecurityPort
    from edge_broker.broker.effects import Effects
    from edge_broker.storage.metadata.security_store import SecurityStore

TRIES_MAX = 5
WAIT_MS = 15_000
RESTORED = 1 << 20  # generations between the restored one and the latest that any broker may have seen
RESTORE = "once it is sure that nobody else shall get in, run"
_WRONG = {
    NodeState.LOST: "the cluster's znode /security/state is gone; restore the ensemble's data, or",
    NodeState.FOREIGN: "the znode /security/state was there before the cluster made it: see who has put it there, and "
    "remove it and /security",
    NodeState.BARRED: "this broker may not have the znode /security/state: see edge.zookeeper.digest.file",
}

Edit = Callable[[SecurityState], SecurityState]
NOTHING = WantedSecurity()


class Use(Protocol):
    """Receives the state that holds."""

    def __call__(self, state: SecurityState, acls: Acls) -> None:
        """This holds from now on."""


class _ReadState(NamedTuple):
    """A worker's result for a reading."""

    state: SecurityState
    acls: Acls
    takes_over: bool = False
    aside: str = ""
    unkept: str = ""


class _Change:
    """One change in progress; `over`: its requester has the result."""

    def __init__(
        self,
        edit: Edit,
        then: Callable[[], None],
        refused: Callable[[Exception], None],
        done: WantedSecurity,
        author: Author,
        *,
        restores: bool,
    ) -> None:
        self.edit, self.done, self.author, self.restores = edit, done, author, restores
        self._then, self._refused = then, refused
        self.over, self.tries = False, 0

    def end(self, error: Exception | None = None) -> None:
        """Tell, once."""
        if not self.over:
            self.over = True
            self._then() if error is None else self._refused(error)


class SharedSecurity:
    """A member's part in them; `use` gets the state that holds, `note` the text for an operator."""

    def __init__(
        self,
        store: SecurityStore,
        effects: Effects,
        znode: SecurityPort,
        waits: ChangeWaits,
        use: Use,
        note: Callable[[str], None],
    ) -> None:
        self._store, self._effects, self._znode, self._waits = store, effects, znode, waits
        self._use, self._note = use, note
        own = store.state
        self._own = own if own.generation == OWN and not own.damage else SecurityState()
        self._state: SecurityState | None = None  # the cluster's, once it is known and sound
        self._found: NodeReading | None = None
        self._damaged = ""
        self._changes: deque[_Change] = deque()
        self._under_way = self._pushing = self._looking = False
        self._taking = self._makes = 0
        self._writing: bytes | None = None
        self._unkept = self._unmade = ""
        self._refused: tuple[WantedSecurity, SecurityState | None] | None = None
        if own.generation == OWN:
            use(SecurityState(damage=NOT_READ_YET), Acls())
        znode.share(self.znode_read)

    @property
    def _restore_command(self) -> str:
        return f"`edge-broker user restore --data-dir {shell_word(self._store.data_dir)}`"

    @property
    def is_known(self) -> bool:
        """Whether the cluster has told once, be it that nothing can be read."""
        return self._state is not None or bool(self._damaged)

    @property
    def notes(self) -> list[str]:
        """Notes for an operator."""
        unkept = "the copy of the cluster's users and ACLs could not be written, and is not that of now: "
        return [unkept + self._unkept] * bool(self._unkept) + [self._unmade] * bool(self._unmade)

    # what is read

    def znode_read(self, found: NodeReading) -> None:
        """The znode was read."""
        if found == self._found and found.standing is NodeState.THERE:
            return
        self._found = found
        if found.standing is NodeState.THERE and found.data == self._writing:
            return  # the write in progress goes on
        if found.standing is NodeState.THERE:
            self._start(partial(self._take_in, found.data), partial(self._have, found))
        elif found.standing is NodeState.NEVER_MADE and self._store.state.generation == OWN and self._makes < TRIES_MAX:
            self._makes += 1
            self._start(partial(self._made_of, self._own), partial(self._make, found))
        else:
            self._close(_WRONG.get(found.standing, _WRONG[NodeState.LOST]))

    def _start(self, work: Callable[[], object], then: Callable[[object], None]) -> None:
        """Work that a reading needs; changes wait for it."""
        self._taking += 1

        def over() -> None:
            self._taking -= 1

        def done(result: object) -> Outcome:
            then(result)
            self._step()
            return Reply(None)

        def reading_failed(error: Exception) -> Outcome:
            self._close(f"{error};")
            self._step()
            return Reply(None)

        self._effects.start(RunInWorker(work, done, reading_failed, over=over))

    def _made_of(self, own: SecurityState) -> bytes:
        secret = own.secret or self._store.new_secret()
        return encode_znode(own._replace(secret=secret, generation=int(own.has_any), exposed=""))

    def _make(self, found: NodeReading, data: object) -> None:
        assert isinstance(data, bytes)
        if self._found is found:
            self._znode.write(data, found, lambda _: None)  # what became of it is read

    def _take_in(self, data: bytes) -> _ReadState:
        """In a worker: what the znode says, kept as the copy, and what becomes of this board's own."""
        try:
            state = decode_znode(data)
        except ValueError as error:
            return _ReadState(
                SecurityState(damage=f"the znode /security/state: {error}; restore the ensemble's data, or"), Acls()
            )
        seen = self._store.state.generation
        if state.generation < seen:
            text = f"the znode /security/state is older ({state.generation}) than what this broker has seen ({seen})"
            return _ReadState(SecurityState(damage=f"{text}: was the ensemble's data set back? If so,"), Acls())
        acls, own = Acls(state.acls), self._own
        lacks = own.has_any and _is_more(own, state)
        if lacks and not state.generation:
            return _ReadState(state, acls, takes_over=True)
        aside = ""
        try:
            if self._store.state.generation == OWN and (lacks or self._store.state.damage):
                aside = self._store.set_aside()
        except StorageFault as fault:
            return _ReadState(state, acls, unkept=str(fault))
        return _ReadState(state, acls, aside=aside, unkept=self._keep(state, own, NOTHING))

    def _keep(
        self, state: SecurityState, own: SecurityState, done: WantedSecurity, author: Author = ANOTHER_BROKER
    ) -> str:
        """In a worker: have the copy written; why it could not be, or nothing."""
        try:
            self._store.keep_copy(state, own, done, author)
        except StorageFault as fault:
            return str(fault)
        return ""

    def _have(self, found: NodeReading, taken: object) -> None:
        assert isinstance(taken, _ReadState)
        if self._found is not found:
            return  # a newer one is on its way
        self._unkept = taken.unkept
        if taken.state.damage:
            self._close(taken.state.damage)
            return
        own = self._own
        if taken.takes_over:
            self.change(lambda state: difference(SecurityState(), own).made_to(state), lambda: None, self._refused_own)
        elif taken.aside:
            counts = f"{quantity_text(len(own.users), 'user')} and {quantity_text(len(own.acls), 'ACL')}"
            self._note(
                f"{counts} that this board had for itself have no effect, as "
                f"its cluster has its own already: {taken.aside} keeps them; edge-broker user and acl add what lacks"
            )
        if not taken.takes_over and not taken.unkept:
            self._own = SecurityState()
        self._hold(taken.state, taken.acls)

    def _refused_own(self, error: Exception) -> None:
        self._note(f"users and ACLs of this board could not be given to its cluster: {error}")

    def _hold(self, state: SecurityState, acls: Acls) -> None:
        self._state, self._damaged = state, ""
        self._use(state, acls)

    def _close(self, why: str) -> None:
        """Take all permissions from all users, until it is repaired."""
        self._state, self._damaged = None, why
        mended = self._found is not None and self._found.standing in (NodeState.FOREIGN, NodeState.BARRED)
        damage = why if mended else f"{why} {RESTORE} {self._restore_command} on one board"
        self._use(SecurityState(damage=damage), Acls())
        for change in [each for each in self._changes if not each.restores]:
            self._changes.remove(change)
            change.end(self._closed_refusal())

    def _closed_refusal(self) -> Refusal:
        return Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"nothing can be changed now: {self._damaged}")

    # changes

    def change(
        self,
        edit: Edit,
        then: Callable[[], None],
        refused: Callable[[Exception], None],
        done: WantedSecurity = NOTHING,
        *,
        author: Author = COMMAND,
        restores: bool = False,
    ) -> None:
        """Change the cluster's state by `edit`; `then` once that holds here, else `refused`. As Security.change."""
        change = _Change(edit, then, refused, done, author, restores=restores)
        if self._damaged and not restores:
            change.end(self._closed_refusal())
            return
        self._changes.append(change)
        self._waits.until(lambda: change.over, WAIT_MS, partial(self._late, change))
        self._step()

    def _late(self, change: _Change) -> None:
        if change in self._changes and not (self._under_way and change is self._changes[0]):
            self._changes.remove(change)
        change.end(Refusal(ErrorCode.REQUEST_TIMED_OUT, "not known to hold in time; it may hold, or come to hold"))

    def _step(self) -> None:
        if self._under_way or self._taking or not self._changes or self._found is None:
            return
        change, found = self._changes[0], self._found
        state = self._store.state if change.restores and self._damaged else self._state
        if state is None:
            return
        self._under_way, change.tries = True, change.tries + 1

        def over() -> None:
            self._under_way = False

        def change_made(result: tuple[SecurityState, bytes]) -> Outcome:
            self._send(change, found, state, *result)
            return Reply(None)

        def change_failed(error: Exception) -> Outcome:
            self._end(change, error)
            return Reply(None)

        self._effects.start(RunInWorker(partial(self._edit, state, change), change_made, change_failed, over=over))

    def _edit(self, before: SecurityState, change: _Change) -> tuple[SecurityState, bytes]:
        """In a worker: return the state after a change, and its bytes; Refusal."""
        before = before._replace(wanted=WantedSecurity(), exposed="")
        after = change.edit(before).with_marks(before, self._store.new_mark)
        if after == before and not change.restores:
            return before, b""
        step = RESTORED if change.restores else 1
        after = after._replace(generation=before.generation + step)
        data = encode_znode(after)
        self._store.log_intent(before, after, change.author)
        return after, data

    def _send(
        self, change: _Change, found: NodeReading, before: SecurityState, after: SecurityState, data: bytes
    ) -> None:
        if self._found is not found or change not in self._changes:
            self._step()  # another broker was first, which is known already
            return
        self._under_way, self._writing = True, data
        if not data:
            self._keep_copy(change, before._replace(wanted=WantedSecurity()), found)
        else:
            self._znode.write(data, found, partial(self._write_answered, change, after, data))

    def _write_answered(self, change: _Change, after: SecurityState, data: bytes, held: bool) -> None:
        self._under_way, self._writing = held, None
        if held:
            assert self._found is not None
            self._keep_copy(change, after, self._found)
        elif change.tries < TRIES_MAX:
            self._step()
        else:
            self._end(change, Refusal(ErrorCode.REQUEST_TIMED_OUT, "others change users and ACLs again and again"))

    def _keep_copy(self, change: _Change, after: SecurityState, found: NodeReading) -> None:
        """It holds: have the copy written, then go by it."""

        def keep() -> _ReadState:
            unkept = self._keep(after, self._own, change.done, change.author)
            return _ReadState(after, Acls(after.acls), unkept=unkept)

        def done(taken: _ReadState) -> Outcome:
            self._under_way = False
            self._unkept = taken.unkept
            if not taken.unkept:
                self._own = SecurityState()
            if self._found is found:
                self._hold(taken.state, taken.acls)
            self._end(change, None)
            return Reply(None)

        def keeping_failed(error: Exception) -> Outcome:
            self._under_way = False
            self._end(change, error)
            return Reply(None)

        self._effects.start(RunInWorker(keep, done, keeping_failed))

    def _end(self, change: _Change, error: Exception | None) -> None:
        if change in self._changes:
            self._changes.remove(change)
        change.end(error)
        self._step()

    # commands, and time

    def check_commands(self) -> Outcome:
        """See what commands want changed, and whether the copy is written; once a second."""
        if self._looking:
            return Reply(None)
        self._looking = True
        self._znode.read_again()
        state, own = self._state, self._own
        unkept = bool(self._unkept) and state is not None

        def work() -> str:
            self._store.reread()
            return self._keep(state, own, NOTHING) if unkept and state is not None else ""

        def copy_checked(still: str) -> Outcome:
            if unkept and self._state is state:
                self._unkept = still
            self._push(self._store.state.wanted)
            return Reply(None)

        return RunInWorker(work, copy_checked, lambda _: Reply(None), over=self._check_ended, background=True)

    def _check_ended(self) -> None:
        self._looking = False

    def _push(self, wanted: WantedSecurity) -> None:
        """Have done what commands want, and tell them by the copy."""
        if self._pushing or wanted == NOTHING or self._found is None or not self.is_known:
            return
        if self._refused == (wanted, self._state):
            return  # nothing has changed since
        if wanted.restore and not self._damaged:
            wanted = wanted._replace(restore=False)
        can_be_restored = self._found.standing in (NodeState.THERE, NodeState.LOST, NodeState.NEVER_MADE)
        if self._damaged and not (wanted.restore and can_be_restored):
            return
        self._pushing, as_read = True, self._store.state.wanted

        def done() -> None:
            self._pushing, self._unmade, self._refused = False, "", None

        def change_refused(error: Exception) -> None:
            self._pushing = False
            if not isinstance(error, Refusal) or error.code != ErrorCode.REQUEST_TIMED_OUT:
                self._refused = as_read, self._state
            self._tell_unmade(f"what a command wants changed of users and ACLs is not done yet: {error}")

        self.change(wanted.made_to, done, change_refused, wanted._replace(restore=True), restores=wanted.restore)

    def _tell_unmade(self, sentence: str) -> None:
        if sentence != self._unmade:
            self._unmade = sentence
            self._effects.note(sentence)


def _is_more(own: SecurityState, state: SecurityState) -> bool:
    """Whether a board's own has anything that a cluster's has not."""
    return bool(own.acls - state.acls) or any(state.users.get(name) != held for name, held in own.users.items())
