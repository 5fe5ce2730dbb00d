"""Control access to /metrics and /health: by a token; without one only from this host.

Checks the keys of all parts for it: the broker's `edge.metrics.token.file` and `edge.network.trusted`, and of the
others `metrics_token_file` and `network_trusted`. Does not contain: HTTP (http.py), other services of a part.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from drupelet.addresses import endpoint_text, is_loopback
from drupelet.errors import ConfigurationError
from drupelet.tls.secret_files import check_private, first_line

if TYPE_CHECKING:
    from os import PathLike

TOKEN_KEY, TRUSTED_KEY = "metrics_token_file", "network_trusted"
ACCESS_KEYS = (TOKEN_KEY, TRUSTED_KEY)


class MetricsAccess(NamedTuple):
    """The access settings of a configuration. `named` is the name of the file's key."""

    token_file: str = ""
    trusted: bool = False
    named: str = TOKEN_KEY

    def token(self) -> bytes:
        """Return the token that a reader has to send, empty without one. ConfigurationError names the problem of the
        file.
        """
        return first_line(self.token_file, self.named).encode() if self.token_file else b""


def open_to_anybody(host: str, token_file: str) -> bool:
    """Return whether every host of the network may read metrics on `host` without a token."""
    return not is_loopback(host) and not token_file


def access_from(values: Mapping[str, Any], folder: str | PathLike[str], named: Callable[[str], str]) -> MetricsAccess:
    """Take ACCESS_KEYS from `values`; the file's path is relative to `folder`, `named` says where a key stands.

    ConfigurationError for a value of the wrong kind, and for a file that is not there or that others may read.
    """
    path, trusted = values.get(TOKEN_KEY, ""), values.get(TRUSTED_KEY, False)
    if TOKEN_KEY in values and not (isinstance(path, str) and path):
        raise ConfigurationError(f"{named(TOKEN_KEY)} is {path!r}: write a string, or leave the key out.")
    if not isinstance(trusted, bool):
        raise ConfigurationError(f"{named(TRUSTED_KEY)} is {trusted!r}: write true or false.")
    if path:
        path = os.path.join(os.path.abspath(folder), os.path.expanduser(path))
        check_private(path, named(TOKEN_KEY))
    return MetricsAccess(path, trusted, named(TOKEN_KEY))


def check_metrics(address: tuple[str, int], access: MetricsAccess, named: Callable[[str], str]) -> None:
    """Raise ConfigurationError if every host could read metrics at `address` without the operator's consent."""
    if open_to_anybody(address[0], access.token_file) and not access.trusted:
        raise ConfigurationError(
            f"{named('metrics')} {endpoint_text(*address)} is open to anybody in the network; set {TOKEN_KEY} to a "
            f"file whose first line is a token that readers show, or {TRUSTED_KEY} = true if all of the network is "
            "trusted, or listen on 127.0.0.1."
        )
