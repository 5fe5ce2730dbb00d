"""PURE: check the settings of the gateway's own topics; report why an existing topic loses records.

| topic | needs | else |
|---|---|---|
| `boot_times` | `cleanup.policy=compact` | the broker deletes the times of boots by age |
| dead letters | `cleanup.policy` without `compact` | a dead letter replaces those of the same key |
| `__edge_ledger` | `cleanup.policy=delete`, no bound of time or size | the broker deletes the records of losses |

The gateway creates the first two if they do not exist. It changes no settings of an existing topic.
Source: Kafka's topic configs.
"""

from __future__ import annotations

from collections.abc import Mapping

from drupelet.host.boot_clock import BOOT_TIMES_CONFIG, BOOT_TIMES_TOPIC
from drupelet.ledger import LEDGER_CONFIG, LEDGER_TOPIC

POLICY = "cleanup.policy"


def settings_trouble(topic: str, dead_letter_topic: str, settings: Mapping[str, str | None]) -> str | None:
    """Return what is wrong with the settings of a topic, as a predicate with the remedy, or None; None for others."""
    if topic == BOOT_TIMES_TOPIC:
        return _differing(settings, BOOT_TIMES_CONFIG, "the broker deletes the times of boots")
    if topic == LEDGER_TOPIC:
        return _differing(settings, LEDGER_CONFIG, "the broker deletes the records of losses")
    if topic == dead_letter_topic and "compact" in _policies(settings.get(POLICY)):
        return f"has {POLICY}={settings[POLICY]}, so a dead letter replaces those of the same key: set {POLICY}=delete"
    return None


def _differing(settings: Mapping[str, str | None], needed: Mapping[str, str], consequence: str) -> str | None:
    found = {name: settings[name] for name, value in needed.items() if settings.get(name, value) != value}
    if not found:
        return None
    present = ", ".join(f"{name}={value}" for name, value in found.items())
    right = ", ".join(f"{name}={needed[name]}" for name in found)
    return f"has {present}, so {consequence} with age: set {right}"


def _policies(value: str | None) -> list[str]:
    return [policy.strip() for policy in (value or "").split(",")]
