"""Finds secrets of a site that a thief with one card could guess.

Does not contain: the measure (secret_strength.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preflight_rules.model import Finding, Host
from preflight_rules.secret_strength import BITS_MIN, bits
from preflight_rules.site_checks import SECRET_CHARACTERS_MIN


def weak(hosts: Sequence[Host]) -> Iterator[tuple[Finding, bool]]:
    """Yield each host whose secret is weak, and whether the site runs with it; a board that is off may."""
    runs = any(not host.answer or host.answer.get("release") for host in hosts)
    for host in hosts:
        secret = host.value("security_secret")
        if not host.roles or not isinstance(secret, str) or len(secret) < SECRET_CHARACTERS_MIN:
            continue
        strength = int(bits(secret))
        if strength < BITS_MIN:
            way = "take it out of the vault, and playbooks/secret.yml puts a random one there"
            if runs:
                way = "as before; README.md says how a random one replaces it"
            yield (
                host.finds(
                    "security_secret",
                    f"security_secret has about {strength} bits of the {BITS_MIN} that keep it from being guessed by a "
                    f"password on a stolen card: {way}.",
                ),
                runs,
            )


def weak_and_new(hosts: Sequence[Host]) -> Iterator[Finding]:
    """Yield hosts of a new site, whose secret is easily replaced."""
    yield from (finding for finding, runs in weak(hosts) if not runs)


def weak_as_before(hosts: Sequence[Host]) -> Iterator[Finding]:
    """Yield hosts of a site that runs with its secret and goes on; no finding."""
    yield from (finding for finding, runs in weak(hosts) if runs)
