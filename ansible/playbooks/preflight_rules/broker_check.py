"""Checks the configurations that the role broker would write, by the broker's own rules, on the control node.

The rules come out of the wheel that the hosts get (`drupelet_wheel`), else out of the checkout around this collection;
both need Python's standard library only. Without either nothing is checked here, and preflight says so; the task on the
host checks it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

TIMEOUT_S = 60
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
RULES = """
import json, sys
sys.path.insert(0, sys.argv[1])
import edge_broker.configuration_check as configuration_check
from edge_broker.configuration_check import Serve, check_configuration
if not configuration_check.__file__.startswith(sys.argv[1]):  # those of this Python are of another release
    sys.exit("No module named 'edge_broker' in it")
found = {}
for host, (toml, metrics) in json.load(sys.stdin).items():
    found[host] = check_configuration(Serve(toml=toml, config="broker_settings", metrics=metrics or None)).problems
json.dump(found, sys.stdout)
"""


class Answer(NamedTuple):
    """Each host's problems; `why` says why the rules could not be asked, and is empty where they were."""

    problems: Mapping[str, list[str]]
    why: str = ""


class IntendedBroker(NamedTuple):
    """A board's broker as its variables have it: `mode` is none, secured or migrate."""

    mode: str
    listen: str
    secured_listen: str
    advertise: str
    metrics: str
    settings: Mapping[str, Any]
    ledger_writers: list[str]


def source(collection: Path, wheel: object) -> Path | None:
    """Return where the broker's rules are; `None` where there are none."""
    if wheel and Path(str(wheel)).is_file():
        return Path(str(wheel))
    checkout = collection.parent
    return checkout if (checkout / "edge_broker/configuration_check.py").is_file() else None


def toml(broker: IntendedBroker) -> str:
    """Return the file as the role's template writes it, with what only the host knows taken as good."""
    at = broker.secured_listen if broker.mode == "migrate" else broker.listen
    is_open = not at.startswith(("127.", "localhost:", "[::1]:"))
    plain: dict[str, Any] = {"listeners": f"PLAINTEXT://{broker.listen}", "edge.network.trusted": True}
    if broker.advertise:
        plain["advertised.listeners"] = f"PLAINTEXT://{broker.advertise}"
    told = broker.advertise or at
    told = f"{told.rpartition(':')[0]}:{at.rpartition(':')[2]}" if broker.mode == "migrate" else told
    secured: dict[str, Any] = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,SECURED:{'SASL_SSL' if is_open else 'SASL_PLAINTEXT'}",
        "edge.metrics.token.file": "/etc/drupelet/metrics-token",
    } | ({"ssl.keystore.location": "/etc/drupelet/broker.pem"} if is_open else {})
    keys = {
        "none": plain,
        "secured": secured | {"listeners": f"SECURED://{at}", "advertised.listeners": f"SECURED://{told}"},
        "migrate": secured
        | plain
        | {
            "listeners": f"{plain['listeners']},SECURED://{at}",
            "advertised.listeners": f"PLAINTEXT://{broker.advertise or broker.listen},SECURED://{told}",
        },
    }[broker.mode]
    if broker.ledger_writers:
        keys = {"edge.ledger.writers": ",".join(broker.ledger_writers)} | keys
    return "".join(f'"{key}" = {json.dumps(value)}\n' for key, value in sorted((keys | dict(broker.settings)).items()))


def odd_values(settings: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each value that a line of the file cannot have."""
    said = "broker_settings has {} as {}, and each key has one value: write such as log.retention.ms: 86400000"
    return [
        said.format(key, "nothing" if value is None else "a mapping")
        for key, value in settings.items()
        if value is None or isinstance(value, Mapping)
    ]


def problems(rules: Path, brokers: Mapping[str, IntendedBroker]) -> Answer:
    """Ask the rules about all brokers at once."""
    order = {host: (toml(broker), broker.metrics) for host, broker in brokers.items()}
    try:
        done = subprocess.run(  # noqa: S603 - Ansible's own Python, with rules of the site's own wheel
            [sys.executable, "-I", "-c", RULES, str(rules)],
            input=json.dumps(order),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Answer({}, f"has rules that do not answer within {TIMEOUT_S} s")
    if done.returncode == 0:
        return Answer(json.loads(done.stdout))
    last = (done.stderr.strip().splitlines() or ["no reason was given"])[-1]
    too_old = "No module named 'edge_broker" in last
    return Answer(
        {}, "is of a release that has no rules to ask" if too_old else f"has rules that fail: {last.rstrip('.')}"
    )
