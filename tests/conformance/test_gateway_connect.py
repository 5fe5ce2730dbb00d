"""TLS and passwords towards a real mosquitto, and `edge-gateway check --connect` against real and wrong ends.

Invariants:
- over TLS with a password, or with a client certificate, readings arrive;
- each thing that may be wrong is one sentence about its end, exit status 1, and the other end is tried all the same.
"""

from __future__ import annotations

import getpass
import subprocess
import uuid

import pytest

from tests.support import runtimes
from tests.support.certificates import Authority
from tests.support.gateway_site import GatewaySite
from tests.support.ports import free_port
from tests.support.processes import EdgeBroker, Mosquitto, all_stopped, wait_until

TIMEOUT_S = 120


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def edge(tmp_path_factory):
    with EdgeBroker(tmp_path_factory.mktemp("edge")) as broker:
        yield broker


class Site(GatewaySite):
    """A site whose mosquitto wants TLS and a password from the gateway, as `mosquitto-conf` writes it."""

    def __init__(self, root, bootstrap, authority):
        super().__init__(root, bootstrap, f"readings-{uuid.uuid4().hex[:8]}")
        self.log_path.touch()
        certificate, key = authority.sign("mosquitto", "DNS:localhost,IP:127.0.0.1")
        (root / "password").write_text("secret\n")
        (root / "password").chmod(0o640)
        (root / "passwd").write_text("gateway:secret\ndevice:secret\n")
        (root / "passwd").chmod(0o600)
        subprocess.run([runtimes.mosquitto_passwd(), "-U", root / "passwd"], check=True)
        self.plain_port, self.tls_port = self.mosquitto.port, free_port()
        self.change(
            "[mosquitto]\n",
            f'[mosquitto]\ntls_listeners = ["127.0.0.1:{self.tls_port}"]\npassword_file = "passwd"\n'
            f'ssl_cert_file = "{certificate}"\nssl_key_file = "{key}"\nssl_ca_file = "{authority.certificate}"\n',
        )
        self.change(
            f"[mqtt]\nport = {self.plain_port}\n",
            f'[mqtt]\nhost = "localhost"\nport = {self.tls_port}\nusername = "gateway"\npassword_file = "password"\n'
            f'ssl_ca_file = "{authority.certificate}"\n',
        )
        self.write_mosquitto_conf()

    def write_mosquitto_conf(self):
        program = runtimes.console_script("edge-gateway")
        command = [program, "mosquitto-conf", "--config", self.config_path]
        (self.root / "mosquitto.conf").write_text(subprocess.run(command, check=True, stdout=-1, text=True).stdout)
        self.mosquitto = Mosquitto(self.root, config=self.root / "mosquitto.conf")

    def publish(self, count):
        command = [runtimes.mosquitto_pub(), "-p", str(self.plain_port), "-u", "device", "-P", "secret", "-q", "1"]
        command += ["-t", "sites/a/devices/d/readings", "-l"]
        subprocess.run(command, input=b"20.1\n" * count, check=True, timeout=TIMEOUT_S)

    def connect(self):
        """Return the status of `check --connect`, and what it says of mosquitto and of the Kafka broker."""
        command = [runtimes.console_script("edge-gateway"), "check", "--connect", "--config", self.config_path]
        done = subprocess.run(command, stdout=-1, stderr=-1, text=True, timeout=TIMEOUT_S, check=False)
        assert "Traceback" not in done.stderr
        told = [line for line in done.stdout.splitlines() if line.startswith(("mqtt ", "kafka "))]
        return done.returncode, "\n".join(line for line in told if line.startswith("mqtt")), "\n".join(told)


@pytest.fixture
def site(edge, authority, tmp_path):
    site = Site(tmp_path, edge.bootstrap, authority)
    with all_stopped(site.mosquitto, site.gateway):
        site.mosquitto.start()
        yield site


def test_readings_arrive_over_tls_with_a_password(site):
    assert site.connect()[0] == 0
    site.gateway.start()
    site.publish(500)
    wait_until(lambda: site.acked() == 500, 30, "all readings over TLS")
    status, said = site.health()
    assert status == 200
    assert said.startswith("ok; the certificate in mqtt.ssl_ca_file ")  # which the test made for 30 days


def test_a_client_certificate_is_asked_for_and_given(site, authority):
    site.mosquitto.kill()
    site.change("[mosquitto]\n", "[mosquitto]\nrequire_certificate = true\n")
    site.write_mosquitto_conf()
    with all_stopped(site.mosquitto):
        site.mosquitto.start()
        status, told, _ = site.connect()
        assert status == 1
        assert "certificate" in told or "hung up" in told
        certificate, key = authority.sign("gateway", "DNS:gateway")
        site.change("[mqtt]\n", f'[mqtt]\nssl_cert_file = "{certificate}"\nssl_key_file = "{key}"\n')
        assert site.connect()[0] == 0
        site.gateway.start()
        site.publish(5)
        wait_until(lambda: site.acked() == 5, 30, "readings with a client certificate")
        site.gateway.stop()


def test_each_wrong_thing_is_a_sentence(site, authority, edge, tmp_path):
    other = Authority(tmp_path / "other", "other")
    good = site.config_path.read_text()
    (tmp_path / "wrong").write_text("nope\n")
    (tmp_path / "wrong").chmod(0o600)
    closed = free_port()
    mistakes = [
        (str(authority.certificate), str(other.certificate), "has a certificate of an unknown CA: name that CA in"),
        (f"port = {site.tls_port}", f"port = {site.plain_port}", "TLS"),
        (f"port = {site.tls_port}", f"port = {closed}", "refuses the connection: nothing listens there"),
        ('host = "localhost"', 'host = "no.such.invalid"', "has a name that is not found: mend it, or the host's DNS"),
        ('password_file = "password"', 'password_file = "wrong"', 'it refuses the user "gateway": is the password in'),
        ('username = "gateway"\npassword_file = "password"\n', "", "it refuses clients without a password"),
        (f'ssl_ca_file = "{authority.certificate}"\n', 'ssl_ca_file = "wrong"\n', "PEM files are wanted"),
    ]
    for old, new, says in mistakes:
        site.config_path.write_text(good.replace(old, new, 1) if "ca" not in old else good.replace(old, new))
        status, told, everything = site.connect()
        assert (status, says in told, told.count("\n")) == (1, True, 0), told
        assert f"kafka {edge.bootstrap}: ok" in everything
    site.config_path.write_text(good.replace(edge.bootstrap, f"127.0.0.1:{site.plain_port}"))
    status, told, everything = site.connect()
    assert status == 1
    assert told.endswith(": ok")
    assert f"kafka 127.0.0.1:{site.plain_port} hung up" in everything


@pytest.mark.parametrize(
    ("alternatives", "days", "says"),
    [
        ("DNS:elsewhere", 30, "has a certificate for another name"),
        ("DNS:localhost", -1, "has a certificate that ended on"),
    ],
)
def test_a_certificate_that_does_not_fit_is_a_sentence(edge, tmp_path, alternatives, days, says):
    authority = Authority(tmp_path / "tls")
    certificate, key = authority.sign("bad", alternatives, days=days)
    port = free_port()
    conf = f"listener {port} 127.0.0.1\nallow_anonymous true\nuser {getpass.getuser()}\n"
    (tmp_path / "m.conf").write_text(f"{conf}certfile {certificate}\nkeyfile {key}\n")
    config = tmp_path / "g.toml"
    config.write_text(
        f'state_dir = "state"\n[kafka]\nbootstrap_servers = "{edge.bootstrap}"\n[mqtt]\nhost = "localhost"\n'
        f'port = {port}\nssl_ca_file = "{authority.certificate}"\n[[mqtt.routes]]\npattern = "a"\ntopic = "t"\n'
    )
    with all_stopped(mosquitto := Mosquitto(tmp_path, config=tmp_path / "m.conf")):
        mosquitto.start()
        command = [runtimes.console_script("edge-gateway"), "check", "--connect", "--config", config]
        done = subprocess.run(command, stdout=-1, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 1
    assert f"mqtt localhost:{port} {says}" in done.stdout
