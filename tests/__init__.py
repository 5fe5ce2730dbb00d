"""The tests: every broker that they start checks in which thread its functions run (edge_broker/thread_checks.py)."""

import os

os.environ.setdefault("EDGE_BROKER_CHECKS_PLACES", "1")  # before anything of the broker is imported
