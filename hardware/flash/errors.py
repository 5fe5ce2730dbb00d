"""The error of a flash that has begun. Errors before that are those of all parts (drupelet/errors.py).

Each message is one sentence or two: the problem, and the remedy.
"""


class FlashError(Exception):
    """The work failed after it began, or was not done as asked. Exit status 1."""
