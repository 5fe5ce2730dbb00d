"""Answer handlers' questions about users and permissions, and change both.

| who | what happens |
|---|---|
| a handler changes users or ACLs | `change`: synced by the worker `files`, then `apply`, then its answer |
| another process changed the file | `check_file`, once a second: read again by the worker `files`, then `apply` |
| in a cluster whose znodes are the brokers' alone | both go by way of the cluster (cluster_security.py) |
| a user is gone, or another one of his name has come meanwhile | his sessions end |

Contains: the state that holds now. Does not contain: files (storage/metadata/security_store.py), what a log-in is
(security/sasl.py), what ACLs mean (security/authorizer.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from drupelet.errors import ConfigurationError
from drupelet.printable import shell_word
from drupelet.quantities import quantity_text
from edge_broker.broker.outcomes import Outcome, Park, Reply, RunInWorker, Steps
from edge_broker.configuration.config import STANDARD_AUTHORIZER, BrokerConfig
from edge_broker.security.acls import Acls
from edge_broker.security.changes import COMMAND, Author
from edge_broker.security.state import NOT_READ_YET, SecurityState

if TYPE_CHECKING:
    from edge_broker.broker.cluster_port import ClusterPort
    from edge_broker.broker.effects import Effects
    from edge_broker.broker.state.cluster_security import SharedSecurity
    from edge_broker.security.authorizer import Authorizer
    from edge_broker.storage.metadata.security_store import SecurityStore

NO_TOKEN = -1
Edit = Callable[[SecurityState], SecurityState]
Indexed = tuple[SecurityState, Acls]


class Security:
    """Users and ACLs as they hold for this moment's requests; owned by the loop."""

    def __init__(
        self, store: SecurityStore, effects: Effects, authorizer: Authorizer | None, *, has_super_users: bool
    ) -> None:
        """`has_super_users`: the configuration names some, which without an authorizer means nothing."""
        self._store = store
        self._effects = effects
        self._authorizer = authorizer
        self._has_super_users = has_super_users
        self._looking = False
        self._shared: SharedSecurity | None = None
        self.state = SecurityState()
        self.apply(store.state)

    def share(self, cluster: ClusterPort, note: Callable[[str], None]) -> None:
        """Go by the cluster's users and ACLs from now on; `note` gets what a person should know of it."""
        from edge_broker.broker.state.cluster_security import SharedSecurity  # noqa: PLC0415 - for a cluster alone

        self._shared = SharedSecurity(self._store, self._effects, cluster.security, cluster.waits, self.apply, note)

    @property
    def is_known(self) -> bool:
        """Whether it is known what holds; in a cluster it is the cluster's to say."""
        return self._shared is None or self._shared.is_known

    @property
    def notes(self) -> list[str]:
        """Notes for an operator, a sentence each: of ACLs without an authorizer, and of a file that others may read."""
        sentences = self._without_effect, self._without_anybody, self.state.exposed, self._store.log_problem
        found = [sentence for sentence in sentences if sentence]
        return found + (self._shared.notes if self._shared is not None else [])

    @property
    def _without_anybody(self) -> str:
        """In a cluster alone: a single node does not start so (`check_rights`)."""
        if self._shared is None or self._authorizer is None:
            return ""
        if self._authorizer.super_users or self.state.acls or self.state.damage:
            return ""
        return "neither super.users nor an ACL lets anybody in: name somebody in super.users, such as User:admin"

    @property
    def _without_effect(self) -> str:
        count = len(self.state.acls)
        what = [f"{quantity_text(count, 'ACL')} {'has' if count == 1 else 'have'}"] if count else []
        what += ["super.users has"] if self._has_super_users else []
        if self._authorizer is not None or not what:
            return ""
        return (
            f"{what[0]} no effect, and every client may do everything: set authorizer.class.name={STANDARD_AUTHORIZER}"
        )

    def change(
        self,
        edit: Edit,
        then: Callable[[], Outcome],
        failed: Callable[[Exception], Outcome],
        token: int = NO_TOKEN,
        author: Author = COMMAND,
    ) -> Outcome:
        """Change the state by `edit`, which may raise a Refusal; `then` once that is synced and holds, else `failed`.

        `edit` runs in a worker, on the newest state, perhaps several times, and must touch nothing else. `token` is the
        request's, which is answered by what they make; the security log names `author`.
        """
        if self._shared is not None:
            self._shared.change(
                edit,
                lambda: self._answer(token, then()),
                lambda error: self._answer(token, failed(error)),
                author=author,
            )
            return Park(keeps=True)
        return RunInWorker(
            lambda: _with_index(self._store.change(edit, author)),
            lambda found: self._apply_indexed(found, then),
            failed,
        )

    def _answer(self, token: int, outcome: Outcome) -> None:
        assert isinstance(outcome, Reply | Steps), outcome
        response = outcome if isinstance(outcome, Steps) else outcome.response
        if response is not None:
            self._effects.answer(token, response)

    def check_file(self) -> Outcome:
        """See whether another process has changed the file."""
        if self._shared is not None:
            return self._shared.check_commands()
        if self._looking:
            return Reply(None)
        self._looking = True
        store = self._store
        return RunInWorker(
            lambda: _with_index(store.state) if store.reread() else None,
            lambda found: self._changed_elsewhere(found) if found else Reply(None),
            lambda _: Reply(None),
            over=self._check_ended,
            background=True,
        )

    def _check_ended(self) -> None:
        self._looking = False

    def _changed_elsewhere(self, found: Indexed) -> Outcome:
        self.apply(*found)
        return Reply(None)

    def _apply_indexed(self, found: Indexed, then: Callable[[], Outcome]) -> Outcome:
        self.apply(*found)
        return then()

    def apply(self, state: SecurityState, acls: Acls | None = None) -> None:
        """Apply this state from now on; `acls` are its own, where a worker has put them in order already."""
        if state.damage and state.damage not in (self.state.damage, NOT_READ_YET):
            self._effects.note(f"users and rights cannot be read, so nobody has any: {state.damage}")
        gone = self.state.removed_users(state)
        exposed, without_effect = self.state.exposed, self._without_effect
        self.state = state
        if self._without_effect and not without_effect:
            self._effects.note(self._without_effect)
        if state.exposed and not exposed:
            self._effects.note(state.exposed)
        if gone:
            self._effects.end_sessions(gone)
        if self._authorizer is not None:
            self._authorizer.use(Acls(state.acls) if acls is None else acls, closed=bool(state.damage))


def check_rights(config: BrokerConfig, state: SecurityState, data_dir: str) -> None:
    """Refuse an authorizer that denies all clients, ConfigurationError; with damage it says nothing."""
    if config.text("zookeeper.connect") or config.boolean("allow.everyone.if.no.acl.found"):
        return  # the cluster may have users and ACLs; without an authorizer all clients get in
    if config.text("authorizer.class.name") and not (config.super_users or state.acls or state.damage):
        raise ConfigurationError(
            "authorizer.class.name names an authorizer, and neither super.users nor an ACL lets anybody in: name "
            "somebody in super.users, such as User:admin, or give rights with edge-broker acl add --data-dir "
            f"{shell_word(data_dir)}"
        )


def _with_index(state: SecurityState) -> Indexed:
    return state, Acls(state.acls)
