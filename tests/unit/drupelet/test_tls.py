"""TLS without OpenSSL's look at times: who is believed at which time, over real handshakes in memory."""

from __future__ import annotations

import ssl
import time
from pathlib import Path

import pytest

from drupelet.installation import LEAST_S, built_s
from drupelet.kafka.connection_errors import explain
from drupelet.tls.certificates import certificates_in
from drupelet.tls.contexts import CertificateEndedError, check_ends, client_context, latest_s, peer_chain
from tests.support.certificates import Authority

DAY_S = 86_400
YEAR_2060_S = 2_840_140_800


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("site"), "site CA")


def handshake(
    client: ssl.SSLContext, server: ssl.SSLContext, name: str = "localhost", session: ssl.SSLSession | None = None
) -> ssl.SSLObject:
    """Let two contexts shake hands; the client's end, raises what either raises."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = client.wrap_bio(to_client, to_server, server_hostname=name, session=session)
    ends = [here, server.wrap_bio(to_server, to_client, server_side=True)]
    while ends:
        for end in list(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            ends.remove(end)
    return here


def server_of(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


def test_a_certificate_is_believed_until_its_end_and_no_longer(site: Authority) -> None:
    signed = site.sign("server", "DNS:localhost", days=10)
    end_s = certificates_in(signed[0].read_bytes())[0].end_s
    assert abs(end_s - time.time() - 10 * DAY_S) < 300
    for now_s in (0, time.time(), end_s):  # 1970: the beginning is not judged
        handshake(client_context(site.certificate, now_s=lambda now_s=now_s: now_s), server_of(*signed))
    for now_s in (end_s + 1, YEAR_2060_S):
        with pytest.raises(CertificateEndedError) as caught:
            handshake(client_context(site.certificate, now_s=lambda now_s=now_s: now_s), server_of(*signed))
    assert explain(caught.value) == (
        f"has a certificate that ended on {time.strftime('%Y-%m-%d', time.gmtime(end_s))}, and by this host's clock"
        " it is 2060-01-01: set the clock if that is wrong, else renew the certificate"
    )


def test_openssl_itself_does_not_look_at_times(site: Authority) -> None:
    expired = site.sign("expired", "DNS:localhost", days=-1)
    handshake(client_context(site.certificate, now_s=lambda: 0.0), server_of(*expired))


def test_a_ca_that_does_not_say_what_its_key_is_for_is_believed_by_every_python() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT  # what contexts of Python have from 3.13 on
    check_ends(context)
    assert not context.verify_flags & ssl.VerifyFlags.VERIFY_X509_STRICT


def test_a_ca_that_ended_before_its_certificate_is_not_believed(tmp_path: Path) -> None:
    short = Authority(tmp_path, "short CA")
    signed = short.sign("server", "DNS:localhost", days=90)  # the CA has 30
    now_s = time.time() + 60 * DAY_S
    with pytest.raises(CertificateEndedError, match="has a certificate of the CA 'short CA', that ended on"):
        handshake(client_context(short.certificate, now_s=lambda: now_s), server_of(*signed))


def test_every_ca_between_a_certificate_and_the_one_that_is_believed_is_judged(site: Authority, tmp_path: Path) -> None:
    between = Authority(tmp_path, "between", days=10, issuer=site)
    certificate, key = between.sign("server", "DNS:localhost")
    chain = tmp_path / "chain.pem"
    chain.write_bytes(certificate.read_bytes() + between.certificate.read_bytes())
    end_s = certificates_in(between.certificate.read_bytes())[0].end_s
    handshake(client_context(site.certificate, now_s=lambda: end_s), server_of(chain, key))
    with pytest.raises(CertificateEndedError, match="has a certificate of the CA 'between', that ended on"):
        handshake(client_context(site.certificate, now_s=lambda: end_s + 1), server_of(chain, key))


def test_a_session_that_is_resumed_has_the_certificate_alone(site: Authority, tmp_path: Path) -> None:
    client, server = client_context(site.certificate), server_of(*site.sign("server", "DNS:localhost"))
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    first = handshake(client, server)
    assert len(peer_chain(first)) == 2
    again = handshake(client, server, session=first.session)
    assert again.session_reused
    assert len(peer_chain(again)) == 1


def test_an_old_ca_beside_the_one_that_signed_does_no_harm(site: Authority, tmp_path: Path) -> None:
    old = Authority(tmp_path, "old CA")
    both = tmp_path / "both.pem"
    both.write_bytes(old.certificate.read_bytes() + site.certificate.read_bytes())
    handshake(client_context(both), server_of(*site.sign("server", "DNS:localhost")))
    handshake(client_context(both), server_of(*old.sign("server", "DNS:localhost")))


@pytest.mark.parametrize(
    ("believed", "name", "says"),
    [
        ("other", "localhost", "has a certificate of an unknown CA: name that CA in ssl_ca_file"),
        ("site", "elsewhere", "has a certificate for another name"),
    ],
)
def test_signature_and_name_are_checked_at_any_time(
    site: Authority, tmp_path: Path, believed: str, name: str, says: str
) -> None:
    other = Authority(tmp_path, "other CA")
    ca = site.certificate if believed == "site" else other.certificate
    with pytest.raises(ssl.SSLCertVerificationError) as caught:
        handshake(client_context(ca, now_s=lambda: 0.0), server_of(*site.sign("server", "DNS:localhost")), name)
    assert explain(caught.value).startswith(says)


def test_a_servers_context_judges_what_clients_show(site: Authority) -> None:
    def server(now_s: float, mode: ssl.VerifyMode) -> ssl.SSLContext:
        context = server_of(*site.sign("server", "DNS:localhost"))
        context.load_verify_locations(site.certificate)
        context.verify_mode = mode
        check_ends(context, lambda: now_s)
        return context

    client = client_context(site.certificate, *site.sign("client", "DNS:client"), now_s=lambda: 0.0)
    handshake(client, server(0.0, ssl.CERT_REQUIRED))
    with pytest.raises(CertificateEndedError):
        handshake(client, server(YEAR_2060_S, ssl.CERT_REQUIRED))
    handshake(client_context(site.certificate), server(YEAR_2060_S, ssl.CERT_OPTIONAL))  # shows none


def test_a_key_with_a_passphrase_is_refused_and_not_asked_for(site: Authority, tmp_path: Path) -> None:
    import subprocess

    from tests.support.runtimes import openssl

    certificate, key = site.sign("client", "DNS:client")
    locked = tmp_path / "locked.key"
    subprocess.run([openssl(), "pkcs8", "-topk8", "-in", key, "-out", locked, "-passout", "pass:x"], check=True)
    with pytest.raises(ValueError, match="the key has a passphrase"):
        client_context(site.certificate, certificate, locked)


def test_the_clock_counts_from_the_build_on() -> None:
    assert built_s() >= LEAST_S
    assert latest_s(lambda: 0.0) == built_s()
    assert latest_s(lambda: YEAR_2060_S) == YEAR_2060_S
