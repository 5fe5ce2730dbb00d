"""Reader of systemd-journald's files: format, order, positions, and missing entries."""
