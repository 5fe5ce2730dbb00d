"""`edge-mirror status` against a port that answers as a mirror does, as another program does, or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import pytest

from mirror import cli
from tests.support.command import in_process
from tests.support.http_answers import answering
from tests.support.ports import free_port
from tests.unit.mirror.test_report import PARTITIONS, report

main = in_process(cli.main)

WELL = report(PARTITIONS[:1])


@contextmanager
def serving(body: str, code: int = 200, token: str = "") -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            shown = not token or self.headers.get("Authorization") == f"Bearer {token}"
            self.send_response(code if shown else 401)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None: ...

    with answering(Handler) as at:
        yield at


@pytest.mark.parametrize(
    ("told", "options", "status"),
    [
        (WELL, [], 0),
        (WELL, ["--max-lag", "0", "--max-age", "0"], 0),
        (report(), [], 1),
        (report(PARTITIONS[1:2]), [], 0),
        (report(PARTITIONS[1:2]), ["--max-lag", "59"], 1),
        (report(PARTITIONS[1:2]), ["--max-age", "11"], 1),
        (report(PARTITIONS[:1], ["target: away"]), [], 1),
    ],
)
def test_the_exit_status_says_how_it_stands(told, options, status, capsys):
    with serving(told.as_json()) as at:
        assert main(["status", "--metrics", at, *options]) == status
        assert main(["status", "--metrics", at, "--json", *options]) == status
    said, line = capsys.readouterr().out.rsplit("\n", 2)[:2]
    assert "edge-mirror-lab, runs for" in said
    assert json.loads(line)["running"] is True
    assert len(json.loads(line)["beyond"]) == ("59" in options) + ("11" in options)


def test_nobody_there_is_status_3_and_asks_the_source_where_one_is_known(capsys):
    at = f"127.0.0.1:{free_port()}"
    assert main(["status", "--metrics", at]) == 3
    assert capsys.readouterr().err == f"No process answers at {at} (connection refused): the mirror does not run.\n"
    source = f"127.0.0.1:{free_port()}"
    assert main(["status", "--metrics", at, "--source", source, "--site", "s"]) == 1
    assert f"the source does not answer: {source} refuses the connection" in capsys.readouterr().err


@pytest.mark.parametrize(("body", "code"), [("try /metrics or /health", 404), ("no JSON", 200), ("[]", 200)])
def test_what_is_no_mirror_of_ours_is_told(body, code, capsys):
    with serving(body, code) as at:
        assert main(["status", "--metrics", at]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"The mirror at {at} is of another version (")
    assert said.count("\n") == 1


def test_a_token_is_shown_and_its_lack_is_told(tmp_path, capsys):
    (tmp_path / "token").write_text("secret\n")
    (tmp_path / "token").chmod(0o600)
    with serving(WELL.as_json(), token="secret") as at:
        assert main(["status", "--metrics", at]) == 1
        assert "wants a token: set metrics_token_file" in capsys.readouterr().err
        (tmp_path / "mirror.toml").write_text(f'metrics = "{at}"\nmetrics_token_file = "token"\n')
        assert main(["status", "--config", str(tmp_path / "mirror.toml")]) == 0


def test_neither_the_mirror_nor_a_source_is_bad_usage(capsys):
    assert main(["status"]) == 2
    assert "source is not set" in capsys.readouterr().err
