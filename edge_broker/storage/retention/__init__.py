"""Removal of records from the front of a log, and the choice of what to evict."""
