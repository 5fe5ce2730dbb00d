"""Finds settings of a host that are wrong together: secured brokers without their secret, Spark without a checkpoint.

The role's own asserts find the same, one host after the other, once a play has changed the hosts before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Protocol, TypeVar

SECRET_CHARACTERS_MIN = 16
LOOPBACK_URL = re.compile(r"spark://(127\.|localhost|\[::1\])")
EVERYWHERE = re.compile(r"(0\.0\.0\.0|\[::\]):")
SPARK_SECRET = re.compile(r"\S{16,}")
_FindingT_co = TypeVar("_FindingT_co", covariant=True)


class Host(Protocol[_FindingT_co]):
    """A host of the action plugin, as the checks use it."""

    name: str
    groups: set[str]

    def value(self, name: str) -> Any:
        """Return a setting, else the role's default; `None` for what cannot be worked out."""

    def finds(self, key: str, text: str) -> _FindingT_co:
        """Make a finding of this host."""


def secrets(host: Host[_FindingT_co], modes: dict[str, str], *, has_secret: bool) -> Iterator[_FindingT_co]:
    """Yield what a broker lacks that is to know its clients; `modes` has the mode of each broker role of the host."""
    for role, mode in modes.items():
        if mode in ("secured", "migrate") and not has_secret:
            yield host.finds(
                f"{role}_security",
                f"{role}_security is {mode}, and security_secret is not set, from which users and certificates come: "
                "put it into the vault (README.md).",
            )
        if mode == "migrate":
            yield from _second_listener(host, role)
    secret = host.value("security_secret")
    if isinstance(secret, str) and 0 < len(secret) < SECRET_CHARACTERS_MIN and modes:
        yield host.finds(
            "security_secret",
            f"security_secret has {len(secret)} characters, and passwords come from it: write "
            f"{SECRET_CHARACTERS_MIN} or more.",
        )


def check_advertised(host: Host[_FindingT_co], role: str) -> Iterator[_FindingT_co]:
    """Yield the listener on every address whose clients receive no address to connect to."""
    listen, settings = str(host.value(f"{role}_listen") or ""), host.value(f"{role}_settings")
    is_set = host.value(f"{role}_advertise") or (isinstance(settings, dict) and settings.get("advertised.listeners"))
    if EVERYWHERE.match(listen) and not is_set:
        yield host.finds(
            f"{role}_advertise",
            f"{role}_listen is {listen}, to which no client can connect: set {role}_advertise to an address and port "
            "that they reach.",
        )


def _second_listener(host: Host[_FindingT_co], role: str) -> Iterator[_FindingT_co]:
    first, second = (str(host.value(f"{role}_{name}") or "") for name in ("listen", "secured_listen"))
    if not second:
        text = f"{role}_security is migrate, which needs {role}_secured_listen: HOST:PORT with another port."
        yield host.finds(f"{role}_secured_listen", text)
    elif first.rpartition(":")[2] == second.rpartition(":")[2]:
        text = f"{role}_secured_listen is {second}, whose port {role}_listen has already: give it another one."
        yield host.finds(f"{role}_secured_listen", text)


def spark(host: Host[_FindingT_co]) -> Iterator[_FindingT_co]:
    """Yield what Spark on this host would be refused for."""
    is_master, is_worker = (
        group in host.groups if host.value(group) is None else host.value(group) is True
        for group in ("spark_master", "spark_worker")
    )
    jobs = (["readings"] if "spark_jobs" in host.groups else []) if (told := host.value("spark_jobs")) is None else told
    own_url = f"spark://{host.value('spark_address') or '127.0.0.1'}:7077" if is_master or is_worker else "local[2]"
    url = str(host.value("spark_master_url") or own_url)
    if not (is_master or is_worker or jobs) or not url.startswith("spark://"):
        return
    secret = host.value("spark_secret")
    if secret is not None and not SPARK_SECRET.fullmatch(str(secret)):
        yield host.finds(
            "spark_secret",
            f"a Spark cluster needs spark_secret, {SECRET_CHARACTERS_MIN} characters or more without blanks, the same "
            "on all its boards: put it into the vault (README.md).",
        )
    if not is_master and LOOPBACK_URL.match(url):
        yield host.finds(
            "spark_master_url",
            f"spark_master_url is {url}, and the host has no Spark master of its own: name the board that has it.",
        )
    elif (jobs or is_worker) and not LOOPBACK_URL.match(url) and host.value("spark_checkpoint_shared") is not True:
        yield host.finds(
            "spark_checkpoint_shared",
            f"spark_master_url is {url}, whose jobs and workers must see one checkpoint: mount the same folder on all "
            "of them at spark_checkpoint_dir and set spark_checkpoint_shared, or keep all on 127.0.0.1.",
        )
