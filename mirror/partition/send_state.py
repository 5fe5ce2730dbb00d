"""PURE. Holds whether batches of a partition stream may be sent, and what it waits for if not.

| state | event | next |
|---|---|---|
| CREATING_TOPIC | the topic exists, and a connection to the leader carries the stream | STARTING_SESSION |
| STARTING_SESSION | the attempt failed | CREATING_TOPIC |
| STARTING_SESSION | the producer session has started | SENDING, BACKING_OFF |
| SENDING | another connection is to carry the stream | CHANGING_CONNECTION |
| SENDING | packing failed, or the target refuses this partition alone | BACKING_OFF |
| SENDING, CHANGING_CONNECTION, BACKING_OFF | the outcome of a batch, or of the session, is unknown | DRAINING |
| CHANGING_CONNECTION | the connection carries the stream | SENDING |
| CHANGING_CONNECTION | the partition has no leader that is known | CREATING_TOPIC |
| BACKING_OFF | the wait is over | SENDING |
| DRAINING | no request has a batch of the stream, and the worker packs none | RESOLVING |
| RESOLVING | each batch in flight is safe, packed again, or sent again | SENDING, BACKING_OFF |
| any | the stream is dropped | GONE |

A back-off goes on while the outcome of a batch is resolved: if it is not over then, BACKING_OFF follows RESOLVING.
"""

from __future__ import annotations

from enum import Enum

SendState = Enum(
    "SendState",
    "CREATING_TOPIC STARTING_SESSION SENDING CHANGING_CONNECTION BACKING_OFF DRAINING RESOLVING GONE",
)
CREATING_TOPIC, STARTING_SESSION, SENDING = SendState.CREATING_TOPIC, SendState.STARTING_SESSION, SendState.SENDING
CHANGING_CONNECTION, BACKING_OFF = SendState.CHANGING_CONNECTION, SendState.BACKING_OFF
DRAINING, RESOLVING, GONE = SendState.DRAINING, SendState.RESOLVING, SendState.GONE

NEXT: dict[SendState, tuple[SendState, ...]] = {
    CREATING_TOPIC: (STARTING_SESSION, GONE),
    STARTING_SESSION: (CREATING_TOPIC, SENDING, BACKING_OFF, GONE),
    SENDING: (CHANGING_CONNECTION, BACKING_OFF, DRAINING, GONE),
    CHANGING_CONNECTION: (SENDING, CREATING_TOPIC, DRAINING, GONE),
    BACKING_OFF: (SENDING, DRAINING, GONE),
    DRAINING: (RESOLVING, GONE),
    RESOLVING: (SENDING, BACKING_OFF, GONE),
    GONE: (),
}

UNSURE = DRAINING, RESOLVING
"""Nothing is sent until it is known which batches in flight have arrived."""
RESTING = CHANGING_CONNECTION, BACKING_OFF
MOVABLE = CREATING_TOPIC, STARTING_SESSION, SENDING
"""Another connection may carry the stream at once if nothing of it is in flight."""
WITHOUT_SESSION = CREATING_TOPIC, STARTING_SESSION, GONE


class SendProgress:
    """The state of one stream; it allows the transitions of the table alone."""

    __slots__ = ("_after_session", "send_state")

    def __init__(self) -> None:
        self.send_state = CREATING_TOPIC
        self._after_session = SENDING  # or BACKING_OFF while a back-off is not over

    def enter(self, state: SendState) -> None:
        """Enter a state that the table of send_state.py allows next."""
        assert state in NEXT[self.send_state], f"{self.send_state} is not followed by {state}"
        self.send_state = state

    def resume_sending(self) -> None:
        """Enter SENDING; BACKING_OFF if a back-off is not over."""
        self.enter(self._after_session)

    def mark_unsure(self) -> None:
        """Send nothing more until the outcome of each batch in flight is known; a new session tells that too."""
        if self.send_state in (SENDING, *RESTING):
            self.enter(DRAINING)

    def back_off(self) -> None:
        """Send nothing until `end_backoff`."""
        self._after_session = BACKING_OFF
        if self.send_state is SENDING:
            self.enter(BACKING_OFF)

    def end_backoff(self) -> None:
        """Send again, if nothing else keeps the stream from it."""
        self._after_session = SENDING
        if self.send_state is BACKING_OFF:
            self.enter(SENDING)

    @property
    def has_session(self) -> bool:
        """Whether its topic exists at the target, and its first producer session has started."""
        return self.send_state not in WITHOUT_SESSION

    @property
    def is_unsure(self) -> bool:
        """Whether the outcome of a batch, or of its producer session, is unknown."""
        return self.send_state in UNSURE

    @property
    def is_gone(self) -> bool:
        """Whether it is mirrored no more."""
        return self.send_state is GONE
