#!/usr/bin/python3
"""Exit 0 if Apache Kafka on this host serves: it answers Metadata and names a broker; else 1 and the reason.

Here: that one question, with the standard library alone, by a listener PLAINTEXT or, with its log-in, LOCAL. Kafka's
own tools would start a JVM each time it is asked. Source: Kafka's protocol guide, Metadata version 1.
"""

import re
import socket
import struct
import sys

PROPERTIES = "/etc/kafka/server.properties"
METADATA_WITHOUT_TOPICS = struct.pack(">hhih5si", 3, 1, 0, 5, b"ready", 0)  # key, version, correlation id, client, none
PLAIN = struct.pack(">hhih5sh5s", 17, 1, 0, 5, b"ready", 5, b"PLAIN")
TIMEOUT_S = 5


def ask(connection: socket.socket, message: bytes) -> bytes:
    """Send a request; return its response after the correlation id."""
    connection.sendall(struct.pack(">i", len(message)) + message)
    file = connection.makefile("rb")
    (size,) = struct.unpack(">i", file.read(4))
    return file.read(size)[4:]


def log_in(connection: socket.socket, user: str, password: str) -> None:
    """Say who we are; ValueError where that is refused."""
    ask(connection, PLAIN)
    token = f"\0{user}\0{password}".encode()
    message = struct.pack(">hhih5si", 36, 0, 0, 5, b"ready", len(token)) + token
    if struct.unpack(">h", ask(connection, message)[:2])[0]:
        raise ValueError("it refuses its own admin")


def brokers() -> int:
    """Return how many brokers the answer to Metadata names; a broker that is still fenced is not among them."""
    with open(PROPERTIES) as file:
        properties = file.read()
    found = re.search(r"^listeners=.*?(PLAINTEXT|LOCAL)://\[?([^,]*?)\]?:(\d+)", properties, re.MULTILINE)
    if found is None:
        raise ValueError(f"{PROPERTIES} has neither a listener PLAINTEXT nor LOCAL")
    with socket.create_connection((found[2] or "localhost", int(found[3])), TIMEOUT_S) as connection:
        login = re.search(r'username="([^"]*)" password="([^"]*)"', properties)
        if found[1] == "LOCAL" and login is not None:
            log_in(connection, login[1], login[2])
        return int(struct.unpack(">i", ask(connection, METADATA_WITHOUT_TOPICS)[:4])[0])


try:
    if brokers() < 1:
        sys.exit("Kafka answers, but its broker does not serve yet.")
except (OSError, ValueError, struct.error) as error:
    sys.exit(f"Kafka does not answer: {error}.")
