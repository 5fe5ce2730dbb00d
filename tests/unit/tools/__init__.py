"""`edge-broker topics`, `tail` and `groups`."""
