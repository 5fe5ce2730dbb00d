"""Shared by handlers: the broker's state, outcomes, effects for the event loop, writes.

Synchronous and deterministic: files are touched through the logs alone, time comes from the clock that is given.
"""
