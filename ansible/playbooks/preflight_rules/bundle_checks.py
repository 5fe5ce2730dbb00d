"""Finds bundles that no key of the site signed, that were changed, or that are older than one that a board has had.

Does not contain: what a bundle lacks for a host (host_checks.py), how it is verified (roles/drupelet/files/bundle.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from preflight_rules.model import Finding, Host, script


def keys(host: Host) -> tuple[str, ...]:
    """Return the public keys that may sign the host's bundle."""
    value = host.value("drupelet_bundle_keys") or []
    return tuple(str(key) for key in (value if isinstance(value, list | tuple) else [value]))


@cache
def verify_bundle(folder: str, signers: tuple[str, ...]) -> tuple[int, str]:
    """Return the serial of a bundle whose signature and bytes are right, else what is wrong; once for all hosts."""
    verifier = script("roles/drupelet/files/bundle.py")
    try:
        return verifier.check(Path(folder), verifier.keys_of("\n".join(signers))).serial, ""
    except (verifier.Trouble, OSError) as trouble:
        return 0, f"{trouble}."


def refused_bundles(hosts: Sequence[Host]) -> Iterator[Finding]:
    """Yield hosts whose bundle is not the signed one, or is older than one that a board of the inventory has had."""
    newest = max(hosts, key=lambda host: host.answer_number("bundle", 0), default=None)
    for host in hosts:
        folder = host.value("drupelet_bundle")
        if not folder or not keys(host):
            continue
        serial, wrong = verify_bundle(str(folder), keys(host))
        if wrong:
            yield host.finds("drupelet_bundle", wrong)
        elif (
            newest and serial < newest.answer_number("bundle", 0) and not _is_true(host.value("drupelet_bundle_older"))
        ):
            when = script("roles/drupelet/files/bundle.py").when
            had = when(newest.answer_number("bundle", 0))
            yield host.finds(
                "drupelet_bundle",
                f"{folder} of {when(serial)} is older than the bundle of {had} that {newest.name} has had: run "
                "playbooks/bundle.yml again; -e drupelet_bundle_older=true goes back to it on purpose.",
            )


def unsigned_as_before(hosts: Sequence[Host]) -> Iterator[Finding]:
    """Yield hosts that take a bundle without a signature, as sites from before it do; no finding."""
    for host in hosts:
        if host.value("drupelet_bundle") and not keys(host):
            yield host.finds(
                "drupelet_bundle_keys",
                f"{host.value('drupelet_bundle')} is taken without a signature, as drupelet_bundle_keys is empty: "
                "playbooks/bundle_key.yml makes a key and names it in the inventory, playbooks/bundle.yml signs by it.",
            )


def _is_true(value: object) -> bool:
    return str(value).lower() in ("true", "yes", "on", "1")
