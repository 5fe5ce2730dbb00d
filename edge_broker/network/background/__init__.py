"""Loops that run concurrently with requests: compaction, scrubbing, metrics, systemd."""
