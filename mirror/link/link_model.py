"""PURE. Measures what the link to the target carries, by acknowledgements, and derives how to send.

| figure | is |
|---|---|
| rate | the most bytes per second that were acknowledged, of the last RATE_S |
| round trip | the shortest time from a request to its response, of the last ROUND_TRIP_S |
| in flight | bytes of batches sent and not acknowledged, wherever they are: in the process, in kernels, on the link |

| derived | rule |
|---|---|
| limit in flight | rate x (round trip + QUEUE_S): the link is full, and the next batch waits QUEUE_S at most |
| the same on a lossy link | rate x (round trip + QUEUE_LOSSY_S): data after a lost segment waits for it |
| a batch | what the link carries in BATCH_S |
| linger | LINGER_TIMES round trips, LINGER_S_MAX at most: a LAN waits for nothing, a thin link merges |
| zstd's level | 9 on a thin link, 1 on a fast one or a slow board, where the processor is short |
| a metered link | level 19 and LINGER_S_METERED, however fast it is: only its owner knows that bytes cost money |
| forwarding | batches unchanged: large ones of the wanted codec; on a fast link all that are not small |

Packing is a share of the time that the link takes for the packed bytes. Beyond SHORT the link soon waits for the
processor, of which level 9 takes LEVEL_TIMES as much as level 1 for an eighth to a sixth less bytes. On a metered link
the level stays: packing sets the rate there, and a batch is what is packed in BATCH_S, so that urgent records wait no
longer for the processor than they would for the link.

A rate is measured as BBR does it: the bytes acknowledged between the sending of a request and its response, over that
time, or over the time in which they were sent if that was longer. So a link that is not full shows less than it
carries, and responses that arrive together after a lost segment do not show more.
Does not contain: clients, clocks, chance: time is an argument, in seconds.
Source: draft-cheng-iccrg-delivery-rate-estimation.
"""

from __future__ import annotations

from collections import deque

FIRST_BYTES = 64 * 1024  # in flight before anything was measured
LEAST_BYTES = 16 * 1024
QUEUE_S = 0.5
QUEUE_LOSSY_S = 1.2
BATCH_S = 0.25
BATCH_BYTES_MIN = 8 * 1024
LINGER_S_MAX = 0.3
LINGER_S_MIN = 0.005
LINGER_S_METERED = 1.0
LINGER_TIMES = 2.5
RATE_S = 10.0
ROUND_TRIP_S = 60.0
THIN_BYTES_S = 4_000_000
LEVEL_METERED, LEVEL_THIN, LEVEL_FAST = 19, 9, 1
LEVEL_TIMES = 7  # JSON of 100 B and of 1 KB: 60 to 80 MB/s at 9, 430 to 630 at 1
SHORT, AMPLE = 0.7, 0.4  # of the link's time, that packing at LEVEL_THIN may take, and below which it is tried again
PACKED_BYTES_MIN = 16 * 1024  # for less, the time is mostly that of waking the thread
PACKED_WEIGHT = 0.3  # of the newest measurement
PACE_S = 3
SLOW = 0.5
FORWARDED_BYTES_MIN = 32 * 1024
FORWARDED_FAST_BYTES_MIN = 16 * 1024


class InFlightRequest:
    """A request in flight: the time, the bytes acknowledged by then and when, and the time when those were sent."""

    __slots__ = ("delivered", "delivered_at", "first_sent_at", "sent_at", "size")

    def __init__(self, sent_at: float, size: int, delivered: int, delivered_at: float, first_sent_at: float) -> None:
        self.sent_at, self.size, self.delivered, self.delivered_at = sent_at, size, delivered, delivered_at
        self.first_sent_at = first_sent_at


class Best:
    """The greatest value seen in the last `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._seen: deque[tuple[float, float]] = deque()  # ever smaller

    def see(self, now: float, value: float) -> None:
        """Note a value."""
        while self._seen and self._seen[-1][1] <= value:
            self._seen.pop()
        self._seen.append((now, value))
        while self._seen[0][0] < now - self._seconds:
            self._seen.popleft()

    @property
    def value(self) -> float | None:
        """The greatest value as of the last `see`; None before the first."""
        return self._seen[0][1] if self._seen else None


class Pace:
    """The rate of one of several connections, by the bytes acknowledged at the last PACE_S ticks; one each second."""

    def __init__(self) -> None:
        self.delivered_bytes = 0
        self.is_slow = False
        self._ticks: deque[int] = deque(maxlen=PACE_S + 1)

    def tick(self, share: float, *, is_busy: bool) -> None:
        """Note whether it carries less than half of its share, in bytes per second, though it is busy all the time."""
        if not is_busy:
            self._ticks.clear()
        self._ticks.append(self.delivered_bytes)
        carried = self._ticks[-1] - self._ticks[0]
        self.is_slow = len(self._ticks) > PACE_S and carried < SLOW * share * PACE_S


class Link:
    """The figures of one link, over all of its connections; at most `bytes_max` are in flight, however fast it is.

    `is_metered`: its bytes cost money.
    """

    def __init__(self, bytes_max: int, *, is_metered: bool = False) -> None:
        self.under_way_bytes = 0
        self.is_lossy = False
        self._bytes_max, self._is_metered = bytes_max, is_metered
        self._delivered = 0
        self._delivered_at = self._first_sent_at = 0.0
        self._rate = Best(RATE_S)
        self._haste = Best(ROUND_TRIP_S)  # the round trip, negative
        self._packing: float | None = None  # its share of the link's time, at the level for thin or metered ones
        self._is_short = False

    def request_sent(self, now: float, size: int) -> InFlightRequest:
        """Note that a request of so many bytes is written."""
        if not self.under_way_bytes:
            self._delivered_at = self._first_sent_at = now  # the link was idle: no bytes could be acknowledged
        self.under_way_bytes += size
        return InFlightRequest(now, size, self._delivered, self._delivered_at, self._first_sent_at)

    def request_acked(self, now: float, mark: InFlightRequest) -> None:
        """Note the response to a request."""
        self.under_way_bytes -= mark.size
        self._delivered += mark.size
        self._delivered_at, self._first_sent_at = now, mark.sent_at
        self._haste.see(now, mark.sent_at - now)
        seconds = max(now - mark.delivered_at, mark.sent_at - mark.first_sent_at, 1e-4)
        self._rate.see(now, (self._delivered - mark.delivered) / seconds)

    def request_lost(self, mark: InFlightRequest) -> None:
        """Note that a request gets no response."""
        self.under_way_bytes -= mark.size

    def batch_packed(self, seconds: float, size: int, level: int) -> None:
        """Note the seconds that packing so many bytes took, including waits for the processor."""
        if self.rate is None or size < PACKED_BYTES_MIN:
            return
        share = seconds * self.rate / size * (LEVEL_TIMES if level == LEVEL_FAST else 1)
        self._packing = share if self._packing is None else self._packing + PACKED_WEIGHT * (share - self._packing)
        self._is_short = self._packing > (AMPLE if self._is_short else SHORT)

    @property
    def delivered_bytes(self) -> int:
        """All bytes acknowledged so far."""
        return self._delivered

    @property
    def rate(self) -> float | None:
        """Bytes per second, None before anything was measured."""
        return self._rate.value

    @property
    def round_trip_s(self) -> float | None:
        """Seconds, None before anything was measured."""
        return None if self._haste.value is None else -self._haste.value

    @property
    def limit_bytes(self) -> int:
        """The bytes that may be in flight."""
        if self.rate is None or self.round_trip_s is None:
            return min(self._bytes_max, FIRST_BYTES)
        queue_s = QUEUE_LOSSY_S if self.is_lossy else QUEUE_S
        return min(self._bytes_max, max(LEAST_BYTES, int(self.rate * (self.round_trip_s + queue_s))))

    @property
    def batch_bytes(self) -> int:
        """The size of a packed batch to aim at, in bytes."""
        if self.rate is None:
            return BATCH_BYTES_MIN * 2
        packed_later = max(1.0, self._packing or 0.0) if self._is_metered else 1.0
        return max(BATCH_BYTES_MIN, int(self.rate * BATCH_S / packed_later))

    @property
    def linger_s(self) -> float:
        """The time that records wait for others to be merged with, in seconds."""
        if self.round_trip_s is None:
            return 0.0
        if self._is_metered:
            return LINGER_S_METERED
        return min(LINGER_S_MAX, max(LINGER_S_MIN, LINGER_TIMES * self.round_trip_s))

    @property
    def is_fast(self) -> bool:
        """Whether the link carries more than the processor packs."""
        return self.rate is not None and self.rate >= THIN_BYTES_S

    @property
    def zstd_level(self) -> int:
        """The level at which zstd packs."""
        if self._is_metered:
            return LEVEL_METERED
        return LEVEL_FAST if self.is_fast or self._is_short else LEVEL_THIN

    def forwards(self, codec: int, size: int, wanted: int) -> bool:
        """Return whether a batch of this codec and size is sent unchanged; `wanted` is the codec of merged batches."""
        if codec == wanted and size >= FORWARDED_BYTES_MIN:
            return True
        is_free = self.is_fast and not self._is_metered
        return is_free and (bool(codec) or not wanted) and size >= FORWARDED_FAST_BYTES_MIN
