"""The one compiled part: a walker of records in C, a plain shared library for each kind of machine, called by ctypes.

| file | what |
|---|---|
| walk.c | the source, with the rules of protocol/records_walk.py |
| walk-x86_64.so, walk-aarch64.so | built by build_walker.py into wheels, one into a checkout; never committed |
| library.py | `CompiledWalk`, `CompiledRenumbering`: the library's structs as objects |

Contains: whether there is a library for this machine, and why not. Does not contain: rules (records_walk.py has
them, and serves where there is no library).
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edge_broker.compiled.library import CompiledRenumbering, CompiledWalk

MACHINES = ("x86_64", "aarch64")


def library_path() -> str:
    """Where this machine's library would be."""
    return os.path.join(os.path.dirname(__file__), f"walk-{os.uname().machine}.so")


@cache
def _load() -> tuple[type[CompiledWalk] | None, str]:
    path = library_path()
    name = os.path.basename(path)
    if not os.path.exists(path):
        return None, f"{name} is not installed"
    try:
        from edge_broker.compiled.library import CompiledWalk, open_library  # noqa: PLC0415 - ctypes is 1 MB

        open_library(path)
    except (ImportError, OSError, AttributeError) as error:  # no ctypes, another machine's file, another version's
        return None, f"{name} cannot be loaded: {error}"
    return CompiledWalk, ""


@cache  # asked for every batch
def compiled_walk() -> type[CompiledWalk] | None:
    """The compiled walker; None where the pure-Python one has to serve."""
    return _load()[0]


@cache
def compiled_renumbering() -> type[CompiledRenumbering] | None:
    """The compiled renumbering of records; None where the pure-Python one has to serve, an older library's too."""
    if compiled_walk() is None:
        return None
    from edge_broker.compiled.library import CompiledRenumbering, open_renumbering  # noqa: PLC0415 - as above

    try:
        open_renumbering(library_path())
    except AttributeError:
        return None
    return CompiledRenumbering


def walker_name() -> str:
    """`compiled` or `python`: which walker checks what producers send."""
    return "compiled" if _load()[0] is not None else "python"


def why_not_compiled() -> str:
    """Why the pure-Python walker serves, in half a sentence; empty when the compiled one does."""
    return _load()[1]
