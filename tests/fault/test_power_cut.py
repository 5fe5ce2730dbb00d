"""The broker as it is run, real clients, and a disk that forgets what was not synced: the power is cut again and again.

The first start is cut at one step after another: while the data directory is made, then a topic, then its first record.
Then the power is cut under load, at any write, sync or change of names; some starts after it are cut as well. What must
hold is in `rounds`, and the broker starts by itself, whatever is left on the disk.
"""

import json

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from drupelet.ledger import LEDGER_TOPIC
from tests.fault.disk import FuseDisk
from tests.fault.rounds import EDGE_SETTINGS, Rounds
from tests.fault.workload import QUICK
from tests.support.kafka_reading import read_topic
from tests.support.processes import EdgeBroker
from tests.support.waiting import CALL_S, wait_until

pytestmark = pytest.mark.root("fuse")
FIRST = "first"
HASTY = "hasty"
RECORDS = 4
CUTS_SHORT = 4  # of each kind
CUTS_OF_ACKS_1 = 8  # test_acks_1_cuts.py cuts a whole broker 200 times, on a disk in memory


class FirstHour:
    """A node's first start, first topic and first records, up to the moment when its disk freezes."""

    def __init__(self, disk, broker):
        self.disk, self.broker = disk, broker
        self.topic_made = False
        self.acked = {}

    def live(self, step):
        """Go as far as the disk lets; False when it froze."""
        self.disk.freeze(step)
        self.broker.spawn()
        return self._reach(lambda: "edge-broker ready" in self.broker.output()) and self._use()

    def _use(self):
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap, **QUICK})
        made = admin.create_topics([NewTopic(FIRST, 2, 1)])[FIRST]
        self.topic_made = self._reach(made.done)
        if not self.topic_made:
            return False
        made.result()
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "enable.idempotence": True, **QUICK})
        for number in range(RECORDS):
            producer.produce(FIRST, f"record {number}".encode(), partition=number % 2, on_delivery=self._note)
            if not self._reach(lambda: producer.poll(0) or not len(producer)):
                producer.purge()
                return False
        return True

    def _note(self, error, message):
        if error is None:
            self.acked[message.partition(), message.offset()] = message.value()

    def _reach(self, condition):
        while not condition():
            if self.disk.wait_frozen(0.005):
                return False
            self.broker.check()
        return True

    def check(self):
        """After the cut: what was answered holds."""
        topics = AdminClient({"bootstrap.servers": self.broker.bootstrap, **QUICK}).list_topics(timeout=CALL_S).topics
        assert not self.topic_made or len(topics[FIRST].partitions) == 2
        found = read_topic(self.broker.bootstrap, FIRST) if self.acked else []
        log = {(read.partition, read.offset): read.value for read in found}
        assert self.acked.items() <= log.items()


@pytest.mark.timeout(300)
def test_a_first_start_cut_at_any_step_can_be_repeated(tmp_path, chance, is_long):
    """Later and later, until an hour is lived to its end; the long form leaves no step out."""
    stride_max = 1 if is_long else 14
    hours, step, lived = [], 0, False
    with FuseDisk(tmp_path, seed=chance.randrange(1 << 32), ordered=chance.random() < 0.5) as disk:
        while not lived:
            step += chance.randint(1, stride_max)
            broker = EdgeBroker(tmp_path, name="node", data_dir=disk.mountpoint / f"node-{step}")
            hours.append(FirstHour(disk, broker))
            lived = hours[-1].live(step)
            disk.cut(broker)
            with broker:
                hours[-1].check()
                broker.kill()
    assert not hours[0].topic_made, "no cut came before the first topic"
    assert len(hours[-1].acked) == RECORDS


class Cuts:
    """How the power goes."""

    def __init__(self, disk, broker, chance):
        self.disk, self.broker, self.chance = disk, broker, chance

    def lose(self):
        """At one of the next changes of the disk; one start in four that follow is cut, too."""
        self.disk.freeze(self.chance.randint(1, 300))
        wait_until(lambda: self.disk.wait_frozen(1), 30, "a change of the disk that freezes it", seen=self.disk.state)
        self.disk.cut(self.broker)
        while self.chance.random() < 0.25:
            self.disk.freeze(self.chance.randint(1, 40))
            self.broker.spawn()
            if self._is_ready() and self.disk.spare():
                return
            self.disk.cut(self.broker)

    def _is_ready(self):
        while "edge-broker ready" not in self.broker.output():
            if self.disk.wait_frozen(0.005):
                return False
            self.broker.check()
        return True


@pytest.mark.timeout(900)
@pytest.mark.parametrize("ordered", [False, True], ids=["free", "ordered"])
def test_nothing_promised_is_lost_over_many_power_cuts(tmp_path, chance, request, ordered):
    cuts = (request.config.getoption("--rounds") or 4 * CUTS_SHORT) // 4
    with FuseDisk(tmp_path, seed=chance.randrange(1 << 32), ordered=ordered) as disk:
        broker = EdgeBroker(tmp_path, data_dir=disk.mountpoint / "data", settings=EDGE_SETTINGS)
        with broker, Rounds(broker, 60, chance) as run:
            power = Cuts(disk, broker, chance)
            for _ in range(cuts):
                run.run(power.lose, chance)
            run.finish()


class Hasty:
    """A producer of acks=1, and what the ledger says of what it was answered: `ends` by partition."""

    def __init__(self, broker, chance):
        self.broker, self.chance = broker, chance
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, **QUICK})
        admin.create_topics([NewTopic(HASTY, 3, 1)])[HASTY].result(30)
        self.ends = dict.fromkeys(range(3), 0)
        self.told = 0

    def produce(self, until):
        """Produce, each answer awaited, until something happens."""
        producer = Producer(
            {"bootstrap.servers": self.broker.bootstrap, "acks": 1, "retries": 0, "linger.ms": 0, **QUICK}
        )
        while not until():
            producer.produce(HASTY, b"x" * 200, partition=self.chance.randrange(3), on_delivery=self._note)
            producer.poll(0.002)
        producer.purge()

    def _note(self, error, message):
        if error is None:
            self.ends[message.partition()] = max(self.ends[message.partition()], message.offset() + 1)

    def check(self):
        """How many answered records are gone; each is in what the ledger was told since the last check."""
        records = [json.loads(read.value) for read in read_topic(self.broker.bootstrap, LEDGER_TOPIC)]
        new, self.told = [entry for entry in records[self.told :] if entry["topic"] == HASTY], len(records)
        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": "-"})
        lost = 0
        for partition, answered in self.ends.items():
            end = consumer.get_watermark_offsets(TopicPartition(HASTY, partition), timeout=10)[1]
            mine = [(entry["first_offset"], entry["last_offset"]) for entry in new if entry["partition"] == partition]
            for offset in range(end, answered):
                assert any(first <= offset and (last is None or offset <= last) for first, last in mine), (offset, mine)
            lost, self.ends[partition] = lost + max(answered - end, 0), end
        consumer.close()
        return lost, new


@pytest.mark.timeout(300)
def test_what_cuts_take_of_acks_1_is_in_the_ledger_and_a_kill_writes_nothing_there(tmp_path, chance, request, is_long):
    cuts, lost = request.config.getoption("--rounds") // 2 if is_long else CUTS_OF_ACKS_1, 0
    with FuseDisk(tmp_path, seed=chance.randrange(1 << 32), ordered=chance.random() < 0.5) as disk:
        broker = EdgeBroker(tmp_path, data_dir=disk.mountpoint / "data", settings=EDGE_SETTINGS)
        with broker:
            hasty = Hasty(broker, chance)
            for _ in range(cuts):
                disk.freeze(chance.randint(20, 400))
                hasty.produce(lambda: disk.wait_frozen(0))
                disk.cut(broker)
                broker.start()
                lost += hasty.check()[0]
                enough = sum(hasty.ends.values()) + chance.randint(1, 300)
                hasty.produce(lambda enough=enough: sum(hasty.ends.values()) > enough)
                broker.kill()
                broker.start()
                assert hasty.check() == (0, [])
    assert lost, "no cut took anything"
