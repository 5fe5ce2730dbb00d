"""What handlers share: the broker's state, what they may answer with, what they leave to the shell, how they write.

Synchronous and deterministic: files are touched through the logs alone, time comes from the clock that is given.
"""
