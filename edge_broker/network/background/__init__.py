"""Loops beside the requests: compaction, scrubbing, metrics, systemd."""
