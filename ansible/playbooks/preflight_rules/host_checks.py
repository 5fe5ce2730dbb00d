"""Finds mistakes that a host's answer shows: system, architecture, bundle, space, ports, missing services."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from preflight_rules.model import LOOPBACK, Finding, Host, endpoint, mode, mqtt_listeners

SYSTEMS = ("debian", "raspbian")
SYSTEM_MIN = 12
PYTHON_MIN = (3, 11)
ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64", "armhf": "armv7l"}
FREE_MB_MIN, SPARK_MB, JAVA_MB = (
    200,
    1300,
    300,
)  # the first installation: release, what it is made from, Debian packages
SPARK_PORTS = {"spark_master": 8080, "spark_worker": 8081}


def system(host: Host) -> Iterator[Finding]:
    """Distribution, Python, architecture, systemd."""
    kind, version, codename, name = [*host.answer.get("system", "").split(" ", 3), "", "", "", ""][:4]
    if kind not in SYSTEMS or not version.split(".")[0].isdigit() or int(version.split(".")[0]) < SYSTEM_MIN:
        yield host.finds(
            "distribution",
            f"the system is {name or kind or 'unknown'}; roles want Debian or Raspberry Pi OS from {SYSTEM_MIN} on.",
        )
    python = host.answer.get("python", "")
    if not python:
        yield host.finds("python", "/usr/bin/python3 is missing: `sudo apt install python3` there.")
    elif tuple(int(part) for part in re.findall(r"\d+", python)) < PYTHON_MIN:
        yield host.finds(
            "python", f"Python is {python}, and {'.'.join(map(str, PYTHON_MIN))} is needed: flash a newer system."
        )
    if "systemd" not in host.answer:
        yield host.finds("systemd", "no systemd runs there, by which every service is started.")
    machine = host.answer.get("architecture", "")
    if machine not in ARCHITECTURES:
        yield host.finds(
            "architecture", f"the architecture is {machine}; there are wheels for {', '.join(ARCHITECTURES)}."
        )
    elif machine == "armhf" and (host.has_spark or host.is_kafka):
        yield host.finds(
            "architecture",
            "its programs are 32-bit, which are too small for Spark and Apache Kafka: flash a 64-bit system.",
        )
    else:
        yield from check_bundle(host, codename, machine)


def check_bundle(host: Host, codename: str, machine: str) -> Iterator[Finding]:
    """A bundle that has nothing for this host."""
    bundle = host.value("drupelet_bundle")
    if not bundle:
        return
    sums = Path(str(bundle), "SHA256SUMS")
    if not sums.exists():
        yield host.finds(
            "drupelet_bundle",
            f"{bundle} has no SHA256SUMS: make the bundle by playbooks/bundle.yml, or leave drupelet_bundle empty.",
        )
        return
    lines = sums.read_text()
    wanted = [f"packages-{codename}-{machine}.tar"] if "  packages-" in lines else []
    if set(host.roles) & {"broker", "gateway", "mirror", "spark"} and not (host.is_kafka and host.roles == ["broker"]):
        wanted.append(f"wheels-cp{host.answer.get('python', '').replace('.', '')}-{ARCHITECTURES[machine]}.tar")
    for tar in wanted:
        if f"  {tar}" not in lines:
            yield host.finds(
                "drupelet_bundle", f"{bundle} has no {tar}: make it by playbooks/bundle.yml (64-bit boards alone)."
            )


def room(host: Host) -> Iterator[Finding]:
    """Space for a first installation (of a later one `crowded_hosts` tells), and memory."""
    java = JAVA_MB if host.is_kafka or host.has_spark else 0
    need = _release_mb(host) + java
    free = host.answer_number("free_mb", need)
    if free < need and not host.answer.get("release") and set(host.roles) - {"base"}:
        yield host.finds(
            "space", f"{free} MB are free for {host.value('drupelet_root')}, and what comes there needs {need}."
        )
    memory = host.answer_number("memory_mb", 1 << 30)
    for is_there, what, name in (
        (host.is_kafka, "Apache Kafka", "kafka_memory_mb_min"),
        (host.has_spark, "Spark", "spark_memory_mb_min"),
    ):
        if is_there and memory < host.number(name):
            yield host.finds(
                "memory",
                f"the memory is {memory} MB, and {what} wants {host.number(name)}: take a larger one, or lower {name}.",
            )


def _release_mb(host: Host) -> int:
    return FREE_MB_MIN + (SPARK_MB if host.has_spark else 0)


def crowded_hosts(host: Host) -> Iterator[Finding]:
    """Boards that run a release and have no room for another; no finding, as there may be none to install."""
    need = _release_mb(host)
    free = host.answer_number("free_mb", need)
    if free < need and host.answer.get("release"):
        yield host.finds(
            "space",
            f"{free} MB are free for {host.value('drupelet_root')}, and a newer release needs {need}: it would be "
            "refused there, so make room first.",
        )


def ports(host: Host) -> Iterator[Finding]:
    """Ports that something else has, and ports that two of the own services want."""
    claims = list(_claims(host))
    for index, (name, address, port, unit) in enumerate(claims):
        for taken, number, owner in host.listening:
            if number == port and _overlap(taken, address) and owner != unit:
                yield host.finds(
                    "ports",
                    f"{name} is {address}:{port}, and {owner or 'something'} listens there: stop it or set another.",
                )
                break
        for other, elsewhere, number, _ in claims[:index]:
            if number == port and _overlap(elsewhere, address):
                yield host.finds(
                    "ports", f"{other} and {name} both want port {port}: set another port for one of them."
                )


def _claims(host: Host) -> Iterator[tuple[str, str, int, str]]:
    """Name of the setting, address, port and unit of what is to listen."""
    wanted: list[tuple[str, Any, str]] = []
    if "broker" in host.groups:
        is_kafka = host.value("broker_engine") == "kafka"
        wanted.append(
            ("broker_listen", host.value("broker_listen"), "kafka.service" if is_kafka else "edge-broker.service")
        )
        wanted += [] if is_kafka else [("broker_metrics", host.value("broker_metrics"), "edge-broker.service")]
    for role in ("broker", "central"):
        if role in host.groups and mode(host, role) == "migrate":
            unit = "kafka.service" if host.is_kafka else "edge-broker.service"
            wanted.append((f"{role}_secured_listen", host.value(f"{role}_secured_listen"), unit))
    if "central" in host.groups:
        wanted.append(("central_listen", host.value("central_listen"), "kafka.service"))
    if host.is_kafka:
        wanted.append(("kafka_controller_listen", host.value("kafka_controller_listen"), "kafka.service"))
        if any(role in host.groups and mode(host, role) != "none" for role in ("broker", "central")):
            wanted.append(("kafka_local_listen", host.value("kafka_local_listen"), "kafka.service"))
    if "mosquitto" in host.groups:
        wanted += [(name, address, "mosquitto.service") for name, address in mqtt_listeners(host)]
    for role in ("gateway", "mirror"):
        wanted += (
            [(f"{role}_metrics", host.value(f"{role}_metrics"), f"edge-{role}.service")] if role in host.groups else []
        )
    for group, port in SPARK_PORTS.items():
        wanted += (
            [(f"the page of {group}", f"127.0.0.1:{port}", f"edge-{group.replace('_', '-')}.service")]
            if group in host.groups
            else []
        )
    for name, text, unit in wanted:
        address, port = endpoint(str(text))
        if port:
            yield name, address, port, unit


def _overlap(one: str, other: str) -> bool:
    wildcards = {"0.0.0.0", "*", "::", ""}  # noqa: S104 - read, not listened on
    same = {"localhost": "127.0.0.1"}
    return one in wildcards or other in wildcards or same.get(one, one) == same.get(other, other)


def services(hosts: Sequence[Host]) -> Iterator[Finding]:
    """Find services that a host expects on itself, and that are neither there nor installed there."""
    for host in hosts:
        broker = {"broker", "central"} & host.groups
        wanted: list[tuple[str, str, Any, Any]] = []
        if "gateway" in host.groups:
            wanted.append(("gateway_kafka", "broker", broker, host.value("gateway_kafka")))
        if "gateway" in host.groups and host.value("gateway_mqtt") in (True, None):
            address = f"{host.value('gateway_mqtt_host')}:{host.value('gateway_mqtt_port')}"
            wanted.append(("gateway_mqtt_host", "mosquitto", "mosquitto" in host.groups, address))
        if "mirror" in host.groups:
            wanted.append(("mirror_source", "broker", broker, host.value("mirror_source")))
        for name, group, is_coming, address in wanted:
            if not is_coming and host.answer and not any(_is_served(host, one) for one in str(address).split(",")):
                yield host.finds(
                    "services",
                    f"{name} is {address} and nothing serves there: put the host into {group}, or set {name}.",
                )


def _is_served(host: Host, address: str) -> bool:
    name, port = endpoint(address.strip())
    return not LOOPBACK.match(name) or port in {found for _, found, _ in host.listening}
