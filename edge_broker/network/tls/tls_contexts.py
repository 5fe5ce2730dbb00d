"""Make the TLS contexts of a broker's listeners from files, and again when those change.

| a file changes, or a CA ends | then |
|---|---|
| to something sound | new connections get a new context; open ones keep theirs |
| to something that cannot be used | what this store held before stays; log and /health say why, until it is mended |

Key store and trust store count apart: while one is refused, a change of the other holds. A store that is refused is
read at each look, as its remedy may lie elsewhere: a directory's mode, a descriptor that was lacking.

Tickets are off, so that a returning client shows its certificate again. TLS 1.2's sessions cannot be switched off from
Python: once a context remembers SESSIONS_MAX of them it is replaced, which bounds their memory. OpenSSL's check of
dates is off, as a board's clock may be wrong by decades: here the end alone is judged, by the later of clock and build
date: at each handshake that of the client's certificate and of every CA by which OpenSSL believes it, and of the CAs
that are trusted whenever a context is made.

Contains: the settings of OpenSSL. Does not contain: connections. Source: Python's ssl; OpenSSL's SSL_CTX_set_options.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, TypeVar

from drupelet.errors import ConfigurationError, reason
from drupelet.host.file_identity import FileIdentity, file_identity
from drupelet.tls.certificate_expiry import SOON_S
from drupelet.tls.certificates import certificate
from drupelet.tls.contexts import NO_CHECK_TIME, PARTIAL_CHAIN, peer_chain
from drupelet.tls.file_reads import AT_ONCE_S, read_named
from drupelet.tls.secret_files import changeable, check_status
from edge_broker.network.tls.certificate_host_names import alternative_name, names_host
from edge_broker.network.tls.memory_files import as_file
from edge_broker.network.tls.tls_transport import ClientIdentity, HandshakeRefused
from edge_broker.security.certificates import CertificateId, certificate_id, read_certificate
from edge_broker.security.principals import NoRuleFits, principal_of
from edge_broker.thread_checks import runs_in
from edge_broker.tls_settings import TlsSettings

PRIORITIZE_CHACHA = 1 << 21  # SSL_OP_PRIORITIZE_CHACHA: ChaCha20 where the client puts it first, see RFC 8439
SESSIONS_MAX = 256
CHAINS_MAX = 4 * SESSIONS_MAX  # of clients whose sessions contexts may remember, those of former contexts included
BEGIN, END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"

CERTIFICATE, AUTHORITIES, PROBLEM = "certificate", "authorities", "problem"
"""The changes that a check finds: a store that was read again, and problems of both."""

Identity = tuple[FileIdentity, ...]
Store = TypeVar("Store")


class _Key(NamedTuple):
    """The contents of a key store: private key and chain in PEM; the chain as DER, the broker's certificate first."""

    text: str
    chain: tuple[bytes, ...]

    def __repr__(self) -> str:
        """Nothing of it: a trace in the log must show no key."""
        return "[hidden]"


class _Stores(NamedTuple):
    """The contents of both stores, at their last valid state, and the reason of a present refusal; empty: none.

    `authorities`: the CAs as DER, with the last second of each.
    """

    key: _Key
    authorities: Mapping[bytes, int]
    key_refusal: str = ""
    authorities_refusal: str = ""

    def problems(self) -> Iterator[str]:
        """A sentence for each store that is refused; listeners that share a store have the same one."""
        if self.key_refusal:
            yield (f"the key store is refused: {self.key_refusal}; until then the certificate from before is used")
        if self.authorities_refusal:
            yield (
                f"the trust store is refused: {self.authorities_refusal}; until then the CAs from before are trusted"
            )

    def read_since(self, before: _Stores) -> Iterator[str]:
        """Which of them was read again with another content, or can be used again."""
        if self.key != before.key or (before.key_refusal and not self.key_refusal):
            yield CERTIFICATE
        if self.authorities != before.authorities or (before.authorities_refusal and not self.authorities_refusal):
            yield AUTHORITIES


class _End(NamedTuple):
    """When the first certificate of the broker's chain ends; `whose` is empty for its own, else says which CA's."""

    end_s: int
    whose: str


class _BuiltContext(NamedTuple):
    """A context, and what it was made of; when the first (`next_end_s`) and the last of its CAs ends.

    `named`: its certificate names the host that is advertised to clients.
    """

    context: ssl.SSLContext
    chain_end: _End
    next_end_s: float
    last_end_s: float
    named: bool


class Tls:
    """TLS of one listener; `now_s` is the later of clock and build date, `host` is the advertised one, empty: unknown.

    `context` is for the next connection. `problems` says what is wrong, a sentence for each store that is refused.
    """

    def __init__(self, settings: TlsSettings, now_s: Callable[[], float], host: str = "") -> None:
        """Make the first context; ConfigurationError names what cannot be used."""
        self.listener = settings.listener
        self.problems: tuple[str, ...] = ()
        self._settings = settings
        self._now_s = now_s
        self._host = host
        self._tried = _identity(settings)
        self._changeable = _changeable(settings)
        self._stores = _read_stores(settings, now_s())
        self._made = _make(settings, self._stores, now_s(), host)
        self._chains: dict[CertificateId, tuple[CertificateId, ...]] = {}  # the worker `handshakes` alone has it

    @property
    def context(self) -> ssl.SSLContext:
        """The context for a new connection."""
        return self._made.context

    @property
    def end_s(self) -> int:
        """When the first certificate of the chain ends, in Unix time."""
        return self._made.chain_end.end_s

    @property
    def end_day(self) -> str:
        """The date of it."""
        return day(self.end_s)

    @property
    def authorities(self) -> int:
        """How many CAs the trust store holds, those that have ended included."""
        return len(self._stores.authorities)

    @runs_in("files")
    def renew_if_changed(self) -> frozenset[str]:
        """Make a new context if that is called for; what has changed that a person should know."""
        now_s, identity = self._now_s(), _identity(self._settings)
        due = now_s >= self._made.next_end_s or self._made.context.session_stats()["number"] >= SESSIONS_MAX
        if identity == self._tried and not due and not self.problems:
            return frozenset()
        self._tried, self._changeable = identity, _changeable(self._settings)
        before, problems = self._stores, self.problems
        stores = _read_stores(self._settings, now_s, before)
        try:
            if due or (stores.key, stores.authorities) != (before.key, before.authorities):
                self._made = _make(self._settings, stores, now_s, self._host)
            self._stores, self.problems = stores, tuple(stores.problems())
        except ConfigurationError as error:
            self.problems = (f"{_without_end(error)}; until then listener {self.listener} goes on as before",)
        changed = {PROBLEM} if self.problems != problems else set()
        return frozenset(changed.union(self._stores.read_since(before)))

    def check_client(self, tls: ssl.SSLObject) -> ClientIdentity:
        """Return the identity of a client after its handshake; Refused if its certificate or a CA of it has ended."""
        chain = peer_chain(tls)
        if not chain:
            return ClientIdentity()
        subject = _check_chain(chain, self._now_s())
        try:
            return ClientIdentity(principal_of(subject, self._settings.rules), self._certificates_of(tls, chain))
        except NoRuleFits as error:
            raise HandshakeRefused(str(error)) from None

    def _certificates_of(self, tls: ssl.SSLObject, chain: Sequence[bytes]) -> tuple[CertificateId, ...]:
        """Return the names of the client's certificate and its CAs, which OpenSSL forgets of a resumed session."""
        found = tuple(map(certificate_id, chain))
        if tls.session_reused:
            return self._chains.get(found[0], found)
        self._chains.pop(found[0], None)
        self._chains[found[0]] = found
        if len(self._chains) > CHAINS_MAX:
            del self._chains[next(iter(self._chains))]
        return found

    def warnings(self) -> Iterator[str]:
        """Warnings of a healthy broker: a file that cannot be used, CAs that others may
        change, an end that is near, a certificate that does not name the advertised host.
        """
        end_s, now_s = self.end_s, self._now_s()
        yield from self.problems
        if self._changeable:
            yield self._changeable
        if not self._stores.key_refusal and end_s - now_s <= SOON_S:
            verb, whose = "ends" if end_s > now_s else "ended", f"{self._made.chain_end.whose}listener {self.listener}"
            yield f"the certificate of {whose} {verb} {day(end_s)}, {_today(now_s)}: put a new one there"
        if self._made.last_end_s - now_s <= SOON_S:
            yield (
                f"the CA of clients' certificates of listener {self.listener} ends {day(self._made.last_end_s)}, "
                f"{_today(now_s)}: put its successor into ssl.truststore.location"
            )
        if not self._made.named:
            yield (
                f"clients of listener {self.listener} use {self._host}, which its certificate does not name, so "
                f"that they will refuse it: make one with subjectAltName={alternative_name(self._host)}, or set "
                "advertised.listeners to a name that it has"
            )


def _check_chain(chain: Sequence[bytes], now_s: float) -> str:
    """The subject of a client's certificate; HandshakeRefused when anything of its chain has ended."""
    own = read_certificate(chain[0])
    if now_s > own.not_after_s:
        raise HandshakeRefused(f"its certificate {own.subject} ended {day(own.not_after_s)}, {_today(now_s)}")
    for authority in map(certificate, chain[1:]):
        if now_s > authority.end_s:
            raise HandshakeRefused(
                f"the CA {authority.name!r} of its certificate {own.subject} ended {day(authority.end_s)}, "
                f"{_today(now_s)}"
            )
    return own.subject


def day(seconds: float) -> str:
    """The date of a moment in Unix time."""
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()


def _today(now_s: float) -> str:
    return f"and the clock says {day(now_s)}"


def _read_stores(settings: TlsSettings, now_s: float, before: _Stores | None = None) -> _Stores:
    """Return the present contents of both stores, `before` for an unusable one; without that ConfigurationError."""
    wait_s = None if before is None else AT_ONCE_S  # the worker that syncs records does not wait for a pipe
    key, key_refusal = _latest(lambda: _read_key(settings, wait_s), before.key if before else None)
    if settings.client_auth == "none":
        return _Stores(key, {}, key_refusal)
    authorities, authorities_refusal = _latest(
        lambda: _read_authorities(settings, now_s, wait_s), before.authorities if before else None
    )
    return _Stores(key, authorities, key_refusal, authorities_refusal)


def _latest(read: Callable[[], Store], before: Store | None) -> tuple[Store, str]:
    try:
        return read(), ""
    except ConfigurationError as error:
        if before is None:
            raise
        return before, _without_end(error)


def _without_end(error: ConfigurationError) -> str:
    """A sentence that goes on."""
    return str(error).removesuffix(".")


def _make(settings: TlsSettings, stores: _Stores, now_s: float, host: str) -> _BuiltContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    versions = [getattr(ssl.TLSVersion, version.replace(".", "_")) for version in settings.versions]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.set_ciphers(settings.ciphers)
    context.options |= (
        ssl.OP_NO_RENEGOTIATION
        | ssl.OP_NO_TICKET
        | ssl.OP_NO_COMPRESSION
        | ssl.OP_CIPHER_SERVER_PREFERENCE
        | PRIORITIZE_CHACHA
    )
    context.num_tickets = 0
    context.verify_flags |= NO_CHECK_TIME | PARTIAL_CHAIN  # as Java: any CA given
    _load_key(context, settings, stores.key.text)
    next_end_s = last_end_s = float("inf")
    if settings.client_auth != "none":
        context.verify_mode = ssl.CERT_REQUIRED if settings.client_auth == "required" else ssl.CERT_OPTIONAL
        sound = {der: end for der, end in stores.authorities.items() if end >= now_s}
        if sound:  # else no client is trusted until the trust store has another CA
            _load_authorities(context, settings, sound)
        next_end_s, last_end_s = min(sound.values(), default=next_end_s), max(stores.authorities.values())
    named = not host or names_host(context, stores.key.chain, host)
    return _BuiltContext(context, _first_end(stores.key.chain), next_end_s, last_end_s, named)


def _first_end(chain: Sequence[bytes]) -> _End:
    """Which certificate of the broker's chain ends first."""
    read = map(certificate, chain)
    return min(_End(each.end_s, f"the CA {each.name!r} of " if number else "") for number, each in enumerate(read))


def _read_key(settings: TlsSettings, wait_s: float | None) -> _Key:
    """Key and chain as they are now; ConfigurationError where OpenSSL cannot use them."""
    where = _key_place(settings)
    if settings.keystore:
        text = _read("ssl.keystore.location", settings.keystore, wait_s, secret=True)
    else:
        text = f"{settings.key}\n{settings.chain}\n"
    chain = tuple(_certificates(where, text))
    if not chain:
        raise ConfigurationError(f"{where} has no certificate in PEM; put key and certificate chain into it")
    # a context of its own: one that has refused a chain keeps parts of it
    _load_key(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), settings, text)
    return _Key(text, chain)


def _key_place(settings: TlsSettings) -> str:
    return settings.keystore or "ssl.keystore.certificate.chain"


def _load_key(context: ssl.SSLContext, settings: TlsSettings, text: str) -> None:
    try:
        with as_file(text) as path:
            context.load_cert_chain(path, password=lambda: settings.password)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigurationError(
            f"{_key_place(settings)} cannot be used: {_chain_reason(error, text, password=bool(settings.password))}"
        ) from None
    except OSError as error:
        raise ConfigurationError(f"{_key_place(settings)} cannot be used: {reason(error)}") from None


def _chain_reason(error: Exception, text: str, *, password: bool) -> str:
    code = getattr(error, "reason", None) or ""
    if code == "KEY_VALUES_MISMATCH":
        return (
            "its private key does not belong to its first certificate; put the broker's own certificate first, with "
            "the key that it was made for"
        )
    if "PRIVATE KEY-----" not in text:
        return "there is no private key in PEM in it; put it before the certificates"
    if "ENCRYPTED" in text:
        return (
            "ssl.key.password does not open its private key"
            if password
            else "its key is encrypted; set ssl.key.password"
        )
    return code.lower().replace("_", " ") or "its private key cannot be read; write it again"


def _read_authorities(settings: TlsSettings, now_s: float, wait_s: float | None) -> Mapping[bytes, int]:
    """The CAs as they are now; ConfigurationError where OpenSSL cannot use them, or all have ended."""
    where = _authorities_place(settings)
    path = settings.truststore
    text = _read("ssl.truststore.location", path, wait_s) if path else settings.certificates
    ends = {der: read_certificate(der).not_after_s for der in _certificates(where, text)}
    if not ends:
        raise ConfigurationError(f"{where} has no certificate in PEM; put the CA of the clients' certificates into it")
    last = max(ends.values())
    if last < now_s:
        raise ConfigurationError(
            f"every CA in {where} has ended, the last {day(last)}, {_today(now_s)}; put in one that has not"
        )
    _load_authorities(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), settings, ends)
    return ends


def _authorities_place(settings: TlsSettings) -> str:
    return settings.truststore or "ssl.truststore.certificates"


def _load_authorities(context: ssl.SSLContext, settings: TlsSettings, authorities: Iterable[bytes]) -> None:
    try:
        context.load_verify_locations(cadata=b"".join(authorities))
    except ssl.SSLError as error:
        raise ConfigurationError(f"{_authorities_place(settings)} cannot be used: {error.reason}") from None


def _certificates(where: str, text: str) -> list[bytes]:
    """The certificates in a text, as DER; ConfigurationError when one cannot be read."""
    found = []
    for part in text.split(BEGIN)[1:]:
        try:
            der = ssl.PEM_cert_to_DER_cert(BEGIN + part.partition(END)[0] + END)
            read_certificate(der)
            found.append(der)
        except ValueError:
            raise ConfigurationError(
                f"certificate {len(found) + 1} in {where} cannot be read; write it again"
            ) from None
    return found


def _read(key: str, path: str, wait_s: float | None, *, secret: bool = False) -> str:
    """The text of a file, whose secret no other user may use. ConfigurationError; `wait_s` as of `read_named`."""

    def check(status: os.stat_result) -> None:
        if secret:
            check_status(status, path, key)

    try:
        return read_named(path, check=check, wait_s=wait_s).decode("ascii", "replace")
    except OSError as error:
        raise ConfigurationError(f"{key} {path} cannot be read: {reason(error)}") from None


def _changeable(settings: TlsSettings) -> str:
    """Say that others may change the trust store. It is not refused, as sites that run may have such a one."""
    if not settings.truststore or settings.client_auth == "none":
        return ""
    return changeable(settings.truststore, "ssl.truststore.location")


def _identity(settings: TlsSettings) -> Identity:
    """Which files these are now."""
    return tuple(file_identity(path) for path in (settings.keystore, settings.truststore) if path)
