"""The errors that every command shows to a person, and what any error says in words.

Must never come in: an error that one part alone raises, and anything that costs time to import.
"""

import os
import re


class ConfigurationError(Exception):
    """One sentence that names the file, key or option, what is wrong, and the remedy; the command ends with exit 2."""


class CommandFailed(Exception):
    """One sentence that names what could not be done, why, and the remedy; the command ends with exit 1."""


def sentence(error: BaseException) -> str:
    """What an error says; its name when it says nothing."""
    return str(error) or type(error).__name__


def without_numbers(text: str) -> str:
    """What a library says, without the `[Errno 111]` that Python puts before the system's words."""
    return re.sub(r"\[Errno -?\d+\] ", "", text)


def reason(error: OSError) -> str:
    """Why the system refused, within a sentence: `no space left on device`, without number and file name.

    What libraries make of it is left out. Numbers below 0 are those of name look-ups, which have words of their own.
    """
    number = error.errno or 0
    text = os.strerror(number) if number > 0 else error.strerror or sentence(error)
    return text[:1].lower() + text[1:] if text[1:2].islower() else text
