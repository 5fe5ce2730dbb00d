"""The site's CA and what it signs: dates, names, who may read the key, and when something is made anew.

OpenSSL, which every client of ours asks, judges what was signed.
"""

from __future__ import annotations

import stat
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from ansible.errors import AnsibleError
from cryptography import x509

from tests.support.ansible_files import load
from tests.support.runtimes import openssl

site_certificate = load("plugins/action/site_certificate.py")
PASSPHRASE = "a pass phrase of the vault"
NAMES = ["pi-1", "10.77.0.11", "localhost", "127.0.0.1", "::1"]
NOW = datetime(2026, 11, 25, tzinfo=UTC)


def authority(folder: Path, now: datetime = NOW) -> site_certificate.Authority:
    folder.mkdir(exist_ok=True)
    return site_certificate.site_authority(folder, PASSPHRASE, now, dry=False)


def request(folder: Path, name: str = "pi-1") -> str:
    """What a board sends, made as the role makes it."""
    key = folder / f"{name}.key"
    made = [openssl(), "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key]
    subprocess.run(made, check=True, capture_output=True)
    asked = [openssl(), "req", "-new", "-key", key, "-subj", f"/CN={name}"]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout


def pem(certificate: x509.Certificate) -> str:
    return site_certificate._pem(certificate)


def test_it_is_made_once_and_its_key_is_for_nobody_without_the_passphrase(tmp_path):
    first = authority(tmp_path)
    again = authority(tmp_path)
    assert (first.is_new, again.is_new) == (True, False)
    assert first.pem == again.pem == (tmp_path / "ca.pem").read_text()
    assert stat.S_IMODE((tmp_path / "ca.key").stat().st_mode) == 0o600
    assert "ENCRYPTED PRIVATE KEY" in (tmp_path / "ca.key").read_text()
    with pytest.raises(AnsibleError, match="cannot be read with security_ca_passphrase"):
        site_certificate.site_authority(tmp_path, "another", NOW, dry=False)


def test_openssl_believes_a_boards_certificate_from_2020_to_2040(tmp_path):
    ca = authority(tmp_path)
    signed = tmp_path / "pi-1.pem"
    signed.write_text(pem(ca.sign(request(tmp_path), NAMES, NOW)))
    for year, is_right in ((2019, False), (2020, True), (2039, True), (2041, False)):
        at = str(int(datetime(year, 6, 1, tzinfo=UTC).timestamp()))
        files = "-CAfile", tmp_path / "ca.pem", signed
        strict = "-x509_strict", "-purpose", "sslserver"  # as Python is from 3.13 on
        names = "-verify_ip", "10.77.0.11", "-verify_hostname", "pi-1", *strict
        done = subprocess.run([openssl(), "verify", "-attime", at, *names, *files], capture_output=True, check=False)
        assert (done.returncode == 0) is is_right, year


@pytest.mark.parametrize(
    ("names", "later", "of_another_key", "is_right"),
    [
        (NAMES, 0, False, True),
        ([*NAMES, "pi-1.example.org"], 0, False, False),
        (NAMES, 0, True, False),
        (NAMES, 365 * 13 - 30, False, True),
        (NAMES, 365 * 13, False, False),  # a month before 2040
    ],
)
def test_a_certificate_is_kept_until_it_is_for_something_else_or_ends_soon(
    tmp_path, names, later, of_another_key, is_right
):
    ca = authority(tmp_path)
    asked = request(tmp_path)
    held = pem(ca.sign(asked, NAMES, NOW))
    wanted = request(tmp_path, "another") if of_another_key else asked
    assert ca.is_right(held, wanted, names, NOW + timedelta(days=later)) is is_right


def test_one_of_another_ca_or_none_at_all_is_not_right(tmp_path):
    ours, others = authority(tmp_path / "ours"), authority(tmp_path / "others")
    asked = request(tmp_path)
    assert not ours.is_right(pem(others.sign(asked, NAMES, NOW)), asked, NAMES, NOW)
    assert not ours.is_right("", asked, NAMES, NOW)


def test_the_ca_is_renewed_with_its_own_key_so_that_what_it_signed_stays_right(tmp_path):
    before = authority(tmp_path)
    held = pem(before.sign(request(tmp_path), NAMES, NOW))
    late = datetime(2039, 12, 1, tzinfo=UTC)
    after = authority(tmp_path, late)
    assert after.is_new
    assert after.certificate.not_valid_after_utc.year == 2059
    assert after.certificate.not_valid_before_utc.year == 2020
    x509.load_pem_x509_certificate(held.encode()).verify_directly_issued_by(after.certificate)
    assert after.sign(request(tmp_path), NAMES, late).not_valid_after_utc.year == 2059


def test_a_lost_key_is_told_and_no_second_ca_made_beside_the_first(tmp_path):
    authority(tmp_path)
    (tmp_path / "ca.key").unlink()
    with pytest.raises(AnsibleError, match="bring it back from your backup"):
        authority(tmp_path)


def test_a_ca_of_ones_own_is_used_as_it_is(tmp_path):
    authority(tmp_path)
    key_file = tmp_path / "ca.key"
    own = site_certificate.own_authority(
        tmp_path / "ca.pem", key_file.read_bytes(), key_file, PASSPHRASE, NOW + timedelta(days=1)
    )
    assert own.sign(request(tmp_path), NAMES, NOW).issuer == own.certificate.subject
    authority(tmp_path / "others")
    with pytest.raises(AnsibleError, match="is not the key of"):
        site_certificate.own_authority(tmp_path / "others/ca.pem", key_file.read_bytes(), key_file, PASSPHRASE, NOW)
    with pytest.raises(AnsibleError, match="has ended on 2040-01-01"):
        site_certificate.own_authority(
            tmp_path / "ca.pem", key_file.read_bytes(), key_file, PASSPHRASE, datetime(2041, 1, 1, tzinfo=UTC)
        )


def test_a_request_that_is_none_is_refused(tmp_path):
    with pytest.raises(AnsibleError, match="no request for a certificate"):
        authority(tmp_path).sign("nothing", NAMES, NOW)


def test_nothing_is_written_when_it_is_only_tried(tmp_path):
    assert site_certificate.site_authority(tmp_path, PASSPHRASE, NOW, dry=True).is_new
    assert list(tmp_path.iterdir()) == []
