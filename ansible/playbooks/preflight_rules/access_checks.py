"""Finds access that the inventory does not request: brokers, metrics and mosquitto open to a whole network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from preflight_rules.model import LOOPBACK, Finding, Host, endpoint, has_secret, is_address, mode, mqtt_listeners


def network(host: Host) -> Iterator[Finding]:
    """Find a broker for a network that the inventory does not call trusted; one that serves it already goes on."""
    settings = host.value("broker_settings")  # of another type, it is a finding of inventory_checks
    of_settings = settings.get("edge.network.trusted") if isinstance(settings, Mapping) else None
    told = [host.value("broker_network_trusted"), of_settings]
    if "broker" not in host.groups or host.is_kafka or any(value is not None for value in told):
        return
    if mode(host, "broker") != "none":
        return
    if any(owner == "edge-broker.service" and not LOOPBACK.match(address) for address, _, owner in host.listening):
        return
    for name in ("broker_listen", "broker_metrics"):
        address = str(host.value(name) or "")
        if is_address(address) and not LOOPBACK.match(endpoint(address)[0]):
            yield host.finds(
                "broker_network_trusted",
                f"{name} is {address}, where anybody in the network could do everything: set broker_network_trusted to "
                "true if all of it is trusted, or listen on 127.0.0.1.",
            )


def metrics(host: Host) -> Iterator[Finding]:
    """Find metrics of gateway and mirror in a network not called trusted, at a site without a secret for a token."""
    if has_secret(host):
        return
    for role in sorted({"gateway", "mirror"} & host.groups):
        name, address = f"{role}_metrics", str(host.value(f"{role}_metrics") or "")
        is_served = any(
            owner == f"edge-{role}.service" and not LOOPBACK.match(taken) for taken, _, owner in host.listening
        )
        is_open = is_address(address) and not LOOPBACK.match(endpoint(address)[0])
        if is_open and not is_served and host.value(f"{role}_network_trusted") is not True:
            yield host.finds(
                f"{role}_network_trusted",
                f"{name} is {address}, where anybody in the network could read it: put security_secret into the vault "
                f"(README.md), from which a token comes, or set {role}_network_trusted to true, or use 127.0.0.1.",
            )


def clear_passwords(host: Host) -> Iterator[tuple[Finding, bool]]:
    """Listeners of mosquitto that show every password to the network, and whether devices use them already."""
    if "mosquitto" not in host.groups or host.value("mosquitto_network_trusted") is True:
        return
    found = [
        address
        for name, address in mqtt_listeners(host)
        if name == "mosquitto_listeners" and is_address(address) and not LOOPBACK.match(endpoint(address)[0])
    ]
    ports = {endpoint(address)[1] for address in found}
    there = any(
        owner == "mosquitto.service" and port in ports and not LOOPBACK.match(taken)
        for taken, port, owner in host.listening
    )
    if found:
        way = "leave it out, so that devices connect by TLS (mosquitto_tls_listeners)"
        if there:
            way = "as before: move the devices to TLS (mosquitto_tls_listeners) and leave it out then"
        yield (
            host.finds(
                "mosquitto_network_trusted",
                f"mosquitto_listeners has {', '.join(found)}, where passwords go through the network in the clear"
                f"{', ' if there else ': '}{way}, or set mosquitto_network_trusted to true if all of it is trusted.",
            ),
            there and host.value("mosquitto_network_trusted") is None,
        )


def unknown_clients(host: Host) -> Iterator[tuple[Finding, bool]]:
    """Brokers that know none of their clients without anybody having said so, and whether they are there already."""
    for role in sorted({"broker", "central"} & host.groups):
        is_meant = host.value(f"{role}_security") == "none" or host.value(f"{role}_network_trusted") is True
        if mode(host, role) == "none" and not is_meant:
            served = [owner for _, _, owner in host.listening if owner in ("edge-broker.service", "kafka.service")]
            there = bool(served or host.answer.get("release"))
            yield (
                host.finds(
                    f"{role}_security",
                    "its broker lets in everybody who reaches it"
                    + (", as before" if there else "")
                    + f": put security_secret into the vault (README.md), or say {role}_security: none.",
                ),
                there,
            )


def strangers(host: Host) -> Iterator[Finding]:
    """Find a new broker without any user, and a new mosquitto that would send passwords in clear text."""
    found = [*unknown_clients(host), *clear_passwords(host)]
    yield from (finding for finding, there in found if not there)


def strangers_as_before(host: Host) -> Iterator[Finding]:
    """A broker or mosquitto of before, which goes on as it is; no finding."""
    found = [*unknown_clients(host), *clear_passwords(host)]
    yield from (finding for finding, there in found if there)
