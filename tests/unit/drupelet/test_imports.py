"""What importing drupelet costs: the standard library alone, and nothing heavy where a part had none of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import drupelet

ROOT = Path(drupelet.__file__).parents[1]
MODULES = sorted(path.stem for path in Path(drupelet.__file__).parent.glob("*.py") if path.stem != "__init__")
HEAVY = {"asyncio", "ssl", "logging", "difflib", "tomllib", "http.server", "email"}
LOOP = {"asyncio", "ssl", "logging"}  # which asyncio brings
ALLOWED = {"event_loop": LOOP, "http": LOOP, "log_tree": {"logging"}, "tls": {"ssl"}}


def imported_by(code: str) -> set[str]:
    """Modules that `code` brings in; the site's own start-up may have imported others."""
    script = f"import sys; before = set(sys.modules); {code}; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.split())


@pytest.mark.parametrize("name", MODULES)
def test_a_module_brings_the_standard_library_alone_and_nothing_heavy(name: str) -> None:
    found = imported_by(f"import drupelet.{name}")
    assert {module.partition(".")[0] for module in found} <= {*sys.stdlib_module_names, "drupelet"}
    assert not found & (HEAVY - ALLOWED.get(name, set()))


def test_the_brokers_command_brings_only_what_parses_and_answers() -> None:
    assert {module for module in imported_by("import edge_broker.cli") if module.startswith("drupelet.")} == {
        "drupelet.command",
        "drupelet.command.arguments",
        "drupelet.command.command_line",
        "drupelet.errors",
        "drupelet.command.interrupts",
        "drupelet.printable",
        "drupelet.quantities",
    }
