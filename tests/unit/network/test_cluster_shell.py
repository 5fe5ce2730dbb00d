"""A bug in one step of a member's shell: what is behind it is carried out, neighbours and ticks go on."""

from __future__ import annotations

import asyncio
import errno
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from edge_broker.broker.cluster.follower_fetch_sessions import FetchSession, FollowerFetches, Waiting
from edge_broker.broker.effects import Effect, Effects
from edge_broker.cluster.effects import (
    AdvanceHighWatermark,
    Broke,
    KeepCopy,
    KeepStates,
    Objects,
    Send,
    ShutdownReady,
    StartAnew,
    Stray,
)
from edge_broker.cluster.inter_broker_messages import HandOver
from edge_broker.cluster.partition.partition import Settings
from edge_broker.cluster.state.cluster_state import PartitionId
from edge_broker.cluster.state.lines import Relation
from edge_broker.configuration.config import read_config
from edge_broker.errors import ErrorCode, StorageFault
from edge_broker.network.cluster import member_runtime
from edge_broker.network.cluster.jobs.replica_jobs import ReplicaJobs
from edge_broker.network.cluster.member_runtime import ClusterShell
from edge_broker.network.cluster.member_settings import NEVER_MS, asked_session_ms, leave_ms_max, member_settings
from edge_broker.network.log_lines import LINES_MAX, LimitedLog
from edge_broker.storage.metadata.cluster_copy import ClusterCopy
from edge_broker.storage.metadata.kept_states import KeptState, LogId, read_kept_states
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.testing.loop import Loop
from tests.support.storage import failing

P0, P1 = PartitionId("t", 0), PartitionId("t", 1)
SET = {
    "leader.imbalance.check.interval.seconds": 7,
    "leader.imbalance.per.broker.percentage": 25,
    "controlled.shutdown.max.retries": 2,
    "controlled.shutdown.retry.backoff.ms": 300,
}


def a_shell() -> Any:
    """A shell that carries out AdvanceHighWatermark, Stray and Send into a list, and fails where it is told to."""
    shell: Any = ClusterShell.__new__(ClusterShell)
    shell.done, shell.offline, shell.broken = [], [], None

    def carry_out(effect: object) -> None:
        if effect == shell.broken:
            raise RuntimeError("a bug")
        shell.done.append(effect)

    nothing = lambda *_: None  # noqa: E731
    shell.member = SimpleNamespace(effects=[], faults=[], tick=nothing, registrations={}, protection=None)
    shell.links = SimpleNamespace(drop_unused=nothing, close=nothing)
    shell._ensemble = SimpleNamespace(tick=nothing)
    shell._loop = SimpleNamespace(time=lambda: 0.0)
    shell._zookeeper = SimpleNamespace(replace_dead_client=nothing, client_died=False)
    shell.cluster = SimpleNamespace(
        replication=SimpleNamespace(fetches=FollowerFetches()), view=SimpleNamespace(), update=nothing, tick=nothing
    )

    def fail(partition: PartitionId, error: Exception) -> None:
        shell.offline.append((partition, str(error)))

    shell.replicas = SimpleNamespace(
        logs=SimpleNamespace(fail=fail, end_log_window=nothing), space=SimpleNamespace(look_at_room=nothing)
    )
    shell._dispatcher = SimpleNamespace(failures=0, apply=nothing)
    shell._broker = SimpleNamespace(clock=SimpleNamespace(boot_ms=lambda: 7.0))
    shell._carriers = dict.fromkeys((AdvanceHighWatermark, Stray, Send), carry_out)
    shell._carrying = shell._looking = False
    shell._log_unserved = nothing
    shell._log = LimitedLog(Loop())
    return shell


def test_what_is_behind_an_effect_that_fails_is_carried_out(capsys: pytest.CaptureFixture[str]) -> None:
    shell = a_shell()
    shell.broken = AdvanceHighWatermark(P0, 5)
    shell.member.effects += [AdvanceHighWatermark(P0, 5), AdvanceHighWatermark(P1, 6), Send(2, HandOver(P1, 2))]
    shell._carry_out()
    assert shell.done == [AdvanceHighWatermark(P1, 6), Send(2, HandOver(P1, 2))]
    assert shell.offline == [(P0, "a bug")], "nobody knows what its log is"
    assert shell._dispatcher.failures == 1
    assert "RuntimeError: a bug" in capsys.readouterr().err


def test_an_effect_that_is_no_logs_takes_none_offline() -> None:
    shell = a_shell()
    shell.broken = Stray("t", "id")
    shell.member.effects += [Stray("t", "id"), AdvanceHighWatermark(P0, 5)]
    shell._carry_out()
    assert (shell.done, shell.offline, shell._dispatcher.failures) == ([AdvanceHighWatermark(P0, 5)], [], 1)


def test_every_effect_has_somebody_who_carries_it_out() -> None:
    shell: Any = ClusterShell.__new__(ClusterShell)
    shell._zookeeper = shell._left = _Anything()
    shell.replicas = jobs = ReplicaJobs.__new__(ReplicaJobs)
    jobs.topics, jobs.follower, jobs.truncation = (cast(Any, _Anything()) for _ in range(3))
    assert {each.__name__ for each in shell._table()} == {each.__name__ for each in _effects()}


class _Anything:
    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def _effects() -> tuple[type, ...]:
    from edge_broker.cluster.effects import Effect as AnyEffect

    assert ShutdownReady in AnyEffect.__args__
    assert StartAnew in AnyEffect.__args__
    return AnyEffect.__args__  # type: ignore[no-any-return]


def test_what_a_decision_has_left_before_its_bug_is_carried_out() -> None:
    shell = a_shell()

    def decides(_now_ms: float) -> None:
        shell.member.effects.append(AdvanceHighWatermark(P0, 5))
        raise RuntimeError("a bug")

    shell.turn(decides)
    assert (shell.done, shell._dispatcher.failures) == ([AdvanceHighWatermark(P0, 5)], 1)


async def test_ticks_go_on_behind_one_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_runtime, "TICK_S", 0)
    shell, ticks, enough = a_shell(), [], asyncio.Event()

    def tick(now_ms: float) -> None:
        ticks.append(now_ms)
        if len(ticks) == 3:
            enough.set()
        raise RuntimeError("a bug")

    shell.cluster.tick = tick
    ticking = asyncio.ensure_future(shell._tick())
    async with asyncio.timeout(10):
        await enough.wait()
    ticking.cancel()
    with suppress(asyncio.CancelledError):
        await ticking
    assert shell._dispatcher.failures == 3


def test_a_follower_that_cannot_be_answered_costs_nobody_else() -> None:
    shell = a_shell()
    broker = SimpleNamespace(effects=Effects())
    bad, good = (FetchSession(broker, shell.cluster, shell.cluster, number) for number in (2, 3))  # type: ignore[arg-type]
    looked: list[float] = []

    def fails(_at_ms: float) -> None:
        raise RuntimeError("a bug")

    bad.answer_if_due, good.answer_if_due = fails, looked.append  # type: ignore[method-assign]
    bad._waiting.append(Waiting(11, 500.0))
    shell.cluster.replication.fetches._sessions = {"a": bad, "b": good}
    shell._carry_out()
    assert looked == [7.0]
    ((kind, (token, response)),) = broker.effects.left
    assert (kind, token, response.error_code) == (Effect.ANSWER, 11, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert bad._waiting == []


def test_who_waits_at_the_end_is_told_that_others_lead_before_the_session_ends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shell, told = a_shell(), []
    shell.member.event_received = lambda event, _now_ms: told.append(type(event).__name__)
    shell._ticking = SimpleNamespace(cancel=lambda: told.append("ticks end"))
    shell.links = SimpleNamespace(close=lambda: told.append("links end"))
    shell._zookeeper = SimpleNamespace(close=lambda: told.append("session ends"))
    fs = SimpleNamespace(remove=lambda path: told.append(f"{path} goes"))
    shell._broker.store = SimpleNamespace(fs=fs, data_dir="/data")

    for number in range(LINES_MAX + 5):
        shell._log.line("warning", "ledger_entries_not_accepted", number=number)

    async def close() -> None:
        shell._loop = asyncio.get_running_loop()
        await shell.close()

    asyncio.run(close())
    assert "lines_summed of=ledger_entries_not_accepted left_out=5 " in capsys.readouterr().err, (
        "no count waits for a line"
    )
    assert told == ["Expired", "ticks end", "links end", "session ends", "/data/zookeeper-session goes"]


def test_a_partition_that_met_a_bug_goes_offline_and_leaves_its_trace(capsys: pytest.CaptureFixture[str]) -> None:
    shell = a_shell()
    shell._carriers[Broke] = shell._broke
    shell.member.effects += [Broke(P0, RuntimeError("a bug")), AdvanceHighWatermark(P1, 6)]
    shell._carry_out()
    assert (shell.offline, shell.done, shell._dispatcher.failures) == (
        [(P0, "a bug")],
        [AdvanceHighWatermark(P1, 6)],
        1,
    )
    assert "a decision of t-0" in capsys.readouterr().err


@pytest.mark.parametrize(("silent_ms", "tick_ms"), [(1000, 50), (6000, 500), (30_000, 2000)])
def test_a_session_and_the_tick_that_zookeeper_is_late_are_over_behind_the_silence_that_is_configured(
    silent_ms: int, tick_ms: int
) -> None:
    assert silent_ms * 0.9 < asked_session_ms(silent_ms) <= silent_ms - tick_ms


def test_members_go_by_what_is_configured() -> None:
    found = member_settings(read_config(None, "", [f"{key}={value}" for key, value in SET.items()]))
    assert (found.balance_ms, found.imbalance_percent) == (7000.0, 25)
    assert (found.leave_tries, found.leave_backoff_ms, leave_ms_max(found)) == (2, 300.0, 10_300.0)
    assert member_settings(read_config(None, "", ["auto.leader.rebalance.enable=false"])).balance_ms == NEVER_MS
    default = member_settings(read_config(None, "", []))
    assert (default.imbalance_percent, default.leave_tries, default.leave_backoff_ms) == (10, 3, 5000.0)
    assert leave_ms_max(default._replace(leave_tries=0)) == 0.0


@pytest.mark.parametrize(("enabled", "told"), [(True, 1), (False, 0)])
async def test_a_controlled_shutdown_is_one_only_where_it_is_enabled(enabled: bool, told: int) -> None:
    shell, asked = a_shell(), []
    shell._broker.config = read_config(None, "", [f"controlled.shutdown.enable={enabled}"])
    shell.cluster.view.contradiction, shell.member.settings, shell.member.partitions = "", Settings(), {}
    shell._left = asyncio.Event()

    def shut_down(now_ms: float) -> None:
        asked.append(now_ms)
        shell._left.set()

    shell.member.shut_down = shut_down
    async with asyncio.timeout(10):
        await shell.leave()
    assert len(asked) == told


def test_a_shell_says_why_only_a_new_process_comes_back_into_the_cluster() -> None:
    shell = a_shell()
    shell._ticking = SimpleNamespace(done=lambda: False)
    assert shell.outside == ""
    shell._zookeeper.client_died = True
    assert "ZooKeeper has ended" in shell.outside
    shell._zookeeper.client_died, shell._ticking = False, SimpleNamespace(done=lambda: True)
    assert "no tick" in shell.outside


def a_shell_with_disk() -> tuple[Any, SimulatedDisk]:
    """Its work is carried out at once."""
    shell, disk = a_shell(), SimulatedDisk(1)
    disk.make_directory("/data")
    shell._broker = SimpleNamespace(
        clock=SimpleNamespace(boot_ms=lambda: 7.0),
        store=SimpleNamespace(fs=disk, data_dir="/data"),
        notes={},
        effects=SimpleNamespace(start=carry_out_work),
    )
    return shell, disk


def test_a_copy_that_the_disk_refuses_is_named_until_it_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    (shell, disk), told = a_shell_with_disk(), list[bool]()
    shell.member.copy_kept = lambda _, *, done: told.append(done)
    disk.fault = failing("write", number=errno.ENOSPC)
    shell._keep_copy(KeepCopy(ClusterCopy(7)))
    assert "cluster_copy_write_failed" in capsys.readouterr().err
    assert "cannot be written" in shell._broker.notes["cluster-copy"][0]
    disk.fault = None
    shell._keep_copy(KeepCopy(ClusterCopy(7)))
    assert (told, shell._broker.notes) == ([False, True], {})
    assert shell._read_copy() == ClusterCopy(7)


def test_kept_states_that_the_disk_refuses_are_named_until_they_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    (shell, disk), told = a_shell_with_disk(), list[bool]()
    shell.member.states_kept = lambda _, *, done: told.append(done)
    disk.fault = failing("write", number=errno.ENOSPC)
    effect = KeepStates({LogId("a" * 22, 0): KeptState("s1", 1, named=True)}, 5)
    shell._keep_states(effect)
    assert "kept_states_write_failed" in capsys.readouterr().err
    assert "cannot be kept" in shell._broker.notes["kept-states"][0]
    disk.fault = None
    shell._keep_states(effect)
    assert (told, shell._broker.notes) == ([False, True], {})
    assert read_kept_states(disk, "/data", (5,)) == effect.states


def test_a_state_of_another_line_is_logged_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    a_shell()._objects(Objects(P0, Relation.OLDER))
    line = capsys.readouterr().err
    assert "partition_state_refused topic=t partition=0 relation=older reason=" in line
    assert "action=" in line


def carry_out_work(work: Any) -> None:
    try:
        result = work.work()
    except StorageFault as error:  # as the dispatcher does
        work.failed(error)
    else:
        work.then(result)


@pytest.mark.parametrize("data", [None, b"drupelet cluster-copy 1 00000000\nas-of 1\n", b"\xff"])
def test_a_disk_without_a_copy_or_with_a_damaged_one_begins_one(data: bytes | None) -> None:
    shell, disk = a_shell(), SimulatedDisk(1)
    disk.make_directory("/data")
    if data is not None:
        disk.put("/data/cluster-copy", data)
    shell._broker.store = SimpleNamespace(fs=disk, data_dir="/data")
    assert shell._read_copy() == ClusterCopy()
