"""Files of configuration that operators have: every key that they may name is still known, with the same default."""

from __future__ import annotations

from pathlib import Path

from edge_broker.configuration.config import KEYS, read_config

FILE = Path(__file__).with_name("broker_config.toml")


def test_every_key_of_the_broker_keeps_its_name_and_its_default() -> None:
    config = read_config(FILE.read_text(), FILE.name, [])
    assert set(config.explicit) == set(KEYS), "a new key belongs into broker_config.toml; an old one stays there"
    assert config.explicit == {name: key.default for name, key in KEYS.items()}
