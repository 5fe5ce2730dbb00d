"""PURE: check whether mosquitto's reports of losses in `$SYS` arrive, so that silence is no sign of health.

mosquitto publishes `$SYS` as retained messages, so a subscriber receives each value at once, and the uptime again every
`sys_interval`: silence has a bound. Does not contain: clocks; times are arguments, in seconds of one clock.

| watch `mqtt_drops` | state |
|---|---|
| not subscribed, or for less than FIRST_S | unknown, too early for a log line: the count is cumulative |
| mosquitto refuses the subscription, or ends the connection for it | unknown |
| no uptime, or no count of drops, in FIRST_S since SUBACK | unknown: an ACL, `sys_interval 0`, or no mosquitto |
| no uptime for INTERVALS_MAX intervals and FIRST_S | unknown: `$SYS` has fallen silent |
| else | ok |

| watch `mqtt_oversize`: mosquitto's notices, in its log topic | state |
|---|---|
| as `mqtt_drops` where it is unknown, as it needs the same | unknown |
| clients have connected, and no notice of it arrived | unknown: no `log_dest topic`, or no right to read it |
| else: a notice arrived, or no client has connected | ok |

`$SYS/broker/load/connections/1min` says whether clients connect: without any, it decays by a known factor.
Source: mosquitto(8), broker status; mosquitto.conf(5), sys_interval, log_dest, connection_messages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from drupelet.observe.watches import Watch, early, ok, unknown_watch

DROPPED_TOPIC = "$SYS/broker/publish/messages/dropped"
UPTIME_TOPIC = "$SYS/broker/uptime"
LOG_TOPIC = "$SYS/broker/log/N"  # notices
CONNECTIONS_TOPIC = "$SYS/broker/load/connections/1min"
DROPS_TOPICS = (UPTIME_TOPIC, DROPPED_TOPIC)
OVERSIZE_TOPICS = (UPTIME_TOPIC, CONNECTIONS_TOPIC, LOG_TOPIC)
DROPS, OVERSIZE = "mqtt_drops", "mqtt_oversize"

FIRST_S = 5.0
INTERVALS_MAX = 3
SYS_INTERVAL_S = 10.0  # mosquitto's default
CONNECTIONS_SLACK = 0.02  # mosquitto writes two digits
_KEYS = {DROPS: "mqtt.watch_drops", OVERSIZE: "mqtt.watch_oversize"}


def watched_topics(*, drops: bool, oversize: bool) -> list[str]:
    """Return the `$SYS` topics to subscribe to for these watches, each once."""
    return list(dict.fromkeys([*(DROPS_TOPICS if drops else ()), *(OVERSIZE_TOPICS if oversize else ())]))


class SysSignals:
    """The `$SYS` messages that arrived on the present connection."""

    def __init__(self, peer: str, *, drops: bool = True, oversize: bool = True) -> None:
        """Start without a connection; `peer` is HOST:PORT of mosquitto, `drops` and `oversize` enable the watches."""
        self._peer = peer
        self._wanted = [name for name, wanted in ((DROPS, drops), (OVERSIZE, oversize)) if wanted]
        self._interval_s = SYS_INTERVAL_S
        self._subscribed_s: float | None = None
        self._refused: Mapping[str, str] = {}
        self._heard: set[str] = set()
        self._uptime_s: int | None = None
        self._last_s = 0.0
        self._notices = 0
        self._load: tuple[float, int] | None = None  # connections per minute, and the uptime then
        self._is_deaf = False

    @property
    def wants_drops(self) -> bool:
        """Whether the configuration enables the watch of drops."""
        return DROPS in self._wanted

    def connection_ended(self) -> None:
        """Discard the messages of the ended connection."""
        self._subscribed_s, self._refused, self._heard = None, {}, set()
        self._uptime_s, self._load, self._notices, self._is_deaf = None, None, 0, False

    def suback_received(self, now_s: float, refused: Mapping[str, str]) -> None:
        """Note the SUBACK; `refused` has the reason for each topic that mosquitto refuses."""
        self._subscribed_s, self._refused = now_s, refused
        self._last_s = max(self._last_s, now_s)

    def reading_resumed(self, now_s: float) -> None:
        """Note that the gateway reads the socket again: it caused the silence until now."""
        self._last_s = max(self._last_s, now_s)

    def notice(self) -> None:
        """Note a message of the log topic."""
        self._notices += 1
        self._is_deaf = False

    def expect_notice(self) -> None:
        """Note that a client connects now; a notice of it must arrive."""
        self._is_deaf = True

    def uptime(self, uptime_s: int, now_s: float) -> None:
        """Note mosquitto's uptime; the step from the last one is its `sys_interval`."""
        if self._uptime_s is not None and uptime_s > self._uptime_s:
            self._interval_s = max(self._interval_s, uptime_s - self._uptime_s)
        self._uptime_s, self._last_s = uptime_s, now_s
        self._heard.add(UPTIME_TOPIC)

    def drops_received(self) -> None:
        """Note that the count of drops has arrived."""
        self._heard.add(DROPPED_TOPIC)

    def connections(self, per_minute: float, *, retained: bool) -> None:
        """Note how many clients connect; notices from before the first unretained value are not expected."""
        self._heard.add(CONNECTIONS_TOPIC)
        if retained or self._uptime_s is None:
            return
        before, self._load = self._load, (per_minute, self._uptime_s)
        notices, self._notices = self._notices, 0
        if before is None:
            return
        decayed = before[0] * math.exp(min(0, before[1] - self._uptime_s) / 60)
        if per_minute > decayed + CONNECTIONS_SLACK:
            self._is_deaf = notices == 0

    def watches(self, now_s: float) -> list[Watch]:
        """Return the state of each enabled watch."""
        return [self._watch(name, now_s) for name in self._wanted]

    def _watch(self, name: str, now_s: float) -> Watch:
        needed = DROPS_TOPICS if name == DROPS else OVERSIZE_TOPICS
        refused = next(((topic, self._refused[topic]) for topic in needed if topic in self._refused), None)
        if refused is not None:
            remedy = self._remedy(name, refused[0])
            return unknown_watch(name, f"mosquitto at {self._peer} refuses {refused[0]} ({refused[1]}): {remedy}")
        if self._subscribed_s is None:
            return early(name, f"no subscription to $SYS of mosquitto at {self._peer} yet")
        missing = [topic for topic in needed if topic not in self._heard and topic != LOG_TOPIC]
        silent_s = now_s - self._last_s
        if missing and now_s - self._subscribed_s < FIRST_S:
            return early(name, f"nothing heard yet of mosquitto at {self._peer}, which has {FIRST_S:.0f} s for it")
        if missing:
            return unknown_watch(
                name, f"mosquitto at {self._peer} sends no {missing[0]}: {self._remedy(name, missing[0])}"
            )
        if silent_s > INTERVALS_MAX * self._interval_s + FIRST_S:
            remedy = self._remedy(name, UPTIME_TOPIC)
            return unknown_watch(
                name, f"mosquitto at {self._peer} has sent no {UPTIME_TOPIC} for {silent_s:.0f} s: {remedy}"
            )
        if name == OVERSIZE and self._is_deaf:
            return unknown_watch(
                name,
                f"clients connect to mosquitto at {self._peer}, and {LOG_TOPIC} does not say so: set log_dest topic "
                "and connection_messages true in mosquitto.conf, let this user read it, or accept that by "
                f"{_KEYS[name]} = false",
            )
        return ok(name)

    def _remedy(self, name: str, topic: str) -> str:
        """Return what to do, in the same words for all watches that need the topic."""
        needing = self._wanted if topic == UPTIME_TOPIC else [name]
        keys = " and ".join(_KEYS[watch] for watch in needing)
        return f"let this user read $SYS/#, set sys_interval in mosquitto.conf, or accept that by {keys} = false"
