"""Whether a processor has instructions for AES, and which suites a broker takes where it has none."""

from __future__ import annotations

import socket
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_broker.network.tls import cipher_suites
from tests.support.certificates import Authority
from tests.support.processes import EdgeBroker
from tests.support.waiting import CALL_S

PI_4 = "processor\t: 0\nFeatures\t: fp asimd evtstrm crc32 cpuid\nModel\t\t: Raspberry Pi 4 Model B Rev 1.5\n"
PI_5 = PI_4.replace("evtstrm", "evtstrm aes pmull sha1 sha2")
PC = "flags\t\t: fpu vme aes avx\nvmx flags\t: vnmi\n"
ELSEWHERE = """
import sys
from edge_broker.network.tls import cipher_suites
cipher_suites.CPUINFO = sys.argv.pop(1)
from edge_broker.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("text", "has"), [(PI_4, False), (PI_5, True), (PC, True), (PC.replace("aes", "sse"), False), ("isa: rv64\n", True)]
)
def test_what_the_kernel_says_of_a_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, has: bool
) -> None:
    monkeypatch.setattr(cipher_suites, "CPUINFO", str(tmp_path / "cpuinfo"))
    assert cipher_suites.has_aes()  # as there is no such file
    (tmp_path / "cpuinfo").write_text(text)
    assert cipher_suites.has_aes() is has


class Site:
    """A broker on a processor of the test's choice."""

    def __init__(self, directory: Path, cpuinfo: str) -> None:
        self.authority = Authority(directory / "ca")
        (directory / "cpuinfo").write_text(cpuinfo)
        store = self.authority.store("broker", "DNS:localhost,IP:127.0.0.1")
        self.broker = EdgeBroker(directory, protocol="SSL", settings={"ssl.keystore.location": str(store)})
        self.broker.command[:1] = [sys.executable, "-c", ELSEWHERE, str(directory / "cpuinfo")]

    def cipher(self, version: ssl.TLSVersion) -> str:
        """What a client made with OpenSSL, which puts AES first, comes to."""
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        context.maximum_version = version
        plain = socket.create_connection(("127.0.0.1", self.broker.port), CALL_S)
        with context.wrap_socket(plain, server_hostname="localhost") as connection:
            found = connection.cipher()
        assert found is not None
        return found[0]


@pytest.fixture(params=[PI_4, PI_5], ids=["without", "with"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Site, bool]]:
    made = Site(tmp_path, request.param)
    with made.broker:
        yield made, request.param == PI_4


def test_without_such_instructions_chacha_is_taken_of_clients_that_put_aes_first(site: tuple[Site, bool]) -> None:
    made, chacha = site
    found = {made.cipher(version) for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)}
    aes = {"ECDHE-ECDSA-AES256-GCM-SHA384", "TLS_AES_256_GCM_SHA384"}
    assert found == ({"ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_CHACHA20_POLY1305_SHA256"} if chacha else aes)
    assert ("cipher_suites_chosen" in made.broker.log_path.read_text()) is chacha
