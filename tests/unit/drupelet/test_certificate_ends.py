"""A client's certificates that end within 60 days are in its /health, while it still connects."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path

import pytest

from drupelet.tls import certificate_expiry, contexts
from drupelet.tls.certificate_expiry import CertificateEnds, WatchedFile
from gateway import notices
from gateway.app import Gateway
from gateway.config import parse_config
from mirror import app
from mirror.cli import main as mirror_main
from mirror.client.clients import clients_of
from mirror.config import load
from mirror.replication.replicator import Replicator
from mirror.status import metrics
from tests.support.certificates import Authority

DAY_S = 86_400


def later(days: float) -> float:
    return time.time() + days * DAY_S


def test_the_first_of_ones_own_and_the_last_of_the_cas_count(tmp_path: Path) -> None:
    short, long = Authority(tmp_path / "short", days=10), Authority(tmp_path / "long", days=900)
    bundle = tmp_path / "bundle.pem"
    bundle.write_text(short.certificate.read_text() + long.certificate.read_text())
    own = WatchedFile("ssl_cert_file", bundle, is_own=True)
    authorities = WatchedFile("ssl_ca_file", bundle, is_own=False)
    end = time.strftime("%Y-%m-%d", time.gmtime(later(10)))
    assert own.note(later(0)) == f"the certificate in ssl_cert_file {bundle} ends {end}: put a new one there"
    assert f"ended {end}" in own.note(later(11))
    assert authorities.note(later(11)) == ""
    assert "ends" in authorities.note(later(850))


def test_a_new_file_counts_and_one_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    watched = WatchedFile("ssl_ca_file", path, is_own=False)
    assert watched.note(0) == f"ssl_ca_file {path} cannot be read: no such file or directory"
    path.write_bytes(Authority(tmp_path / "soon", days=5).certificate.read_bytes())
    assert "ends" in watched.note(later(0))
    path.write_bytes(Authority(tmp_path / "late", days=900).certificate.read_bytes())
    assert watched.note(later(0)) == ""
    path.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    assert watched.note(later(0)).endswith("has a certificate that cannot be read")


@pytest.mark.parametrize("mode", [0o644, 0o664, 0o646])
def test_gateway_and_mirror_name_cas_that_others_may_change(
    tmp_path: Path, mode: int, capsys: pytest.CaptureFixture[str]
) -> None:
    ca = Authority(tmp_path / "ca", days=900).certificate
    ca.chmod(mode)
    text = (
        'state_dir = "s"\nclock_trusted = "true"\n'
        f'[kafka]\nbootstrap_servers = "h:1"\nsecurity_protocol = "SSL"\nssl_ca_file = "{ca}"\n'
        f'[mqtt]\nssl_ca_file = "{ca}"\n[[mqtt.routes]]\npattern = "a"\ntopic = "t"\n'
        f'[mosquitto]\nssl_ca_file = "{ca}"\n'
    )
    gateway = parse_config(tmp_path / "g.toml", text)
    told = {"source": "a:1", "target": "b:2", "topics": "x", "site": "s", "target_ssl_ca_file": str(ca)}
    config = load(None, {**told, "target_security_protocol": "SSL"}, ())
    figures = metrics.Metrics()
    mirror = app._pages(config, figures, Replicator(config, figures, partial(clients_of, config))).well()
    options = [f"--{key.replace('_', '-')}={value}" for key, value in told.items() if "ssl" not in key]
    file = tmp_path / "m.toml"
    file.write_text(f'target_security_protocol = "SSL"\ntarget_ssl_ca_file = "{ca}"\n')
    assert mirror_main(["check", *options, "--config", str(file)]) == 0
    checked = capsys.readouterr().err
    said = f"{ca}, which other users of this host may change: `chmod go-w {ca}`"
    keys = ("kafka.ssl_ca_file", "mqtt.ssl_ca_file", "mosquitto.ssl_ca_file")
    if mode == 0o644:
        assert "may change" not in checked + mirror + str(notices.security(gateway))
        return
    assert notices.security(gateway) == [f"{key} is {said}." for key in keys]
    assert mirror == f"ok; target_ssl_ca_file is {said}"
    assert checked.splitlines() == [f"WARNING: target_ssl_ca_file is {said}."]
    ends = CertificateEnds()
    ends.watch(("kafka.ssl_ca_file", ca), ("kafka.ssl_cert_file", ca))
    assert ends.notes() == [f"kafka.ssl_ca_file is {said}"], "a changed certificate of ours lets nobody in"


def test_cas_that_became_a_pipe_do_not_stop_health(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    os.mkfifo(path, 0o600)
    said = WatchedFile("ssl_ca_file", path, is_own=False).note(0)
    assert said.startswith(f"ssl_ca_file {path} cannot be read: it is a pipe that no program has written")


def test_without_tls_nothing_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(contexts, "latest_s")
    ends = CertificateEnds()
    ends.watch(("ssl_ca_file", None), ("ssl_cert_file", None))
    assert ends.notes() == []


@pytest.mark.parametrize("days", [10, 900])
def test_gateway_and_mirror_say_it(tmp_path: Path, days: int) -> None:
    ca = Authority(tmp_path / "ca", days=days).certificate
    text = (
        'state_dir = "s"\nclock_trusted = "true"\n'  # whether this machine's clock is set must not decide
        '[kafka]\nbootstrap_servers = "h:1"\nsecurity_protocol = "SSL"\nssl_ca_file = "{}"\n'
        '[[files]]\npath = "app.log"\n'
    )
    gateway = Gateway(parse_config(tmp_path / "g.toml", text.format(ca)))
    told = {"source": "a:1", "target": "b:2", "topics": "x", "site": "s", "target_ssl_ca_file": str(ca)}
    config = load(None, {**told, "target_security_protocol": "SSL"}, ())
    figures = metrics.Metrics()
    mirror = app._pages(config, figures, Replicator(config, figures, partial(clients_of, config)))
    for said, name in ((gateway.well(), "kafka.ssl_ca_file"), (mirror.well(), "target_ssl_ca_file")):
        soon = f"ok; the certificate in {name} {ca} ends "
        assert said.startswith(soon) if days * DAY_S < certificate_expiry.SOON_S else said == "ok"
