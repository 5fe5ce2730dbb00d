"""Declares the errors of either end: SourceError and TargetError mean "try again later", subclasses what else to do.

Does not contain: the exceptions of the clients, which are mapped where they are raised.
"""

from __future__ import annotations


class SourceError(Exception):
    """The source cannot serve now."""


class UntoldError(SourceError):
    """The source is well, but does not return now what was requested of one topic or partition."""


class PositionsError(SourceError):
    """The group cannot return its positions now."""


class NotOurTurnError(SourceError):
    """The group has made another mirror active, or is about to say which mirror is."""


class OriginsChangedError(Exception):
    """Another mirror has begun to write to a topic that is read: the origin of its records has to be stored again."""


class TargetError(Exception):
    """The target cannot serve now."""


class TopicRefusedError(TargetError):
    """The target is well, but refuses to create this topic, or to grow it."""


class LeaderlessError(TargetError):
    """The target is well, but one of its partitions has no leader."""


class ShortError(TargetError):
    """The target is well, but one partition has fewer in-sync replicas than min.insync.replicas."""


class SameClusterError(TargetError):
    """The target is the source: each record would be copied for ever."""


class OvertakenError(TargetError):
    """Another mirror has taken over: the target refuses this one's batches."""
