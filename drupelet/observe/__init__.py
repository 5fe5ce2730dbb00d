"""Logs, metrics and health that every part shows."""
