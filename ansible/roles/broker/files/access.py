"""Makes a broker's users and rights those that the inventory says, in its data directory, also while it runs.

Run by the board's own /opt/drupelet/current/bin/python, as root; the role `broker` copies and calls it. Standard input
is a JSON object, so that no password is in a command line: `data_dir`, `users` (name: password), `acls` (rows of user,
type of resource, pattern, name, operation), `known` (users that were ours before), `kept` (those of them that stay
without a password here: old log-ins whose new one was not used yet), `moved` (those of `kept` whose rights stay, too,
as their service uses another broker now), `planned` (the users that the plan was made for). Standard output is a JSON
object with `changed`, lines of what is another than before, and `meanwhile`: users that another run has made or removed
since the plan; then nothing changes. Users and ACLs that are not ours stay as they are.

With `show` it changes nothing: standard output has `held`, each user with its `first_log_in`, `last_log_in` and
`last_ms`, by which generations of one log-in are compared.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from edge_broker.access.store import open_store
from edge_broker.clock import SystemClock
from edge_broker.errors import StorageFault
from edge_broker.output import time_text
from edge_broker.security.acls import AclBinding, Operation, PatternType, Permission, ResourceType
from edge_broker.security.scram import (
    ITERATIONS_MIN,
    MECHANISMS,
    SALT_BYTES,
    ScramCredential,
    is_password,
    new_credential,
)
from edge_broker.security.state import SecurityState

try:
    from edge_broker.storage.files.filesystem import Disk
except ImportError:  # playbooks/remove.yml on a board with a release before 0.2.0
    from edge_broker.storage.filesystem import Disk

try:
    from edge_broker.storage.metadata.log_in_times import read_log_in_times, valid_times
except ImportError:  # the same; that broker records no log-ins

    def read_log_in_times(*_: object) -> dict[str, Any]:
        """Return none."""
        return {}

    def valid_times(times: dict[str, Any], _: object) -> dict[str, Any]:
        """Return them."""
        return times


def kept_credentials(password: str, held: Mapping[str, ScramCredential]) -> Mapping[str, ScramCredential]:
    """Return a password's credentials: the held ones if they were made of it, else new ones."""
    if set(held) == set(MECHANISMS) and all(
        is_password(MECHANISMS[name], password.encode(), one) for name, one in held.items()
    ):
        return held
    clock = SystemClock()
    return {
        name: new_credential(mechanism, password, clock.new_bytes(SALT_BYTES), ITERATIONS_MIN)
        for name, mechanism in MECHANISMS.items()
    }


def bindings(rows: list[list[str]]) -> frozenset[AclBinding]:
    """The ACLs of the order."""
    return frozenset(
        AclBinding(
            ResourceType[kind], name, PatternType[pattern], f"User:{user}", "*", Operation[operation], Permission.ALLOW
        )
        for user, kind, pattern, name, operation in rows
    )


def wanted_state(state: SecurityState, order: Mapping[str, Any]) -> SecurityState:
    """The state as the order has it: of the users that are or were ours, exactly what it says."""
    users, kept_users = order["users"], set(order["kept"])
    gone = set(order["known"]) - set(users) - kept_users
    credentials: dict[str, Mapping[str, ScramCredential]] = {name: {} for name in gone}
    credentials |= {name: kept_credentials(password, state.users.get(name, {})) for name, password in users.items()}
    principals = {f"User:{name}" for name in gone | set(users) | kept_users - set(order.get("moved", ()))}
    others = frozenset(acl for acl in state.acls if acl.principal not in principals)
    return state.with_users(credentials).with_acls(others | bindings(order["acls"]))


class OvertakenError(Exception):
    """Another run has changed users since the plan was made; `args` are their names."""


def check_plan(state: SecurityState, order: Mapping[str, Any]) -> None:
    """Refuse an order for other users than the broker has: its plan could bring back a log-in that was ended."""
    if changed := set(order.get("planned", state.users)) ^ set(state.users):
        raise OvertakenError(*sorted(changed))


def difference(before: SecurityState, after: SecurityState) -> list[str]:
    """Return a line for each difference; none has a password."""
    names = sorted(set(before.users) | set(after.users))
    return [
        *(f"user {name}" for name in names if before.users.get(name) != after.users.get(name)),
        *(f"added: {acl}" for acl in sorted(after.acls - before.acls)),
        *(f"removed: {acl}" for acl in sorted(before.acls - after.acls)),
    ]


def held_users(state: SecurityState, data_dir: str) -> dict[str, dict[str, str | int]]:
    """Return each user with the times of its log-ins; without a sound file none has any, and old log-ins stay."""
    try:
        times = valid_times(read_log_in_times(Disk(), data_dir), state)
    except StorageFault:  # the broker notes it, and records log-ins again
        times = {}
    return {
        name: {
            "first_log_in": time_text(times[name].first_ms) if name in times else "never",
            "last_log_in": time_text(times[name].last_ms).partition("T")[0] if name in times else "never",
            "last_ms": times[name].last_ms if name in times else 0,
        }
        for name in sorted(state.users)
    }


def main() -> None:
    """Read the order, carry it out, say what changed."""
    order = json.load(sys.stdin)
    store = open_store(order["data_dir"], make=False)
    if "show" in order:
        present = store.state.wanted.made_to(store.state)  # what a command wants that the cluster does not have yet
        print(json.dumps({"held": held_users(present, order["data_dir"])}))
        return
    before = store.state

    def edit(state: SecurityState) -> SecurityState:
        check_plan(state, order)
        return wanted_state(state, order)

    try:
        after = store.change(edit)
    except OvertakenError as error:
        print(json.dumps({"changed": [], "meanwhile": list(error.args)}))
        return
    print(json.dumps({"changed": difference(before, after), "meanwhile": []}))


if __name__ == "__main__":
    main()
