"""Who a client is, by Kafka's names.

Lives here: what a principal is called. Must never come in: what somebody may do.
Source: Kafka's KafkaPrincipal.
"""

from __future__ import annotations

USER = "User:"
ANONYMOUS = USER + "ANONYMOUS"
"""Who has not said who it is."""
