"""Names and texts from outside, in lines, labels, pages and what systemd receives.

Invariants: nothing unprintable comes through; no name passes for another; a name makes no second line.
"""

from __future__ import annotations

import itertools

import pytest

from drupelet.errors import sentence
from drupelet.host.systemd import Notifier
from drupelet.observe.http import Pages, respond
from drupelet.printable import label_text, name_text, printable, quote
from tests.support.notify_socket import NotifySocket

ESC = "\x1b[31m"
HOSTILE = ["a", f"a{ESC}", r"a\x1b[31m", r"a\u001b[31m", '"a\\u001b[31m"', "a\nb", r"a\nb", '"a"', "a\u202eb", "a\x9bb",
           "a\udcff", r"a\udcff", "a b", "", '"', "\\"]  # fmt: skip
HEALTH = b"GET /health HTTP/1.1\r\n\r\n"


def never(**fields: object) -> None:
    raise AssertionError(fields)


@pytest.mark.parametrize("shown_by", [name_text, label_text, quote])
def test_each_name_is_printable_text_and_passes_for_no_other(shown_by) -> None:
    shown = [shown_by(name) for name in HOSTILE]
    for text in shown:
        assert text.isprintable()
        text.encode()
    assert all(one != other for one, other in itertools.combinations(shown, 2))


def test_a_label_that_is_printable_stays_as_it_is() -> None:
    assert label_text("/var/log/my app.log") == "/var/log/my app.log"
    assert label_text(f"/{ESC}") == '"/\\u001b[31m"'


def test_a_text_keeps_all_that_is_printable() -> None:
    assert printable('grün "a" \\') == 'grün "a" \\'
    assert printable(f"a{ESC}\n\udcff\u202e") == r"a\x1b[31m\n\udcff\u202e"


@pytest.mark.parametrize("name", [name for name in HOSTILE if name])
@pytest.mark.parametrize("status", [b"200", b"503"])
def test_health_is_one_printable_line_whatever_it_names(name: str, status: bytes) -> None:
    pages = Pages(lambda: b"", lambda: name if status == b"503" else None, lambda: f"ok; {name}")
    head, _, body = respond(HEALTH, pages).partition(b"\r\n\r\n")
    assert head.split()[1] == status
    text = body.decode()
    assert text.endswith("\n")
    assert text[:-1].isprintable()
    assert f"Content-Length: {len(body)}".encode() in head


def test_systemd_receives_a_status_with_a_name_that_is_no_text() -> None:
    with NotifySocket() as systemd:
        Notifier(systemd.environment(), never).notify("READY=1", f"STATUS=/a\udcff{ESC}\nMAINPID=1 cannot be read")
        assert systemd.receive() == {"READY": "1", "STATUS": r"/a\udcff\x1b[31m MAINPID=1 cannot be read"}


def test_what_a_peer_says_in_an_error_is_printable() -> None:
    assert sentence(ValueError(f"no such topic {ESC}x\u202e")) == r"no such topic \x1b[31mx\u202e"
    assert sentence(FileNotFoundError(2, "gone", f"/a{ESC}")) == r"/a\x1b[31m: no such file or directory"
