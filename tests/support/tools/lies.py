"""Spoils single fields of a broker's responses."""

from __future__ import annotations

import random

SPOILT = 0.12  # of the answers: a command needs several


class Spoiler:
    """Changes, cuts off or puts in some bytes of some answers."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def __call__(self, content: bytes) -> bytes:
        chance = self.chance
        if not content or chance.random() > SPOILT:
            return content
        at, more = (
            chance.randrange(len(content)),
            bytes(chance.choices((0, 1, 127, 128, 255, 66), k=chance.randrange(1, 9))),
        )
        return chance.choice(
            (content[:at], content[:at] + more + content[at:], content[:at] + more[:1] + content[at + 1 :])
        )
