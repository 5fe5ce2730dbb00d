"""Rounds of faults under load against a whole cluster of real processes; what happens is in `cluster_rounds`.

One seed draws all faults, their order and their times: `--seed` repeats them, though not what processes were doing at
that moment. `--cluster-rounds` is how many.
"""

import random
import time

import pytest

from tests.fault.cluster_rounds import BOARDS, ENSEMBLE, KINDS, OF_A_PROCESS, RealCluster, draw
from tests.support.cluster_history import sent_anew, violations
from tests.support.routed_hosts import RoutedHosts

ROUNDS = 2
FAULTS = (3, 7)


def play(directory, hosts, chance, rounds):
    with RealCluster(directory, hosts, chance) as cluster:
        for number in range(1, rounds + 1):
            faults = draw(chance, chance.randint(*FAULTS))
            print(f"round {number}:", *faults, flush=True)
            began = time.monotonic()
            history = cluster.round(f"round{number}", faults, chance)
            found = violations(history)
            acked, shown, lost = len(history.acked), len(history.shown), len(history.ledger)
            took_s = time.monotonic() - began
            print(f"  {acked} acked, {shown} shown, {lost} in ledgers, {took_s:.0f} s", flush=True)
            for each in sent_anew(history):
                print(f"  {each}", flush=True)
            assert not found, "\n".join(found[:20])
            cluster.delete_topic(f"round{number}")


@pytest.mark.root
@pytest.mark.night
@pytest.mark.timeout(7200)
def test_a_cluster_keeps_its_promises_over_rounds_of_faults(tmp_path, chance, request):
    rounds = request.config.getoption("--cluster-rounds") or ROUNDS
    addresses = {**{f"board-{number}": [address] for number, address in BOARDS.items()}, "ensemble": ENSEMBLE}
    with RoutedHosts(tmp_path / "hosts", addresses) as hosts:
        hosts.router.call(play, tmp_path, hosts, chance, rounds)


def test_one_seed_draws_one_order_of_faults():
    first, again, other = (draw(random.Random(seed), 40) for seed in (5, 5, 6))
    assert first == again
    assert first != other
    assert {fault.kind for fault in first} == set(KINDS)


def test_of_one_process_there_is_one_fault_at_a_time():
    for seed in range(50):
        faults = draw(random.Random(seed), 12)
        assert faults == sorted(faults, key=lambda fault: fault.begins_s)
        for number, fault in enumerate(faults):
            assert fault.ends_s > fault.begins_s
            for before in faults[:number]:
                if fault.begins_s <= before.ends_s and fault.kind == "server":
                    assert before.kind != "server"
                if fault.begins_s <= before.ends_s and fault.kind in OF_A_PROCESS and before.kind in OF_A_PROCESS:
                    assert fault.whom != before.whom
