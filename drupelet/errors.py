"""The error that every command shows to a person, and what any error says in words.

Must never come in: an error that one part alone raises, and anything that costs time to import.
"""


class ConfigurationError(Exception):
    """One sentence that names the file, key or option, what is wrong, and the remedy; the command ends with exit 2."""


def sentence(error: BaseException) -> str:
    """What an error says; its name when it says nothing."""
    return str(error) or type(error).__name__
