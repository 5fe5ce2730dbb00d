"""Selects topics, and derives their names and configs at the target. Pure."""
