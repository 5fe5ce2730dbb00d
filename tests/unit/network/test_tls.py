"""Contexts from files: what is refused, what is read again, and by which clock certificates are judged."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from drupelet.errors import ConfigurationError
from drupelet.tls import secret_files
from drupelet.tls.certificates import certificate, certificates_in
from drupelet.tls.contexts import peer_chain
from edge_broker.clock import SystemClock
from edge_broker.configuration.config import Endpoint, read_config
from edge_broker.configuration.listeners import Listener
from edge_broker.network.server.tls_listeners import Encryption
from edge_broker.network.tls.tls_contexts import SESSIONS_MAX, Tls, day
from edge_broker.network.tls.tls_transport import HandshakeRefused
from edge_broker.tls_settings import SUITES, TlsSettings, read_tls_settings
from tests.support.certificates import Authority, encrypt_key
from tests.support.runtimes import openssl
from tests.support.waiting import CALL_S

NOW_S = time.time()  # when the certificates of these tests hold
IN_2060_S = 2_850_000_000.0


class Files(NamedTuple):
    """PEM files: of a broker, of a client, and of the CA of both."""

    directory: Path
    broker: Path
    client: Path
    authority: Path


def together(target: Path, *parts: Path, mode: int = 0o640) -> Path:
    new = target.with_suffix(".new")
    new.write_text("".join(part.read_text() for part in parts))
    new.chmod(mode)
    new.replace(target)
    return target


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def made(site: Authority) -> Files:
    authority, directory = site, site.directory
    stores = [
        together(directory / f"{name}.store", *reversed(authority.sign(name, "DNS:localhost")))
        for name in ("broker", "client")
    ]
    return Files(directory, *stores, authority.certificate)


@pytest.fixture
def files(made: Files, tmp_path: Path) -> Files:
    return Files(
        tmp_path,
        together(tmp_path / "broker.pem", made.broker),
        together(tmp_path / "client.pem", made.client),
        together(tmp_path / "ca.pem", made.authority),
    )


def settings(text: str) -> TlsSettings:
    return read_tls_settings(read_config(text, "a.toml", []), "LAN")


def of(files: Files, more: str = "") -> TlsSettings:
    return settings(
        f"""
        "ssl.keystore.location" = "{files.broker}"
        "ssl.truststore.location" = "{files.authority}"
        "ssl.client.auth" = "required"
        {more}"""
    )


def refused(wanted: TlsSettings, now_s: float = NOW_S) -> str:
    with pytest.raises(ConfigurationError) as caught:
        Tls(wanted, lambda: now_s)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def shake(
    tls: Tls, client: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends after a handshake that has come to its end."""
    here, there = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = tls.context.wrap_bio(here, there, server_side=True)
    other = client.wrap_bio(there, here, server_hostname="localhost", session=session)
    done = set()
    for _ in range(6):
        for end in (other, server):
            try:
                end.do_handshake()
                done.add(end)
            except ssl.SSLWantReadError:
                pass
    assert len(done) == 2
    return server, other


def client_of(files: Files, *, certificate: bool = True) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(files.authority))
    if certificate:
        context.load_cert_chain(files.client)
    return context


def test_a_client_is_called_by_the_subject_of_its_certificate(files: Files) -> None:
    tls = Tls(of(files), lambda: NOW_S)
    server, other = shake(tls, client_of(files))
    assert tls.check_client(server).principal == "User:CN=client"
    assert server.version() == "TLSv1.3"
    own, of_clients = list(tls.warnings())[:2]
    clock = f"and the clock says {day(NOW_S)}: put"
    assert own == f"the certificate of listener LAN ends {tls.end_day}, {clock} a new one there"
    assert of_clients.startswith("the CA of clients' certificates of listener LAN ends ")
    assert of_clients.endswith(f", {clock} its successor into ssl.truststore.location")
    del other


def test_rules_make_a_name_of_the_subject_or_refuse_it(files: Files) -> None:
    tls = Tls(of(files, '"listener.name.lan.ssl.principal.mapping.rules" = "RULE:^CN=(.*)$/$1/U"'), lambda: NOW_S)
    server, _ = shake(tls, client_of(files))
    assert tls.check_client(server).principal == "User:CLIENT"
    tls = Tls(of(files, '"ssl.principal.mapping.rules" = "RULE:^OU=(.*)$/$1/"'), lambda: NOW_S)
    server, _ = shake(tls, client_of(files))
    with pytest.raises(HandshakeRefused, match=r"no rule of ssl.principal.mapping.rules fits 'CN=client'"):
        tls.check_client(server)


def test_who_need_not_show_a_certificate_is_anonymous(files: Files) -> None:
    tls = Tls(of(files, '"listener.name.lan.ssl.client.auth" = "requested"'), lambda: NOW_S)
    server, _ = shake(tls, client_of(files, certificate=False))
    assert tls.check_client(server).principal == ""


def test_a_certificate_that_has_ended_by_the_later_of_clock_and_build_date_is_refused(files: Files) -> None:
    now_s = [NOW_S]
    tls = Tls(of(files), lambda: now_s[0])
    server, _ = shake(tls, client_of(files))
    now_s[0] = IN_2060_S
    with pytest.raises(HandshakeRefused, match=r"CN=client ended 20\d\d-\d\d-\d\d, and the clock says 2060-04-24"):
        tls.check_client(server)
    assert "ended" in next(tls.warnings())
    assert "every CA in" in refused(of(files), IN_2060_S)


def test_every_ca_between_a_certificate_and_the_one_that_is_trusted_is_judged(files: Files, site: Authority) -> None:
    between = Authority(files.directory, "between", days=10, issuer=site)
    together(files.client, *reversed(between.sign("bench", "DNS:localhost")), between.certificate)
    (end_s,) = (each.end_s for each in certificates_in(between.certificate.read_bytes()))
    now_s = [float(end_s)]
    tls = Tls(of(files), lambda: now_s[0])
    server, _ = shake(tls, client_of(files))
    assert tls.check_client(server).principal == "User:CN=bench"
    now_s[0] += 1
    with pytest.raises(
        HandshakeRefused, match=r"the CA 'between' of its certificate CN=bench ended 20\d\d-\d\d-\d\d, and the"
    ):
        tls.check_client(server)


def test_the_end_of_any_certificate_of_the_brokers_own_chain_is_told(files: Files, site: Authority) -> None:
    between = Authority(files.directory, "between", days=-1, issuer=site)
    together(files.broker, *reversed(between.sign("wing", "DNS:localhost")), between.certificate)
    warning = next(Tls(of(files), lambda: NOW_S).warnings())
    assert warning.startswith("the certificate of the CA 'between' of listener LAN ended 20")
    assert warning.endswith("put a new one there")


def test_tickets_are_off_and_chacha_comes_first_where_the_client_puts_it_first(files: Files) -> None:
    context = Tls(of(files), lambda: NOW_S).context
    assert context.num_tickets == 0
    assert context.options & ssl.OP_NO_TICKET
    tls = Tls(of(files), lambda: NOW_S)
    client = client_of(files)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    for first, second in (("CHACHA20-POLY1305", "AES256-GCM-SHA384"), ("AES256-GCM-SHA384", "CHACHA20-POLY1305")):
        client.set_ciphers(f"ECDHE-ECDSA-{first}:ECDHE-ECDSA-{second}")
        server, _ = shake(tls, client)
        cipher = server.cipher()
        assert cipher is not None
        assert cipher[0] == f"ECDHE-ECDSA-{first}"


CHACHA, AES = "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_256_GCM_SHA384"


@pytest.mark.parametrize(("first", "second"), [(CHACHA, AES), (AES, CHACHA)])
def test_with_tls_1_3_too_chacha_is_used_where_the_client_puts_it_first(files: Files, first: str, second: str) -> None:
    # Python's ssl cannot order a client's suites of TLS 1.3; openssl can
    shows = ["-cert", files.client, "-key", files.client, "-CAfile", files.authority]
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(CALL_S)
        where = f"127.0.0.1:{listening.getsockname()[1]}"
        command = [openssl(), "s_client", "-connect", where, "-ciphersuites", f"{first}:{second}", *shows]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as client:
            plain, _ = listening.accept()
            plain.settimeout(CALL_S)
            with Tls(of(files), lambda: NOW_S).context.wrap_socket(plain, server_side=True) as connection:
                cipher = connection.cipher()
            client.communicate(timeout=CALL_S)
    assert cipher is not None
    assert cipher[:2] == (first, "TLSv1.3")


def test_where_clients_log_in_a_certificate_is_asked_for_behind_the_listeners_prefix_alone(files: Files) -> None:
    text = f'"ssl.keystore.location" = "{files.broker}"\n"ssl.truststore.location" = "{files.authority}"\n'
    config = read_config(text + '"ssl.client.auth" = "required"\n', "a.toml", [])
    assert read_tls_settings(config, "LAN", logs_in=True).client_auth == "none"
    config = read_config(text + '"listener.name.lan.ssl.client.auth" = "required"\n', "a.toml", [])
    assert read_tls_settings(config, "LAN", logs_in=True).client_auth == "required"


def test_suites_and_versions_are_those_that_were_named(files: Files) -> None:
    more = """
        "ssl.cipher.suites" = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
        "listener.name.lan.ssl.enabled.protocols" = ["TLSv1.2"]"""
    tls = Tls(of(files, more), lambda: NOW_S)
    server, _ = shake(tls, client_of(files))
    assert server.cipher() == ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.2", 128)
    client = client_of(files)
    client.minimum_version = ssl.TLSVersion.TLSv1_3
    with pytest.raises(ssl.SSLError):
        shake(tls, client)


def test_every_suite_is_known_to_openssl(files: Files) -> None:
    names = {cipher["name"] for cipher in Tls(of(files), lambda: NOW_S).context.get_ciphers()}
    assert set(SUITES.values()) <= names


def test_key_and_certificates_may_stand_in_the_configuration(files: Files) -> None:
    key, _, chain = files.broker.read_text().partition("-----BEGIN CERTIFICATE-----")
    tls = Tls(
        settings(
            f'"ssl.keystore.key" = """{key}"""\n'
            f'"ssl.keystore.certificate.chain" = """-----BEGIN CERTIFICATE-----{chain}"""\n'
            f'"ssl.truststore.certificates" = """{files.authority.read_text()}"""\n"ssl.client.auth" = "required"'
        ),
        lambda: NOW_S,
    )
    server, _ = shake(tls, client_of(files))
    assert tls.check_client(server).principal == "User:CN=client"


def test_an_encrypted_key_needs_its_password(files: Files) -> None:
    encrypt_key(files.broker, "let me in")
    shake(Tls(of(files, '"ssl.key.password" = "let me in"'), lambda: NOW_S), client_of(files))
    assert "ssl.key.password does not open its private key" in refused(of(files, '"ssl.key.password" = "wrong"'))
    assert "ssl.key.password" in refused(of(files))


def test_a_key_that_everybody_may_read_is_refused(files: Files) -> None:
    files.broker.chmod(0o644)
    assert refused(of(files)).endswith(f"which other users of this host may use: `chmod g-w,o= {files.broker}`.")


def test_what_is_missing_or_no_certificate_is_named(files: Files) -> None:
    wanted = of(files)
    before = files.broker.read_text()
    files.broker.write_text(before.partition("-----BEGIN CERTIFICATE-----")[0])
    assert "has no certificate in PEM" in refused(wanted)
    files.broker.write_text("-----BEGIN CERTIFICATE-----\nMAAA\n-----END CERTIFICATE-----\n")
    assert "certificate 1 in" in refused(wanted)
    files.broker.write_text(files.authority.read_text())
    assert "there is no private key in PEM" in refused(wanted)
    together(files.broker, files.authority, files.broker)
    files.broker.write_text(files.authority.read_text() + before)
    assert "does not belong to its first certificate" in refused(wanted)
    files.broker.unlink()
    assert "cannot be read: no such file" in refused(wanted).lower()
    files.broker.write_text(before)
    files.broker.chmod(0o600)
    files.authority.write_text("nothing")
    assert "put the CA of the clients' certificates into it" in refused(wanted)


def test_a_new_certificate_is_used_once_it_is_there_and_a_broken_one_never(files: Files) -> None:
    tls = Tls(of(files), lambda: NOW_S)
    first = tls.context
    assert not tls.renew_if_changed()
    assert tls.context is first
    together(files.broker, files.client)
    assert tls.renew_if_changed()
    assert tls.context is not first
    server, other = shake(tls, client_of(files))
    der = other.getpeercert()
    assert der is not None
    assert ("commonName", "client") in [pair for part in der["subject"] for pair in part]
    second = tls.context
    files.broker.write_text("half a fi")
    assert tls.renew_if_changed()
    assert not tls.renew_if_changed(), "said once"
    assert tls.context is second
    assert "until then the certificate from before is used" in next(tls.warnings())
    together(files.broker, files.client)
    assert tls.renew_if_changed()
    assert not tls.problems
    del server


NAMES = "DNS:board.example,DNS:*.site.example,IP:192.0.2.7,IP:2001:db8::7"


@pytest.mark.parametrize("auth", ["none", "required"])
@pytest.mark.parametrize(
    ("host", "wanted"),
    [
        ("board.example", ""),
        ("BOARD.example", ""),
        ("a.site.example", ""),
        ("192.0.2.7", ""),
        ("2001:db8::7", ""),
        ("2001:db8::7%eth0", ""),
        ("example", "DNS:example"),
        ("a.b.site.example", "DNS:a.b.site.example"),
        ("localhost", "DNS:localhost"),
        ("192.0.2.8", "IP:192.0.2.8"),
        ("2001:0db8::8", "IP:2001:db8::8"),
        (".site.example", "DNS:.site.example"),
    ],
)
def test_a_host_that_the_certificate_does_not_name_is_told(files: Files, host: str, wanted: str, auth: str) -> None:
    own = Authority(files.directory / "own", days=3000)
    together(files.broker, *reversed(own.sign("broker", NAMES, days=3000)))
    tls = Tls(of(files, f'"listener.name.lan.ssl.client.auth" = "{auth}"'), lambda: NOW_S, host)
    told = f"clients of listener LAN use {host}, which its certificate does not name"
    said = [warning for warning in tls.warnings() if "CA of clients'" not in warning]
    assert [(warning[: len(told)], f"subjectAltName={wanted}," in warning) for warning in said] == (
        [(told, True)] if wanted else []
    )
    assert tls.context.session_stats()["number"] == 0


def test_a_new_certificate_is_looked_at_for_the_name_too(files: Files) -> None:
    tls = Tls(of(files), lambda: NOW_S, "board.example")
    assert "subjectAltName=DNS:board.example" in list(tls.warnings())[-1]
    together(files.broker, *reversed(Authority(files.directory / "own").sign("broker", NAMES)))
    assert tls.renew_if_changed()
    assert not any("does not name" in warning for warning in tls.warnings())


def test_where_no_handshake_gets_as_far_as_the_name_nothing_is_said_of_it(files: Files) -> None:
    more = """
        "ssl.cipher.suites" = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
        "ssl.enabled.protocols" = ["TLSv1.2"]"""
    tls = Tls(of(files, more), lambda: NOW_S, "board.example")
    assert not any("does not name" in warning for warning in tls.warnings())


def test_a_ca_that_ends_is_trusted_no_more(files: Files) -> None:
    now_s = [NOW_S]
    young = Authority(files.directory / "young", "young", days=3000)
    together(files.authority, files.authority, young.certificate)
    tls = Tls(of(files), lambda: now_s[0])
    server, _ = shake(tls, client_of(files))
    del server
    now_s[0] = NOW_S + 40 * 86_400
    assert not tls.renew_if_changed(), "nothing that a person must do"
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(tls, client_of(files))


def test_a_context_that_remembers_many_sessions_is_replaced(files: Files) -> None:
    tls = Tls(of(files), lambda: NOW_S)
    client = client_of(files)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    first = tls.context
    for _ in range(SESSIONS_MAX):
        server, _ = shake(tls, client)
        with suppress(ssl.SSLWantReadError):
            server.unwrap()  # OpenSSL forgets the session of a connection that was cut off
    tls.renew_if_changed()
    assert tls.context is not first


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "listener LAN has no certificate"),
        ('"ssl.keystore.type" = "JKS"\n"ssl.keystore.location" = "/k.jks"', "openssl pkcs12 -in /k.jks.p12"),
        ('"ssl.truststore.type" = "PKCS12"\n"ssl.truststore.location" = "/t.p12"', "openssl pkcs12 -in /t.p12"),
        ('"ssl.keystore.key" = "x"', "belong together"),
        ('"ssl.keystore.location" = "/k"\n"ssl.client.auth" = "required"', "ssl.truststore.location"),
        ('"ssl.keystore.location" = "/k"\n"ssl.cipher.suites" = "TLS_AES_256_GCM_SHA384"', "of TLS 1.3"),
        ('"ssl.keystore.location" = "/k"\n"ssl.cipher.suites" = "TLS_RSA_WITH_AES_128_CBC_SHA"', "is not served"),
        ('"ssl.keystore.location" = "/k"\n"ssl.principal.mapping.rules" = "RULE:x"', "RULE:pattern/replacement/"),
        ('"ssl.keystore.location" = "/k"\n"ssl.enabled.protocols" = ""', "allowed: TLSv1.2, TLSv1.3"),
        ('"ssl.enabled.protocols" = "TLSv1.1"', "allowed: TLSv1.2, TLSv1.3"),
        ('"ssl.client.auth" = "maybe"', "allowed: none, requested, required"),
    ],
)
def test_settings_that_make_no_sense_are_refused_with_a_sentence(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        settings(text)
    assert said in str(caught.value)


@pytest.mark.parametrize("name", ["ssl.key.password", "listener.name.lan.ssl.keystore.key"])
def test_a_secret_on_the_command_line_is_refused_without_being_said_again(name: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_config(None, "", [f"{name}=hunter2"])
    assert "--config" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_files_are_told_apart_by_more_than_their_time(files: Files) -> None:
    tls = Tls(of(files), lambda: NOW_S)
    before = os.stat(files.broker)
    together(files.broker, files.client)
    os.utime(files.broker, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert tls.renew_if_changed()


def subject_shown(tls: Tls, client: ssl.SSLContext) -> str:
    """The common name of the certificate that the broker shows to a client."""
    _, other = shake(tls, client)
    der = other.getpeercert()
    assert der is not None
    return next(value for part in der["subject"] for name, value in part if name == "commonName")


def lets_in(tls: Tls, client: ssl.SSLContext) -> bool:
    """Whether a client with its certificate gets as far as a principal."""
    try:
        server, _ = shake(tls, client)
    except ssl.SSLError:
        return False
    return bool(tls.check_client(server).principal)


def stranger_of(files: Files, authority: Authority) -> ssl.SSLContext:
    """A client with a certificate of another CA, which believes the broker."""
    context = ssl.create_default_context(cafile=str(files.authority))
    context.load_cert_chain(authority.directory / "other.pem", authority.directory / "other.key")
    return context


@pytest.fixture
def second(files: Files) -> Authority:
    """A second CA, with a certificate for the client `other`."""
    authority = Authority(files.directory / "second", "second")
    authority.sign("other", "DNS:localhost")
    return authority


def test_a_removed_ca_is_not_trusted_while_the_key_store_is_refused(
    made: Files, files: Files, second: Authority
) -> None:
    client = stranger_of(files, second)
    together(files.authority, files.authority, second.certificate)
    tls = Tls(of(files), lambda: NOW_S)
    assert lets_in(tls, client)
    files.broker.chmod(0o644)
    together(files.authority, made.authority)
    assert tls.renew_if_changed() == {"problem", "authorities"}
    assert not lets_in(tls, client)
    (refusal,) = [warning for warning in tls.warnings() if "until then" in warning]
    assert refusal.startswith(f"the key store is refused: ssl.keystore.location is {files.broker}, ")
    assert refusal.endswith("until then the certificate from before is used")


def test_a_new_certificate_is_used_while_the_trust_store_is_refused(files: Files) -> None:
    tls = Tls(of(files), lambda: NOW_S)
    client = client_of(files)
    before = files.authority.read_text()
    files.authority.write_text(before.replace("M", "?"))
    together(files.broker, files.client)
    assert tls.renew_if_changed() == {"problem", "certificate"}
    assert subject_shown(tls, client) == "client"
    assert lets_in(tls, client), "the CAs from before"
    (refusal,) = [warning for warning in tls.warnings() if "until then" in warning]
    assert refusal.startswith("the trust store is refused: certificate 1 in ")
    assert refusal.endswith("until then the CAs from before are trusted")
    files.authority.write_text(before)
    assert tls.renew_if_changed() == {"problem", "authorities"}
    assert not tls.problems


def test_both_stores_are_named_when_both_are_refused(files: Files) -> None:
    tls = Tls(of(files), lambda: NOW_S)
    client = client_of(files)
    files.broker.chmod(0o644)
    files.authority.unlink()
    assert tls.renew_if_changed() == {"problem"}
    told = [warning for warning in tls.warnings() if "is refused" in warning]
    assert [warning.partition(" is refused")[0] for warning in told] == ["the key store", "the trust store"]
    assert "ssl.truststore.location" in told[1]
    assert lets_in(tls, client)


def test_the_advised_chmod_is_noticed(files: Files) -> None:
    tls = Tls(of(files), lambda: NOW_S)
    files.broker.chmod(0o644)
    assert tls.renew_if_changed() == {"problem"}
    assert "".join(tls.problems).count("chmod g-w,o=") == 1
    subprocess.run(["chmod", "g-w,o=", files.broker], check=True)
    assert tls.renew_if_changed() == {"problem", "certificate"}
    assert not tls.problems
    assert not tls.renew_if_changed()


@pytest.mark.parametrize(("store", "word"), [("broker", "key"), ("authority", "trust")])
def test_a_store_that_became_a_pipe_is_refused_and_nothing_waits_for_it(files: Files, store: str, word: str) -> None:
    """The worker that looks at the stores syncs records, too."""
    tls = Tls(of(files), lambda: NOW_S)
    client = client_of(files)
    path: Path = getattr(files, store)
    text = path.read_bytes()
    path.unlink()
    os.mkfifo(path, 0o600)
    assert tls.renew_if_changed() == {"problem"}
    assert f"the {word} store is refused: " in "".join(tls.problems)
    assert "it is a pipe that no program has written and closed yet" in "".join(tls.problems)
    assert lets_in(tls, client)
    path.unlink()
    path.write_bytes(text)
    path.chmod(0o600)
    tls.renew_if_changed()
    assert not tls.problems


def test_a_key_store_from_a_pipe_is_read_at_the_start(files: Files) -> None:
    text = files.broker.read_bytes()
    files.broker.unlink()
    os.mkfifo(files.broker, 0o600)
    with ThreadPoolExecutor(1) as writer:
        writer.submit(files.broker.write_bytes, text)
        assert lets_in(Tls(of(files), lambda: NOW_S), client_of(files))


def of_the_trust_store(tls: Tls) -> list[str]:
    return [warning for warning in tls.warnings() if warning.startswith("ssl.truststore.location is ")]


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_a_trust_store_that_others_may_change_is_named_and_not_refused(files: Files, mode: int) -> None:
    """Sites that run must not stop at an upgrade; who changes the file decides who gets in."""
    files.authority.chmod(mode)
    tls = Tls(of(files), lambda: NOW_S)
    assert lets_in(tls, client_of(files))
    (told,) = of_the_trust_store(tls)
    assert told.startswith(f"ssl.truststore.location is {files.authority}, which other users of this host may change: ")
    subprocess.run(["bash", "-c", told.split("`")[1]], check=True)
    tls.renew_if_changed()
    assert not of_the_trust_store(tls)
    files.authority.chmod(mode)
    tls.renew_if_changed()
    assert of_the_trust_store(tls) == [told], "also while it runs"
    assert not tls.problems


async def test_the_cas_of_other_brokers_are_looked_at_too(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    peers = together(files.directory / "peers.pem", files.authority)
    text = f'"ssl.keystore.location" = "{files.broker}"'
    listener = Listener("LAN", "SSL", Endpoint("127.0.0.1", 0), Endpoint("localhost", 0))
    loop = asyncio.get_running_loop()
    config, clock = read_config(text, "a.toml", []), SystemClock()
    encryption = Encryption(config, [listener], loop, lambda _: "", lambda: False, clock, 0, lambda *_: "")
    try:
        encryption.believe_peers(str(peers), "broker.properties: ssl.truststore.location")
        encryption.check_files()
        before = encryption.report_changes()
        capsys.readouterr()
        peers.chmod(0o666)
        encryption.check_files()
        (said,) = set(encryption.report_changes()) - set(before)
        assert said.startswith(f"broker.properties: ssl.truststore.location is {peers}, which other users of this host")
        assert said[:60] in capsys.readouterr().err
        peers.chmod(0o644)
        encryption.check_files()
        assert encryption.report_changes() == before
    finally:
        encryption.worker.close()


def test_a_trust_store_of_another_user_is_named(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_files, "_owners", lambda: {files.authority.stat().st_uid + 1})
    files.broker.chmod(0o600)
    with pytest.raises(ConfigurationError, match=r"ssl\.keystore\.location .* belongs to another user"):
        Tls(of(files), lambda: NOW_S)
    uid = files.authority.stat().st_uid
    said = secret_files.changeable(files.authority, "ssl.truststore.location")
    assert f"which belongs to another user (uid {uid}), who may change it: chown it" in said


def test_an_owner_who_may_change_the_key_is_refused_until_he_is_none(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = Tls(of(files), lambda: NOW_S)
    with monkeypatch.context() as patch:
        patch.setattr(secret_files, "_owners", lambda: {files.broker.stat().st_uid + 1})
        files.broker.chmod(0o600)
        assert tls.renew_if_changed() == {"problem"}
        assert "belongs to another user (uid " in "".join(tls.problems)
        assert not tls.renew_if_changed(), "said once"
    assert tls.renew_if_changed() == {"problem", "certificate"}, "a store that is refused is read at each look"
    assert not tls.problems


def test_a_link_that_is_switched_to_another_store_is_noticed(files: Files) -> None:
    """As of a secret that is mounted into a container: the files stay, and the link moves."""
    stores = [together(files.directory / name, store) for name, store in (("1", files.broker), ("2", files.client))]
    files.broker.unlink()
    files.broker.symlink_to(stores[0])
    tls = Tls(of(files), lambda: NOW_S)
    client = client_of(files)
    assert not tls.renew_if_changed()
    (new := files.directory / "new").symlink_to(stores[1])
    new.replace(files.broker)
    assert tls.renew_if_changed() == {"certificate"}
    assert subject_shown(tls, client) == "client"


def test_a_store_that_could_not_be_read_for_a_moment_is_read_later(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file itself stays as it is, so that nothing of it shows that it can be read again."""
    tls = Tls(of(files), lambda: NOW_S)
    together(files.broker, files.client)

    def none_left(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(os, "memfd_create", none_left)
        assert tls.renew_if_changed() == {"problem"}
        assert "too many open files" in "".join(tls.problems).lower()
    assert tls.renew_if_changed() == {"problem", "certificate"}
    assert subject_shown(tls, client_of(files)) == "client"


def test_no_key_is_shown_by_what_is_kept_of_the_stores(files: Files) -> None:
    tls = Tls(of(files), lambda: NOW_S)
    shown = repr(vars(tls))
    assert "PRIVATE KEY" not in shown
    assert "BEGIN" not in shown


def test_the_cas_of_a_resumed_session_are_known(files: Files, site: Authority) -> None:
    """OpenSSL has the client's own certificate alone then, and a CA of it may be denied."""
    between = Authority(files.directory, "between", days=10, issuer=site)
    together(files.client, *reversed(between.sign("bench", "DNS:localhost")), between.certificate)
    tls = Tls(of(files), lambda: NOW_S)
    client = client_of(files)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    server, other = shake(tls, client)
    shown = tls.check_client(server)
    serials = [one.serial for one in map(certificate, map(ssl.PEM_cert_to_DER_cert, pem_parts(files)))]
    assert [one.serial for one in shown.certificates] == serials
    resumed, _ = shake(tls, client, other.session)
    assert resumed.session_reused
    assert len(peer_chain(resumed)) == 1
    assert tls.check_client(resumed) == shown


def pem_parts(files: Files) -> list[str]:
    """The certificates that OpenSSL believes the client by."""
    begin = "-----BEGIN CERTIFICATE-----"
    text = files.client.read_text() + files.authority.read_text()
    return [begin + part for part in text.split(begin)[1:]]
