"""Counts with their nouns: `1 partition`, `2 partitions`, for text that people read."""


def quantity_text(count: int, noun: str) -> str:
    """Return the count and its noun, which gets an `s` (`es` after an `s`) unless the count is 1."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}{'es' if noun.endswith('s') else 's'}"


def is_or_are(count: int) -> str:
    """Return the verb for so many."""
    return "is" if count == 1 else "are"
