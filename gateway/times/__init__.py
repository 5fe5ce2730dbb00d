"""Time in payloads and log lines: formats, zones, settings."""
