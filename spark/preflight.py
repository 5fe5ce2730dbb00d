"""Check addresses, ports and memory values before the JVM starts, which would take many seconds to report them.

Contains: errors of the command line. Does not contain: Spark, a Kafka client, the checkpoint (streams/checkpoint.py).
"""

import errno
import re
import socket
from collections.abc import Mapping, Sequence

from drupelet.addresses import host_and_port
from drupelet.errors import ConfigurationError, reason
from drupelet.kafka.connection import NotConnected, connect
from drupelet.kafka.connection_errors import explain
from drupelet.kafka.security import Security
from spark.config import Settings
from spark.logs import log

CONNECT_S = 1.0
DRIVER_MB_MIN = 450  # Spark: 1.5 times the 300 MB that it reserves; the heap that Java reports is some 5 % smaller
UNITS = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024 * 1024}
Address = tuple[str, int]
PLAINTEXT = Security()
MASTERS = "give local[CORES] or spark://HOST:PORT"


def checked_addresses(settings: Settings) -> tuple[list[Address], list[Address]]:
    """Return the addresses of brokers and remote masters; raises ConfigurationError for an invalid one."""
    brokers = [address_in("--bootstrap", each) for each in settings.bootstrap.split(",")]
    if not settings.master.startswith("local"):
        return brokers, master_addresses(settings.master)
    if not re.fullmatch(r"local(\[(\*|[1-9]\d*)(,\d+)?\])?", settings.master):
        raise ConfigurationError(f"--master {settings.master}: {MASTERS}")
    return brokers, []


def master_addresses(url: str) -> list[Address]:
    """Read a master's URL, which may name several; raises ConfigurationError if it names none."""
    if not url.startswith("spark://"):
        raise ConfigurationError(f"{url} is no master's URL: {MASTERS}")
    return [address_in("the master's URL", each) for each in url.removeprefix("spark://").split(",")]


def say_unreachable(event: str, addresses: Sequence[Address], security: Security = PLAINTEXT, **fields: object) -> None:
    """Log at once that no broker, or no master, accepts this job: the job waits for them."""
    reasons = [refusal_reason(*each, security) for each in addresses]
    if reasons and None not in reasons:
        log("warning", event, **fields, reason=reasons[0], then="it is waited for")


def address_in(name: str, text: str) -> Address:
    """Read HOST:PORT; raises ConfigurationError that names the option."""
    try:
        host, port = host_and_port(text.strip())
    except ValueError as error:
        raise ConfigurationError(f"{name}: {error}, such as 192.168.1.20:9092") from None
    if not port:
        raise ConfigurationError(f"{name}: {text!r} has port 0: give the port that is listened on")
    return host, port


def refusal_reason(host: str, port: int, security: Security = PLAINTEXT) -> str | None:
    """Return why the address accepts no connection within a second for each step, or None."""
    try:
        connect(security, host, port, CONNECT_S).close()
    except NotConnected as error:
        return f"{host}:{port} {error}"
    except OSError as error:
        return f"{host}:{port} {explain(error)}"
    return None


def check_free(name: str, host: str, port: int) -> None:
    """Refuse an address that this machine lacks, or a port in use: Spark would use the next port."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except (OSError, OverflowError) as error:
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            raise ConfigurationError(f"{host}:{port} is taken by another process: give another {name}") from error
        said = reason(error) if isinstance(error, OSError) else error
        raise ConfigurationError(f"{name}: {host}:{port} cannot be listened on: {said}") from error


def check_memory(given: Mapping[str, str]) -> None:
    """Refuse memory values that Java or Spark would refuse with a stack trace."""
    for key in ("spark.driver.memory", "spark.executor.memory"):
        if key in given and checked_size(key, given[key]) < DRIVER_MB_MIN:
            raise ConfigurationError(f"{key}={given[key]}: Spark needs {DRIVER_MB_MIN + 22}m or more")


def checked_size(name: str, text: str) -> float:
    """Read a size such as 512m or 1g in MB; raises ConfigurationError."""
    found = re.fullmatch(r"([1-9]\d{0,9})([kmgt])b?", text.lower())
    if found is None:
        raise ConfigurationError(f"{name}={text}: give a size with its unit, such as 512m or 1g")
    return int(found[1]) * UNITS[found[2]]
