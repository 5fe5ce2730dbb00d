"""What the fault tests share: the random numbers that one printed seed replays."""

import random

import pytest


@pytest.fixture
def chance(request):
    """Random numbers; a failure shows the seed, `--seed` repeats it."""
    seed = request.config.getoption("--seed")
    seed = random.randrange(1 << 32) if seed is None else seed
    print(f"seed {seed}")
    return random.Random(seed)
