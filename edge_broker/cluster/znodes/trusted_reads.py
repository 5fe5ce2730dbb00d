"""Read znodes, and believe only those whose ACL is the brokers' alone: a foreign one is answered NO_AUTH, and named.

| request | znode | requests to ZooKeeper |
|---|---|---|
| Get, Exists | not verified yet | the request, then GetAcl: the pair keeps its place among all answers |
| Get, Exists | verified, and the same czxid and ACL version | the request alone |
| Get, Exists | verified, and another czxid or ACL version | the request; GetAcl once it is answered |
| Children | any | the request, then GetAcl: its answer has no czxid |

Only the brokers can create a znode below a protected one. This finds what a person with the brokers' user left open,
and what a stranger created below a shared root.

Contains: these reads. Does not contain: the rules (ownership.py), what a reader does without an answer. Source:
ZooKeeper's Programmer's Guide, "ZooKeeper access control using ACLs".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from edge_broker.cluster.znodes.ownership import Users, is_trusted, owner_of
from edge_broker.cluster.znodes.partition_state_write import AskThen
from edge_broker.cluster.znodes.zookeeper import Acl, Answer, Children, Exists, Failure, Get, GetAcl, Node, Stat

Read: TypeAlias = Get | Exists | Children
Then = Callable[[Answer], None]
Version = tuple[int, int]  # czxid and ACL version


class TrustedReads:
    """The reads of one broker; `refused` hears of each foreign znode, `accepted` of one that is none any more."""

    def __init__(
        self, ask: AskThen, users: Users, refused: Callable[[str], None], accepted: Callable[[str], None]
    ) -> None:
        self._ask, self._users = ask, users
        self._refused, self._accepted = refused, accepted
        self._verified: dict[str, Version] = {}

    def read(self, request: Read, then: Then) -> None:
        """Send a read; `then` is called once."""
        if isinstance(request, Children) or request.path not in self._verified:
            answered: list[Answer] = []
            self._ask(request, partial(self._hold, request, answered, then))
            self._ask(GetAcl(request.path), partial(self._have_acl, request, answered, then))
        else:
            self._ask(request, partial(self._compare, request, then))

    def _hold(self, request: Read, answered: list[Answer], then: Then, answer: Answer) -> None:
        if isinstance(answer, Failure):
            self._read_failed(request, then, answer)
        else:
            answered.append(answer)

    def _compare(self, request: Read, then: Then, answer: Answer) -> None:
        if isinstance(answer, Failure):
            self._read_failed(request, then, answer)
        elif _version(answer) == self._verified.get(request.path):
            then(answer)
        else:
            self._ask(GetAcl(request.path), partial(self._have_acl, request, [answer], then))

    def _have_acl(self, request: Read, answered: list[Answer], then: Then, answer: Answer) -> None:
        if not answered:
            return  # the request failed, and that was told
        if isinstance(answer, Failure):
            self._read_failed(request, then, answer)
            return
        assert isinstance(answer, Acl)
        version = _version(answered[0])
        if version is not None and version != _version(answer):
            self.read(request, then)  # another znode by now
        elif is_trusted(owner_of(answer.entries, self._users)):
            if version is not None:
                self._verified[request.path] = version
            self._accepted(request.path)
            then(answered[0])
        else:
            self._read_failed(request, then, Failure.NO_AUTH)

    def _read_failed(self, request: Read, then: Then, failure: Failure) -> None:
        if failure in (Failure.NO_NODE, Failure.NO_AUTH):
            self._verified.pop(request.path, None)
        if failure is Failure.NO_NODE:
            self._accepted(request.path)
        elif failure is Failure.NO_AUTH:
            self._refused(request.path)
        then(failure)


def _version(answer: Answer) -> Version | None:
    """Return what tells a znode and its ACL from another one; None: the answer does not say."""
    stat = answer if isinstance(answer, Stat) else answer.stat if isinstance(answer, Node | Acl) else None
    return None if stat is None else (stat.czxid, stat.acl_version)
