"""Checks that a test leaves its process as it found it: the next test in the same process depends on it.

Settings are read before and after, compared, and set back. `left_over.py` has threads, children and descriptors.

| not compared | because |
|---|---|
| filters of warnings | pytest restores them around each phase of a test |
| the state of `random` | any use moves it |
| SIGALRM | pytest-timeout sets it for each test |
"""

from __future__ import annotations

import asyncio
import gc
import locale
import logging
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

LIMITS = (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE, resource.RLIMIT_AS)
NAMESPACES = ("mnt", "net", "uts", "ipc", "user")
OF_PYTEST = "PYTEST_CURRENT_TEST"
OF_SYS = ("argv", "path", "meta_path", "stdin", "stdout", "stderr", "excepthook", "unraisablehook", "displayhook")
SIGNALS = tuple(sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGALRM}))

Values = dict[str, Any]
Settings = list[Values]


class Trait(NamedTuple):
    """Settings that a test may leave changed: their values by name, how to set them back, and advice."""

    read: Callable[[], Values]
    restore: Callable[[Values], object]
    advice: str


class Logger(NamedTuple):
    """The settings of one logger, as a new one has them."""

    level: int = logging.NOTSET
    propagate: bool = True
    disabled: bool = False
    handlers: tuple[logging.Handler, ...] = ()
    filters: tuple[Any, ...] = ()


def _loggers() -> Values:
    # A copy: importing a module in another thread adds loggers.
    named = [one for one in list(logging.root.manager.loggerDict.values()) if isinstance(one, logging.Logger)]
    found: Values = {f"logger {one.name!r}": _logger(one) for one in named}
    found["the root logger"] = _logger(logging.root)
    found["logging.disable"] = logging.root.manager.disable
    return found


def _logger(one: logging.Logger) -> Logger:
    handlers = tuple(handler for handler in one.handlers if _is_compared(handler))
    return Logger(one.level, one.propagate, one.disabled, handlers, tuple(one.filters))


def _is_compared(handler: logging.Handler) -> bool:
    """Return whether a handler writes records; pytest sets its own ones for each phase of a test."""
    # Py4J adds a class of its own with the name of logging's.
    return type(handler).__name__ != "NullHandler" and type(handler).__module__ != "_pytest.logging"


def _restore_loggers(before: Values) -> None:
    logging.disable(before["logging.disable"])
    for one in [logging.root, *list(logging.root.manager.loggerDict.values())]:
        if not isinstance(one, logging.Logger):
            continue
        then = before.get("the root logger" if one is logging.root else f"logger {one.name!r}", Logger())
        if _logger(one) != then:
            one.setLevel(then.level)
            one.propagate, one.disabled = then.propagate, then.disabled
            one.handlers[:] = [*then.handlers, *(handler for handler in one.handlers if not _is_compared(handler))]
            one.filters[:] = then.filters


def _environment() -> Values:
    return {f"${name}": value for name, value in os.environ.items() if name != OF_PYTEST}


def _restore_environment(before: Values) -> None:
    for name in list(os.environ):
        if f"${name}" not in before and name != OF_PYTEST:
            del os.environ[name]
    os.environ.update({name[1:]: value for name, value in before.items()})


def _places() -> Values:
    mask = os.umask(0o077)
    os.umask(mask)
    return {
        "the working directory": os.getcwd(),
        "the umask": mask,
        "the locale": locale.setlocale(locale.LC_ALL),
        "the time zone": time.tzname,
        "socket.setdefaulttimeout": socket.getdefaulttimeout(),
    }


def _restore_places(before: Values) -> None:
    os.chdir(before["the working directory"])
    os.umask(before["the umask"])
    locale.setlocale(locale.LC_ALL, before["the locale"])
    time.tzset()
    socket.setdefaulttimeout(before["socket.setdefaulttimeout"])


def _signals() -> Values:
    wakeup = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup)
    found: Values = {f"the handler of {number!r}": signal.getsignal(number) for number in SIGNALS}
    found["the wakeup descriptor of signals"] = wakeup
    found["the signal mask"] = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    return found


def _restore_signals(before: Values) -> None:
    signal.set_wakeup_fd(before["the wakeup descriptor of signals"])
    signal.pthread_sigmask(signal.SIG_SETMASK, before["the signal mask"])
    for number in SIGNALS:
        handler = before[f"the handler of {number!r}"]
        if handler is not None and signal.getsignal(number) != handler:
            signal.signal(number, handler)


def _interpreter() -> Values:
    found: Values = {}
    for name in OF_SYS:
        value = getattr(sys, name)
        found[f"sys.{name}"] = tuple(value) if isinstance(value, list) else value
    found["threading.excepthook"] = threading.excepthook
    found["the recursion limit"] = sys.getrecursionlimit()
    found["the switch interval"] = sys.getswitchinterval()
    return found


def _restore_interpreter(before: Values) -> None:
    for name in OF_SYS:
        value = before[f"sys.{name}"]
        if isinstance(value, tuple):
            getattr(sys, name)[:] = value
        else:
            setattr(sys, name, value)
    threading.excepthook = before["threading.excepthook"]
    sys.setrecursionlimit(before["the recursion limit"])
    sys.setswitchinterval(before["the switch interval"])


def _collector() -> Values:
    return {
        "gc.isenabled()": gc.isenabled(),
        "gc.get_threshold()": gc.get_threshold(),
        "gc.get_debug()": gc.get_debug(),
        "gc.callbacks": _gc_callbacks(),
        "whether gc.freeze() was called": gc.get_freeze_count() > 0,
    }


def _gc_callbacks() -> tuple[Any, ...]:
    # Hypothesis adds one for the whole run when it first runs a test.
    return tuple(one for one in gc.callbacks if not one.__module__.startswith("hypothesis."))


def _restore_collector(before: Values) -> None:
    (gc.enable if before["gc.isenabled()"] else gc.disable)()
    gc.set_threshold(*before["gc.get_threshold()"])
    gc.set_debug(before["gc.get_debug()"])
    for callback in set(_gc_callbacks()) - set(before["gc.callbacks"]):
        gc.callbacks.remove(callback)
    if not before["whether gc.freeze() was called"]:
        gc.unfreeze()


def _loops() -> Values:
    return {"the event loop policy": asyncio.get_event_loop_policy(), "the running loop": asyncio._get_running_loop()}


def _restore_loops(before: Values) -> None:
    asyncio.set_event_loop_policy(before["the event loop policy"])
    asyncio._set_running_loop(before["the running loop"])


def _process() -> Values:
    found: Values = {f"resource limit {number}": resource.getrlimit(number) for number in LIMITS}
    found |= {f"the namespace {name!r}": os.readlink(f"/proc/self/ns/{name}") for name in NAMESPACES}
    return found


def _restore_process(before: Values) -> None:
    for number in LIMITS:
        if resource.getrlimit(number) != before[f"resource limit {number}"]:
            resource.setrlimit(number, before[f"resource limit {number}"])


TRAITS = (
    Trait(_loggers, _restore_loggers, "set up logging in main() alone; a test uses caplog or monkeypatch"),
    Trait(_environment, _restore_environment, "use monkeypatch.setenv and monkeypatch.delenv"),
    Trait(_places, _restore_places, "use monkeypatch.chdir, or set it back in a finally"),
    Trait(
        _signals, _restore_signals, "set the earlier handler again in a finally; close the loop that handles signals"
    ),
    Trait(_interpreter, _restore_interpreter, "use monkeypatch, or set it back in a finally"),
    Trait(_collector, _restore_collector, "set it back in a finally, or change it in a child process"),
    Trait(_loops, _restore_loops, "close the loop and set the earlier policy again in a finally"),
    Trait(_process, _restore_process, "change limits and namespaces in a child process"),
)


def settings() -> Settings:
    """Return every setting of this process that a test may change, by trait and name."""
    return [trait.read() for trait in TRAITS]


def restored(before: Sequence[Values], *, kept: Collection[str] = ()) -> Iterator[str]:
    """Set back what differs from an earlier `settings()`, except `kept` names; yield one sentence for each setting."""
    for trait, earlier in zip(TRAITS, before, strict=True):
        now = trait.read()
        then = earlier | {name: now[name] for name in kept if name in now}
        if now != then:
            changed = list(_changed(then, now))
            trait.restore(then)
            yield from (f"{change}; {trait.advice}" for change in changed)


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(before.keys() | after.keys()):
        then, now = (values.get(name, Logger() if name.startswith("logger ") else None) for values in (before, after))
        if isinstance(then, Logger) and isinstance(now, Logger):
            for field, was, is_now in zip(Logger._fields, then, now, strict=True):
                if was != is_now:
                    yield f"{field} of {name} is {is_now!r}, before the test {was!r}"
        elif then != now:
            yield f"{name} is {now!r}, before the test {then!r}"
