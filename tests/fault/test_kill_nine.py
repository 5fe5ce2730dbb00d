"""kill -9 of the broker under load, again and again; what must hold is in `rounds`."""

import pytest

from tests.fault.rounds import EDGE_SETTINGS, Rounds
from tests.support.processes import ApacheKafka, EdgeBroker

ROUNDS = 20
KAFKA_ROUNDS = 3  # it takes 12 s to come back after a kill


@pytest.fixture
def broker_and_rounds(request, tmp_path):
    if request.config.getoption("--broker") == "kafka":
        with ApacheKafka(tmp_path, settings={"group.initial.rebalance.delay.ms": 0}) as kafka:
            yield kafka, KAFKA_ROUNDS
    else:
        with EdgeBroker(tmp_path, settings=EDGE_SETTINGS) as edge:
            yield edge, request.config.getoption("--rounds") or ROUNDS


@pytest.mark.timeout(900)
def test_nothing_promised_is_lost_over_many_kills(broker_and_rounds, chance):
    broker, rounds = broker_and_rounds
    with Rounds(broker, 60, chance) as run:
        for _ in range(rounds):
            run.run(broker.kill, chance)
        run.finish()
