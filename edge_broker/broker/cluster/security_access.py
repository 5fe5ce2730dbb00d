"""The znode of users and ACLs, as the broker's state reads and writes it.

Does not contain: what is in the znode (broker/state/cluster_security.py), its versions (znodes/security_znode.py).
"""

from __future__ import annotations

from collections.abc import Callable

from edge_broker.cluster.member import ClusterMember
from edge_broker.cluster.znodes.security_znode import NodeReading, NodeState, SecurityNode


class SecurityAccess:
    """Users and ACLs of one member's cluster; `carry_out` runs the effects that a call leaves."""

    def __init__(self, member: ClusterMember, carry_out: Callable[[], None]) -> None:
        self._member, self._carry_out = member, carry_out
        self._shared: SecurityNode | None = None

    def share(self, on_read: Callable[[NodeReading], None]) -> None:
        """Have users and ACLs be the cluster's; `on_read` gets them whenever they are read."""
        self._shared = self._member.share_security(on_read)

    def write(self, data: bytes, found: NodeReading, held: Callable[[bool], None]) -> None:
        """Replace what was found; `held` is called once it is certain whether the write holds."""
        if found.standing is NodeState.NEVER_MADE:
            self._node.make(data, held)
        elif found.standing is NodeState.LOST:
            self._node.make_again(data, held)
        else:
            self._node.write(data, found.version, held)
        self._carry_out()

    def read_again(self) -> None:
        """Read again what could not be read; after a while."""
        self._node.retry()
        self._carry_out()

    @property
    def _node(self) -> SecurityNode:
        assert self._shared is not None, "users and ACLs are not shared"
        return self._shared
