"""Our clients at a secured broker: every security protocol and mechanism, and what is said of a refusal.

The command-line tools, the gateway, the mirror and Spark's jobs each speak to a real Apache Kafka 4.3.1 whose one
process has a listener per security protocol (tests/support/secured_kafka.py), and to an edge broker with the same.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import uuid
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support import runtimes
from tests.support.ansible_files import load
from tests.support.certificates import Authority
from tests.support.kafka_reading import create_topic, read_topic
from tests.support.mirror_road import EdgeMirror, Load, bounds, numbers, read_all
from tests.support.processes import EdgeBroker, Process, wait_until
from tests.support.secured_kafka import LISTENERS, PASSWORD, REAUTH_MS, USER, SecuredKafka
from tests.support.secured_like_kafka import SecuredLikeKafka
from tests.support.waiting import CALL_S

verify = load("playbooks/files/verify.py")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MODULES = {"PLAIN": "plain.PlainLoginModule"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ca"), "central CA")


@pytest.fixture(scope="module", params=[SecuredKafka, SecuredLikeKafka], ids=["apache-kafka", "edge-broker"])
def kafka(request, tmp_path_factory, authority):
    with request.param(tmp_path_factory.mktemp("central"), authority) as broker:
        create_topic(broker.bootstrap, "readings", 1, {})
        yield broker


@pytest.fixture(scope="module")
def client_files(authority, tmp_path_factory):
    """Certificate, key and both in one file, of a client that the CA knows."""
    certificate, key = authority.sign("client", "DNS:client")
    both = tmp_path_factory.mktemp("client") / "client.pem"
    both.touch(0o600)
    both.write_text(key.read_text() + certificate.read_text())
    return certificate, key, both


def jaas(mechanism, user=USER, password=PASSWORD):
    module = MODULES.get(mechanism, "scram.ScramLoginModule")
    return f'org.apache.kafka.common.security.{module} required username="{user}" password="{password}";'


def properties(path, **values):
    path.touch(0o600)
    path.write_text("".join(f"{key.replace('_', '.')}={value}\n" for key, value in values.items()))
    return path


# Whoever speaks no TLS to a TLS port is answered by Apache Kafka with an alert, which clients take for the size of an
# answer; the edge broker closes the connection without a word.
IN_PLAIN_TEXT = (
    "answers in TLS on that port: set security_protocol to SSL or SASL_SSL",
    "hung up without an answer: does it want TLS, or a log-in (security_protocol)",
)


def said(says, told):
    """Whether this was told, or one of these."""
    return any(each in told for each in ([says] if isinstance(says, str) else says))


def topics(server, config=None):
    command = [runtimes.console_script("edge-broker"), "topics", "--bootstrap", server]
    command += [] if config is None else ["--command-config", config]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CALL_S, check=False)
    assert "Traceback" not in done.stderr
    assert PASSWORD not in done.stdout + done.stderr
    return done.returncode, done.stdout if done.returncode == 0 else done.stderr


WAYS = [
    ("TLS", {"security_protocol": "SSL"}),
    ("MUTUAL", {"security_protocol": "SSL"}),
    *(
        (listener, {"security_protocol": protocol, "sasl_mechanism": mechanism, "sasl_jaas_config": jaas(mechanism)})
        for listener, protocol in (("LOGIN", "SASL_PLAINTEXT"), ("BOTH", "SASL_SSL"))
        for mechanism in MECHANISMS
    ),
]


@pytest.mark.parametrize(("listener", "values"), WAYS)
def test_the_tools_get_in_by_every_security_protocol(kafka, authority, client_files, tmp_path, listener, values):
    if "SSL" in values["security_protocol"]:
        values = values | {"ssl_truststore_type": "PEM", "ssl_truststore_location": authority.certificate}
    if listener == "MUTUAL":
        values = values | {"ssl_keystore_type": "PEM", "ssl_keystore_location": client_files[2]}
    status, out = topics(kafka.at(listener), properties(tmp_path / "client.properties", **values))
    assert status == 0, out
    assert "readings" in out


def test_each_refusal_of_the_tools_is_a_sentence(kafka, authority, tmp_path):
    other = Authority(tmp_path / "other", "other CA")
    tls = {"ssl_truststore_location": authority.certificate}
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    by_plain = login | {"sasl_jaas_config": jaas("PLAIN")}
    wrong = [
        ("TLS", {}, ("wants TLS on that port: name a file in --command-config", "or want TLS (--command-config)")),
        ("BOTH", {}, ("wants TLS on that port", "or want TLS (--command-config)")),
        ("LOGIN", {}, "may want a log-in (--command-config)"),
        ("TLS", {"security_protocol": "SSL"}, "has a certificate of an unknown CA: name that CA in ssl.truststore.loc"),
        ("TLS", {"security_protocol": "SSL", "ssl_truststore_location": other.certificate}, "of an unknown CA"),
        (
            "MUTUAL",
            {"security_protocol": "SSL", **tls},
            "wants a client certificate: name one in ssl.keystore.",
        ),
        ("LOGIN", {"security_protocol": "SSL", **tls}, "TLS"),
        ("LOGIN", login | {"sasl_jaas_config": jaas("PLAIN", password="x")}, f"refuses the user '{USER}' by PLAIN"),
        ("TLS", {**by_plain, "security_protocol": "SASL_SSL", **tls}, "wants no log-in on that port"),
    ]
    for listener, values, says in wrong:
        status, err = topics(kafka.at(listener), properties(tmp_path / "client.properties", **values))
        assert (status, said(says, err), err.count("\n")) == (1, True, 1), (listener, values, err)


# The same in our own configuration files.


@pytest.fixture(scope="module")
def password_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("secret") / "password"
    path.touch(0o600)
    path.write_text(f"{PASSWORD}\n")
    return path


@pytest.fixture
def ours(authority, client_files, password_file):
    """The keys that get a client in at a listener, by one mechanism where it has log-ins."""

    def keys(listener, mechanism=None):
        values = {"security_protocol": LISTENERS[listener]}
        if "SSL" in LISTENERS[listener]:
            values["ssl_ca_file"] = str(authority.certificate)
        if listener in ("MUTUAL", "ALL"):
            values |= {"ssl_cert_file": str(client_files[0]), "ssl_key_file": str(client_files[1])}
        if mechanism is not None:
            values |= {"sasl_mechanism": mechanism, "sasl_username": USER, "sasl_password_file": str(password_file)}
        return values

    return keys


ENTRIES = [("TLS", None), ("MUTUAL", None), *((e, m) for e in ("LOGIN", "BOTH") for m in MECHANISMS)]


class Gateway:
    """A gateway that follows one file, and is told how to get into Kafka."""

    def __init__(self, root, server, security, topic="logs"):
        self.root, self.log, self.config = root, root / "app.log", root / "gateway.toml"
        root.mkdir(parents=True, exist_ok=True)
        self.log.touch()
        keys = "".join(f"{key} = {json.dumps(value)}\n" for key, value in security.items())
        self.config.write_text(
            f'state_dir = "{root}/state"\n[kafka]\nbootstrap_servers = "{server}"\n{keys}'
            f'[[files]]\npath = "{self.log}"\ntopic = "{topic}"\npoll_interval_ms = 20\n'
        )
        program = runtimes.console_script("edge-gateway")
        self.process = Process("gateway", [program, "run", "--config", self.config], root, ready="edge-gateway ready")

    def check(self):
        return checked("edge-gateway", self.config)


def checked(program, config):
    """Status and lines of `check --connect`."""
    command = [runtimes.console_script(program), "check", "--connect", "--config", config]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CALL_S, check=False)
    assert "Traceback" not in done.stderr
    assert PASSWORD not in done.stdout + done.stderr
    return done.returncode, done.stdout + done.stderr


def shows_no_secret(process):
    """Neither arguments nor environment nor the log of a running process have the password."""
    for file in ("cmdline", "environ"):
        assert PASSWORD.encode() not in Path(f"/proc/{process.pid}/{file}").read_bytes()
    assert PASSWORD not in process.log_path.read_text()


@pytest.mark.parametrize(("listener", "mechanism"), ENTRIES)
def test_the_gateway_gets_in_by_every_security_protocol(kafka, ours, tmp_path, listener, mechanism):
    gateway = Gateway(tmp_path, kafka.at(listener), ours(listener, mechanism))
    status, told = gateway.check()
    assert status == 0, told
    assert told.count("kafka topic ") == 4


@pytest.mark.parametrize(("listener", "mechanism"), [("MUTUAL", None), ("LOGIN", "PLAIN"), ("BOTH", "SCRAM-SHA-512")])
def test_the_gateways_records_arrive(kafka, ours, tmp_path, listener, mechanism):
    topic = f"logs-{uuid.uuid4().hex[:8]}"
    gateway = Gateway(tmp_path, kafka.at(listener), ours(listener, mechanism), topic)
    create_topic(kafka.bootstrap, topic)
    with gateway.process:
        gateway.log.write_text("one\ntwo\nthree\n")
        wait_until(lambda: bounds(kafka.bootstrap, topic)[1] == 3, 30, "three lines")
        shows_no_secret(gateway.process)
    assert [read.value.decode() for read in read_topic(kafka.bootstrap, topic)]


def test_each_refusal_of_the_gateway_is_a_sentence(kafka, ours, authority, client_files, tmp_path):
    wrong_password = tmp_path / "wrong"
    wrong_password.touch(0o600)
    wrong_password.write_text("nope")
    other = Authority(tmp_path / "other", "other CA")
    stranger = dict(zip(("ssl_cert_file", "ssl_key_file"), map(str, other.sign("stranger", "DNS:s")), strict=True))
    tls, both = ours("TLS"), ours("BOTH", "SCRAM-SHA-256")
    late = authority.sign("late", "DNS:late", days=-1)
    expired = {"ssl_cert_file": str(late[0]), "ssl_key_file": str(late[1])}
    wrong = [
        ("TLS", {}, IN_PLAIN_TEXT),
        ("LOGIN", {}, "does it want TLS, or a log-in"),
        ("LOGIN", tls, "does it speak TLS on that port?"),
        ("TLS", {"security_protocol": "SSL"}, "has a certificate of an unknown CA: name that CA in ssl_ca_file"),
        ("BOTH", both | {"sasl_password_file": str(wrong_password)}, f"refuses the user '{USER}' by SCRAM-SHA-256"),
        ("BOTH", both | {"sasl_username": "nobody"}, "refuses the user 'nobody'"),
        ("TLS", both, "wants no log-in on that port: set security_protocol to SSL"),
        ("BOTH", tls, "hung up after the TLS handshake: does it want a log-in"),
        ("MUTUAL", tls, "wants a client certificate: name one in ssl_cert_file and ssl_key_file"),
        ("MUTUAL", ours("MUTUAL") | stranger, "this client's certificate"),
        ("MUTUAL", ours("MUTUAL") | expired, ("this client's certificate", "does it believe the client certificate")),
    ]
    for listener, security, says in wrong:
        status, told = Gateway(tmp_path / "gateway", kafka.at(listener), security).check()
        line = next(line for line in told.splitlines() if line.startswith("kafka localhost"))
        assert (status, said(says, line)) == (1, True), (listener, security, told)
    by_address = f"127.0.0.1:{kafka.ports['TLS']}"
    assert "has a certificate without this address" in Gateway(tmp_path / "g", by_address, tls).check()[1]


def test_what_keeps_the_gateway_out_is_in_its_log(kafka, ours, tmp_path):
    gateway = Gateway(tmp_path, kafka.at("BOTH"), ours("BOTH", "PLAIN") | {"sasl_username": "nobody"})
    with gateway.process:
        says = "refuses the user 'nobody' by PLAIN"
        wait_until(lambda: says in gateway.process.log_path.read_text(), 30, "the reason in the log")
        shows_no_secret(gateway.process)


# A mirror between two listeners of one cluster is refused, so the other end is a broker without security.
MIRRORED = [
    ("source", "LOGIN", "SCRAM-SHA-512"),
    ("target", "BOTH", "SCRAM-SHA-256"),
    ("source", "MUTUAL", None),
    ("target", "TLS", None),
    ("source", "BOTH", "PLAIN"),
    pytest.param("target", "LOGIN", "SCRAM-SHA-512", marks=pytest.mark.night),
]


@pytest.mark.parametrize(("side", "listener", "mechanism"), MIRRORED)
def test_the_mirror_gets_in_at_each_side(kafka, ours, tmp_path, side, listener, mechanism):
    topic, site = f"numbers-{uuid.uuid4().hex[:8]}", f"s{uuid.uuid4().hex[:8]}"
    with EdgeBroker(tmp_path / "other") as other:
        is_source = side == "source"
        servers = (kafka.at(listener), other.bootstrap) if is_source else (other.bootstrap, kafka.at(listener))
        source, target = (kafka, other) if is_source else (other, kafka)
        create_topic(source.bootstrap, topic)
        settings = {f"{side}_{key}": value for key, value in ours(listener, mechanism).items()}
        mirror = EdgeMirror(tmp_path, *servers, topics=topic, site=site, settings=settings)
        config = tmp_path / "check.toml"
        whole = settings | {"source": servers[0], "target": servers[1], "topics": topic, "site": site}
        config.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in whole.items()))
        status, told = checked("edge-mirror", config)
        assert (status, told.count(": ok")) == (0, 3), told
        with mirror, Load(source.bootstrap, topic, 1, per_second=500) as load:
            # Two sessions end meanwhile, so the mirror has logged in twice more.
            long_enough = 500 * 2 * REAUTH_MS // 1000 if mechanism == "SCRAM-SHA-512" else 500
            wait_until(
                lambda: bounds(target.bootstrap, f"{site}.{topic}")[1] >= long_enough, 60, "numbers at the target"
            )
            shows_no_secret(mirror)
            load.__exit__()
            end = bounds(source.bootstrap, topic)[1]
            wait_until(lambda: bounds(target.bootstrap, f"{site}.{topic}")[1] >= end, 60, "all numbers at the target")
            mirror.stop()
        assert numbers(read_all(target.bootstrap, f"{site}.{topic}")) == list(range(end))


def test_what_keeps_the_mirror_out_is_told(kafka, ours, tmp_path):
    with EdgeBroker(tmp_path) as edge:
        settings = {f"target_{key}": value for key, value in ours("BOTH", "SCRAM-SHA-512").items()}
        settings["target_sasl_username"] = "nobody"
        mirror = EdgeMirror(tmp_path, edge.bootstrap, kafka.at("BOTH"), site="x", settings=settings)
        with mirror:
            says = "refuses the user 'nobody' by SCRAM-SHA-512"
            wait_until(lambda: says in mirror.get("/health")[1], 30, "the reason in /health")
            shows_no_secret(mirror)


@pytest.fixture
def javas_password_file(tmp_path):
    """As `password_file`, without a line end: Java's client takes the file as it is."""
    path = tmp_path / "javas-password"
    path.touch(0o600)
    path.write_text(PASSWORD)
    return path


def set_options(values):
    return [f"--set={key}={value}" for key, value in values.items()]


def children(pid):
    """A process and what it started, by their ids."""
    found = [pid]
    for each in found:
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile, as Spark's helpers do
            for task in Path(f"/proc/{each}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found


def told_to(pid):
    """Arguments and environment of a process; nothing of one that has ended meanwhile."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return b"".join(Path(f"/proc/{pid}/{file}").read_bytes() for file in ("cmdline", "environ"))
    return b""


@pytest.mark.timeout(300)
def test_a_spark_job_gets_in_with_certificate_and_password(kafka, ours, javas_password_file, tmp_path):
    topic = f"readings-{uuid.uuid4().hex[:8]}"
    create_topic(kafka.bootstrap, topic)
    values = ours("ALL", "SCRAM-SHA-256") | {"sasl_password_file": javas_password_file}
    values |= {name: f"{topic}-{name}" for name in ("windows_topic", "late_topic", "alarms_topic")}
    values |= {"topic": topic, "trigger_ms": 200}
    command = [runtimes.console_script("edge-spark"), "run", "windows", "--bootstrap", kafka.at("ALL")]
    command += ["--checkpoint", tmp_path / "checkpoint", *set_options(values)]
    job = Process("spark", command, tmp_path, ready="edge-spark ready", ready_s=120)
    with job:
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        body = {"device": "d", "seq": 1, "time_ms": 1_764_000_000_000, "value": 1.0}
        producer.produce(topic, json.dumps(body), key="d")
        assert producer.flush(CALL_S) == 0
        wait_until(lambda: bounds(kafka.bootstrap, f"{topic}-windows_topic")[1] > 0, 90, "a window in the topic")
        assert told_to(job.pid)
        assert not any(PASSWORD.encode() in told_to(pid) for pid in children(job.pid))
        assert PASSWORD not in job.log_path.read_text()
        job.stop()
    kept = [path.read_bytes() for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
    assert not any(PASSWORD.encode() in content for content in kept)


def test_what_keeps_a_spark_job_out_is_told_without_java(kafka, ours, javas_password_file):
    good = ours("BOTH", "SCRAM-SHA-512") | {"sasl_password_file": javas_password_file}
    for listener, values, status, says in (
        ("BOTH", good, 0, f"kafka {kafka.at('BOTH')}: ok"),
        ("BOTH", good | {"sasl_username": "nobody"}, 1, "refuses the user 'nobody' by SCRAM-SHA-512"),
        ("ALL", good, 1, "wants a client certificate: name one in ssl_cert_file and ssl_key_file"),
        ("BOTH", {}, 1, IN_PLAIN_TEXT),
        (
            "BOTH",
            ours("BOTH", "PLAIN"),
            2,
            "ends with a line end, which Java's client takes for a part of the password",
        ),
        ("BOTH", {"kafka.sasl.jaas.config": "x"}, 2, "every user of this host would see it"),
    ):
        command = [runtimes.console_script("edge-spark"), "check", "--connect", "--bootstrap", kafka.at(listener)]
        command += set_options(values)
        done = subprocess.run(command, capture_output=True, text=True, timeout=CALL_S, check=False)
        told = done.stdout + done.stderr
        assert (done.returncode, said(says, told)) == (status, True), (values, told)


def test_the_playbooks_check_gets_in_by_the_boards_own_files(kafka, ours, tmp_path, monkeypatch):
    monkeypatch.setattr(verify, "CONFIGURATION", tmp_path)
    mirror = {f"target_{key}": value for key, value in ours("ALL", "SCRAM-SHA-512").items()} | {"topics": "x"}
    server = kafka.at("ALL")

    async def opened():
        tail = verify.Tail(verify.Cluster.of(server, "central", mirror, "target_"), "readings")
        try:
            return await verify.run_step("central", tail.open(30))
        finally:
            await tail.close()

    assert asyncio.run(opened()).result == "ok"
    own = ours("ALL", "PLAIN") | {"sasl_username": "nobody"}
    (tmp_path / "verify.toml").write_text(
        "[central]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in own.items())
    )
    step = asyncio.run(opened())
    assert (step.result, "refuses the user 'nobody' by PLAIN" in step.detail) == ("failed", True), step
    (tmp_path / "verify.toml").write_text("[central]\nsecurity_protocol = 'TLS'\n")
    assert 'security_protocol is "TLS": use one of' in asyncio.run(opened()).detail


# A host whose clock is wrong. The certificates are valid from now on, so that in 1970 none of them is.


def at_clock(program, day, *words):
    environment = os.environ | {"LD_PRELOAD": str(runtimes.libfaketime()), "FAKETIME": f"@{day} 00:00:00"}
    environment["FAKETIME_DONT_FAKE_MONOTONIC"] = "1"
    command = [runtimes.console_script(program), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CALL_S, check=False, env=environment)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("day", "status", "says"),
    [
        ("1970-01-02", 0, ""),
        (
            "2060-05-01",
            1,
            r"has a certificate that ended on \d{4}-.*, and by this host's clock it is 2060-05-01:",
        ),
    ],
)
def test_a_board_without_a_clock_gets_in_and_one_in_2060_is_told_so(
    kafka, ours, authority, client_files, javas_password_file, tmp_path, day, status, says
):
    tls = {"ssl_truststore_location": authority.certificate, "ssl_keystore_location": client_files[2]}
    config = properties(tmp_path / "p", security_protocol="SSL", **tls)
    words = "topics", "--bootstrap", kafka.at("MUTUAL"), "--command-config", config
    told = [at_clock("edge-broker", day, *words)]
    gateway = Gateway(tmp_path / "gateway", kafka.at("ALL"), ours("ALL", "SCRAM-SHA-256"))
    told.append(at_clock("edge-gateway", day, "check", "--connect", "--config", gateway.config))
    mutual = [f"{key} = {json.dumps(value)}" for key, value in ours("MUTUAL").items()]
    mirror = tmp_path / "mirror.toml"
    mirror.write_text("\n".join(f"source_{line}" for line in mutual))
    with EdgeBroker(tmp_path / "other") as other:
        sides = "--source", kafka.at("MUTUAL"), "--target", other.bootstrap, "--topics", "x", "--site", "s"
        told.append(at_clock("edge-mirror", day, "check", "--connect", "--config", mirror, *sides))
    assert [each[0] for each in told] == [status] * 3, told
    assert all(re.search(says, each[1]) for each in told), told
    # the mirror's own library, beside the check; its group holds nothing
    words = "status", "--config", mirror, "--source", kafka.at("MUTUAL"), "--site", "s", "--json"

    def mirrors_library():
        found = at_clock("edge-mirror", day, *words)
        return found[0] == status and re.search(says, found[1])

    wait_until(mirrors_library, 60, "what is expected, once Kafka has made its topic of offsets")
    values = ours("ALL", "PLAIN") | {"sasl_password_file": javas_password_file}
    words = "check", "--bootstrap", kafka.at("ALL"), *set_options(values)
    assert ("a job with TLS waits for it" in at_clock("edge-spark", day, *words)[1]) == (status == 0)
