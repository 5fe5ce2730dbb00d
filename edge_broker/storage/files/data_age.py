"""How much time has passed, on boards whose wall clock cannot be believed.

Age counts elapsed milliseconds since the data directory was made. It is a value that readings of the clocks advance:

| this reading's boot | its wall clock | what is added |
|---|---|---|
| that of the last reading | any | the monotonic time in between; a wall clock that is set changes nothing |
| another | not trusted | nothing: how long the power was off is not known yet |
| another | trusted, and was trusted once in an earlier boot | up to the difference of the two trusted wall times |
| another | trusted for the first time ever | nothing: how long the power was off will never be known |
| another | trusted by the configuration alone, until the boot is `GRACE_MS` old | nothing: a time service may set it |
| another | the same, and by it the power was off for more than `OFF_MS_MAX` | nothing: the clock chip is years ahead |

A wall clock that steps within a boot, against the first trusted reading of that boot, is a reason for doubt. The step
is `stepped_ms`; a slewed clock has none, as the kernel slews CLOCK_BOOTTIME as well.

| wall clock of this boot | trusted | a record's own timestamp makes it older |
|---|---|---|
| no step | yes | up to the wall clock |
| a step within drift: `DRIFT_MS` and 100 ppm of the time since boot | yes | up to the earlier of the two clocks |
| a larger step, until it is taken back | no | no: its age is its time on disk |
| the same, backwards | no | no, nor does what this boot wrote before (`StepBack`) |
| first trusted reading of the next boot | yes | up to the wall clock; of two power-off times the shorter one counts |

Records of an untrusted clock were written after some of the time that is counted later; how much is
unknown. A `Jump` keeps what was counted, and `Now.elapsed_ms` takes all of it as past before such a thing was written:
it may look younger than it is, never older.

A difference is counted once, at the first trusted reading of a boot, and covers every boot since the last trusted
one. Age never goes back, whatever the clocks do: it is less than true time, by power-off time that is not known, and
never more than true time while what is trusted is right. Only a start after a power loss begins again at what was kept,
at most `KEPT_MS` before.

| who | goes by |
|---|---|
| retention.ms, segment.ms, idle producers | age |
| groups, sessions, requests | monotonic time within the process (clock.steady_ms) |
| timestamps that the broker stamps | the wall clock, as Kafka's formats want it |

Contains: the arithmetic and the line of the file `age`, pure. Does not contain: files, clocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_broker.clock import Reading

KIND = "age"
KEPT_MS = 1_800_000  # what a power loss may take back where no clock is ever trusted, against one write each time
STEP_MS = 1_000  # more than a time service slews between two looks at the clock
TIMESTAMP_MIN_MS = 1_262_304_000_000  # 2010: clocks that were never set begin at 1970, 1980 or 2000
GRACE_MS = 900_000  # for a time service to correct a clock chip, before it makes records old
OFF_MS_MAX = 90 * 86_400_000  # a longer time without power only a time service may tell
JUMPS_MAX = 128
DRIFT_MS = 60_000  # what a clock chip drifts while a board is off for weeks
DRIFT_PARTS = 10_000  # one part in so many is what a crystal drifts at most
STEPS_BACK_MAX = 128
AGE_UNKNOWN = -1 << 62


class Jump(NamedTuple):
    """At age `last_ms` another `counted_ms` were counted; ages noted from `first_ms` on did not know of them."""

    first_ms: int
    last_ms: int
    counted_ms: int


class StepBack(NamedTuple):
    """At age `age_ms` the wall clock of a boot was set back: it had given records too great an age until then."""

    boot_id: str
    age_ms: int


class Now(NamedTuple):
    """The time of one act: the wall clock's, the age of the data directory, and whether the wall clock is right.

    `age_ms` only grows. `trusted` speaks of `wall_ms`; `jumps` are what `elapsed_ms` needs to know. `ahead_ms`: how far
    the wall clock was set forward in this boot.
    """

    wall_ms: int
    age_ms: int
    trusted: bool
    boot_id: str
    jumps: tuple[Jump, ...] = ()
    ahead_ms: int = 0
    steps_back: tuple[StepBack, ...] = ()

    def elapsed_ms(self, age_ms: int) -> int:
        """At most the true time since something was noted at this age."""
        jumps = self.jumps
        if jumps and age_ms <= jumps[-1].last_ms:
            for jump in jumps:
                if jump.first_ms <= age_ms <= jump.last_ms:
                    return max(0, self.age_ms - age_ms - jump.counted_ms)
        return self.age_ms - age_ms

    def age_of_write(self, age_ms: int, boot_id: str) -> int:
        """Return the age that counts of a write, noted with a trusted clock in this boot."""
        return max((age_ms, *(step.age_ms for step in self.steps_back if step.boot_id == boot_id)))


class Age(NamedTuple):
    """The age at the last reading, and at the last trusted one (`known_boot_id` is empty before the first).

    `unsure_age_ms` is the age at which the first boot after that one began, if there was one. `stepped_ms` is how far
    the wall clock was set between the first and the last trusted reading of the boot `known_boot_id`.
    """

    age_ms: int = 0
    boot_id: str = ""
    boot_ms: int = 0
    known_age_ms: int = 0
    known_wall_ms: int = 0
    known_boot_id: str = ""
    unsure_age_ms: int = 0
    jumps: tuple[Jump, ...] = ()
    stepped_ms: int = 0
    steps_back: tuple[StepBack, ...] = ()

    @property
    def is_doubted(self) -> bool:
        """True when the wall clock was set within the boot by more than a clock drifts."""
        return self.known_boot_id == self.boot_id and abs(self.stepped_ms) > DRIFT_MS + self.boot_ms // DRIFT_PARTS

    def with_reading(self, reading: Reading) -> Age:
        """The age once a reading is counted in."""
        age_ms, jumps = self._age_ms(reading), self.jumps
        first_other = self.boot_id == self.known_boot_id != reading.boot_id
        unsure_ms = self.age_ms if first_other else self.unsure_age_ms
        latest = self._replace(age_ms=age_ms, boot_id=reading.boot_id, boot_ms=reading.boot_ms, unsure_age_ms=unsure_ms)
        if not reading.trusted or self._waits_for_time_service(reading):
            return latest
        if self.known_boot_id == reading.boot_id:
            return latest._set(reading)
        if self.known_boot_id:
            true_ms = self.known_age_ms + self._since_known_ms(reading)
            if true_ms > age_ms:
                jumps = _merge_oldest((*jumps, Jump(unsure_ms, age_ms, true_ms - age_ms)))
                age_ms = true_ms
        return latest._replace(
            age_ms=age_ms,
            known_age_ms=age_ms,
            known_wall_ms=reading.wall_ms,
            known_boot_id=reading.boot_id,
            unsure_age_ms=0,
            jumps=jumps,
            stepped_ms=0,
        )

    def _waits_for_time_service(self, reading: Reading) -> bool:
        off_ms = self.unverified_off_ms(reading)
        return off_ms > OFF_MS_MAX or (off_ms > GRACE_MS and reading.boot_ms < GRACE_MS)

    def unverified_off_ms(self, reading: Reading) -> int:
        """The time without power that is not counted yet, by a trusted clock that no time service keeps; else 0."""
        if reading.verified or not reading.trusted or self.known_boot_id in ("", reading.boot_id):
            return 0
        return max(0, self.known_age_ms + self._since_known_ms(reading) - self._age_ms(reading))

    def _set(self, reading: Reading) -> Age:
        """The age after another trusted reading of the same boot, whose wall clock may have been set."""
        step_ms = self._step_ms(reading, self.age_ms)
        stepped_ms = self.stepped_ms + step_ms
        after = self._replace(
            known_age_ms=self.age_ms, known_wall_ms=reading.wall_ms, unsure_age_ms=0, stepped_ms=stepped_ms
        )
        if after.is_doubted and stepped_ms < 0 and not (self.is_doubted and self.stepped_ms < 0):
            others = [step for step in self.steps_back if step.boot_id != reading.boot_id]
            return after._replace(steps_back=(*others, StepBack(reading.boot_id, self.age_ms))[-STEPS_BACK_MAX:])
        return after

    def _since_known_ms(self, reading: Reading) -> int:
        """The time since the last trusted reading, of an earlier boot: by its clock before or after it was set.

        A clock by which that time is negative was wrong; of two that may be right the shorter time counts.
        """
        known_ms = (self.known_wall_ms, self.known_wall_ms - self.stepped_ms)
        return min((reading.wall_ms - wall_ms for wall_ms in known_ms if wall_ms <= reading.wall_ms), default=0)

    def _age_ms(self, reading: Reading) -> int:
        return self.age_ms + (max(0, reading.boot_ms - self.boot_ms) if reading.boot_id == self.boot_id else 0)

    def now(self, reading: Reading) -> Now:
        """The time at a reading of the boot in which the age was advanced last.

        A wall clock that was set since then is not trusted before `with_reading` has taken it in.
        """
        age_ms = self._age_ms(reading)
        trusted = reading.trusted and self.known_boot_id == reading.boot_id
        if trusted:
            trusted = abs(self._step_ms(reading, age_ms)) <= STEP_MS and not self.is_doubted
        ahead_ms = max(0, self.stepped_ms)
        return Now(reading.wall_ms, age_ms, trusted, reading.boot_id, self.jumps, ahead_ms, self.steps_back)

    def is_stepped(self, reading: Reading) -> bool:
        """Whether the wall clock was set since it was taken in last."""
        in_known_boot = reading.trusted and self.known_boot_id == reading.boot_id
        return in_known_boot and abs(self._step_ms(reading, self._age_ms(reading))) > STEP_MS

    def _step_ms(self, reading: Reading, age_ms: int) -> int:
        return reading.wall_ms - self.known_wall_ms - (age_ms - self.known_age_ms)

    def differs_in_doubt(self, before: Age) -> bool:
        """Whether the wall clock was set since then, to or from a time that is in doubt."""
        if self.is_doubted != before.is_doubted:
            return True
        return self.is_doubted and abs(self.stepped_ms - before.stepped_ms) > DRIFT_MS

    def worth_keeping(self, kept: Age | None) -> bool:
        """Return whether the file should contain this age instead of its own."""
        if kept is None or kept.boot_id != self.boot_id or kept.known_boot_id != self.known_boot_id:
            return True
        if self.differs_in_doubt(kept) or kept.steps_back != self.steps_back:
            return True
        return self.age_ms - kept.age_ms >= KEPT_MS

    def lines(self) -> list[str]:
        """The entries of the file: the readings, a boot id that is not known as a dash, each jump, each step back.

        A clock that was never set adds nothing, so older versions read the file.
        """
        *readings, jumps, stepped_ms, steps_back = self
        readings += [stepped_ms] if stepped_ms else []
        lines = [" ".join(str(field) or "-" for field in readings), *(" ".join(map(str, jump)) for jump in jumps)]
        return lines + [" ".join(map(str, step)) for step in steps_back]


def _merge_oldest(jumps: tuple[Jump, ...]) -> tuple[Jump, ...]:
    """The newest jumps; the two oldest of too many are taken for one, which makes what they speak of younger."""
    if len(jumps) <= JUMPS_MAX:
        return jumps
    first, second, *rest = jumps
    return Jump(first.first_ms, second.last_ms, first.counted_ms + second.counted_ms), *rest


def age_of(entries: Sequence[Sequence[str]]) -> Age:
    """Return the age that the file's entries have; ValueError if they cannot be right."""
    (age_ms, boot_id, boot_ms, known_age_ms, known_wall_ms, known_boot_id, unsure_ms, *stepped), *lines = entries
    known = (int(known_age_ms), int(known_wall_ms), "" if known_boot_id == "-" else known_boot_id)
    if len(stepped) > 1 or any(len(line) not in (2, 3) for line in lines):
        raise ValueError("a line has too few or too many values")
    jumps = tuple(Jump(*map(int, line)) for line in lines if len(line) == len(Jump._fields))
    steps_back = tuple(StepBack(line[0], int(line[1])) for line in lines if len(line) == len(StepBack._fields))
    stepped_ms = int(stepped[0]) if stepped else 0
    return Age(int(age_ms), boot_id, int(boot_ms), *known, int(unsure_ms), jumps, stepped_ms, steps_back)


def age_written(now: Now, timestamp_ms: int) -> int:
    """The age at which a record with this timestamp counts as written, if it came now.

    A producer's timestamp makes it older only where the wall clock is trusted and the timestamp lies between 2010 and
    now; it never makes it younger. A step forward of the clock makes it no older.
    """
    past_ms = now.wall_ms - now.ahead_ms - timestamp_ms
    if past_ms <= 0 or not now.trusted or timestamp_ms < TIMESTAMP_MIN_MS:
        return now.age_ms
    return now.age_ms - past_ms
