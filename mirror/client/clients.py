"""Makes the clients of one mirror, for the commands; tests and simulations replace them.

Does not contain: requests, any use of the clients (replication/replicator.py).
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import NamedTuple

from mirror.client.active_election import Standby
from mirror.client.source_client import Source
from mirror.client.target_client import Target
from mirror.config import Config


class Clients(NamedTuple):
    """`ledger` writes to the source cluster; `node` names this mirror in each ledger entry."""

    source: Source
    target: Target
    ledger: Target
    standby: Standby
    node: str


Connect = Callable[[Callable[[], None]], Clients]
"""Makes the clients; its argument is called when another mirror of the site becomes active, or this one."""


def clients_of(config: Config, role_changed: Callable[[], None]) -> Clients:
    """Return clients of the two clusters that the configuration names; none of them has connected yet."""
    source = Source(config.source_client, config.group_id)
    target = Target(config.target_client, replicas=config.target_replication_factor)
    target.source_cluster_id = lambda: source.cluster_id
    host_name = socket.gethostname()
    standby = Standby(
        lambda: source.cluster,
        config.group_id,
        config.group_instance_id or f"edge-mirror-{host_name}",
        config.request_timeout_ms / 1000,
        role_changed,
    )
    ledger = Target(config.source_client, replicas=config.target_replication_factor)
    return Clients(source, target, ledger, standby, f"mirror@{host_name}")
