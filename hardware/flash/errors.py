"""How flashing ends early once it has begun. Before that it is the error of all parts (drupelet/errors.py).

Each message is one sentence or two: what is wrong, and the remedy.
"""


class FlashError(Exception):
    """The work failed after it began, or was not done as asked. Exit status 1."""
