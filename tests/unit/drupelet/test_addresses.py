"""HOST:PORT, as every part reads it."""

from __future__ import annotations

import pytest

from drupelet.addresses import endpoint_text, host_and_port, is_loopback


@pytest.mark.parametrize(
    ("text", "parts"),
    [("h:1", ("h", 1)), ("[::1]:9092", ("::1", 9092)), ("::1:0", ("::1", 0)), ("h:65535", ("h", 65535))],
)
def test_an_address(text: str, parts: tuple[str, int]) -> None:
    assert host_and_port(text) == parts


@pytest.mark.parametrize(
    "text",
    ["", "h", "h:", ":1", "[]:1", "h:-1", "h:x", "h:65536", "h:1.0", "h:١", "[::1", "[::1:1", "::1]:1", "[[::1]]:1"],
)
def test_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        host_and_port(text)


@pytest.mark.parametrize("address", [("h", 1), ("::1", 9092), ("10.0.0.1", 0)])
def test_an_address_is_written_as_it_is_read(address: tuple[str, int]) -> None:
    assert host_and_port(endpoint_text(*address)) == address


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "localhost"])
def test_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "fe80::1%eth0", "pi.local"])
def test_another_machine(host: str) -> None:
    assert not is_loopback(host)
