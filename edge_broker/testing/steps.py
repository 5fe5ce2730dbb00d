"""What is worked on step by step, taken to its end."""

from __future__ import annotations

from typing import Any

from edge_broker.broker.outcomes import Outcome, Steps, ended


def carried_out(outcome: Outcome) -> Any:
    """What is left when an outcome's steps are taken."""
    while isinstance(outcome, Steps):
        outcome = ended(outcome.steps)
    return outcome
