"""What goes wrong at either end: SourceError and TargetError mean "try again later", their subclasses what else to do.

Must never come in: a client's own exceptions, which are mapped where they are raised.
"""

from __future__ import annotations


class SourceError(Exception):
    """The source cannot serve now."""


class UntoldError(SourceError):
    """The source is well, but does not give now what was asked about one topic or partition."""


class PositionsError(SourceError):
    """The group cannot tell its positions now."""


class NotOurTurnError(SourceError):
    """The group gives the word to another mirror, or is about to say who has it."""


class OriginsChangedError(Exception):
    """Another mirror has begun to write to a topic that is read: the origin of its records has to be stored again."""


class TargetError(Exception):
    """The target cannot serve now."""


class TopicRefusedError(TargetError):
    """The target is well, but does not let this topic be made, or grow."""


class LeaderlessError(TargetError):
    """The target is well, and one partition has no leader there."""


class ShortError(TargetError):
    """The target is well, and one partition has fewer in-sync replicas than its topic wants."""


class SameClusterError(TargetError):
    """The target is the source: each record would be copied again and again."""


class OvertakenError(TargetError):
    """Another mirror has taken over: what this one sends is refused."""
