"""Run step-by-step work to its end."""

from __future__ import annotations

from typing import Any

from edge_broker.broker.outcomes import Outcome, Steps, run_steps


def carried_out(outcome: Outcome) -> Any:
    """Return the outcome after all steps of another one."""
    while isinstance(outcome, Steps):
        outcome = run_steps(outcome.steps)
    return outcome
