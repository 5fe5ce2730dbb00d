"""The times of a member, from the configuration: session, ticks, fetches, controlled shutdown.

Does not contain: what a member does with them (edge_broker.cluster).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_broker.cluster.partition.partition import Settings

if TYPE_CHECKING:
    from edge_broker.configuration.config import BrokerConfig

TICKS_OF_CALM = 60
TICK_S = 0.1
CALM_MS = 1.5 * TICKS_OF_CALM * TICK_S * 1000  # what is soon, also where ticks come late
TICKS_OF_FETCHES = 5
TICKS_A_SESSION = 12  # of ZooKeeper's, one of which it may be late: 6 s at tickTime=500
NEVER_MS = 1e15
EARLY_PER_FETCH = 4  # so that the fetches of idle partitions come together
UNDER_WAY_PER_LAG = 2.5  # of an idle partition's fetches within replica.lag.time.max.ms


def asked_session_ms(silent_ms: int) -> int:
    """Return the session to request, so that ZooKeeper, which checks once a tick, ends it after so long a silence."""
    return silent_ms - silent_ms // TICKS_A_SESSION


def member_settings(config: BrokerConfig) -> Settings:
    """Return the rules of a member; a leader keeps orders, so a follower repeats one only to show that it is alive."""
    lag_ms = float(config.integer("replica.lag.time.max.ms"))
    rebalances = config.boolean("auto.leader.rebalance.enable")
    idle_ms = lag_ms / UNDER_WAY_PER_LAG
    return Settings(
        lag_ms_max=lag_ms,
        fetch_wait_ms=idle_ms,
        fetch_timeout_ms=idle_ms,
        ticks_of_calm=TICKS_OF_CALM,
        calm_ms=CALM_MS,
        ticks_of_fetches=TICKS_OF_FETCHES,
        fetch_early_ms=idle_ms / EARLY_PER_FETCH,
        balance_ms=config.integer("leader.imbalance.check.interval.seconds") * 1000.0 if rebalances else NEVER_MS,
        imbalance_percent=config.integer("leader.imbalance.per.broker.percentage"),
        leave_tries=config.integer("controlled.shutdown.max.retries"),
        leave_backoff_ms=float(config.integer("controlled.shutdown.retry.backoff.ms")),
    )


def leave_ms_max(settings: Settings) -> float:
    """Return how long all tries of a controlled shutdown may take."""
    tries = settings.leave_tries
    return tries * settings.hand_over_ms_max + max(tries - 1, 0) * settings.leave_backoff_ms
