"""Scripts that a board's own release runs find its modules, also where a release before 0.2.0 has them at other places.

Such a release is imitated: the modules of today are unknown, and those of before are fakes. That the scripts do their
work is tests/unit/ansible/test_access.py's to show, and molecule's.
"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.support.ansible_files import load

GONE = (
    *("edge_broker.storage.files", "edge_broker.storage.files.filesystem"),
    *("edge_broker.storage.metadata", "edge_broker.storage.metadata.log_in_times"),
    *("drupelet.tls.contexts", "drupelet.kafka", "drupelet.kafka.connection"),
    *("drupelet.kafka.client", "drupelet.kafka.security"),
)


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    """Imitate an older release; return its modules by name."""
    for name in GONE:
        monkeypatch.setitem(sys.modules, name, None)
    modules = {}
    for name, members in {
        "edge_broker.access.store": ("open_store",),
        "edge_broker.storage.filesystem": ("Disk",),
        "drupelet.tls": ("client_context",),
        "drupelet.kafka_connection": ("trouble",),
        "drupelet.kafka_client": ("ClientSettings",),
        "drupelet.kafka_security": ("security_from",),
    }.items():
        modules[name] = ModuleType(name)
        for member in members:
            setattr(modules[name], member, lambda *arguments: SimpleNamespace(arguments=arguments))
        monkeypatch.setitem(sys.modules, name, modules[name])
    return modules


def test_access_is_read_with_the_disk_of_an_older_release(older: dict[str, ModuleType]) -> None:
    module = load("roles/broker/files/access.py")
    assert module.Disk is older["edge_broker.storage.filesystem"].Disk
    assert module.read_log_in_times() == {}


def test_verify_has_the_tls_context_of_an_older_release(older: dict[str, ModuleType]) -> None:
    made = load("playbooks/files/verify.py").tls_context({"ssl_ca_file": "ca.crt"})
    assert "ca.crt" in str(made.arguments)


def test_verify_has_the_settings_of_an_older_release(older: dict[str, ModuleType]) -> None:
    module = load("playbooks/files/verify.py")
    cluster: Any = next(one for one in vars(module).values() if hasattr(one, "_settings"))
    settings = cluster._settings(SimpleNamespace(bootstrap="a:1", keys={"sasl_username": "u"}))
    assert settings.arguments[0] == "a:1"
