"""The brokers that strangers come to: one in this process, one in a process of its own; and what must hold with each.

Lives here: brokers, their honest clients, and those checks. Must never come in: what strangers send (login_plays.py).
"""

from __future__ import annotations

import os
import random
import re
import ssl
import time
import urllib.request
from pathlib import Path

from edge_broker.broker.outcomes import Reply
from edge_broker.configuration.config import Endpoint, read_config
from edge_broker.configuration.listeners import Listener
from edge_broker.handlers import APIS
from edge_broker.network.dispatch.unauthenticated_connections import LOGIN_S
from edge_broker.network.tls.handshakes import HANDSHAKE_S_MAX
from edge_broker.network.tls.tls_contexts import Tls
from edge_broker.protocol.api import CREATE_TOPICS, METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE
from edge_broker.protocol.codec import encode
from edge_broker.protocol.message import Message
from edge_broker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from edge_broker.protocol.messages.metadata import MetadataRequest
from edge_broker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from edge_broker.protocol.messages.sasl_handshake import SaslHandshakeRequest
from edge_broker.security.scram import MECHANISMS, new_credential
from edge_broker.security.state import SecurityState
from edge_broker.testing.site import Site
from edge_broker.tls_settings import read_tls_settings
from tests.abuse.frames import framed
from tests.property.login_plays import HIDDEN, Play, Road
from tests.property.login_roads import CLOSED_S_MAX, MemoryRoad, SiteTls, SocketRoad, TlsRoad
from tests.support.login_client import LoginClient
from tests.support.processes import resident_mb
from tests.support.scram import ScramClient
from tests.support.secured_edge import MECHANISMS as ENABLED
from tests.support.secured_edge import SecuredEdge
from tests.support.secured_kafka import PASSWORD, USER

WRONG = "zzz"
LISTENER = "LOGIN"
BROKER_MB_MAX = 120
GROWTH_MB_MAX = 64
STAY_MS_MAX = int(1000 * (HANDSHAKE_S_MAX + LOGIN_S)) + 2_000
DELAY, DELAY_MS = "connection.failed.authentication.delay.ms", 5  # of a stranger, who waits for the end each time
SERVED = {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}


class Found(Exception):
    """Something did not hold."""


def hold(holds: object, what: str) -> None:
    """Found unless it holds."""
    if not holds:
        raise Found(what)


def see_answers(answered: bytes) -> None:
    """What a stranger was answered are whole answers, and no name is in them."""
    hold(HIDDEN.encode() not in answered, "a stranger was told the name of a topic")
    position = 0
    while position < len(answered):
        size = int.from_bytes(answered[position : position + 4], "big")
        hold(4 <= size <= 1 << 16, f"an answer of {size} bytes to a stranger")
        position += 4 + size
    # the last one may be cut: who leaves in the middle gets what was on its way


def request(key: int, version: int, message: Message) -> bytes:
    """A request as it goes over the wire."""
    return framed(APIS[key], version, b"".join(encode(message, version)))


class InMemory:
    """A broker in this process, without sockets or threads."""

    def __init__(self, keystore: Path) -> None:
        self._site = site = Site({"sasl.enabled.mechanisms": ENABLED})
        endpoint = Endpoint("edge.local", 9093)
        site.broker.listeners[LISTENER] = Listener(LISTENER, "SASL_PLAINTEXT", endpoint, endpoint)
        site.topic(HIDDEN)
        made = {name: new_credential(one, PASSWORD, name.encode(), 4096) for name, one in MECHANISMS.items()}

        def edit(state: SecurityState) -> SecurityState:
            return state.with_user(USER, made)

        site.dispatcher.start(lambda: site.broker.security.change(edit, lambda: Reply(None), lambda _: Reply(None)))
        site.run_until_idle()
        config = read_config(f'"ssl.keystore.location" = "{keystore}"', "fuzz.toml", [])
        self._tls = SiteTls(site, Tls(read_tls_settings(config, LISTENER, logs_in=True), time.time))
        self._before_mb = 0.0

    def play(self, rnd: random.Random, context: ssl.SSLContext | None) -> None:
        """One stranger, and what must hold once he has gone."""
        site, password = self._site, rnd.choice((PASSWORD, WRONG))
        site.dispatcher.requests.clear()
        bottom = MemoryRoad(site, LISTENER, self._tls if context is not None else None)
        road: Road = bottom if context is None else TlsRoad(bottom, context, rnd)
        Play(rnd, road, password).run()
        if rnd.random() < 0.5:
            bottom.pause(STAY_MS_MAX)
            login = bottom.connection.session.login
            hold(bottom.closed or (login is not None and login.user), "a stranger may stay without a log-in")
        answered = road.end()
        self._see_who(bottom, answered, password)
        self._see_nothing_kept()

    def _see_who(self, road: MemoryRoad, answered: bytes, password: str) -> None:
        session, failures = road.connection.session, self._site.dispatcher.failures
        hold(not failures, "a handler failed; its traceback is above")
        user = session.login.user if session.login is not None else ""
        if user:
            hold((user, password) == (USER, PASSWORD), f"a stranger became {user!r} with the password {password!r}")
            hold(session.principal == f"User:{USER}", f"{USER} became {session.principal}")
            return
        hold(session.principal == "User:ANONYMOUS", f"nobody became {session.principal}")
        served = set(self._site.dispatcher.requests)
        hold(served <= SERVED, f"served without a log-in: {served}")
        see_answers(answered)

    def _see_nothing_kept(self) -> None:
        site = self._site
        site.loop.advance(200)  # answers to failed log-ins are late
        site.run_until_idle()
        hold(not site.server.connections, "a connection is kept")
        hold(len(self._tls.handshakes) == 0, "a handshake is kept")
        kept = site.server.requests.used, site.server.answers.used, site.dispatcher.waiting_requests
        hold(kept == (0, 0, 0), f"kept of requests, of answers, and requests under way: {kept}")

    def see(self) -> str:
        """What must hold now and then; how large this process is."""
        self._tls.tls.renew_if_changed()
        self._site.loop.advance(30_000)
        for mechanism in MECHANISMS:
            road, scram = MemoryRoad(self._site, LISTENER, None), ScramClient(mechanism, USER, PASSWORD)
            road.send(request(SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism=mechanism)))
            road.send(request(SASL_AUTHENTICATE, 1, SaslAuthenticateRequest(auth_bytes=scram.first)))
            found = re.search(rb"r=[^,]+,s=[^,]+,i=\d+", road.answered())
            hold(found, "an honest client is not answered")
            assert found is not None
            final = SaslAuthenticateRequest(auth_bytes=scram.final(found[0]))
            road.send(request(SASL_AUTHENTICATE, 1, final))
            road.end()
            hold(road.connection.session.principal == f"User:{USER}", "an honest log-in has failed")
        now_mb = resident_mb(os.getpid())
        self._before_mb = self._before_mb or now_mb
        grown_mb = now_mb - self._before_mb
        hold(grown_mb <= GROWTH_MB_MAX, f"this process grew by {grown_mb:.0f} MB")
        return f"this process {now_mb:.0f} MB"


class OverSockets:
    """A broker in a process of its own."""

    def __init__(self, directory: Path, keystore: Path) -> None:
        self.broker = SecuredEdge(directory, keystore=keystore, settings={DELAY: DELAY_MS})
        self._honest = 0

    def make_topic(self) -> None:
        """Make the topic that strangers must not see."""
        topic = CreatableTopic(name=HIDDEN, num_partitions=1, replication_factor=1)
        with LoginClient(self.broker.port) as client:
            client.ask(CREATE_TOPICS, 4, CreateTopicsRequest(topics=[topic], timeout_ms=30_000))

    def play(self, rnd: random.Random, context: ssl.SSLContext | None) -> None:
        """One stranger."""
        bottom = SocketRoad(self.broker.login_port if context is None else self.broker.both_port)
        try:
            road: Road = bottom if context is None else TlsRoad(bottom, context, rnd)
            Play(rnd, road, WRONG).run()
            answered = road.end()
        except TimeoutError:
            raise Found(f"a stranger was neither answered nor closed in {CLOSED_S_MAX:.0f} s") from None
        finally:
            bottom.close()
        see_answers(answered)

    def see(self, context: ssl.SSLContext) -> str:
        """What must hold now and then; how large the broker is."""
        for mechanism in ENABLED.split(","):
            for port, secured in ((self.broker.login_port, None), (self.broker.both_port, context)):
                with LoginClient(port, secured) as client:
                    client.log_in(mechanism, USER, PASSWORD)
                    topics = [topic.name for topic in client.ask(METADATA, 4, MetadataRequest(topics=None)).topics]
                hold(HIDDEN in topics, f"an honest client sees the topics {topics}")
                self._honest += 1
        let_in = sum(self._metric("successful_authentication_total").values())
        hold(let_in == self._honest, f"{let_in:.0f} were let in, and {self._honest} were honest")
        asked = {labels.split('"')[1]: count for labels, count in self._metric("requests_total").items() if count}
        hold(asked.keys() <= SERVED | {"CreateTopics", "Metadata"}, f"served without a log-in: {asked}")
        hold(asked["Metadata"] == self._honest, f"Metadata was served {asked['Metadata']:.0f} times")
        hold(not self._metric("handler_failures_total")[""], "a handler failed")
        log = self.broker.log_path.read_text(errors="replace")
        hold(
            "Traceback" not in log and "Z error " not in log, f"there is an error in the log\n{self.broker.log_tail()}"
        )
        now_mb = resident_mb(self.broker.pid)
        hold(now_mb <= BROKER_MB_MAX, f"the broker has {now_mb:.0f} MB")
        return f"the broker {now_mb:.0f} MB"

    def _metric(self, name: str) -> dict[str, float]:
        """One of the broker's figures by its labels, "" without any."""
        with urllib.request.urlopen(self.broker.metrics_url, timeout=CLOSED_S_MAX) as answer:
            text = answer.read().decode()
        found = re.findall(rf"^edge_broker_{name}(?:\{{(.*)\}})? (\S+)$", text, re.MULTILINE)
        return {labels: float(value) for labels, value in found}
