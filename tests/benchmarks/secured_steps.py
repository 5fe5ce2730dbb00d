"""What single steps of a log-in and of a check of rights cost the edge broker, measured in this process.

Lives here: these steps. Must never come in: brokers, sockets.
"""

from __future__ import annotations

import statistics
import time
import timeit
from collections.abc import Callable

from edge_broker.broker.context import RequestContext, Session
from edge_broker.configuration.config import STANDARD_AUTHORIZER
from edge_broker.security.acls import AclBinding, Acls, Operation, PatternType, Permission, ResourceType
from edge_broker.security.scram import (
    ITERATIONS_MIN,
    MECHANISMS,
    Challenge,
    CredentialLookup,
    ScramExchange,
    is_password,
    new_credential,
)
from edge_broker.testing.site import Site
from tests.support.scram import ScramClient

REPEATS = 9
SECONDS = 0.05
TOPIC, USER, PASSWORD, SALT = "readings", "drupelet", "pass-word of 1 user", b"salt of 20 bytes ...."
ACLS = 1000
NONCE = "nonce-of-the-broker"


def steps() -> dict[str, float]:
    """Each step's CPU time in us: the median of REPEATS."""
    found: dict[str, float] = {}
    for name in MECHANISMS:
        found[f"{name}, both messages of a log-in, on the loop"] = took_us(_scram(name))
        found[f"PLAIN against {name}, {ITERATIONS_MIN} iterations, in a worker"] = took_us(_plain(name))
    return found | _rights()


def _rights() -> dict[str, float]:
    """What the door to a partition costs without an authorizer, and what more with one."""
    context = RequestContext(1, 12, "c", Session("10.0.0.5:4711", principal=f"User:{USER}"))
    open_site, guarded = Site(), Site({"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin"})
    for site in (open_site, guarded):
        site.topic(TOPIC, 1)
    authorizer = guarded.broker.rights.authorizer
    assert authorizer is not None
    names = [TOPIC, *(f"t{number}" for number in range(ACLS - 1))]
    authorizer.use(Acls(_allow(name) for name in names))

    def through(site: Site) -> Callable[[], object]:
        partition = site.broker.topics.partition
        return lambda: partition(context, TOPIC, 0, Operation.WRITE)

    def forget() -> None:
        authorizer.use(authorizer.acls)

    def first() -> None:
        forget()
        guarded.broker.topics.partition(context, TOPIC, 0, Operation.WRITE)

    without, kept = took_us(through(open_site)), took_us(through(guarded))
    return {
        "the door to a partition without an authorizer": without,
        f"a check of rights at that door, {ACLS} ACLs, decided before": kept - without,
        "the same, decided for the first time": took_us(first) - took_us(forget) - without,
    }


def _allow(name: str) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC, name, PatternType.LITERAL, f"User:{USER}", "*", Operation.WRITE, Permission.ALLOW
    )


def took_us(work: Callable[[], object]) -> float:
    """CPU time of a piece of work."""
    timer = timeit.Timer(work, timer=time.thread_time)
    number = max(1, int(SECONDS / timer.timeit(1)))
    return statistics.median(timer.repeat(REPEATS, number)) / number * 1e6


def _scram(name: str) -> Callable[[], object]:
    """The broker's two steps; the client's messages are made before, as its nonce is the same each time."""
    mechanism = MECHANISMS[name]
    found = CredentialLookup(new_credential(mechanism, PASSWORD, SALT, ITERATIONS_MIN), known=True)
    client = ScramClient(name, USER, PASSWORD)
    challenge = ScramExchange(mechanism, NONCE).step(client.first, lambda _: found)
    assert isinstance(challenge, Challenge)
    first, final = client.first, client.final(challenge.data)

    def log_in() -> None:
        exchange = ScramExchange(mechanism, NONCE)
        exchange.step(first, lambda _: found)
        exchange.step(final, lambda _: found)

    return log_in


def _plain(name: str) -> Callable[[], object]:
    mechanism = MECHANISMS[name]
    credential = new_credential(mechanism, PASSWORD, SALT, ITERATIONS_MIN)
    return lambda: is_password(mechanism, PASSWORD.encode(), credential)
