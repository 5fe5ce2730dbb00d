"""What a stranger sends before a log-in: valid exchanges out of order, mutated at any depth, all from one seed.

| mutated | reaches |
|---|---|
| the mechanism's message, in a valid request | SCRAM and PLAIN |
| the request's body, its size mended | the codec, the states of a log-in |
| the frame, its size too | framing |
| TLS records (login_roads.py) | the handshake, decryption |

Lives here: what is sent, and when. Must never come in: how it travels, what must hold afterwards.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import Protocol

from edge_broker.handlers import APIS
from edge_broker.protocol.api import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from edge_broker.protocol.codec import encode
from edge_broker.protocol.message import Message
from edge_broker.protocol.messages.api_versions import ApiVersionsRequest
from edge_broker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from edge_broker.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.abuse.frames import filled, framed
from tests.support.scram import HASHES, ScramClient, plain
from tests.support.secured_kafka import USER

HIDDEN = "hidden-from-strangers"
MECHANISMS = ("PLAIN", *HASHES)
SENT_BYTES_MAX = 100_000
CHALLENGE = re.compile(rb"r=[\x21-\x2b\x2d-\x7e]+,s=[A-Za-z0-9+/=]+,i=\d+")
INTERESTING = (0, 1, 127, 128, 255, 256, 4096, 32_767, 32_768, 65_535, 65_536, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)
PAUSES_MS = (*[0] * 40, 50, 99, 100, 101, 9_999, 10_001)
PIECES = (1, 7, 100, 4096, SENT_BYTES_MAX, SENT_BYTES_MAX, SENT_BYTES_MAX)

Mutation = Callable[[random.Random, bytearray], None]


class Road(Protocol):
    """One connection of a stranger to a broker."""

    def send(self, data: bytes) -> None:
        """Send bytes; nothing happens once the broker has closed."""

    def answered(self) -> bytes:
        """All that the broker has answered until now."""

    def pause(self, ms: int) -> None:
        """Let time pass, where it can be made to."""

    def end(self) -> bytes:
        """Leave, and wait until the broker has closed; all that it has answered."""


def mutated(rnd: random.Random, data: bytes) -> bytes:
    """The same with a few changes, at most SENT_BYTES_MAX of it."""
    found = bytearray(data)
    for _ in range(rnd.choice((1, 1, 1, 2, 4, 16))):
        rnd.choice(_MUTATIONS)(rnd, found)
    return bytes(found[:SENT_BYTES_MAX])


def _place(rnd: random.Random, data: bytearray) -> int:
    return rnd.randint(0, len(data))


def _flip(rnd: random.Random, data: bytearray) -> None:
    if data:
        data[rnd.randrange(len(data))] ^= 1 << rnd.randrange(8)


def _letter(rnd: random.Random, data: bytearray) -> None:
    if data:
        data[rnd.randrange(len(data))] = rnd.choice(b"\0\1,=nprsc/+ \x7f\x80\xc3\xff")


def _number(rnd: random.Random, data: bytearray) -> None:
    size = rnd.choice((1, 2, 4))
    place = _place(rnd, data)
    data[place : place + size] = (rnd.choice(INTERESTING) & ((1 << 8 * size) - 1)).to_bytes(size, "big")


def _varint(rnd: random.Random, data: bytearray) -> None:
    place = _place(rnd, data)
    data[place : place + 1] = rnd.choice((b"\xff\xff\xff\xff\x0f", b"\xff" * 10, b"\x80\x80\x01", b"\x80\0"))


def _cut(rnd: random.Random, data: bytearray) -> None:
    begin, end = sorted((_place(rnd, data), _place(rnd, data)))
    del data[begin:end]


def _end(rnd: random.Random, data: bytearray) -> None:
    del data[_place(rnd, data) :]


def _insert(rnd: random.Random, data: bytearray) -> None:
    place = _place(rnd, data)
    data[place:place] = rnd.randbytes(rnd.choice((1, 2, 8, 300, 5000)))


def _repeat(rnd: random.Random, data: bytearray) -> None:
    begin, end = sorted((_place(rnd, data), _place(rnd, data)))
    data[end:end] = data[begin:end] * rnd.choice((1, 1, 2, 50))
    del data[SENT_BYTES_MAX:]


_MUTATIONS: Sequence[Mutation] = (_flip, _letter, _number, _varint, _cut, _end, _insert, _repeat)


class Play:
    """What one stranger does on a road; `password` may be the right one."""

    def __init__(self, rnd: random.Random, road: Road, password: str) -> None:
        self._rnd = rnd
        self._road = road
        self._rate = rnd.choice((0.0, 0.05, 0.1, 0.2, 0.5))
        self._mechanism = rnd.choice(MECHANISMS)
        self._user = rnd.choice((*[USER] * 4, "nobody", "n,=\u00e4"))
        self._scram = self._new_scram(password)
        self._password = password

    def _new_scram(self, password: str) -> ScramClient:
        mechanism = self._mechanism if self._mechanism in HASHES else self._rnd.choice(list(HASHES))
        header = self._rnd.choice((*["n,,"] * 20, "y,,", f"n,a={USER},", "p=tls-unique,,"))
        return ScramClient(mechanism, self._user, password, "n" * self._rnd.choice((*[5] * 20, 1, 4000)), header=header)

    def run(self) -> None:
        """Send everything, in pieces."""
        steps = [self._versions, self._handshake, self._first, self._final]
        if self._rnd.random() < 0.4:
            self._disturb(steps)
        for step in steps:
            data = step()
            if self._rnd.random() < self._rate:
                data = mutated(self._rnd, data)
            size = max(self._rnd.choice(PIECES), len(data) // 50)
            for position in range(0, len(data), size):
                self._road.send(data[position : position + size])
            self._road.pause(self._rnd.choice(PAUSES_MS))

    def _disturb(self, steps: list[Callable[[], bytes]]) -> None:
        """Leave out, repeat, swap, and put between what does not belong there."""
        for _ in range(self._rnd.randint(1, 4)):
            place = self._rnd.randrange(len(steps) + 1)
            way = self._rnd.randrange(4)
            if way == 0 and len(steps) > 1:
                del steps[min(place, len(steps) - 1)]
            elif way == 1:
                self._rnd.shuffle(steps)
            elif way == 2:
                steps.insert(place, self._rnd.choice(steps))
            else:
                steps.insert(place, self._rnd.choice((self._another, self._noise, self._bare)))

    def _versions(self) -> bytes:
        return self._request(API_VERSIONS, ApiVersionsRequest(client_software_name="f", client_software_version="1"))

    def _handshake(self) -> bytes:
        name = self._rnd.choice((*[self._mechanism] * 40, "GSSAPI", "", "x" * 300))
        return self._request(SASL_HANDSHAKE, SaslHandshakeRequest(mechanism=name), self._rnd.choice((*[1] * 20, 0)))

    def _first(self) -> bytes:
        token = plain(self._user, self._password) if self._mechanism == "PLAIN" else self._scram.first
        return self._token(token)

    def _final(self) -> bytes:
        found = CHALLENGE.findall(self._road.answered())
        made = b"r=" + b"n" * 4016 + b",s=c2FsdA==,i=4096"
        challenge = found[-1] if found else made
        try:
            return self._token(self._scram.final(challenge))
        except AssertionError:  # it is the answer to a first message that was mutated
            return self._token(challenge)

    def _another(self) -> bytes:
        """A good request of an API that a stranger has no business with."""
        api = self._rnd.choice(list(APIS.values()))
        return framed(api, api.max_version, b"".join(encode(filled(api.request, HIDDEN), api.max_version)))

    def _noise(self) -> bytes:
        return self._rnd.randbytes(self._rnd.choice((1, 4, 100, 20_000)))

    def _bare(self) -> bytes:
        """A token as clients before Kafka 1.0 send it."""
        return len(self._scram.first).to_bytes(4, "big") + self._scram.first

    def _token(self, token: bytes) -> bytes:
        if self._rnd.random() < self._rate:
            token = mutated(self._rnd, token)
        return self._request(SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=token))

    def _request(self, key: int, message: Message, version: int = -1) -> bytes:
        api = APIS[key]
        version = self._rnd.randint(api.min_version, api.max_version) if version < 0 else version
        frame = framed(api, version, b"".join(encode(message, version)))
        if self._rnd.random() < self._rate:
            body = mutated(self._rnd, frame[4:])
            frame = len(body).to_bytes(4, "big") + body
        return frame
