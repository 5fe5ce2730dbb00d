"""The two ways in which flashing ends early. Each message is one sentence or two: what is wrong, and the remedy."""


class ConfigurationError(Exception):
    """What was asked cannot or must not be done; nothing was written to the target. Exit status 2."""


class FlashError(Exception):
    """The work failed after it began, or was not done as asked. Exit status 1."""
