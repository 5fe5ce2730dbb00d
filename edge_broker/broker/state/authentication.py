"""Log-ins of this broker's sessions: with which credentials, what comes of them, and how many there were.

Contains: what connects a session's log-in with the users that hold now. Does not contain: the messages of a log-in
(security/sasl.py, security/scram.py), who changes users (security_state.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from edge_broker.broker.effects import AuditLine
from edge_broker.broker.outcomes import Outcome, Reply, RunInWorker
from edge_broker.configuration.security_keys import MECHANISMS as SASL_MECHANISMS
from edge_broker.configuration.security_keys import REAUTH
from edge_broker.security.changes import Event
from edge_broker.security.failure_delays import FailureDelays
from edge_broker.security.false_users import FalseUsers
from edge_broker.security.principals import USER
from edge_broker.security.sasl import PLAIN, WRONG_PASSWORD, Login, Trial
from edge_broker.security.scram import ITERATIONS_MIN, MECHANISMS, CredentialLookup, Find, LogInFailed
from edge_broker.security.state import SECRET_BYTES, Credentials, SecurityState

if TYPE_CHECKING:
    from edge_broker.broker.context import Session
    from edge_broker.broker.effects import Effects
    from edge_broker.broker.state.log_in_record import LogInRecord
    from edge_broker.clock import Clock
    from edge_broker.configuration.config import BrokerConfig
    from edge_broker.configuration.listeners import Listener
    from edge_broker.security.certificates import CertificateId
    from edge_broker.security.deny_list import DenyList
    from edge_broker.storage.metadata.security_log import SecurityLog

NAME_CHARACTERS_LOGGED = 256
OTHER = "other"


class _DerivedCredentials(NamedTuple):
    """Values derived from a state: credentials of names that are none; the most iterations of what PLAIN needs."""

    false_users: FalseUsers
    most: dict[str, int]


class LogIns:
    """How sessions become users; owned by the loop.

    `delays` hold a log-in back after failures. `succeeded`, `failed` count log-ins by listener and mechanism, `expired`
    connections that were closed after their session's end.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        users: Callable[[], SecurityState],
        effects: Effects,
        record: LogInRecord,
        log: SecurityLog,
    ) -> None:
        """`users` returns the users that hold now; the same object as long as nothing has changed."""
        self.succeeded: Counter[tuple[str, str]] = Counter()
        self.failed: Counter[tuple[str, str]] = Counter()
        self.expired = 0
        self.deny_list: DenyList | None = None  # replaced whole: the worker `handshakes` reads it too
        self.delay_ms = config.integer("connection.failed.authentication.delay.ms")
        self.delays = FailureDelays(self.delay_ms)
        self._config = config
        self._clock = clock
        self._users = users
        self._effects = effects
        self._record = record
        self._log = log
        self._admins: list[Event] = []
        self._is_writing = False
        self._secret = clock.new_bytes(SECRET_BYTES)  # until the store has one; it has no users then
        self._derived_of: SecurityState | None = None
        self._derived = _derive([])

    def denial(self, principals: Iterable[str], certificates: Iterable[CertificateId] = ()) -> str:
        """Return why the deny list denies a client, in a sentence; empty: it does not."""
        return "" if self.deny_list is None else self.deny_list.denial(principals, certificates)

    def begin(self, session: Session, listener: Listener | None) -> None:
        """A connection of this listener is there; where clients log in, it may do nothing else yet."""
        if listener is not None and listener.logs_in:
            enabled = self._config.of_listener(listener.name, "sasl.enabled.mechanisms")
            names = [word.strip() for word in enabled.split(",") if word.strip()]
            session.login = Login({name: self._session_ms(listener.name, name) for name in names})

    def _session_ms(self, listener: str, mechanism: str) -> int:
        own = self._config.own_of_listener(listener, f"{mechanism.lower()}.{REAUTH}")
        return int(own or self._config.of_listener(listener, REAUTH))

    def finder(self, mechanism: str) -> Find:
        """How to find the credentials for a mechanism: those of users that are not there are false, and stay the same.

        False ones are of the kinds that users have, and are made for everybody: the time that it takes, 14 µs on a
        desktop, would tell who is there.
        """

        def find(user: str) -> CredentialLookup:
            state = self._users()
            held = state.users.get(user, {})
            false_users, secret = self._of(state).false_users, state.secret or self._secret
            false = false_users.credential(MECHANISMS[mechanism], user, secret, held)
            credential = held.get(mechanism)
            return (
                CredentialLookup(false, known=False) if credential is None else CredentialLookup(credential, known=True)
            )

        return find

    def _of(self, state: SecurityState) -> _DerivedCredentials:
        if self._derived_of is not state:
            self._derived_of, self._derived = state, _derive(list(state.users.values()))
        return self._derived

    def plain_trials(self, user: str) -> list[Trial]:
        """The credentials to verify a user's password: the same work for every user, also for an unknown one."""
        most = self._of(self._users()).most
        return [Trial(name, self.finder(name)(user), iterations) for name, iterations in most.items()]

    def hold(self, user: str, trials: Sequence[Trial]) -> bool:
        """Whether a user has the credentials still that his password was tried by."""
        held = self._users().users.get(user, {})
        return all(held.get(one.mechanism) == one.found.credential for one in trials if one.found.known)

    def complete(self, session: Session, login: Login, user: str) -> None:
        """A session is this user from now on; LogInFailed when he is gone, denied, or another one than before."""
        login.check_same(user)
        if denial := self.denial((USER + user,)):
            raise LogInFailed(denial, WRONG_PASSWORD if login.mechanism == PLAIN else None)  # alike, as of any failure
        if user not in self._users().users:
            raise LogInFailed("the user was removed meanwhile")
        event = "log-in-again" if login.is_repeated else "log-in"
        login.complete(user, self._clock.steady_ms())
        session.principal = USER + user
        self.succeeded[session.listener, login.mechanism] += 1
        self.delays.login_succeeded(user, session.host)
        self._record.add(user, self._users())
        self._note(
            event, principal=session.principal, host=session.host, mechanism=login.mechanism, listener=session.listener
        )

    def came_by_certificate(self, session: Session) -> None:
        """Record that a client has authenticated by its certificate."""
        self._note(
            "log-in",
            principal=session.principal,
            host=session.host,
            client=session.peer,
            listener=session.listener,
            by="certificate",
        )

    def _note(self, event: str, **fields: object) -> None:
        """Note a log-in: of a super user always, in a file that others cannot fill."""
        if fields["principal"] not in self._config.super_users:
            self._effects.audit(event, **fields)
            return
        self._admins.append((event, fields))
        if not self._is_writing:
            self._write_admins()

    def _write_admins(self) -> None:
        self._is_writing = True
        events, self._admins = self._admins, []

        def over() -> None:
            self._is_writing = False

        def admins_written(_: object) -> Outcome:
            if self._admins:
                self._write_admins()
            return Reply(None)

        def writing_failed(error: Exception) -> Outcome:
            raise error  # the log keeps what it cannot write, and raises nothing of the disk's

        self._effects.start(
            RunInWorker(lambda: self._log.write_admins(events), admins_written, writing_failed, over=over)
        )

    def note_failure(self, session: Session, mechanism: str, user: str, reason: str) -> None:
        """Count and note a log-in that failed; of what the client sent only names are among it.

        Guesses at a user that exists have a source of their own, so that guesses at other names hide none.
        """
        self.failed[session.listener, mechanism if mechanism in SASL_MECHANISMS else OTHER] += 1
        fields = {
            "user": user[:NAME_CHARACTERS_LOGGED],
            "host": session.host,
            "mechanism": mechanism[:NAME_CHARACTERS_LOGGED],
            "listener": session.listener,
            "reason": reason,
        }
        self._effects.add_audit_line(AuditLine("log-in-failed", fields, self._source(session, user)))

    def note_delay(self, session: Session, user: str, wait_ms: int) -> None:
        """Note that a log-in waits because of failures before it."""
        fields = {"user": user[:NAME_CHARACTERS_LOGGED], "host": session.host, "wait_ms": wait_ms}
        self._effects.add_audit_line(AuditLine("log-in-delayed", fields, self._source(session, user)))

    def _source(self, session: Session, user: str) -> str:
        exists = user in self._users().users or USER + user in self._config.super_users
        return f"{USER}{user} from {session.host}" if exists else session.host


def _derive(held: Sequence[Credentials]) -> _DerivedCredentials:
    by_name = {name: [one[name].iterations for one in held if name in one] for name in MECHANISMS}
    # one mechanism is enough if every user has it; else each that any user has
    everybodys = next((name for name, found in by_name.items() if len(found) == len(held)), "")
    needed = [everybodys] if everybodys else [name for name, found in by_name.items() if found]
    return _DerivedCredentials(FalseUsers(held), {name: max(by_name[name], default=ITERATIONS_MIN) for name in needed})
