"""A watch that hears nothing says so: mosquitto whose `$SYS` the gateway may not read, or that has none.

Invariants, against a real mosquitto and a real broker:
- /health is 200 and no `ok` while a loss could not be heard, and `ok` where it could; metric and log agree;
- `check --connect` finds it, with status 1;
- the keys `watch_drops` and `watch_oversize` accept it, and `check` names what that gives up;
- readings arrive all the same.
"""

from __future__ import annotations

import subprocess
import uuid

import pytest

from tests.support import runtimes
from tests.support.gateway_site import Device, GatewaySite, read_whole
from tests.support.processes import EdgeBroker, all_stopped, wait_until

NO_SYS = "topic readwrite sites/#\n"
NO_DROPPED = NO_SYS + "topic read $SYS/broker/uptime\ntopic read $SYS/broker/load/#\ntopic read $SYS/broker/log/N\n"
NO_LOG = NO_SYS + "topic read $SYS/broker/uptime\ntopic read $SYS/broker/publish/#\ntopic read $SYS/broker/load/#\n"


@pytest.fixture(scope="module")
def edge(tmp_path_factory):
    with EdgeBroker(tmp_path_factory.mktemp("edge")) as broker:
        yield broker


@pytest.fixture
def site(edge, tmp_path):
    site = GatewaySite(tmp_path, edge.bootstrap, f"readings-{uuid.uuid4().hex[:8]}")
    site.log_path.touch()
    with all_stopped(site.mosquitto, site.gateway):
        yield site


def with_acl(site, acl):
    (site.root / "acl").write_text(acl)
    with (site.root / "mosquitto.conf").open("a") as conf:
        conf.write(f"acl_file {site.root}/acl\n")


def without_line(site, start):
    path = site.root / "mosquitto.conf"
    path.write_text("".join(f"{line}\n" for line in path.read_text().splitlines() if not line.startswith(start)))


def check(site):
    """Return the status of `check --connect`, and all that it says."""
    command = [runtimes.console_script("edge-gateway"), "check", "--connect", "--config", site.config_path]
    done = subprocess.run(command, stdout=-1, stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stdout
    return done.returncode, done.stdout


def state(site, watch, name):
    return site.metric("watch_state", f'state="{name}",watch="{watch}"') == 1


def test_mosquitto_that_is_heard_is_ok(site):
    site.mosquitto.start()
    site.gateway.start()
    wait_until(lambda: state(site, "mqtt_drops", "ok") and state(site, "mqtt_oversize", "ok"), 20, "both are heard")
    with Device(site.mosquitto.port, "d") as device:
        for _ in range(10):
            device.publish()
        device.wait_acked()
    wait_until(lambda: site.acked() == 10, 20, "readings")
    assert site.health() == (200, "ok\n")
    status, told = check(site)
    assert status == 0, told


def test_drops_that_cannot_be_heard_are_not_taken_for_none(site, edge):
    """Row G22: the queue overflows, and the gateway may not read $SYS."""
    with_acl(site, NO_SYS)
    path = site.root / "mosquitto.conf"
    path.write_text(path.read_text().replace("max_queued_bytes 67108864", "max_queued_bytes 2000"))
    site.mosquitto.start()
    site.gateway.start()
    first = wait_until(lambda: site.health()[1].startswith("unknown: mqtt_drops") and site.health()[1], 20, "unknown")
    assert "nothing heard yet of mosquitto" in first, "from the first second on"
    silent = f"unknown: mqtt_drops, mqtt_oversize: mosquitto at 127.0.0.1:{site.mosquitto.port} "
    wait_until(lambda: site.health()[1].startswith(silent), 20, "the watches say that they hear nothing")
    status, said = site.health()
    assert status == 200
    assert "sends no $SYS/broker/uptime: let this user read $SYS/#" in said
    assert state(site, "mqtt_drops", "unknown")
    assert state(site, "mqtt_oversize", "unknown")
    assert "watch_unknown" in site.log()
    site.gateway.kill()
    with Device(site.mosquitto.port, "d") as device:
        for _ in range(300):
            device.publish(padding=100)
        device.wait_acked()
    site.gateway.start()
    wait_until(lambda: site.health()[1].startswith("unknown: mqtt_drops"), 20, "still not heard")
    wait_until(lambda: site.acked() > 0, 20, "the readings that are left")
    assert read_whole(edge.bootstrap, "__edge_ledger") == []  # nobody counted them: so the health must not be ok
    status, told = check(site)
    assert status == 1, told
    assert "mqtt_drops" in told


def test_a_key_accepts_it_and_check_says_what_that_gives_up(site):
    with_acl(site, NO_SYS)
    site.change("[mqtt]\n", "[mqtt]\nwatch_drops = false\n")
    site.mosquitto.start()
    site.gateway.start()
    wait_until(lambda: site.health()[0] == 200, 20, "healthy")
    status, told = check(site)
    assert status == 0, told
    assert "mqtt.watch_drops is false" in told
    assert "mqtt.watch_oversize is false" in told
    wait_until(lambda: site.health() == (200, "ok\n"), 20, "all that is wanted is heard")


def test_a_count_of_drops_that_alone_is_hidden_is_noticed(site):
    with_acl(site, NO_DROPPED)
    site.mosquitto.start()
    site.gateway.start()
    wait_until(lambda: "mqtt_drops: mosquitto" in site.health()[1], 20, "no count of drops")
    assert "sends no $SYS/broker/publish/messages/dropped" in site.health()[1]
    assert state(site, "mqtt_oversize", "ok")


@pytest.mark.parametrize("how", ["acl", "no topic", "no connection messages"])
def test_notices_that_do_not_arrive_are_noticed_once_clients_connect(site, how):
    if how == "acl":
        with_acl(site, NO_LOG)
    else:
        without_line(site, "log_dest topic" if how == "no topic" else "connection_messages")
        with (site.root / "mosquitto.conf").open("a") as conf:
            conf.write("connection_messages false\n" if how == "no connection messages" else "")
    site.mosquitto.start()
    site.gateway.start()
    wait_until(lambda: state(site, "mqtt_drops", "ok"), 20, "drops are heard")

    def is_noticed():
        with Device(site.mosquitto.port, "d") as device:
            device.publish()
            device.wait_acked()
        return "unknown: mqtt_oversize: clients connect" in site.health()[1]

    wait_until(is_noticed, 30, "no notice of a client that connects")
    assert state(site, "mqtt_drops", "ok")
    status, told = check(site)
    assert status == 1, told
    site.gateway.stop()
    site.change("[mqtt]\n", "[mqtt]\nwatch_oversize = false\n")
    site.gateway.start()
    wait_until(lambda: state(site, "mqtt_drops", "ok"), 20, "drops are heard")
    wait_until(lambda: site.health() == (200, "ok\n"), 20, "all is heard")


def test_a_mosquitto_that_publishes_no_sys_is_noticed(site):
    without_line(site, "sys_interval")
    with (site.root / "mosquitto.conf").open("a") as conf:
        conf.write("sys_interval 0\n")
    site.mosquitto.start()
    site.gateway.start()
    wait_until(lambda: "sends no $SYS/broker/uptime" in site.health()[1], 20, "no $SYS")
    status, told = check(site)
    assert status == 1, told
