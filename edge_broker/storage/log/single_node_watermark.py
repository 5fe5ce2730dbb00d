"""Set the high watermark on a single node: its own disk decides.

| topic | high watermark |
|---|---|
| left to the kernel | the log's end |
| any other | the synced end |

It never goes back: what a topic showed that is not left to the kernel any more stays until the synced end is there.
The last stable offset is the high watermark, as there are no transactions.

Does not contain: other brokers, whose rule is another file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edge_broker.storage.log.log_state import LogState


def advance_high_watermark(state: LogState) -> None:
    """Tell a log what may be shown, whenever one of its ends may have moved. Loop."""
    shown = state.end() if state.settings.left_to_kernel else state.synced
    if shown.offset >= state.shown.offset:
        state.set_visible_end(shown, shown.offset)
