"""TLS of a whole broker: its encrypted listeners, their handshakes, and the files that are looked at now and then.

Imported where a listener is encrypted, and nowhere else: ssl costs 2 MB. Contains: what these parts have in common.
Does not contain: what each of them does.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from drupelet.tls.secret_files import changeable
from edge_broker.clock import Clock
from edge_broker.configuration.config import BrokerConfig
from edge_broker.configuration.listeners import Listener
from edge_broker.network.connection.connection import Connection
from edge_broker.network.log_lines import log_line
from edge_broker.network.tls import cipher_suites
from edge_broker.network.tls.handshakes import Handshakes
from edge_broker.network.tls.tls_contexts import AUTHORITIES, CERTIFICATE, Tls
from edge_broker.network.tls.tls_transport import ClientIdentity, HandshakeRefused, TlsTransport
from edge_broker.network.worker import Worker
from edge_broker.security.certificates import CertificateId
from edge_broker.thread_checks import LOOP, runs_in
from edge_broker.tls_settings import TlsSettings, read_tls_settings

LOOK_S = 5.0


class Encryption:
    """Owned by the loop; certificates are judged by the later of the clock and `built_s`, in Unix time."""

    def __init__(
        self,
        config: BrokerConfig,
        listeners: Sequence[Listener],
        loop: asyncio.AbstractEventLoop,
        bound_reached: Callable[[str], str],
        is_short_of_memory: Callable[[], bool],
        clock: Clock,
        built_s: int,
        denial: Callable[[Iterable[str], Iterable[CertificateId]], str],
    ) -> None:
        """Read keys and certificates; ConfigurationError names what cannot be used.

        `bound_reached` takes a client's address, and returns the bound that one more connection from it would break,
        empty: none; `is_short_of_memory`: requests wait for it. `denial` returns why a client with these principals
        and certificates is denied, empty: it is not.
        """

        def now_s() -> float:
            return max(clock.wall_ms() / 1000, built_s)

        chacha_first = not cipher_suites.has_aes() and cipher_suites.put_chacha_first()
        if chacha_first:
            log_line(
                "info", "cipher_suites_chosen", first="ChaCha20", text="this processor has no instructions for AES"
            )
        self.listeners = [
            Tls(_settings(config, one, chacha_first=chacha_first), now_s, one.advertised.host)
            for one in listeners
            if one.is_encrypted
        ]
        self._denial = denial
        self.worker = Worker("handshakes", loop)
        self.handshakes = Handshakes(loop, self.worker, bound_reached, is_short_of_memory, clock.seconds)
        self.changed: list[tuple[Tls, frozenset[str]]] = []
        self._told: set[str] = set()
        self._peers_ca: tuple[str, str] | None = None
        self._peers_note = ""

    def protocol(self, listener: str, made: Callable[[], Connection]) -> Callable[[], TlsTransport]:
        """Return the protocol factory of a listener's new connections."""
        (tls,) = [tls for tls in self.listeners if tls.listener == listener]

        def check_client(connection: ssl.SSLObject) -> ClientIdentity:
            shown = tls.check_client(connection)
            if denial := self._denial((shown.principal,), shown.certificates):
                raise HandshakeRefused(denial)
            return shown

        return lambda: TlsTransport(self.handshakes, tls.context, check_client, made)

    @runs_in("files")
    def check_files(self) -> None:
        """See whether a file has changed."""
        self.changed = [(tls, tls.renew_if_changed()) for tls in self.listeners]
        self._peers_note = changeable(*self._peers_ca) if self._peers_ca is not None else ""

    def believe_peers(self, ca_file: str, named: str) -> None:
        """Look at the CAs that other brokers are believed by, too; `named` is their key."""
        self._peers_ca = ca_file, named

    @runs_in(LOOP)
    def report_changes(self) -> list[str]:
        """Log what the last look has found, each thing once; what a person should know now."""
        for tls, changed in self.changed:
            if CERTIFICATE in changed:
                log_line("info", "certificate_read", listener=tls.listener, ends=tls.end_day)
            if AUTHORITIES in changed:
                log_line("info", "trust_store_read", listener=tls.listener, authorities=tls.authorities)
        self.changed = []
        warnings = list(dict.fromkeys(chain.from_iterable(tls.warnings() for tls in self.listeners)))
        warnings += [self._peers_note] if self._peers_note else []
        for warning in warnings:
            if warning not in self._told:
                log_line("warning", "certificate_problem_noted", text=warning)
        self._told = set(warnings)
        return warnings


def _settings(config: BrokerConfig, listener: Listener, *, chacha_first: bool) -> TlsSettings:
    """A listener's settings; a configured order of suites stays."""
    settings = read_tls_settings(config, listener.name, logs_in=listener.logs_in)
    if chacha_first and settings.ciphers == cipher_suites.AES_FIRST:
        return settings._replace(ciphers=cipher_suites.CHACHA_FIRST)
    return settings
