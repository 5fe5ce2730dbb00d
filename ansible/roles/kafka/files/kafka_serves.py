#!/usr/bin/python3
"""Exit 0 if Apache Kafka on this host serves: it answers Metadata and names a broker; else 1 and the reason.

Here: that one question, with the standard library alone. Kafka's own tools would start a JVM each time it is asked.
Source: Kafka's protocol guide, Metadata version 1.
"""

import re
import socket
import struct
import sys

PROPERTIES = "/etc/kafka/server.properties"
METADATA_WITHOUT_TOPICS = struct.pack(">hhih5si", 3, 1, 0, 5, b"ready", 0)  # key, version, correlation id, client, none
TIMEOUT_S = 5


def address() -> tuple[str, int]:
    """Return where the broker listens; Linux connects to 0.0.0.0 and :: by loopback."""
    with open(PROPERTIES) as file:
        found = re.search(r"^listeners=PLAINTEXT://\[?([^,]*?)\]?:(\d+)", file.read(), re.MULTILINE)
    if found is None:
        raise ValueError(f"{PROPERTIES} has no PLAINTEXT listener")
    return found[1] or "localhost", int(found[2])


def brokers() -> int:
    """Return how many brokers the answer to Metadata names; a broker that is still fenced is not among them."""
    with socket.create_connection(address(), TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">i", len(METADATA_WITHOUT_TOPICS)) + METADATA_WITHOUT_TOPICS)
        answer = connection.makefile("rb").read(12)  # size, correlation id, number of brokers
    return int(struct.unpack(">iii", answer)[2])


try:
    if brokers() < 1:
        sys.exit("Kafka answers, but its broker does not serve yet.")
except (OSError, ValueError, struct.error) as error:
    sys.exit(f"Kafka does not answer: {error}.")
