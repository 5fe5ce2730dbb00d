"""TLS between a socket and a connection: the same bytes arrive however they are cut, and nothing is held for long."""

from __future__ import annotations

import random
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from edge_broker.errors import ProtocolViolation
from edge_broker.network.tls.pending_ciphertext import RECORD_BYTES_MAX
from edge_broker.network.tls.tls_transport import (
    PIECE_BYTES,
    READ_BYTES,
    SHORT_BYTES,
    TURN_BYTES,
    TURN_S,
    WRITE_BUFFER_BYTES_MAX,
    ClientIdentity,
    HandshakeRefused,
    Step,
    TlsTransport,
)
from tests.support.certificates import Authority

LARGE = 5 * TURN_BYTES + 77


class Raw:
    """The transport of a socket, as the loop gives it to a protocol."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.writes = 0
        self.reading = True
        self.closed = self.aborted = False
        self.full = False
        self.protocol: TlsTransport | None = None
        self.high = 0

    def set_write_buffer_limits(self, high: int) -> None:
        self.high = high

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("10.0.0.7", 4711) if name == "peername" else default

    def write(self, data: bytes) -> None:
        self.sent += data
        self.writes += 1
        if len(self.sent) > self.high and not self.full and self.protocol is not None:
            self.full = True
            self.protocol.pause_writing()

    def writelines(self, parts: list[bytes]) -> None:
        self.write(b"".join(parts))

    def get_write_buffer_size(self) -> int:
        return len(self.sent)

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True


class Behind:
    """A protocol that keeps what it is given."""

    def __init__(self, buffer_bytes: int = 1 << 18) -> None:
        self.buffer = bytearray(buffer_bytes)
        self.got = bytearray()
        self.sizes: list[int] = []
        self.rooms: list[int] = []
        self.transport: TlsTransport | None = None
        self.lost = 0
        self.full = False
        self.violations: list[str] = []
        self.when_got: Callable[[], None] = lambda: None
        self.waits: list[tuple[int, bool]] = []

    def wait_for_more(self, ahead_bytes: int, *, drained: bool) -> None:
        self.waits.append((ahead_bytes, drained))

    def connection_made(self, transport: TlsTransport) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost += 1

    def make_room(self, nbytes: int) -> None:
        self.rooms.append(nbytes)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self.buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.sizes.append(nbytes)
        self.got += self.buffer[:nbytes]
        self.when_got()

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False

    def violate(self, violation: ProtocolViolation) -> None:
        self.violations.append(str(violation))
        assert self.transport is not None
        self.transport.abort()


class Site:
    """A server's end by hand and a client of OpenSSL's own; steps and turns happen when the test says so."""

    def __init__(self, server: ssl.SSLContext, client: ssl.SSLContext, judge: Callable[..., str] | None = None) -> None:
        self.cipher_buffer = memoryview(bytearray(READ_BYTES))
        self.kept_bytes = 0
        self.short = False
        self.is_crowded = False
        self.second_s = 0.0
        self.now_s = 0.0
        self.steps: deque[Callable[[], Step]] = deque()
        self.turns: deque[TlsTransport] = deque()
        self.ended: list[str] = []
        self.behind = Behind()
        self.raw = Raw()
        self.transport = TlsTransport(
            self, server, judge or (lambda _: ClientIdentity("User:CN=pi")), cast(Any, lambda: self.behind)
        )
        self.raw.protocol = self.transport
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = client.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.transport.connection_made(cast(Any, self.raw))

    def seconds(self) -> float:
        self.now_s += self.second_s
        return self.now_s

    def begin(self, transport: TlsTransport) -> bool:
        return True

    def step(self, transport: TlsTransport, work: Callable[[], Step]) -> None:
        self.steps.append(work)

    def end(self, transport: TlsTransport, why: str = "", principal: str = "") -> None:
        self.ended.append(why)

    def due(self, transport: TlsTransport) -> None:
        self.turns.append(transport)

    def work(self) -> None:
        """What the worker and the loop have to do, until there is nothing."""
        while self.steps or self.turns:
            if self.steps:
                try:
                    self.transport.step_completed(self.steps.popleft()())
                except HandshakeRefused as refused:
                    self.transport.refuse(str(refused))
            if self.turns:
                self.turns.popleft().turn()

    def feed(self, data: bytes, piece: int = 1 << 20) -> None:
        """Ciphertext arrives, as long as it is read, in pieces of at most so many bytes; the rest is lost to nobody."""
        rest = bytearray(data)
        while rest and not self.raw.closed:
            if not self.raw.reading:
                self.work()
                assert self.raw.reading, "reading has stopped for good"
            buffer = self.transport.get_buffer(-1)
            size = min(len(buffer), len(rest), piece)
            buffer[:size] = rest[:size]
            del rest[:size]
            self.transport.buffer_updated(size)

    def exchange(self, piece: int = 1 << 20) -> None:
        """Both sides speak until neither has anything to say."""
        while True:
            self.work()
            self.incoming.write(bytes(self.raw.sent))
            self.raw.sent.clear()
            if self.raw.full:
                self.raw.full = False
                self.transport.resume_writing()
            with suppress(ssl.SSLWantReadError):
                self.client.do_handshake()
            data = self.outgoing.read()
            self.feed(data, piece)
            if not (data or self.steps or self.turns or self.raw.sent):
                return

    def end_handshake_of_client(self) -> None:
        """The client's side is complete; the last that it has to say has not been sent."""
        self.work()
        while True:
            try:
                self.client.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.feed(self.outgoing.read())
                self.work()
                self.incoming.write(bytes(self.raw.sent))
                self.raw.sent.clear()

    def send(self, data: bytes, piece: int = 1 << 20) -> None:
        self.client.write(data)
        self.feed(self.outgoing.read(), piece)
        self.work()

    def received(self) -> bytes:
        """What the client can decrypt, all of it, as fast as the kernel would take it."""
        found = bytearray()
        while True:
            self.work()
            self.incoming.write(bytes(self.raw.sent))
            self.raw.sent.clear()
            try:
                while got := self.client.read(1 << 20):
                    found += got
            except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
                pass
            if not self.raw.full:
                return bytes(found)
            self.raw.full = False
            self.transport.resume_writing()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def signed(authority: Authority) -> tuple[Path, Path]:
    return authority.sign("broker", "DNS:localhost")


@pytest.fixture(params=["TLSv1_2", "TLSv1_3"])
def site(request: pytest.FixtureRequest, authority: Authority, signed: tuple[Path, Path]) -> Site:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*signed)
    server.num_tickets = 0
    client = ssl.create_default_context(cafile=str(authority.certificate))
    client.minimum_version = client.maximum_version = ssl.TLSVersion[request.param]
    return Site(server, client)


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_however_the_bytes_are_cut_the_same_arrive(site: Site, piece: int) -> None:
    site.exchange(piece)
    assert site.ended == [""]
    assert site.transport.get_extra_info("shown").principal == "User:CN=pi"
    site.send(b"hello", piece)
    site.send(b"x" * 40_000, piece)
    assert site.behind.got == b"hello" + b"x" * 40_000
    site.transport.write(b"answer")
    site.transport.writelines([b"a", memoryview(b"bc")])
    assert site.received() == b"answerabc"


def test_what_comes_with_the_end_of_the_handshake_is_not_left_behind(site: Site) -> None:
    site.end_handshake_of_client()
    site.client.write(b"at once")
    site.feed(site.outgoing.read())
    site.work()
    assert site.behind.got == b"at once"


def test_nothing_is_read_while_the_worker_makes_a_step(site: Site) -> None:
    with pytest.raises(ssl.SSLWantReadError):
        site.client.do_handshake()
    site.feed(site.outgoing.read())
    assert len(site.steps) == 1
    assert not site.raw.reading
    assert site.behind.transport is None


def test_what_is_no_tls_ends_the_handshake_with_a_sentence(site: Site) -> None:
    site.feed(b"\0\0\0\x16\0\x12\0\4\0\0\0\1\0\4test\0\0\0")
    site.work()
    assert site.ended == ["what it sent is no TLS; set the client's security.protocol to SSL or SASL_SSL"]
    assert site.raw.closed
    assert site.behind.transport is None
    site.transport.connection_lost(None)
    assert site.behind.lost == 0


def test_a_client_that_leaves_in_the_middle_of_a_step_is_forgotten(site: Site) -> None:
    with pytest.raises(ssl.SSLWantReadError):
        site.client.do_handshake()
    site.feed(site.outgoing.read())
    site.raw.closed = True
    site.transport.connection_lost(None)
    site.work()
    assert site.behind.transport is None
    assert site.ended == ["the client left in the middle of the handshake"]
    assert site.transport.address == ("10.0.0.7", 4711)  # the log says who it was


def test_the_address_of_a_client_stays_when_the_socket_has_forgotten_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site.raw, "get_extra_info", lambda name, default=None: default)
    assert site.transport.get_extra_info("peername") == ("10.0.0.7", 4711)


def test_a_client_that_is_refused_by_its_certificate_gets_nothing(
    authority: Authority, signed: tuple[Path, Path]
) -> None:
    def judge(_: object) -> str:
        raise HandshakeRefused("its certificate ended")

    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*signed)
    site = Site(server, ssl.create_default_context(cafile=str(authority.certificate)), judge)
    site.exchange()
    assert site.ended == ["its certificate ended"]
    assert site.raw.closed
    assert site.behind.transport is None


CIPHERS = {
    "TLSv1_3": ["TLS_AES_256_GCM_SHA384"],
    "TLSv1_2": ["ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-ECDSA-AES128-SHA256"],
}


@pytest.mark.parametrize(
    ("version", "cipher", "exact"),
    [(version, cipher, "AES128-SHA" not in cipher) for version, ciphers in CIPHERS.items() for cipher in ciphers],
)
@pytest.mark.parametrize("seed", range(8))
def test_what_has_come_and_is_not_handed_on_is_known(
    authority: Authority, signed: tuple[Path, Path], version: str, cipher: str, exact: bool, seed: int
) -> None:
    """Never too little, or the socket would wait for what no client sends; too much with ciphers that pad."""
    chance = random.Random(seed)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*signed)
    server.num_tickets = 0
    client = ssl.create_default_context(cafile=str(authority.certificate))
    client.minimum_version = client.maximum_version = ssl.TLSVersion[version]
    if version == "TLSv1_2":
        server.set_ciphers(cipher)
        client.set_ciphers(cipher)
    site = Site(server, client)
    site.behind = Behind(chance.choice([1000, 16_384, 40_000, 1 << 18]))
    site.exchange()
    assert version == "TLSv1_3" or site.transport._tls.cipher()[0] == cipher  # type: ignore[index]
    ends = [(0, 0)]  # of each record: all that was written up to there, and all ciphertext
    for _ in range(60):
        sent, came = ends[-1]
        size = chance.choice([1, 20, 97, 700, 16_383, 16_384])
        site.client.write(bytes(size))
        record = site.outgoing.read()
        ends.append((sent + size, came + len(record)))
        cut = chance.randrange(len(record) + 1) if chance.random() < 0.5 else len(record)
        for begin, piece in ((0, record[:cut]), (cut, record[cut:])):
            if piece:
                del site.behind.waits[:]
                site.feed(piece, chance.choice([700, 1 << 20]))
                site.work()
                whole = [end for end in ends if end[0] <= len(site.behind.got)][-1]
                inside = came + begin + len(piece) - whole[1]
                told = site.behind.waits[-1][0]
                assert told == inside if exact else told >= inside
    assert len(site.behind.got) == ends[-1][0]


def test_half_a_record_that_came_with_the_end_of_the_handshake_has_come(site: Site) -> None:
    site.end_handshake_of_client()
    finished = site.outgoing.read()
    site.client.write(bytes(10_000))
    record = site.outgoing.read()
    site.feed(finished + record[:6000])
    site.work()
    assert site.behind.waits[-1][0] == 6000


def test_a_socket_that_may_hold_more_is_not_called_drained(site: Site) -> None:
    site.exchange()
    site.client.write(bytes(2 * READ_BYTES))
    site.feed(site.outgoing.read(READ_BYTES))
    assert {drained for _, drained in site.behind.waits[-2:]} == {False}


@pytest.fixture
def answering(site: Site) -> Site:
    """One that answers each record that it gets, in capitals."""
    site.exchange()
    site.behind.buffer = bytearray(3)

    def answer() -> None:
        site.transport.write(site.behind.got[-3:].upper())

    site.behind.when_got = answer
    site.raw.writes = 0
    for what in (b"one", b"two", b"and"):
        site.client.write(what)
    return site


def test_what_is_answered_while_one_read_is_decrypted_is_sent_together(answering: Site) -> None:
    site = answering
    site.feed(site.outgoing.read())
    assert site.raw.writes == 1
    assert not site.turns
    assert site.received() == b"ONETWOAND"


def test_large_answers_to_one_read_wait_for_a_turn(answering: Site) -> None:
    site = answering
    site.behind.when_got = lambda: site.transport.write(bytes(TURN_BYTES // 2 + 1))
    site.feed(site.outgoing.read())
    assert site.raw.writes == 0
    assert site.received() == bytes(3 * (TURN_BYTES // 2 + 1))


def test_answers_are_on_their_way_though_what_follows_is_no_request(answering: Site) -> None:
    site, answer = answering, answering.behind.when_got

    def judge() -> None:
        if site.behind.got.endswith(b"and"):
            site.behind.violate(ProtocolViolation("it is none"))
        else:
            answer()

    site.behind.when_got = judge
    site.feed(site.outgoing.read())
    assert site.raw.aborted
    assert site.received() == b"ONETWO"


def test_garbage_in_the_same_read_ends_it_at_once(answering: Site) -> None:
    site = answering
    site.feed(site.outgoing.read() + b"\x17\x03\x03\0\x20" + bytes(32))
    assert len(site.behind.violations) == 1
    assert site.raw.aborted
    assert not site.turns


def test_who_closes_behind_an_answer_sends_both(answering: Site) -> None:
    site, answer = answering, answering.behind.when_got

    def last() -> None:
        answer()
        site.transport.close()
        site.transport.write(b"more")

    site.behind.when_got = last
    site.feed(site.outgoing.read())
    assert site.received() == b"ONE"
    assert site.raw.closed
    assert not site.raw.aborted


def test_answers_to_one_read_wait_for_a_kernel_that_takes_no_more(answering: Site) -> None:
    site = answering
    site.raw.full = True
    site.transport.pause_writing()
    site.feed(site.outgoing.read())
    assert site.raw.writes == 0
    assert site.transport.get_write_buffer_size() == 9
    site.raw.full = False
    site.transport.resume_writing()
    assert site.received() == b"ONETWOAND"


def test_garbage_behind_the_handshake_is_a_violation_of_that_connection(site: Site) -> None:
    site.exchange()
    site.send(b"sound")
    site.feed(b"\x17\x03\x03\0\x20" + bytes(32))
    assert site.behind.got == b"sound"
    assert len(site.behind.violations) == 1
    assert "\n" not in site.behind.violations[0]
    assert site.raw.aborted


def test_close_notify_ends_the_connection_and_is_answered(site: Site) -> None:
    site.exchange()
    with pytest.raises(ssl.SSLWantReadError):
        site.client.unwrap()
    site.feed(site.outgoing.read())
    site.work()
    assert site.raw.closed
    assert not site.raw.aborted
    site.incoming.write(bytes(site.raw.sent))
    site.client.unwrap()


def test_close_sends_what_waits_first_and_drops_what_comes(site: Site) -> None:
    site.exchange()
    site.transport.write(bytes(LARGE))
    site.transport.close()
    assert site.transport.is_closing()
    assert not site.raw.closed
    site.client.write(b"too late")
    site.feed(site.outgoing.read())
    assert site.received() == bytes(LARGE)
    assert site.raw.closed
    assert site.behind.got == b""


def test_much_is_encrypted_by_turns_and_only_as_fast_as_it_is_taken(site: Site) -> None:
    site.exchange()
    site.transport.set_write_buffer_limits(high=TURN_BYTES)
    data = bytes(range(256)) * (LARGE // 256)
    site.transport.writelines([data[:10], memoryview(data)[10:]])
    assert site.transport.get_write_buffer_size() == len(data)
    assert not site.raw.sent
    assert site.behind.full
    site.second_s = TURN_S
    site.turns.popleft().turn()
    assert TURN_BYTES < len(site.raw.sent) < TURN_BYTES + 1024
    site.second_s = 0
    site.work()  # nobody reads
    assert site.raw.full
    assert len(site.raw.sent) < WRITE_BUFFER_BYTES_MAX + TURN_BYTES + 1024
    assert site.transport.get_write_buffer_size() >= len(data)
    site.transport.write(b"behind it")
    assert site.received() == data + b"behind it"
    assert not site.behind.full
    assert site.transport.get_write_buffer_size() == 0


def test_who_sends_much_is_read_a_turns_worth_at_a_time(site: Site) -> None:
    site.exchange()
    site.client.write(bytes(LARGE))
    data = site.outgoing.read()
    buffer = site.transport.get_buffer(-1)
    buffer[:] = data[: len(buffer)]
    site.transport.buffer_updated(len(buffer))
    assert READ_BYTES - RECORD_BYTES_MAX - 16 * 64 <= len(site.behind.got) <= READ_BYTES
    assert len(site.behind.sizes) == 1
    assert len(buffer) in site.behind.rooms
    assert not site.raw.reading, "else the loop reads on in the same turn"
    site.work()
    assert site.raw.reading
    site.feed(data[len(buffer) :])
    site.work()
    assert site.behind.got == bytes(LARGE)


@pytest.mark.parametrize("record", [1, 300, PIECE_BYTES])
def test_what_takes_long_to_decrypt_goes_on_in_turns_with_others_between(site: Site, record: int) -> None:
    site.exchange()
    site.second_s = TURN_S / 3
    sent = bytes(range(256)) * 512
    for position in range(0, len(sent), record):
        site.client.write(sent[position : position + record])
    rest = site.outgoing.read()
    while rest:
        buffer = site.transport.get_buffer(-1)
        part, rest = rest[: len(buffer)], rest[len(buffer) :]
        buffer[: len(part)] = part
        site.transport.buffer_updated(len(part))
        while site.turns:
            before = len(site.behind.got)
            assert not site.raw.reading, "what is kept comes first"
            site.turns.popleft().turn()
            assert len(site.behind.got) - before < 4 * RECORD_BYTES_MAX
        assert site.kept_bytes == 0
        assert site.raw.reading
    assert site.behind.got == sent


def test_what_is_kept_goes_with_its_connection(site: Site) -> None:
    site.exchange()
    site.second_s = TURN_S
    site.client.write(bytes(LARGE))
    site.feed(site.outgoing.read(READ_BYTES))
    assert READ_BYTES - 3 * RECORD_BYTES_MAX < site.kept_bytes < READ_BYTES
    site.raw.closed = True
    site.transport.connection_lost(None)
    assert site.kept_bytes == 0
    site.work()


@pytest.mark.parametrize("size", [1, 999, 1000, 1001, 4000, 40_000])
def test_a_frame_that_ends_within_a_record_leaves_nothing_behind(site: Site, size: int) -> None:
    site.exchange()
    site.behind.buffer = bytearray(1000)
    site.send(bytes(size))
    assert len(site.behind.got) == size


def test_where_others_wait_less_is_taken_at_once(site: Site) -> None:
    site.exchange()
    assert len(site.transport.get_buffer(-1)) == READ_BYTES
    site.is_crowded = True
    assert len(site.transport.get_buffer(-1)) == TURN_BYTES
    site.send(bytes(LARGE))
    assert site.behind.got == bytes(LARGE)


def test_when_memory_is_short_less_is_taken_at_once(site: Site) -> None:
    site.exchange()
    site.short = True
    assert len(site.transport.get_buffer(-1)) == SHORT_BYTES
    site.send(bytes(LARGE))
    assert site.behind.got == bytes(LARGE)


def test_a_connection_that_stops_reading_is_given_nothing_until_it_reads_again(site: Site) -> None:
    site.exchange()
    site.behind.when_got = site.transport.pause_reading
    site.behind.buffer = bytearray(1000)
    site.client.write(bytes(4000))
    site.feed(site.outgoing.read())
    site.work()
    assert len(site.behind.got) == 1000
    assert not site.raw.reading
    for size in (2000, 3000, 4000):
        site.transport.resume_reading()
        assert len(site.behind.got) == size - 1000, "never before the next turn of the loop"
        site.work()
        assert len(site.behind.got) == size
    site.behind.when_got = lambda: None
    site.transport.resume_reading()
    site.work()
    assert site.raw.reading


def test_a_connection_lost_in_use_is_told_once(site: Site) -> None:
    site.exchange()
    site.transport.write(bytes(LARGE))
    site.raw.closed = True
    site.transport.connection_lost(None)
    assert site.behind.lost == 1
    site.transport.write(b"nobody is there")
    site.transport.writelines([b"nobody", b"there"])
    site.transport.close()
    site.work()
    assert site.transport.is_closing()
    assert site.ended == [""]
