"""Large requests: read, executed and answered in steps, each with what it holds, so that others come between.

| bound | what | at it |
|---|---|---|
| READ_BYTES_MAX | memory of one request that was read | its connection is closed |
| ANSWER_BYTES_MAX | memory of one answer before it is written | the same |
| PARKED_BYTES_MAX | requests read in steps that wait for something | no other is begun; long polls are answered early |

Contains: the road of one such request. Does not contain: whose turn it is (turns), who waits for what (dispatcher).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Protocol

from edge_broker.broker.api import Handler
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.outcomes import Outcome, Park, Reply, Steps
from edge_broker.errors import ProtocolViolation
from edge_broker.network.dispatch.call import Call
from edge_broker.network.dispatch.fair_scheduler import WORK_BYTES_MAX, FairScheduler, Job
from edge_broker.protocol.api import PRODUCE, response_frame_in_steps
from edge_broker.protocol.codec import decode_steps, elements, weight

READ_BYTES_MAX = WORK_BYTES_MAX
ANSWER_BYTES_MAX = 2 * WORK_BYTES_MAX
PARKED_BYTES_MAX = WORK_BYTES_MAX
ENCODED_AT_ONCE_BYTES = 65_536
LET_GO_AT_ONCE = 32  # parts of what was read and made: to free 14 MB of objects takes 40 ms
REQUEST_BYTES = 2048  # of a request in progress, whatever it asks for
BYTES_PER_WIRE_BYTE = 8  # of a small one that is read
BYTES_PER_WIRE_BYTE_MAX = 80  # an element of 2 bytes is an object with a text

Kept = list[object]


def request_bytes(api_key: int, size: int) -> int:
    """Return the memory of a small request until it is answered; records are not kept, or counted where they are."""
    return REQUEST_BYTES if api_key == PRODUCE else REQUEST_BYTES + BYTES_PER_WIRE_BYTE * size


class Resolver(Protocol):
    """The dispatcher, as the work on a large request calls it."""

    broker: Broker
    turns: FairScheduler

    def resolve(self, call: Call, outcome: Outcome) -> None:
        """Send an answer, or let the call wait for what its outcome says."""

    def has_room(self, call: Call, reply: Reply) -> bool:
        """Return whether a large answer may be sent; if not, it is made again once there is memory."""

    def fail(self, call: Call, error: Exception) -> None:
        """End a call that failed, by its client's fault or by a bug."""

    def job_ended(self, call: Call) -> None:
        """Note that the work on a call has ended: it is answered, waits, or has failed."""


class Large:
    """Makes jobs of calls; `parked` holds the bytes of those that wait."""

    def __init__(self, dispatcher: Resolver) -> None:
        self.parked: dict[Call, int] = {}
        self._dispatcher = dispatcher
        self._parked_bytes = 0

    @property
    def has_room(self) -> bool:
        """Whether one more request may be read."""
        return self._parked_bytes <= PARKED_BYTES_MAX

    def job(self, call: Call, handler: Handler, context: RequestContext, frame: memoryview, position: int) -> Job:
        """The work on a request from its first byte."""
        assert call.api is not None
        assert call.connection is not None
        per_byte = 1 if call.api.key == PRODUCE else BYTES_PER_WIRE_BYTE_MAX
        least = min(READ_BYTES_MAX, per_byte * len(frame))
        kept: Kept = []
        steps = self._from_frame(call, handler, context, frame, position, kept)
        return Job(call.name, call.connection, self._guard(call, steps, kept), least)

    def more(self, call: Call, outcome: Steps) -> Job:
        """The work on a request whose handler goes in steps."""
        whose = call.connection or call
        kept: Kept = []
        return Job(call.name, whose, self._guard(call, self._to_answer(call, outcome, 0, kept), kept), 0)

    def call_ended(self, call: Call) -> None:
        """A call is answered, or no client waits for its response any more."""
        size = self.parked.pop(call, 0)
        if size:
            self._parked_bytes -= size
            self._dispatcher.turns.resume()

    def _guard(self, call: Call, steps: Generator[int, None, None], kept: Kept) -> Generator[int, None, None]:
        """Trouble costs the call alone; nothing more is done for a client that is gone; `kept` goes in steps too."""
        connection = call.connection
        held = 0
        try:
            for held in steps:
                yield held
                if connection is not None and connection.transport is None:
                    break
        except Exception as error:  # noqa: BLE001 - the dispatcher tells violations from bugs
            self._dispatcher.fail(call, error)
        steps.close()
        while len(kept) > LET_GO_AT_ONCE:
            del kept[-LET_GO_AT_ONCE:]
            yield held
        self._dispatcher.job_ended(call)

    def _from_frame(
        self, call: Call, handler: Handler, context: RequestContext, frame: memoryview, position: int, kept: Kept
    ) -> Generator[int, None, None]:
        assert call.api is not None
        held = 0
        reading = decode_steps(call.api.request, call.version, frame, position)
        while True:
            try:
                held = next(reading)
            except StopIteration as end:
                request: Any = end.value
                break
            if held > READ_BYTES_MAX:
                raise ProtocolViolation(
                    f"a {call.api.name} request that takes more than {READ_BYTES_MAX} bytes of memory when it is read; "
                    "ask for less at once"
                )
            yield held
        kept += elements(request)
        outcome = handler(self._dispatcher.broker, context, request)
        del request
        yield from self._to_answer(call, outcome, held, kept)

    def _to_answer(self, call: Call, outcome: Outcome, held: int, kept: Kept) -> Generator[int, None, None]:
        """Carry an outcome out until it is an answer, or waits for something."""
        made = 0
        while isinstance(outcome, Steps):
            again = outcome.retry
            outcome, made = yield from self._carried_out(call, outcome, held, kept)
            if isinstance(outcome, Reply) and not outcome.size and made > ENCODED_AT_ONCE_BYTES:
                outcome = Reply(outcome.response, size=made, retry=again)
        connection = call.connection
        if not isinstance(outcome, Reply) and not (isinstance(outcome, Park) and not outcome.keeps):
            self._park(call, held)
        if (
            isinstance(outcome, Reply)
            and outcome.response is not None
            and connection is not None
            and made > ENCODED_AT_ONCE_BYTES
        ):
            if self._dispatcher.has_room(call, outcome):
                assert call.api is not None
                self.call_ended(call)
                writing = response_frame_in_steps(call.api, call.version, call.correlation_id, outcome.response)
                while True:
                    try:
                        next(writing)
                    except StopIteration as end:
                        connection.answer(call, end.value)
                        return
                    yield held + made
            self._park(call, held)
            return
        self._dispatcher.resolve(call, outcome)

    def _carried_out(
        self, call: Call, outcome: Steps, held: int, kept: Kept
    ) -> Generator[int, None, tuple[Outcome, int]]:
        """Take a handler's steps; the memory of what it makes counts, which is more than its bytes on the wire."""
        made = 0
        while True:
            try:
                part = next(outcome.steps)
            except StopIteration as end:
                return end.value, made
            if part is not None:
                kept.append(part)
                made += weight(part)
                if made > ANSWER_BYTES_MAX:
                    raise ProtocolViolation(
                        f"the answer to {call.name} would take more than {ANSWER_BYTES_MAX} bytes of memory; "
                        "ask for less at once"
                    )
            yield held + made

    def _park(self, call: Call, held: int) -> None:
        """A request that was read in steps waits: what it holds is counted until it is answered."""
        connection = call.connection
        if held <= ENCODED_AT_ONCE_BYTES or connection is None or call in self.parked:
            return
        if connection.transport is None:
            return
        self.parked[call] = held
        self._parked_bytes += held
        connection.requests.take(held)
        call.cost += held
