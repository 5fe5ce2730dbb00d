"""References free all that requests make: no garbage stays that needs a collector, as none runs (gc_policy.py).

What is left would keep records, and files that compaction has replaced, for as long as the broker is calm.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.broker.operations.loss_writes import write_losses
from edge_broker.protocol.api import FETCH, OFFSET_COMMIT, PRODUCE
from edge_broker.storage.metadata.loss_records import Loss
from edge_broker.testing.site import Site
from tests.support.scram import plain
from tests.support.storage import batch
from tests.unit.broker.test_fetch import BY_NAME, fetch
from tests.unit.broker.test_groups_and_ids import commit, site_with_groups
from tests.unit.broker.test_logins import NAME, failed, handshake, logged_in, secured
from tests.unit.broker.test_offline_partitions import refuse
from tests.unit.broker.test_produce import SMALL, produce


def acks_1(site: Site) -> None:
    site.client().ask(PRODUCE, produce(("u", 0, batch(b"x")), acks=1))


def acks_all(site: Site) -> None:
    site.client().ask(PRODUCE, produce(("u", 0, batch(b"x")), ("missing", 0, batch(b"x"))))


def a_roll(site: Site) -> None:
    for _ in range(6):
        site.client().ask(PRODUCE, produce(("small", 0, batch(bytes(1500)))))


def a_slow_disk(site: Site) -> None:
    site.broker.throttle.slow = True
    acks_all(site)
    site.broker.throttle.slow = False


def an_offline_partition(site: Site) -> None:
    refuse(site, "datasync", "/u-0/")
    acks_all(site)
    site.client().ask(FETCH, fetch(("u", 0, 0)), BY_NAME)
    site.disk.fault = None
    site.loop.advance(120_000)
    site.run_until_idle()


def a_client_that_goes(site: Site) -> None:
    client = site.client()
    client.send(PRODUCE, produce(("u", 0, batch(b"x"))))
    client.send(FETCH, fetch(("t", 0, 0), max_wait_ms=1000), BY_NAME)
    client.lose()
    site.run_until_idle()


def a_long_poll(site: Site) -> None:
    client = site.client()
    client.send(FETCH, fetch(("u", 0, site.store.topics["u"].partitions[0].log_end_offset), max_wait_ms=1000), BY_NAME)
    acks_1(site)
    assert client.answers()


def a_cold_read(site: Site) -> None:
    site.disk.cold = True
    site.client().ask(FETCH, fetch(("u", 0, 0), ("u", 0, 1 << 40)), BY_NAME)
    site.disk.cold = False


def a_commit(site: Site) -> None:
    site.client().ask(OFFSET_COMMIT, commit(5))


def losses(site: Site) -> None:
    (log,) = site.store.topics[LEDGER_TOPIC].partitions
    several = [Loss("evicted", "t", "id", 0, 0, 1, 1, 1)] * 500
    site.dispatcher.start(lambda: write_losses(site.broker, log, several, lambda fault: None))
    site.run_until_idle()


@pytest.mark.parametrize(
    "work",
    [
        acks_1,
        acks_all,
        a_roll,
        a_slow_disk,
        an_offline_partition,
        a_client_that_goes,
        a_long_poll,
        a_cold_read,
        a_commit,
        losses,
    ],
)
def test_nothing_is_left_that_holds_only_itself(work: Callable[[Site], None]) -> None:
    site = site_with_groups()
    site.topic("u")
    site.topic("small", config=SMALL)
    acks_1(site)
    work(site)
    gc.collect()
    gc.disable()
    try:
        work(site)
        assert gc.collect() == 0
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("mechanism", "token"),
    [
        ("PLAIN", plain("alice", "wrong")),
        ("PLAIN", plain("nobody", "wrong")),
        ("PLAIN", bytes(60_000)),
        ("SCRAM-SHA-256", b"n,,n=alice"),
    ],
    ids=["wrong", "nobody", "no message of PLAIN", "no message of SCRAM"],
)
def test_a_log_in_that_fails_leaves_nothing_that_holds_only_itself(mechanism: str, token: bytes) -> None:
    """What is left would have the password, or 64 KB for whoever wants to send them."""
    site = secured()
    clients = [site.client(NAME) for _ in range(2)]

    def fail() -> None:
        handshake(clients[-1], mechanism)
        failed(site, clients.pop(), token)

    kept = list(clients)
    fail()
    gc.collect()
    gc.disable()
    try:
        fail()
        assert gc.collect() == 0
    finally:
        gc.enable()
    assert len(kept) == 2


def test_a_log_in_leaves_nothing_that_holds_only_itself() -> None:
    site = secured()
    clients = [site.client(NAME) for _ in range(4)]

    def log_in() -> None:
        for client, mechanism in zip(clients, ("PLAIN", "SCRAM-SHA-512", "PLAIN", "SCRAM-SHA-256"), strict=True):
            if client.connection.session.login.user == "":
                logged_in(site, mechanism, client=client)
                return

    for _ in range(2):
        log_in()
    gc.collect()
    gc.disable()
    try:
        for _ in range(2):
            log_in()
        assert gc.collect() == 0
    finally:
        gc.enable()
