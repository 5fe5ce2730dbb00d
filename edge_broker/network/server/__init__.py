"""Listeners: accept, limits, idle connections."""
