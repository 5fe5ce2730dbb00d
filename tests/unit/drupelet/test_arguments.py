"""What people do wrong with options and commands, and what they are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from drupelet.command.arguments import Parser, not_empty, whole_number


def parser() -> Parser:
    root = Parser(prog="p")
    root.add_version()
    commands = root.add_subparsers(required=True, metavar="COMMAND")
    serve = commands.add_parser("serve")
    serve.add_argument("--data-dir", required=True, type=not_empty)
    serve.add_argument("--port", type=whole_number(1, 65_535))
    serve.add_argument("--listen", required=True)
    serve.add_argument("--quiet", action="store_true")
    form = serve.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true")
    form.add_argument("--colour", choices=["always", "never"])
    commands.add_parser("show")
    return root


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "p: COMMAND is missing; see p --help"),
        ("srve", "p: there is no command 'srve'; did you mean serve? See p --help"),
        ("xyz", "p: there is no command 'xyz': it has serve or show; see p --help"),
        ("--versoin", "p: there is no option '--versoin'; did you mean --version? See p --help"),
        ("serve --data-dri d", "p serve: there is no option '--data-dri'; did you mean --data-dir? See p serve --help"),
        ("serve --data-dri=d", "p serve: there is no option '--data-dri'; did you mean --data-dir? See p serve --help"),
        ("serve", "p serve: --data-dir and --listen are missing; see p serve --help"),
        ("serve --listen l", "p serve: --data-dir is missing; see p serve --help"),
        ("serve --data-dir", "p serve: --data-dir needs a value; see p serve --help"),
        ("serve --data-dir=", "p serve: --data-dir is empty: give it a value; see p serve --help"),
        ("serve --port x", "p serve: --port is 'x': give a whole number from 1 to 65535; see p serve --help"),
        ("serve --port ٣", "p serve: --port is '٣': give a whole number from 1 to 65535; see p serve --help"),
        ("serve --port 0", "p serve: --port is '0': give a whole number from 1 to 65535; see p serve --help"),
        ("serve --json --colour never", "p serve: --colour and --json exclude each other; see p serve --help"),
        ("serve --colour nevr", "p serve: --colour is 'nevr'; did you mean never? See p serve --help"),
        ("serve --colour 7", "p serve: --colour is '7': it can be always or never; see p serve --help"),
        ("serve --quiet=1", "p serve: --quiet takes no value, and was given '1'; see p serve --help"),
        ("show -x", "p show: there is no option '-x'; see p show --help"),
        ("show more", "p show: there is no place for the argument 'more'; see p show --help"),
    ],
)
def test_a_mistake_is_one_sentence_that_names_it(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parser().parse_args(words.split())
    assert capsys.readouterr().err == f"{said}\n"


def test_much_of_it_is_cut_short(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["9" * 10_000], ["serve", "--port", "9" * 10_000], ["serve", f"--{'a' * 10_000}"]):
        with pytest.raises(SystemExit, match="2"):
            parser().parse_args(words)
        assert len(capsys.readouterr().err) < 250


def test_what_is_right_passes() -> None:
    given = ["serve", "--data-dir", "d", "--lis", "-", "--port=65535", "--quiet"]
    parsed = parser().parse_args(given)
    assert (parsed.data_dir, parsed.listen, parsed.port, parsed.quiet) == ("d", "-", 65_535, True)


def test_no_sentence_names_what_nobody_has_published() -> None:
    root = Path(__file__).parents[3]
    pages = [*root.glob("*.md"), *root.glob("ansible/**/*.md")]
    for part in ("drupelet", "edge_broker", "kafka_wire", "gateway", "mirror", "spark", "hardware"):
        pages += [*(root / part).rglob("*.py"), *(root / part).rglob("*.md")]
    named = [path for path in pages if "pip install drupelet" in (text := path.read_text()) or "'drupelet[" in text]
    assert named == []
