"""Make the znodes of a cluster the brokers' alone, at each session's start and before anything else is read.

| step | request | then |
|---|---|---|
| format | GetAcl, Get of `/format` | missing, unreadable, or of another cluster: end, nothing is changed |
| record | GetAcl of `/format/ownership` | the brokers' own: ACLs are not replaced any more |
| registered | only where `/format` is open: Children of `/brokers`, GetAcl of each | a broker runs without a user: blocked |
| parent | GetAcl, SetAcl of `/`, which is the chroot or the root | protected, or a warning |
| take over | GetAcl, SetAcl, Children of each znode, the parent first | what is open is taken over and named; what is foreign is refused and named |
| check | with the record, instead of `take over`: | GetAcl of the topmost znodes | `/brokers`, `/topics` or `/deleted` is foreign: blocked |
| record | Create of `/format/ownership` | |
| guards | only where the parent is not protected: Create of a child | a znode with a child cannot be removed |

The step `take over` runs until the ownership record exists, and where two users are accepted: then it replaces the ACLs
of the former one. A lost connection or session ends the steps; the next one starts them again. Each step may be repeated,
and two brokers may take the same step at once.

Contains: these requests. Does not contain: the rules (ownership.py). Source: ZooKeeper's Programmer's Guide, "ZooKeeper
access control using ACLs".
"""  # noqa: E501

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from edge_broker.cluster.znodes.ownership import Action, Owner, Users, action_for, is_trusted, other_products, owner_of
from edge_broker.cluster.znodes.partition_state_write import AskThen
from edge_broker.cluster.znodes.znode_codec import (
    BROKERS,
    DELETED,
    FORMAT,
    GUARD,
    OWNERSHIP,
    PRODUCER_IDS,
    ROOTS,
    TOP,
    LayoutFault,
    broker_path,
    decode_format,
    encode,
)
from edge_broker.cluster.znodes.zookeeper import (
    Acl,
    Answer,
    Children,
    Create,
    Failure,
    Get,
    GetAcl,
    Names,
    Node,
    Request,
    SetAcl,
    Stat,
)

PARENT = "/"
IN_FLIGHT = 32  # requests of the step `take over` at once
NAMED = 10
REMEDY = "look at it as the brokers' user, then remove it"
LOST = (Failure.CONNECTION_LOSS, Failure.SESSION_EXPIRED)
GUARDED = (FORMAT, BROKERS, DELETED, PRODUCER_IDS)  # not /topics, whose children are topics

Then = Callable[[str], None]


class Line(NamedTuple):
    """A log line that the event loop writes."""

    level: str
    event: str
    fields: dict[str, object]


class Protection:
    """The steps of one broker; `notes` are for /health, `lines` for the log until the event loop takes them."""

    def __init__(self, ask: AskThen, users: Users, chroot: str) -> None:
        """`chroot` is the path of zookeeper.connect, empty for none."""
        self._ask_then, self._users, self._chroot = ask, users, chroot
        self._turn = 0
        self._then: Then = _ignore
        self._cluster, self._broker = "", 0
        self._format_owner = Owner.BROKERS
        self.is_recorded = False
        self.is_done = False  # in this session
        self.lines: list[Line] = []
        self._unprotected = ""
        self.refused: dict[str, None] = {}
        self._paths: deque[str] = deque()
        self._in_flight = 0
        self._descends = True
        self._taken: list[str] = []
        self._replaced = 0

    @property
    def notes(self) -> list[str]:
        """Notes for an operator, a sentence each."""
        found = [self._unprotected] if self._unprotected else []
        if self.refused:
            found.append(f"{_listed_paths(sorted(self.refused))} not the brokers' alone, and not believed")
        return found

    def begin(self, cluster: str, broker: int, then: Then) -> None:
        """Take the steps; `then` is called once, with why the broker must not register, or an empty string.

        `cluster` is the id of the broker's cluster, empty where the broker belongs to none yet.
        """
        self._turn += 1
        self._cluster, self._broker, self._then = cluster, broker, then
        self.refused, self.is_done = {}, False
        self._ask(GetAcl(FORMAT), self._have_format_acl)

    def end(self) -> None:
        """End the steps: the session or its connection is lost."""
        self._turn += 1

    def _ask(self, request: Request, then: Callable[[Answer], None]) -> None:
        turn = self._turn

        def answer_received(answer: Answer) -> None:
            if turn == self._turn and answer not in LOST:
                then(answer)

        self._ask_then(request, answer_received)

    # whose cluster it is

    def _have_format_acl(self, answer: Answer) -> None:
        if not isinstance(answer, Acl):
            self._then("")  # the registration says why it cannot go on
            return
        self._format_owner = owner_of(answer.entries, self._users)
        self._ask(Get(FORMAT), self._have_format)

    def _have_format(self, answer: Answer) -> None:
        try:
            format_ = decode_format(answer) if isinstance(answer, Node) else None
        except LayoutFault:
            format_ = None
        found = format_.cluster if format_ is not None and not format_.rebuilding else ""
        if not found or (self._cluster and self._cluster != found):
            self._then("")
        elif not self._cluster and not is_trusted(self._format_owner):
            self._then(
                f"the znodes of cluster {found} are not the brokers' alone, and this broker does not belong to it yet; "
                "start a broker of that cluster with this user first, which takes the znodes over"
            )
        else:
            self._ask(GetAcl(OWNERSHIP), self._have_record)

    def _have_record(self, answer: Answer) -> None:
        self.is_recorded = isinstance(answer, Acl) and is_trusted(owner_of(answer.entries, self._users))
        if self._format_owner is Owner.OPEN and not self.is_recorded:
            self._ask(Children(BROKERS), self._have_brokers)
        else:
            self._ask(GetAcl(PARENT), self._have_parent_acl)

    def _have_brokers(self, answer: Answer) -> None:
        names = answer.names if isinstance(answer, Names) else ()
        others = [int(name) for name in names if name.isdigit() and int(name) != self._broker]
        self._check_next_broker(others, Failure.NO_NODE)

    def _check_next_broker(self, other_brokers: list[int], answer: Answer, checked: int = 0) -> None:
        """Refuse to take znodes away from brokers that are registered and have no user."""
        if isinstance(answer, Acl) and not is_trusted(owner_of(answer.entries, self._users)):
            self._then(
                f"broker {checked} is registered without the user of edge.zookeeper.digest.file, and could not go on; "
                "stop all brokers, name the file on each, then start them"
            )
        elif other_brokers:
            broker = other_brokers.pop()
            self._ask(GetAcl(broker_path(broker)), partial(self._check_next_broker, other_brokers, checked=broker))
        else:
            self._ask(GetAcl(PARENT), self._have_parent_acl)

    # the parent

    def _have_parent_acl(self, answer: Answer) -> None:
        if not isinstance(answer, Acl):
            self._warn("its ACL is another user's")
            return
        owner = owner_of(answer.entries, self._users)
        if owner is Owner.BROKERS:
            self._unprotected = ""
            self._take_over()
        elif self._chroot or owner is Owner.ACCEPTED:
            self._protect(answer)
        else:
            self._ask(Children(PARENT), partial(self._have_products, answer))

    def _have_products(self, acl: Acl, answer: Answer) -> None:
        others = other_products(answer.names) if isinstance(answer, Names) else []
        if others:
            self._warn(f"other products have znodes there ({_listed_names(others)})")
        else:
            self._protect(acl)

    def _protect(self, acl: Acl) -> None:
        self._ask(SetAcl(PARENT, self._users.acl, acl.stat.acl_version), self._have_protected)

    def _have_protected(self, answer: Answer) -> None:
        if isinstance(answer, Stat):
            self._unprotected = ""
            self._line("info", "parent_znode_protected", path=self._chroot or PARENT)
            self._take_over()
        elif answer is Failure.BAD_VERSION:
            self._ask(GetAcl(PARENT), self._have_parent_acl)
        else:
            self._warn("its ACL is another user's")

    def _warn(self, why: str) -> None:
        path = self._chroot or PARENT
        self._unprotected = (
            f"{path} of ZooKeeper is not the brokers' alone: {why}; a client without the brokers' user can remove "
            "/controller there and create it, so that the cluster has no controller; give the brokers a chroot of "
            "their own in zookeeper.connect"
            if not self._chroot
            else f"{path} of ZooKeeper is not the brokers' alone: {why}; give the brokers' user all permissions on it"
        )
        self._line("warning", "parent_znode_not_protected", path=path, reason=why)
        self._take_over()

    # all other znodes

    def _take_over(self) -> None:
        self._taken, self._replaced, self._in_flight = [], 0, 0
        self._descends = not self.is_recorded or bool(self._users.other)
        self._paths = deque(TOP)
        self._check_next()

    def _check_next(self) -> None:
        while self._paths and self._in_flight < IN_FLIGHT:
            self._in_flight += 1
            self._check(self._paths.popleft())
        if not (self._paths or self._in_flight):
            self._all_checked()

    def _done_with(self, names: tuple[str, ...], path: str) -> None:
        self._paths.extend(f"{path}/{name}" for name in names)
        self._in_flight -= 1
        self._check_next()

    def _check(self, path: str) -> None:
        self._ask(GetAcl(path), partial(self._have_acl, path))

    def _have_acl(self, path: str, answer: Answer) -> None:
        if not isinstance(answer, Acl):
            if answer is not Failure.NO_NODE:
                self.refuse(path)
            self._done_with((), path)
            return
        action = action_for(owner_of(answer.entries, self._users), is_recorded=self.is_recorded)
        if action is Action.REFUSE:
            self.refuse(path)
            self._done_with((), path)
        elif action is Action.KEEP:
            self._read_children(path)
        else:
            change = SetAcl(path, self._users.acl, answer.stat.acl_version)
            self._ask(change, partial(self._have_taken, path, action))

    def _have_taken(self, path: str, action: Action, answer: Answer) -> None:
        if isinstance(answer, Stat):
            if action is Action.TAKE_OVER:
                self._taken.append(path)
            self._replaced += action is Action.REPLACE
            self._read_children(path)
        elif answer is Failure.BAD_VERSION:
            self._check(path)
        else:
            if answer is not Failure.NO_NODE:
                self.refuse(path)
            self._done_with((), path)

    def _read_children(self, path: str) -> None:
        if not self._descends:
            self._done_with((), path)
            return

        def have(answer: Answer) -> None:
            self._done_with(answer.names if isinstance(answer, Names) else (), path)

        self._ask(Children(path), have)

    def _all_checked(self) -> None:
        if self._taken:
            self._line("warning", "znodes_taken_over", count=len(self._taken), names=_listed_names(sorted(self._taken)))
        if self._replaced:
            self._line("info", "znode_acls_replaced", count=self._replaced)
        if not self.is_recorded:
            self._ask(Create(OWNERSHIP, encode({"taken_over": len(self._taken)})), self._have_recorded)
        else:
            self._guard()

    def _have_recorded(self, answer: Answer) -> None:
        self.is_recorded = isinstance(answer, Stat) or answer is Failure.NODE_EXISTS
        self._guard()

    def _guard(self) -> None:
        for path in GUARDED if self._unprotected else ():
            self._ask(Create(f"{path}/{GUARD}", encode({})), _ignore)
        foreign = [path for path in ROOTS if path in self.refused]
        self.is_done = not foreign
        self._then(f"{_listed_paths(foreign)} not the brokers' alone; {REMEDY}" if foreign else "")

    @property
    def reminder(self) -> str:
        """A sentence while two users are accepted; empty else."""
        if not self._users.other:
            return ""
        return (
            "edge.zookeeper.digest.file names two users; once every board has started with the new one first, remove "
            "the other line on each"
        )

    # while the broker serves

    def check_again(self) -> None:
        """Verify the topmost znodes where a stranger can replace them; the member calls it repeatedly."""
        for path in TOP if self._unprotected else ():
            self._ask(GetAcl(path), partial(self._checked_again, path))

    def _checked_again(self, path: str, answer: Answer) -> None:
        if answer is Failure.NO_NODE or (isinstance(answer, Acl) and is_trusted(owner_of(answer.entries, self._users))):
            self.accept(path)
        elif isinstance(answer, Acl) or answer is Failure.NO_AUTH:
            self.refuse(path)

    @property
    def is_complete(self) -> bool:
        """Whether the parent of all znodes is the brokers' alone."""
        return not self._unprotected

    # what later reads find

    def refuse(self, path: str) -> None:
        """Name a foreign znode."""
        if path not in self.refused:
            self.refused[path] = None
            self._line("error", "znode_refused", path=path, reason="its ACL is not the brokers' alone", action=REMEDY)

    def accept(self, path: str) -> None:
        """Take back a name: the znode is the brokers', or is gone."""
        self.refused.pop(path, None)

    def _line(self, level: str, event: str, **fields: object) -> None:
        self.lines.append(Line(level, event, fields))


def _ignore(_: object) -> None:
    return


def _listed_names(names: list[str]) -> str:
    return ", ".join(names[:NAMED]) + (", …" if len(names) > NAMED else "")


def _listed_paths(paths: list[str]) -> str:
    return f"{len(paths)} znodes ({_listed_names(paths)}) are" if len(paths) > 1 else f"znode {paths[0]} is"
