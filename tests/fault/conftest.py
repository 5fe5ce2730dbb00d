"""What the fault tests share: the random numbers that one printed seed replays, and how long their forms are."""

import random

import pytest

ROUNDS_BY_NIGHT = 100


@pytest.fixture
def is_long(request):
    """Whether tests take their long forms: of a change kills and cuts, which are many anyway, are judge enough."""
    return (request.config.getoption("--rounds") or 0) >= ROUNDS_BY_NIGHT


@pytest.fixture
def chance(request):
    """Random numbers; a failure shows the seed, `--seed` repeats it."""
    seed = request.config.getoption("--seed")
    seed = random.randrange(1 << 32) if seed is None else seed
    print(f"seed {seed}")
    return random.Random(seed)
