"""SASL, sound and unsound, byte by byte to the edge broker and to Apache Kafka: answers, sentences and closing."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable, Iterator

import pytest

from edge_broker.protocol import api
from tests.differential.judging import Judge
from tests.differential.known import KNOWN_LOG_INS
from tests.differential.log_in import MECHANISM, LogIn, until_parted
from tests.differential.secured import ANN, COMMAS, ONLY_256, ONLY_512, PASSWORDS, ROOT, Secured
from tests.differential.trees import CLIENT_NONCE
from tests.support.scram import ScramClient, plain

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
ODD_MECHANISMS = (
    "GSSAPI",
    "OAUTHBEARER",
    "SCRAM-SHA-1",
    "UNKNOWN",
    "",
    "plain",
    " PLAIN",
    "PLAIN\0",
    "PLÄIN",
    "X" * 300,
)
PASSWORD = PASSWORDS[ANN]
Program = Callable[[LogIn], None]
PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    """Register what is asked of both."""
    PROGRAMS[function.__name__.replace("_", "-")] = function
    return function


@program
def mechanisms_users_and_passwords(log_in: LogIn) -> None:
    for mechanism in MECHANISMS:
        for label, user, password in (
            (ANN, ANN, PASSWORD),
            ("wrong password", ANN, "wrong"),
            ("password with a space", ANN, PASSWORD + " "),
            ("unknown user", "nobody", "wrong"),
            ("unknown user", ANN.upper(), PASSWORD),
            ("unknown user", "Zoë", "wrong"),
            (ONLY_256, ONLY_256, PASSWORDS[ONLY_256]),
            (ONLY_512, ONLY_512, PASSWORDS[ONLY_512]),
            (COMMAS, ANN if mechanism == "PLAIN" else COMMAS, None),  # which Kafka's list of PLAIN cannot hold
        ):
            with log_in.connection(f"{mechanism} {label}"):
                log_in.log_in(mechanism, user, password)
                log_in.served()


@program
def handshakes(log_in: LogIn) -> None:
    for version in (0, 1):
        for mechanism in (*MECHANISMS, *ODD_MECHANISMS):
            with log_in.connection(f"v{version}"):
                log_in.handshake(mechanism, version)
                log_in.handshake(mechanism, version)
    for version in (-1, 2, 99):
        with log_in.connection(f"version {version}"):
            log_in.body(api.SASL_HANDSHAKE, b"\0\5PLAIN", version, "")
    for body in (b"", b"\0", b"\0\5PLAI", b"\xff\xff", b"\xff\xfePLAIN", b"\0\5PLAIN\0", b"\0\2\xff\xfe"):
        with log_in.connection("body"):
            log_in.body(api.SASL_HANDSHAKE, body, 1, body.hex())
            log_in.plain(ANN)


@program
def tokens_of_version_0(log_in: LogIn) -> None:
    """Behind version 0 tokens come without a request around them."""
    for token in (plain(ANN, PASSWORD), plain(ANN, "wrong"), b""):
        with log_in.connection("raw"):
            log_in.handshake("PLAIN", 0)
            log_in.raw(len(token).to_bytes(4, "big") + token, repr(token))
            log_in.served()
    with log_in.connection("in a request"):
        log_in.handshake("PLAIN", 0)
        log_in.plain(ANN)


@program
def versions_of_authenticate(log_in: LogIn) -> None:
    for version in (0, 1, 2):
        for password in (PASSWORD, "wrong"):
            with log_in.connection(f"v{version} {password == PASSWORD}"):
                log_in.handshake("PLAIN")
                log_in.plain(ANN, password, version)
                log_in.served()
    sound = plain(ANN, PASSWORD)
    framed = len(sound).to_bytes(4, "big") + sound
    for version, body in (
        (3, b"\x1f" + sound + b"\0"),
        (-1, framed),
        (0, framed + b"\0"),
        (0, framed[:-1]),
        (0, b"\xff\xff\xff\xff"),
        (0, b"\xff\xff\xff\xfe"),
        (0, b"\x7f\xff\xff\xff" + sound),
        (0, b""),
        (2, b""),
        (2, b"\0\0"),
        (2, b"\1\0"),
        (2, bytes([len(sound) + 1]) + sound + b"\1\5\3abc"),
    ):
        with log_in.connection("body"):
            log_in.handshake("PLAIN")
            log_in.body(api.SASL_AUTHENTICATE, body, version, f"v{version} {body[:4].hex()} {len(body)}")
            log_in.served()


@program
def api_versions_before_a_log_in(log_in: LogIn) -> None:
    for version in (0, 1, 2, 3, 4, 5, 99, -1):
        with log_in.connection(f"v{version}"):
            log_in.api_versions(version) if 0 <= version < 5 else log_in.body(api.API_VERSIONS, b"", version, "")
            log_in.handshake("PLAIN")
            log_in.plain(ANN)
            log_in.api_versions(0)
    for software in ("", " ", "a b", "-a", "ä", "x" * 300):
        with log_in.connection(f"software {software!r:.12}"):
            log_in.api_versions(3, software=software)
            log_in.handshake("PLAIN")
    for body in (b"", b"\1\1\0", b"\0\0\0", b"\xff", b"\2a\2b", b"\2a\2b\1"):
        with log_in.connection(f"body {body.hex()}"):
            log_in.body(api.API_VERSIONS, body, 3, "")
            log_in.handshake("PLAIN")
    with log_in.connection("twice"):
        log_in.api_versions(3)
        log_in.api_versions(3)
        log_in.log_in("PLAIN", ANN)
    with log_in.connection("once more, older"):
        log_in.body(api.API_VERSIONS, b"", 99, "")
        log_in.api_versions(0)
        log_in.log_in("PLAIN", ANN)
    with log_in.connection("behind a handshake"):
        log_in.handshake("PLAIN")
        log_in.api_versions(3)


@program
def another_api_before_a_log_in(log_in: LogIn) -> None:
    for key, version in (
        (api.METADATA, 12),
        (api.PRODUCE, 9),
        (api.FETCH, 16),
        (api.FIND_COORDINATOR, 4),
        (api.INIT_PRODUCER_ID, 4),
        (api.SASL_AUTHENTICATE, 2),
        (api.CREATE_TOPICS, 7),
    ):
        with log_in.connection(f"key {key}"):
            log_in.body(key, b"", version, "")
    for key in (7, 999, -1):
        with log_in.connection(f"no API {key}"):
            log_in.raw(b"\0\0\0\x0a" + key.to_bytes(2, "big", signed=True) + b"\0\0\0\0\0\0\0\0", "")
    with log_in.connection("in the middle"):
        log_in.handshake(MECHANISM)
        log_in.token(ScramClient(MECHANISM, ANN, PASSWORD, CLIENT_NONCE).first)
        log_in.served()
    with log_in.connection("handshake in the middle"):
        log_in.handshake(MECHANISM)
        log_in.token(ScramClient(MECHANISM, ANN, PASSWORD, CLIENT_NONCE).first)
        log_in.handshake(MECHANISM)


@program
def frames_before_a_log_in(log_in: LogIn) -> None:
    for frame in (
        b"\0\0\0\0",
        b"\0\0\0\1\0",
        b"\0\0\0\2\0\x11",
        b"\0\0\0\7" + bytes(7),
        b"\0\0\0\x08" + bytes(8),
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        b"\0\x10\0\0",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00" + bytes(512),
        b"\0\0\0\x40" + b"\x60\x3e\x06\x09" + bytes(60),  # as Kerberos begins without a handshake
    ):
        with log_in.connection("frame"):
            log_in.raw(frame, frame[:8].hex())
        with log_in.connection("frame behind a handshake"):
            log_in.handshake("PLAIN")
            log_in.raw(frame, frame[:8].hex())


@program
def no_tls_where_it_is_spoken(log_in: LogIn) -> None:
    handshake = b"\0\0\0\x11\0\x11\0\1\0\0\0\0\0\0\0\5PLAIN"
    for listener in ("TLS", "MUTUAL", "BOTH"):
        for frame in (handshake, b"GET / HTTP/1.1\r\n\r\n", bytes(512)):
            with log_in.connection(listener, listener):
                log_in.raw(frame, frame[:8].hex())


@program
def large_tokens(log_in: LogIn) -> None:
    for mechanism in MECHANISMS:
        for size in (4_000, 5_000, 60_000, 100_000, 600_000):
            with log_in.connection(f"{mechanism} {size}"):
                log_in.handshake(mechanism)
                log_in.token(b"x" * size)
                log_in.served()
            with log_in.connection(f"{mechanism} of a message's form {size}"):
                log_in.handshake(mechanism)
                log_in.token(plain(ANN, "x" * size) if mechanism == "PLAIN" else f"n,,n=ann,r={'x' * size}".encode())
                log_in.served()


@program
def where_nobody_logs_in(log_in: LogIn) -> None:
    for version in (0, 1):
        with log_in.connection(f"handshake v{version}", "CLIENT"):
            log_in.handshake("PLAIN", version)
            log_in.served()
    for version in (0, 1, 2):
        with log_in.connection(f"authenticate v{version}", "CLIENT"):
            log_in.plain(ANN, version=version)
            log_in.served()


@program
def behind_a_log_in(log_in: LogIn) -> None:
    """Where sessions last for ever: neither a handshake nor a token is due."""
    for mechanism in MECHANISMS:
        with log_in.connection(f"{mechanism} handshake"):
            log_in.log_in(mechanism, ANN)
            log_in.handshake(mechanism)
            log_in.served()
        with log_in.connection(f"{mechanism} token"):
            log_in.log_in(mechanism, ANN)
            log_in.plain(ANN)
            log_in.served()
        with log_in.connection(f"{mechanism} versions"):
            log_in.log_in(mechanism, ANN)
            log_in.api_versions(3)
            log_in.api_versions(3)
            log_in.served()


@program
def log_ins_again(log_in: LogIn) -> None:
    """KIP-368: user and mechanism stay, all else closes the connection."""
    for before in MECHANISMS:
        for user, password in ((ANN, None), (ANN, "wrong"), (ROOT, None), (ROOT, "wrong")):
            with log_in.connection(f"{before} then {user} {password}", "AGAIN"):
                log_in.log_in(before, ANN)
                log_in.served()
                log_in.log_in(before, user, password)
                log_in.served()
        for other in (one for one in MECHANISMS if one != before):
            with log_in.connection(f"{before} then other", "AGAIN"):
                log_in.log_in(before, ANN)
                log_in.log_in(other, ANN)
    with log_in.connection("token", "AGAIN"):
        log_in.log_in("PLAIN", ANN)
        log_in.plain(ANN)
        log_in.served()
    for name, step in (("metadata", log_in.served), ("versions", lambda: log_in.api_versions(3))):
        with log_in.connection(f"{name} between", "AGAIN"):
            log_in.log_in("PLAIN", ANN)
            log_in.handshake("PLAIN")
            step()
            log_in.plain(ANN)
            log_in.served()
    with log_in.connection("handshake of version 0", "AGAIN"):
        log_in.log_in("PLAIN", ANN)
        log_in.handshake("PLAIN", 0)
        log_in.plain(ANN)
        log_in.served()
    with log_in.connection("GSSAPI as other", "AGAIN"):
        log_in.log_in("PLAIN", ANN)
        log_in.handshake("GSSAPI")
        log_in.plain(ANN)
    with log_in.connection("two handshakes", "AGAIN"):
        log_in.log_in("PLAIN", ANN)
        log_in.handshake("PLAIN")
        log_in.handshake("PLAIN")


@program
def messages_of_plain(log_in: LogIn) -> None:
    user, password = ANN.encode(), PASSWORD.encode()
    for label, message in (
        ("authorization id", b"\0".join((user, user, password))),
        ("another authorization id", b"\0".join((b"root", user, password))),
        ("another authorization id, wrong password", b"\0".join((b"root", user, b"x"))),
        ("authorization id alone", b"\0".join((user, b"", password))),
        ("no user", b"\0\0" + password),
        ("no password", b"\0" + user + b"\0"),
        ("neither", b"\0\0"),
        ("one NUL", user + b"\0" + password),
        ("no NUL", user + password),
        ("three NULs", b"\0" + user + b"\0" + password + b"\0"),
        ("four NULs", b"\0" + user + b"\0" + password + b"\0x\0"),
        ("a NUL behind nothing", b"\0" + user + b"\0\0"),
        ("empty", b""),
        ("NULs alone", b"\0\0\0"),
        ("password that is no UTF-8", b"\0" + user + b"\0\xff\xfe"),
        ("user that is no UTF-8", b"\0\xff\xfe\0" + password),
        ("authorization id that is no UTF-8", b"\xff\0" + user + b"\0" + password),
        ("spaces", b"\0 " + user + b" \0" + password),
        ("line's end", b"\0" + user + b"\0" + password + b"\n"),
        ("SCRAM's", b"n,,n=ann,r=nonce"),
    ):
        with log_in.connection(label):
            log_in.handshake("PLAIN")
            log_in.token(message)
            log_in.served()
    with log_in.connection("two"):
        log_in.handshake("PLAIN")
        log_in.plain(ANN)
        log_in.plain(ANN)
        log_in.served()


@program
def first_messages_of_scram(log_in: LogIn) -> None:
    for message in (
        "n,,n=ann,r=nonce",
        "y,,n=ann,r=nonce",
        "p=tls-unique,,n=ann,r=nonce",
        "p=tls-server-end-point,,n=ann,r=nonce",
        "p,,n=ann,r=nonce",
        "x,,n=ann,r=nonce",
        "N,,n=ann,r=nonce",
        ",,n=ann,r=nonce",
        ",n=ann,r=nonce",
        "n=ann,r=nonce",
        "n,n=ann,r=nonce",
        "n,a=ann,n=ann,r=nonce",
        "n,a=root,n=ann,r=nonce",
        "n,a=,n=ann,r=nonce",
        "n,a,n=ann,r=nonce",
        "n,ann,n=ann,r=nonce",
        "n,a=a=2Cb=3Dc,n=a=2Cb=3Dc,r=nonce",
        "n,a=a=2Cb=3Dd,n=a=2Cb=3Dc,r=nonce",
        "n,a=an=n,n=ann,r=nonce",
        "n,,n=a=2Cb=3Dc,r=nonce",
        "n,,n=a=2cb=3dc,r=nonce",
        "n,,n=a=2Cb=c,r=nonce",
        "n,,n=ann=,r=nonce",
        "n,,n=ann=2,r=nonce",
        "n,,n==,r=nonce",
        "n,,r=nonce,n=ann",
        "n,,n=ann",
        "n,,n=ann,",
        "n,,r=nonce",
        "n,,n=,r=nonce",
        "n,,n,r=nonce",
        "n,,n=ann,r=",
        "n,,n=ann,r",
        "n,,n=ann,n=ann,r=nonce",
        "n,,m=ext,n=ann,r=nonce",
        "n,,m=,n=ann,r=nonce",
        "n,,n=ann,m=ext,r=nonce",
        "n,,n=ann,r=nonce,",
        "n,,n=ann,r=nonce,x",
        "n,,n=ann,r=nonce,x=",
        "n,,n=ann,r=nonce,x=ext",
        "n,,n=ann,r=nonce,x=ext,y=ext",
        "n,,n=ann,r=nonce,x=e=t",
        "n,,n=ann,r=nonce,xx=ext",
        "n,,n=ann,r=nonce,1=ext",
        "n,,n=ann,r=nonce,r=other",
        "n,,n=ann,r=nonce,tokenauth=false",
        "n,,n=ann,r=nonce,tokenauth=true",
        "n,,n=ann,r=nonce,x=ä",
        "n,,n=ann,r=nonce,,x=ext",
        "n,,n=ann,r=nonce with spaces",
        "n,,n=ann,r=nonce\x7f",
        "n,,n=ann,r=nonce\x01",
        "n,,n=ann,r=noncé",
        "n,,n=ann,r=nonce\n",
        "n,,n=ann,r=nonce=!~",
        "n,,n=ann\0,r=nonce",
        " n,,n=ann,r=nonce",
        "n,,N=ann,r=nonce",
        "n,,n= ann,r=nonce",
        "",
        "\0",
        ",",
        ",,,,",
        "nonsense",
        "c=biws,r=nonce,p=AAAA",
        "e=other-error",
    ):
        with log_in.connection("first"):
            log_in.handshake(MECHANISM)
            log_in.token(message.encode())
            log_in.token(b"")
    for data in (b"\xff\xfe", b"n,,n=\xff,r=nonce", b"n,,n=ann,r=\xff", b"n,,n=ann,r=nonce,x=\xff", bytes(300)):
        with log_in.connection("no text"):
            log_in.handshake(MECHANISM)
            log_in.token(data)
            log_in.token(b"")


@program
def scram_whole(log_in: LogIn) -> None:
    """Headers and extensions are part of what is proved."""
    for mechanism in MECHANISMS[1:]:
        for label, user, parts in (
            ("y", ANN, {"header": "y,,"}),
            ("authorization id", ANN, {"header": "n,a=ann,"}),
            ("authorization id with y", ANN, {"header": "y,a=ann,"}),
            ("escapes", COMMAS, {"header": "n,a=a=2Cb=3Dc,"}),
            ("extension", ANN, {"extension": ",x=ext"}),
            ("nonce repeated", ANN, {"before_nonce": CLIENT_NONCE}),
            ("long extension", ANN, {"extension": ",x=" + "e" * 2000}),
        ):
            with log_in.connection(f"{mechanism} {label}"):
                log_in.handshake(mechanism)
                log_in.scram(mechanism, user, **parts)
                log_in.served()


@program
def final_messages_of_scram(log_in: LogIn) -> None:
    for label, change in FINALS.items():
        with log_in.connection(label):
            client = ScramClient(MECHANISM, ANN, PASSWORD, CLIENT_NONCE)
            log_in.handshake(MECHANISM)
            first = log_in.token(client.first)
            sound = client.final(first)
            _, nonce, proof = (part[2:] for part in sound.split(b","))
            changed = change(sound, nonce, proof)
            log_in.token(changed if changed is not None else client.final(first, extension=",x=ext"))
            log_in.served()


FINALS: dict[str, Callable[[bytes, bytes, bytes], bytes | None]] = {
    "sound": lambda sound, nonce, proof: sound,
    "an extension that is proved": lambda sound, nonce, proof: None,
    "an extension that is not": lambda sound, nonce, proof: b"c=biws,r=%s,x=ext,p=%s" % (nonce, proof),
    "an extension that is none": lambda sound, nonce, proof: b"c=biws,r=%s,x,p=%s" % (nonce, proof),
    "an extension behind": lambda sound, nonce, proof: sound + b",x=ext",
    "a comma behind": lambda sound, nonce, proof: sound + b",",
    "a line's end behind": lambda sound, nonce, proof: sound + b"\n",
    "mandatory": lambda sound, nonce, proof: b"m=ext," + sound,
    "y repeated": lambda sound, nonce, proof: b"c=eSws,r=%s,p=%s" % (nonce, proof),
    "p repeated": lambda sound, nonce, proof: b"c=%s,r=%s,p=%s" % (base64.b64encode(b"p=tls-unique,,"), nonce, proof),
    "an authorization id repeated": lambda sound, nonce, proof: (
        b"c=%s,r=%s,p=%s" % (base64.b64encode(b"n,a=ann,"), nonce, proof)
    ),
    "an empty header": lambda sound, nonce, proof: b"c=,r=%s,p=%s" % (nonce, proof),
    "a header that is no base64": lambda sound, nonce, proof: b"c=b!ws,r=%s,p=%s" % (nonce, proof),
    "a header of half base64": lambda sound, nonce, proof: b"c=biw,r=%s,p=%s" % (nonce, proof),
    "no header": lambda sound, nonce, proof: b"r=%s,p=%s" % (nonce, proof),
    "no nonce": lambda sound, nonce, proof: b"c=biws,p=" + proof,
    "an empty nonce": lambda sound, nonce, proof: b"c=biws,r=,p=" + proof,
    "no proof": lambda sound, nonce, proof: b"c=biws,r=" + nonce,
    "an empty proof": lambda sound, nonce, proof: b"c=biws,r=%s,p=" % nonce,
    "the client's nonce alone": lambda sound, nonce, proof: b"c=biws,r=nonce,p=" + proof,
    "a longer nonce": lambda sound, nonce, proof: b"c=biws,r=%sx,p=%s" % (nonce, proof),
    "a shorter nonce": lambda sound, nonce, proof: b"c=biws,r=%s,p=%s" % (nonce[:-1], proof),
    "another order": lambda sound, nonce, proof: b"r=%s,c=biws,p=%s" % (nonce, proof),
    "a proof that is wrong": lambda sound, nonce, proof: b"c=biws,r=%s,p=%s" % (nonce, base64.b64encode(bytes(32))),
    "a short proof": lambda sound, nonce, proof: b"c=biws,r=%s,p=%s" % (nonce, base64.b64encode(bytes(31))),
    "a long proof": lambda sound, nonce, proof: b"c=biws,r=%s,p=%s" % (nonce, base64.b64encode(bytes(64))),
    "a proof that is no base64": lambda sound, nonce, proof: b"c=biws,r=%s,p=!!!!" % nonce,
    "a proof without padding": lambda sound, nonce, proof: b"c=biws,r=%s,p=%s" % (nonce, proof.rstrip(b"=")),
    "a proof with more padding": lambda sound, nonce, proof: sound + b"====",
    "two proofs": lambda sound, nonce, proof: sound + b",p=" + proof,
    "capital letters": lambda sound, nonce, proof: b"C=biws,R=%s,P=%s" % (nonce, proof),
    "a space in front": lambda sound, nonce, proof: b" " + sound,
    "empty": lambda sound, nonce, proof: b"",
    "a first message": lambda sound, nonce, proof: b"n,,n=ann,r=nonce",
    "no text": lambda sound, nonce, proof: b"\xff\xfe\xfd",
    "an error": lambda sound, nonce, proof: b"e=other-error",
}


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    found = Judge(KNOWN_LOG_INS)
    yield found
    print(f"\n{found.requests} answers of each broker to log-ins")


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_log_in(secured: Secured, judge: Judge, name: str) -> None:
    sessions = [LogIn(broker.addresses, name) for broker in secured.brokers]
    for session in sessions:
        PROGRAMS[name](session)
        session.close()
    ours, kafka = (session.roads for session in sessions)
    judge.hold_all(name, itertools.starmap(until_parted, zip(ours, kafka, strict=True)))


def test_every_known_difference_of_log_ins_is_still_there(judge: Judge) -> None:
    """Of those whose cases ran."""
    assert judge.mended(PROGRAMS) == []
