"""Parse HOST:PORT of options and configuration files; check for a loopback address.

Does not contain: name look-ups, sockets, the error sentence, which names the option.
"""

import re

PORT_MAX = 65_535
_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = re.compile(rf"{_BYTE}(?:\.{_BYTE}){{3}}")


def host_and_port(text: str) -> tuple[str, int]:
    """Return the two parts of HOST:PORT, an IPv6 address with or without brackets, port 0 to 65535; else ValueError."""
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not host or "[" in host or "]" in host or not (port.isascii() and port.isdigit()) or int(port) > PORT_MAX:
        raise ValueError(f"{text!r} is not HOST:PORT")
    return host, int(port)


def endpoint_text(host: str, port: int) -> str:
    """HOST:PORT, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Return true when only this machine can reach `host`."""
    if _IPV4.fullmatch(host):
        return host.startswith("127.")
    if ":" not in host:
        return host == "localhost"
    import ipaddress  # noqa: PLC0415 - 0.25 MB, which most boards do without

    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback
