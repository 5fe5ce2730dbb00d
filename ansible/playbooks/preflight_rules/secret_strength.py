"""Measures the strength of `security_secret`, from which every password of the site comes.

A thief with one card has one of these passwords, and tries secrets against it on machines of his own. `bits` is the
logarithm of how many he tries at most, by what people choose. It errs on the small side.

A phrase is a secret of which words are more than half, and whose parts are long. Random text of 20 letters, digits and
signs looks like one about once in 800 times, of 24 once in 30,000: then take another.

| part of a secret | bits |
|---|---|
| in a phrase: four letters or more that can be spoken | 2.2 each, at least 11: a word of a list of 2,048 |
| in a phrase: a word of `COMMON` | 3 |
| other letters | 4.7 each |
| a year, 1900 to 2099 | 6 |
| other digits | 3.3 each |
| another character | 4 the first time, in a phrase 0.5 when it comes again |
| three characters or more that were there before, in any case | 1 |
| a secret that is one text several times | that text, once |
| a letter or digit that goes on as the two before it did, as in `aaa`, `abc`, `321` | 0.5 |

Does not contain: what follows from it (secret_checks.py).
"""

from __future__ import annotations

import re
from itertools import pairwise

BITS_MIN = 64
PHRASE_MIN = 0.5  # share of words from which on a secret counts as chosen by a person
PHRASE_PARTS_MAX = 0.25  # words and numbers for each character; random text has more, as its case changes
WORD_BITS, LETTER_OF_WORD_BITS = 11, 2.2
COMMON = frozenset(  # words of phrases, of this product and of lists of passwords
    re.findall(
        r"\w+",
        """
    a i the and of to in is it you that he was for on are as with his they at be this have from or one had by not but
    what all were we when your can said there use an each which she do how their has if will my me no so our us am love
    admin pass password secret root user login kafka drupelet edge broker site board plant datacenter raspberry pi
    welcome hello test changeme letmein qwerty qwertz asdf correct horse battery staple
    """,
    )
)
PART = re.compile(r"[A-Z]?[a-z]+|[^\W\d_]+?(?=[A-Z][a-z]|[\W\d_]|$)|\d+|.", re.DOTALL)


def bits(secret: str) -> float:
    """Return the strength of a secret in bits."""
    total, seen = 0.0, set[str]()
    secret = secret[: (secret + secret).find(secret, 1)]
    parts = PART.findall(secret)
    is_phrase = _is_phrase(secret, parts)
    for part in parts:
        if part.lower() in seen and (len(part) > 2 or (is_phrase and not part.isalnum())):
            total += 1 if part.isalnum() else 0.5
        elif is_phrase and _is_word(part):
            total += 3 if part.lower() in COMMON else max(WORD_BITS, LETTER_OF_WORD_BITS * len(part))
        else:
            total += _part(part)
        seen.add(part.lower())
    return total


def _is_phrase(secret: str, parts: list[str]) -> bool:
    words = sum(len(part) for part in parts if _is_word(part))
    count = sum(part.isalnum() for part in parts)
    return words > PHRASE_MIN * len(secret) and count <= PHRASE_PARTS_MAX * len(secret) + 1


def _part(part: str) -> float:
    if not part[0].isalnum():
        return 4
    steps = [ord(two) - ord(one) for one, two in pairwise(part.lower())]
    chained = sum(one == two and abs(one) <= 1 for one, two in pairwise(steps))
    if re.fullmatch(r"19\d\d|20\d\d", part):
        return 6
    return (3.3 if part.isdigit() else 4.7) * (len(part) - chained) + 0.5 * chained


def _is_word(part: str) -> bool:
    """Return whether a part may come from a list of words."""
    return part.lower() in COMMON or (len(part) > 3 and part.isalpha() and _is_spoken(part.lower()))


def _is_spoken(letters: str) -> bool:
    vowels = sum(letter in "aeiouyäöüéèà" for letter in letters)
    return 0.15 <= vowels / len(letters) <= 0.7 and not re.search(r"[bcdfghjklmnpqrstvwxz]{5}", letters)
