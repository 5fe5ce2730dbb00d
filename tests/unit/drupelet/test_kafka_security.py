"""The keys that secure a client: what goes together, and the sentences about what does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from drupelet.errors import ConfigurationError
from drupelet.kafka.security import MECHANISMS, SECURITY_KEYS, SECURITY_PROTOCOLS, Security, security_from
from tests.support.certificates import Authority

SASL = {"security_protocol": "SASL_SSL", "sasl_username": "u", "sasl_password_file": "pw"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, mode in (("ca", 0o644), ("cert", 0o644), ("key", 0o600), ("pw", 0o600), ("open", 0o644)):
        (tmp_path / name).write_text(f"{name}\n")
        (tmp_path / name).chmod(mode)
    return tmp_path


def read(values: dict[str, object], folder: Path) -> Security:
    return security_from(values, folder, lambda key: f"FILE: at.{key}")


def test_without_a_key_nothing_is_secured(folder: Path) -> None:
    assert read({}, folder) == Security()
    assert (Security().has_tls, Security().has_login) == (False, False)
    assert Security().context() is None


def test_everything_at_once(folder: Path) -> None:
    values = SASL | {"ssl_ca_file": "ca", "ssl_cert_file": "cert", "ssl_key_file": "key", "sasl_mechanism": "PLAIN"}
    assert values.keys() == set(SECURITY_KEYS)
    found = read(values, folder)
    assert found[:4] == ("SASL_SSL", str(folder / "ca"), str(folder / "cert"), str(folder / "key"))
    assert found[4:6] == ("PLAIN", "u")
    assert found.password is not None
    assert found.password.text() == "pw"
    assert (found.has_tls, found.has_login, found.shows_password) == (True, True, False)
    (folder / "pw").write_text("new\n")
    assert found.password.text() == "new"


def test_who_listens_reads_a_plain_password_alone(folder: Path) -> None:
    shown = [
        (protocol, mechanism)
        for protocol in SECURITY_PROTOCOLS
        for mechanism in MECHANISMS
        if Security(protocol, mechanism=mechanism).shows_password
    ]
    assert shown == [("SASL_PLAINTEXT", "PLAIN")]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (
            {"security_protocol": "TLS"},
            'FILE: at.security_protocol is "TLS": use one of PLAINTEXT, SSL, SASL_',
        ),
        ({"security_protocol": 1}, "FILE: at.security_protocol is 1: write a string"),
        ({"ssl_ca_file": ""}, "FILE: at.ssl_ca_file is '': write a string"),
        ({"ssl_ca_file": "ca"}, "FILE: at.ssl_ca_file is set, and at.security_protocol is PLAINTEXT: use SSL or"),
        ({"security_protocol": "SSL", "sasl_username": "u"}, "at.security_protocol is SSL: use SASL_SSL or SASL_PLAIN"),
        (
            {**SASL, "security_protocol": "SASL_PLAINTEXT", "ssl_ca_file": "ca"},
            "is SASL_PLAINTEXT: use SSL or",
        ),
        ({"security_protocol": "SSL", "ssl_ca_file": "none"}, "none, which is not there"),
        (
            {"security_protocol": "SSL", "ssl_cert_file": "cert"},
            "at.ssl_key_file is missing: at.ssl_cert_file",
        ),
        ({"security_protocol": "SSL", "ssl_key_file": "key"}, "at.ssl_cert_file is missing: at.ssl_key_file needs it"),
        (
            {"security_protocol": "SSL", "ssl_cert_file": "cert", "ssl_key_file": "open"},
            "open, which other users of this host may use: `chmod g-w,o=",
        ),
        ({"security_protocol": "SASL_SSL"}, "FILE: at.sasl_username is missing: at.security_protocol needs it"),
        ({"security_protocol": "SASL_SSL", "sasl_username": "u"}, "FILE: at.sasl_password_file is missing"),
        ({**SASL, "sasl_password_file": "open"}, "FILE: at.sasl_password_file is"),
        ({**SASL, "sasl_mechanism": "GSSAPI"}, 'FILE: at.sasl_mechanism is "GSSAPI": use one of SCRAM-SHA-512, SCRAM'),
    ],
)
def test_a_mistake_names_key_and_remedy(values: dict[str, object], says: str, folder: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(values, folder)
    assert says in str(caught.value)


def test_files_that_are_no_certificates_are_a_sentence(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="ca cannot be used: there is no certificate in PEM in it"):
        read({"security_protocol": "SSL", "ssl_ca_file": "ca"}, folder).context()


def test_a_key_of_another_certificate_is_a_sentence(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    (certificate, _), (_, key) = authority.sign("one", "DNS:one"), authority.sign("other", "DNS:other")
    secured = Security("SSL", str(authority.certificate), str(certificate), str(key))
    with pytest.raises(ConfigurationError, match=r"other\.key cannot be used: its key is not that of .*one\.pem"):
        secured.context()
