"""Find an address that two live brokers of a cluster share.

Clients and brokers would reach one of the two where they mean the other. The later broker waits, as the other may be a
previous process whose session has not ended; then it ends with the sentence. A copy of another board's card is no
contradiction: an in-sync set names the broker and its disk.

Does not contain: how long is waited (member.py). Source: Kafka's KafkaServer, which
refuses end points that another broker has registered.
"""

from __future__ import annotations

from collections.abc import Iterable

from edge_broker.cluster.state.cluster_state import Registration


def contradiction(own: Registration, other_registrations: Iterable[Registration]) -> str:
    """Return why a broker of this registration conflicts with earlier ones; empty: it does not."""
    here = {at for _, at in own.endpoints}
    for other in other_registrations:
        shared = [at for _, at in other.endpoints if at in here]
        if shared and other.broker != own.broker and other.epoch < own.epoch:
            return (
                f"broker {other.broker} is alive and has the address {shared[0]}, too; give each an address of its "
                "own, which the others reach, in listeners or advertised.listeners (--listen, --advertise)"
            )
    return ""
