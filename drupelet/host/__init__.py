"""Clocks, files, descriptors and memory of this host, and systemd."""
