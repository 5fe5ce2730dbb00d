"""Rounds of faults that follow each other in any order: mirrors, both brokers and the link between them, all real.

    load ─► source (edge) ──► mirror, and a second one that stands by ──► link ──► target (Apache Kafka; edge)

Each round draws some acts under load, and is ended by `edge-mirror audit`. One seed draws all of it: `--seed`
repeats it, though not what the processes were doing at that moment.

| act | what it does |
|---|---|
| kill, stop | the mirror that writes, by SIGKILL or cleanly; it is started again, or the one that stands by goes on |
| pause | SIGSTOP for a moment |
| source, target | SIGKILL of a broker, and its start |
| refuse, blackhole | the link is cut for a moment, and mended |
| drop | all connections of the link are reset |

Invariants, after each round: every record that was acknowledged at the source is at the target, once and in order, and
nothing is in the ledger or pending; a mirror that writes is well. With transactions the same is so for readers of
committed records, and they wait for nothing once all is mirrored.
"""

from __future__ import annotations

import json
import os
import signal
import time

import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.support.mirror_road import Load, audit, create_topic, standings, two_mirrors
from tests.support.processes import ApacheKafka, EdgeBroker, TcpProxy, free_port, wait_until
from tests.support.waiting import CALL_S

ROUNDS = 60
PARTITIONS = 3
RATE = 300  # records per second: enough to have some under way, few enough for an audit of all after each round
YOUNG_SHARE = 0.6  # of the rounds, in which what is lost is sent again as it is
MOMENT_S = 2.5
TIMEOUT_MS = 5000  # of a transaction: two moments without the mirror, and it times out
TRANSACTIONS = {"transactions": True, "transaction_timeout_ms": TIMEOUT_MS}
QUICK = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 500}  # in place of ten seconds
ACTS = {"kill": 4, "stop": 2, "pause": 2, "source": 2, "target": 1, "refuse": 2, "blackhole": 2, "drop": 2}


class Road:
    """Source, link and target, and two mirrors of one site."""

    def __init__(self, source, link, target, directory, settings):
        self.source, self.link, self.target = source, link, target
        self.mirrors = two_mirrors(directory, source.bootstrap, link.bootstrap, settings)
        self.runs_transactions = bool(settings)
        self.acked = 0

    @property
    def mirror(self):
        """The mirror of the two that writes, or either while none does."""
        return next((one for one in self.mirrors if one.running and writes(one)), self.mirrors[0])

    def act(self, act, chance):
        """Do one of ACTS, with an end: after it, everything is there again."""
        moment_s = chance.uniform(0.05, MOMENT_S)
        if act in ("kill", "stop"):
            mirror = self.mirror
            mirror.kill() if act == "kill" else mirror.stop()
            time.sleep(moment_s)
            mirror.start()
        elif act == "pause":
            pid = self.mirror.pid
            os.kill(pid, signal.SIGSTOP)
            time.sleep(moment_s)
            os.kill(pid, signal.SIGCONT)
        elif act in ("source", "target"):
            broker = getattr(self, act)
            broker.kill()
            time.sleep(moment_s)
            broker.start()
        elif act == "drop":
            self.link.drop_connections()
        else:
            self.link.cut(act)
            time.sleep(moment_s)
            self.link.restore()

    def round(self, acts, chance):
        """Some acts under load, then what must hold."""
        is_young = chance.random() < YOUNG_SHARE
        with Load(self.source.bootstrap, "readings", PARTITIONS, per_second=RATE, is_young=is_young) as load:
            for act in acts:
                time.sleep(chance.uniform(0.0, MOMENT_S))
                self.act(act, chance)
        self.acked += sum(map(len, load.acked.values()))
        wait_until(self.is_done, 60, f"all mirrored after {acts}", poll_s=0.3)
        wait_until(lambda: is_well(self.mirror), 20, f"a mirror that is well after {acts}", poll_s=0.2)
        found = audit(self.source.bootstrap, self.target.bootstrap)
        assert found.proven, f"after {acts}: {found.text}"
        assert sum(one["source"]["mirrored"] for one in found.partitions) >= self.acked
        assert sum(one["source"]["ledgered"] + one["source"]["pending"] for one in found.partitions) == 0

        if self.runs_transactions:
            assert [stable - end for stable, end in map(self.ends, range(PARTITIONS))] == [0] * PARTITIONS

    def ends(self, partition):
        """The last stable offset of a partition of the target, and its end."""
        admin = AdminClient({"bootstrap.servers": self.target.bootstrap})
        place = TopicPartition("lab.readings", partition)
        asked = [
            admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=isolation, request_timeout=CALL_S)[place]
            for isolation in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        ]
        return [one.result(CALL_S).offset for one in asked]

    def told(self, event):
        """How often both mirrors have logged an event, in all their lives."""
        return sum(len(mirror.events(event)) for mirror in self.mirrors)

    def is_done(self):
        """Whether the mirror's group has the end of every partition."""
        rows = standings(self.source.bootstrap, check=False)
        return len(rows) == PARTITIONS and all(row["lag"] == 0 for row in rows)


def writes(mirror):
    """Whether this mirror's partitions go on, as it says itself."""
    try:
        return bool(json.loads(mirror.get("/status")[1])["partitions"])
    except OSError:
        return False


def is_well(mirror):
    """Whether it says so."""
    try:
        return mirror.get("/health")[0] == 200
    except OSError:
        return False


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("broker_class", "settings", "share"),
    [
        pytest.param(ApacheKafka, {}, 7, id="kafka"),
        pytest.param(EdgeBroker, {}, 5, id="edge", marks=pytest.mark.night),  # test_mirror.py has that target, too
        pytest.param(ApacheKafka, TRANSACTIONS, 3, id="kafka-transactions"),
    ],
)
def test_nothing_is_lost_doubled_or_out_of_order_over_many_rounds(
    broker_class, settings, share, request, chance, tmp_path
):
    rounds = (request.config.getoption("--rounds") or ROUNDS) * share // 60
    port = free_port()
    more = {"settings": QUICK} if settings else {}
    with (
        TcpProxy(f"127.0.0.1:{port}") as link,
        broker_class(tmp_path, name="target", port=port, advertise=link.bootstrap, **more) as target,
        EdgeBroker(tmp_path, name="source") as source,
    ):
        create_topic(source.bootstrap, "readings", PARTITIONS)
        road = Road(source, link, target, tmp_path, settings)
        with road.mirrors[0], road.mirrors[1]:
            for _ in range(max(1, rounds)):
                acts = chance.choices(list(ACTS), weights=list(ACTS.values()), k=chance.randint(1, 3))
                print(*acts)
                road.round(acts, chance)
            if settings:
                assert sum(one.metric("edge_mirror_transactions_total") for one in road.mirrors) > 0
                broken = {name: road.told(f"transaction_{name}") for name in ("broke_off", "timed_out")}
                print("transactions that", broken)
