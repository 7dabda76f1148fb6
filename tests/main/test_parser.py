"""Every command takes its options before, between and after its words."""

from __future__ import annotations

import argparse
import ast
from pathlib import Path
from typing import Any, NoReturn

import pytest

import main
from main.cli.arguments import Parser
from main.cli.commands import all_commands
from session.addons import load

SOURCES = sorted(Path(main.__file__).parent.rglob("*.py"))


class Found(Exception):
    """Carries the parser of a command."""


def parser_of(home: str, monkeypatch: pytest.MonkeyPatch) -> Parser:
    """The parser of a command, as it is when it gets its command line."""

    def found(parser: Parser, *words: Any) -> NoReturn:
        raise Found(parser)

    with monkeypatch.context() as patch:
        for name in ("parse_args", "parse_intermixed_args"):
            patch.setattr(Parser, name, found)
        with pytest.raises(Found) as caught:
            load(home)(["word"])
    parser = caught.value.args[0]
    assert isinstance(parser, Parser)
    return parser


def option_of(parser: Parser) -> argparse.Action:
    """An option that takes one value, or else a flag."""
    options = [each for each in parser._actions if each.option_strings and each.dest != "help"]
    taking = [each for each in options if each.nargs is None and each.choices is None]
    return (taking or options)[0]


@pytest.mark.parametrize("home", [each.home for each in all_commands()])
def test_an_option_may_stand_between_the_words(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parser = parser_of(home, monkeypatch)
    places = [each for each in parser._actions if not each.option_strings]
    words = [next(iter(each.choices or ["a.b=first"])) for each in places]
    if any(each.nargs in ("*", "+") for each in places):
        words.append("a.b=last")
    options = [each for each in parser._actions if each.option_strings and each.dest != "help"]
    if len(words) < 2 or not options:
        return
    option = option_of(parser)
    given = [option.option_strings[0], *(["7"] if option.nargs is None else [])]
    read = [
        vars(parser.parse_args([*words[:at], *given, *words[at:]])) for at in range(len(words) + 1)
    ]
    assert all(each == read[0] for each in read)
    found = [read[0][place.dest] for place in places]
    flat = [word for each in found for word in (each if isinstance(each, list) else [each])]
    assert flat == words


def test_there_is_one_way_to_parse_a_command_line() -> None:
    calls = [
        (path.name, node.func.attr)
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr.startswith("parse_")
        and node.func.attr.endswith("args")
    ]
    assert {name for name, called in calls if called != "parse_args"} == {"arguments.py"}
    assert sum(called == "parse_args" for _, called in calls) >= len(all_commands())
