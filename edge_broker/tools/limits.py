"""Numbers that both the options and the tools know: how many records `edge-broker tail` prints."""

from __future__ import annotations

LAST = 10  # records, where neither -n nor --from says how many
LAST_MAX = 100_000  # records: what is printed last is held in memory
