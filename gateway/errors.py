"""The errors that the gateway shows to a person."""

from __future__ import annotations


class ConfigurationError(Exception):
    """The configuration cannot be used; the message is one sentence that names the file, the key and the remedy."""
