"""Requests to the source and the target. Decides nothing."""
