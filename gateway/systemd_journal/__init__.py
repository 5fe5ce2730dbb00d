"""Reads the files of systemd-journald: their format, their order, and what of them is unread or gone."""
