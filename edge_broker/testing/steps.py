"""What is worked on step by step, taken to its end."""

from __future__ import annotations

from typing import Any

from edge_broker.broker.outcomes import Outcome, Steps, run_steps


def carried_out(outcome: Outcome) -> Any:
    """What is left when an outcome's steps are taken."""
    while isinstance(outcome, Steps):
        outcome = run_steps(outcome.steps)
    return outcome
