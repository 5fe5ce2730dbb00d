"""What handlers ask about users and rights, and the one way to change them.

| who | what happens |
|---|---|
| a handler changes users or ACLs | `change`: synced by the worker `files`, then `apply`, then its answer |
| another process changed the file | `look`, once a second: read again by the worker `files`, then `apply` |

Lives here: the state that holds now. Must never come in: files (storage/security_store.py), what a log-in is
(security/sasl.py), what ACLs mean (security/authorizer.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from edge_broker.broker.outcome import Do, Outcome, Reply
from edge_broker.security.state import SecurityState

if TYPE_CHECKING:
    from edge_broker.broker.effects import Effects
    from edge_broker.security.authorizer import Authorizer
    from edge_broker.storage.security_store import SecurityStore

Edit = Callable[[SecurityState], SecurityState]


class Security:
    """Users and ACLs as they hold for this moment's requests; owned by the loop."""

    def __init__(self, store: SecurityStore, effects: Effects, authorizer: Authorizer | None) -> None:
        self._store = store
        self._effects = effects
        self._authorizer = authorizer
        self._looking = False
        self.state = SecurityState()
        self.apply(store.state)

    def change(self, edit: Edit, then: Callable[[], Outcome], failed: Callable[[Exception], Outcome]) -> Do:
        """Change the state by `edit`, which may raise a Refusal; `then` once that is synced and holds, else `failed`.

        `edit` runs in a worker, on the newest state, and must touch nothing else.
        """
        return Do(lambda: self._store.change(edit), lambda state: self._applied(state, then), failed)

    def look(self) -> Outcome:
        """See whether another process has changed the file."""
        if self._looking:
            return Reply(None)
        self._looking = True
        store = self._store
        return Do(
            lambda: store.state if store.reread() else None,
            lambda state: self._applied(state, lambda: Reply(None)) if state else Reply(None),
            lambda _: Reply(None),
            over=self._looked,
            background=True,
        )

    def _looked(self) -> None:
        self._looking = False

    def _applied(self, state: SecurityState, then: Callable[[], Outcome]) -> Outcome:
        self.apply(state)
        return then()

    def apply(self, state: SecurityState) -> None:
        """What this state says holds from now on."""
        if state.damage and state.damage != self.state.damage:
            self._effects.note(f"users and rights cannot be read, so nobody has any: {state.damage}")
        self.state = state
        if self._authorizer is not None:
            self._authorizer.use(state.acls, closed=bool(state.damage))
