#!/usr/bin/python3
"""Makes the users and rights of Apache Kafka on this host those that the inventory says.

Run as root by the role `kafka`. Standard input is a JSON object, so that no password is in a command line: `users`
(name: password), `acls` (rows of user, type of resource, pattern, name, operation), `kept` (users of ours that stay
without a password here: old log-ins), `moved` (those of `kept` whose rights stay, too), `ended` (users that go,
ours or not) and `planned` (the users that the plan was made for). Standard output has `changed`, what is
another than before. Users and ACLs that are not ours stay as they are; which are, and a hash of the password of each,
is remembered in /etc/kafka/access.json. With `show` it changes nothing: standard output has `held`, the users, and
`known`, those of ours. Kafka records no log-ins, so their times are unknown. It asks with the standard library alone:
Kafka's own tools would start a JVM for each question, and take passwords as arguments. Source: Kafka's protocol
guide; RFC 5802 for SaltedPassword.
"""

import hashlib
import json
import os
import re
import secrets
import socket
import struct
import sys

PROPERTIES = "/etc/kafka/server.properties"
REMEMBERED = "/etc/kafka/access.json"
TIMEOUT_S = 30
SCRAM_SHA_512, ITERATIONS = 2, 4096
ANY, ALLOW = 1, 3
KINDS = {"TOPIC": 2, "GROUP": 3, "CLUSTER": 4, "TRANSACTIONAL_ID": 5}
PATTERNS = {"LITERAL": 3, "PREFIXED": 4}
OPERATIONS = {
    "READ": 3,
    "WRITE": 4,
    "CREATE": 5,
    "ALTER": 7,
    "DESCRIBE": 8,
    "DESCRIBE_CONFIGS": 10,
    "ALTER_CONFIGS": 11,
    "IDEMPOTENT_WRITE": 12,
}


def text(value: str | None) -> bytes:
    """A nullable string."""
    return b"\xff\xff" if value is None else struct.pack(">h", len(value.encode())) + value.encode()


def varint(number: int) -> bytes:
    """An unsigned one."""
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def compact(value: bytes) -> bytes:
    """Compact bytes, or a compact string."""
    return varint(len(value) + 1) + value


class Answer:
    """An answer, read from its beginning to its end."""

    def __init__(self, data: bytes) -> None:
        """Take the bytes after the correlation id."""
        self._data, self._at = data, 0

    def number(self, form: str) -> int:
        """Read a number of `form`, as struct has it."""
        (value,) = struct.unpack_from(f">{form}", self._data, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def text(self) -> str:
        """Read a nullable string; null is empty."""
        return self._take(max(0, self.number("h"))).decode()

    def varint(self) -> int:
        """Read an unsigned one."""
        value = shift = 0
        while True:
            byte = self.number("B")
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def compact(self) -> str:
        """Read a compact nullable string; null is empty."""
        return self._take(max(0, self.varint() - 1)).decode()

    def _take(self, size: int) -> bytes:
        self._at += size
        return self._data[self._at - size : self._at]


class Kafka:
    """One connection to the listener LOCAL, as its admin."""

    def __init__(self) -> None:
        """Log in; OSError or SystemExit say why not."""
        with open(PROPERTIES) as file:
            properties = file.read()
        address = re.search(r"^listeners=.*?LOCAL://\[?([^,]*?)\]?:(\d+)", properties, re.MULTILINE)
        login = re.search(r'username="([^"]*)" password="([^"]*)"', properties)
        if address is None or login is None:
            sys.exit(f"{PROPERTIES} has no listener LOCAL with a log-in.")
        self._socket = socket.create_connection((address[1], int(address[2])), TIMEOUT_S)
        check(self.ask(17, 1, text("PLAIN")).number("h"), "PLAIN is not served")
        token = f"\0{login[1]}\0{login[2]}".encode()
        answer = self.ask(36, 1, struct.pack(">i", len(token)) + token)
        check(answer.number("h"), answer.text())

    def ask(self, api: int, version: int, body: bytes, *, flexible: bool = False) -> Answer:
        """Send a request; its answer."""
        tags = b"\0" if flexible else b""
        message = struct.pack(">hhi", api, version, 0) + text("site-access") + tags + body
        self._socket.sendall(struct.pack(">i", len(message)) + message)
        (size,) = struct.unpack(">i", self._read(4))
        return Answer(self._read(size)[4 + len(tags) :])

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                sys.exit("Kafka has closed the connection.")
            data += more
        return data

    def users(self) -> set[str]:
        """Return who can log in by SCRAM."""
        answer = self.ask(50, 0, b"\0\0", flexible=True)
        answer.number("i")
        check(answer.number("h"), answer.compact())
        found = set()
        for _ in range(answer.varint() - 1):
            found.add(answer.compact())
            answer.number("h")
            answer.compact()
            for _ in range(answer.varint() - 1):
                answer.number("b")
                answer.number("i")
                answer.varint()
            answer.varint()
        return found

    def alter_users(self, gone: list[str], made: dict[str, str]) -> None:
        """Remove users, and make others or their new passwords."""
        body = varint(len(gone) + 1)
        for name in gone:
            body += compact(name.encode()) + struct.pack(">b", SCRAM_SHA_512) + b"\0"
        body += varint(len(made) + 1)
        for name, password in made.items():
            salt = secrets.token_bytes(20)
            salted = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, ITERATIONS)
            body += compact(name.encode()) + struct.pack(">bi", SCRAM_SHA_512, ITERATIONS)
            body += compact(salt) + compact(salted) + b"\0"
        answer = self.ask(51, 0, body + b"\0", flexible=True)
        answer.number("i")
        for _ in range(answer.varint() - 1):
            name = answer.compact()
            check(answer.number("h"), f"{name}: {answer.compact()}")
            answer.varint()

    def acls(self) -> set[tuple[int, str, int, str, str, int, int]]:
        """Return all: type of resource, name, pattern, principal, host, operation, permission."""
        nulls = text(None)
        answer = self.ask(29, 1, bytes([ANY]) + nulls + bytes([ANY]) + nulls + nulls + bytes([ANY, ANY]))
        answer.number("i")
        check(answer.number("h"), answer.text())
        found = set()
        for _ in range(answer.number("i")):
            resource = answer.number("b"), answer.text(), answer.number("b")
            for _ in range(answer.number("i")):
                found.add((*resource, answer.text(), answer.text(), answer.number("b"), answer.number("b")))
        return found

    def alter_acls(self, api: int, rows: list[tuple[int, str, int, str, str, int, int]]) -> None:
        """Create ACLs (30) or delete them (31)."""
        body = struct.pack(">i", len(rows))
        for kind, name, pattern, principal, host, operation, permission in rows:
            body += bytes([kind]) + text(name) + bytes([pattern]) + text(principal) + text(host)
            body += bytes([operation, permission])
        answer = self.ask(api, 1, body)
        answer.number("i")
        for _ in range(answer.number("i")):
            check(answer.number("h"), answer.text())
            if api == 31:
                for _ in range(answer.number("i")):
                    answer.number("h"), answer.text(), answer.number("b"), answer.text()
                    answer.number("b"), answer.text(), answer.text(), answer.number("b"), answer.number("b")


def check(code: int, message: str) -> None:
    """End where Kafka has said no."""
    if code:
        sys.exit(f"Kafka answers with error {code}: {message}")


def acl_text(acl: tuple[int, str, int, str, str, int, int]) -> str:
    """An ACL of ours, for a person."""
    kind, name, pattern, principal, _, operation, _ = acl
    names = [{number: word for word, number in table.items()} for table in (OPERATIONS, KINDS, PATTERNS)]
    return f"{names[0].get(operation, operation)} by {principal} on {names[1].get(kind, kind)} " + (
        f"{names[2].get(pattern, pattern)} {name}"
    )


def hash_password(name: str, password: str) -> str:
    """Return the stored hash of a password."""
    return hashlib.pbkdf2_hmac("sha512", password.encode(), f"drupelet {name}".encode(), ITERATIONS).hex()


def read_remembered() -> dict[str, str]:
    """Return our users and the hashes of their passwords."""
    try:
        with open(REMEMBERED) as file:
            return dict(json.load(file))
    except FileNotFoundError:
        return {}


def remember(users: dict[str, str]) -> None:
    """Write them down, whole or not at all."""
    part = f"{REMEMBERED}.part"
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(users, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(part, REMEMBERED)


def main() -> None:
    """Read the order, carry it out, say what changed."""
    order = json.load(sys.stdin)
    known, kafka = read_remembered(), Kafka()
    there = kafka.users()
    if "show" in order:
        print(json.dumps({"held": {name: {} for name in sorted(there)}, "known": sorted(known)}))
        return
    if meanwhile := sorted(set(order.get("planned", there)) ^ there):  # another run is at work
        print(json.dumps({"changed": [], "meanwhile": meanwhile}))
        return
    users: dict[str, str] = order["users"]
    kept, ended = set(order["kept"]) & there, set(order["ended"])
    known |= dict.fromkeys(ended | kept - set(known), "")
    hashes = {name: hash_password(name, password) for name, password in users.items()}
    gone = sorted((set(known) - set(users) - kept) & there)
    made = {name: users[name] for name in users if name not in there or known.get(name) != hashes[name]}
    remember(known | dict.fromkeys(made, ""))  # ours from now on, whatever happens
    principals = {f"User:{name}" for name in (set(known) | set(users)) - set(order.get("moved", ()))}
    held = {acl for acl in kafka.acls() if acl[3] in principals}
    wanted = {
        (KINDS[kind], name, PATTERNS[pattern], f"User:{user}", "*", OPERATIONS[operation], ALLOW)
        for user, kind, pattern, name, operation in order["acls"]
    }
    if held - wanted:  # rights go first: they end what is connected already
        kafka.alter_acls(31, sorted(held - wanted))
    # Two requests: Kafka 4.3.1 lets in, but never lists, a user that is made in the request that removes others.
    if made:
        kafka.alter_users([], made)
    if gone:
        kafka.alter_users(gone, {})
    if wanted - held:
        kafka.alter_acls(30, sorted(wanted - held))
    remember({name: known[name] for name in kept} | hashes)
    changed = [f"removed: user {name}" for name in gone] + [f"user {name}" for name in sorted(made)]
    changed += [f"removed: {acl_text(acl)}" for acl in sorted(held - wanted)]
    changed += [f"added: {acl_text(acl)}" for acl in sorted(wanted - held)]
    print(json.dumps({"changed": changed, "meanwhile": []}))


if __name__ == "__main__":
    main()
