"""Names out of subjects: the cases of Kafka's SslPrincipalMapperTest, and subjects as Java writes them."""

from __future__ import annotations

import ssl
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from edge_broker.security.certificates import read_certificate
from edge_broker.security.principals import NoRuleFits, parse_rules, principal_of
from tests.support.runtimes import openssl

RULES = ", ".join(
    (
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L",
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
        "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U",
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U",
        "DEFAULT",
    )
)


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_the_first_rule_that_fits_counts(subject: str, name: str) -> None:
    assert principal_of(subject, parse_rules(RULES)) == f"User:{name}"


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("", "CN=x", "CN=x"),
        ("DEFAULT", "CN=x", "CN=x"),
        ("RULE:^CN=([^,]+),.*$/$1/U", "CN=pi.x,O=y", "PI.X"),
        (r"RULE:^CN=(.*?)\/(.*?)$/$2\/$1/", "CN=a/b", "b/a"),
        ("RULE:^CN=(.*)$/$10/", "CN=x", "x0"),
        (r"RULE:^CN=(.*)$/\$1 $1/", "CN=x", "$1 x"),
        ("RULE:^CN=(.*), (.*)$/$1,$2/, DEFAULT", "CN=a, b", "a,b"),
    ],
)
def test_rules_are_read_as_kafka_reads_them(rules: str, subject: str, name: str) -> None:
    assert principal_of(subject, parse_rules(rules)) == f"User:{name}"


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "DEFAULT/U",
        "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/L",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU",
        "RULE:^CN=((.*)$/$1/",
        "RULE:^CN=(.*)$/$2/",
        "RULE:^CN=.*$/$1/ DEFAULT",
    ],
)
def test_what_is_no_rule_is_refused_with_a_sentence(rules: str) -> None:
    with pytest.raises(ValueError, match="RULE") as caught:
        parse_rules(rules)
    assert "\n" not in str(caught.value)


def test_a_subject_that_no_rule_fits_has_no_name() -> None:
    with pytest.raises(NoRuleFits, match="'CN=x'"):
        principal_of("CN=x", parse_rules("RULE:^OU=(.*)$/$1/"))


SUBJECT = r'/C=DE/ST=Bä\,yern=#1/O= Fabrik; "Nord" /OU=a+CN=pi\+3/emailAddress=a@b.c/DC=x/UID=7/serialNumber=12/L=tail '
BY_JAVA = (  # what X500Principal.getName() of OpenJDK 17 made of the same certificate
    r"L=tail\ ,2.5.4.5=#13023132,UID=7,DC=x,1.2.840.113549.1.9.1=#16056140622e63,OU=a+CN=pi\+3,"
    r"O=\ Fabrik\; \"Nord\"\ ,ST=Bä\,yern\=\#1,C=DE"
)


def certificate(directory: Path, *more: str) -> bytes:
    path = directory / "certificate.pem"
    command = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-utf8"]
    command += ["-keyout", str(directory / "key"), "-out", str(path), "-subj", SUBJECT, "-multivalue-rdn", *more]
    subprocess.run([openssl(), *command], check=True, capture_output=True)
    return ssl.PEM_cert_to_DER_cert(path.read_text())


def test_subjects_are_written_as_java_writes_them(tmp_path: Path) -> None:
    der = certificate(tmp_path, "-days", "7300")
    read = read_certificate(der)
    assert read.subject == BY_JAVA
    decoded = ssl._ssl._test_decode_cert(str(tmp_path / "certificate.pem"))  # type: ignore[attr-defined]
    assert read.not_after_s == ssl.cert_time_to_seconds(decoded["notAfter"])


@pytest.mark.parametrize("days", ["1", "36500"])
def test_both_kinds_of_dates_are_read(tmp_path: Path, days: str) -> None:
    read = read_certificate(certificate(tmp_path, "-days", days))
    decoded = ssl._ssl._test_decode_cert(str(tmp_path / "certificate.pem"))  # type: ignore[attr-defined]
    assert read.not_after_s == ssl.cert_time_to_seconds(decoded["notAfter"])


def test_damaged_bytes_are_a_value_error_and_nothing_else(tmp_path: Path) -> None:
    der = certificate(tmp_path, "-days", "1")
    for at in range(len(der)):
        for damaged in (der[:at], der[:at] + b"\xff" + der[at + 1 :], der[:at] + b"\x00" + der[at + 1 :]):
            with suppress(ValueError):
                read_certificate(damaged)
