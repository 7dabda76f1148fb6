"""Launchers are known in one place: others ask for facts, and never compare names."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from session.addons import Launcher, add_ons, load
from session.errors import UsageError
from session.launchers.registry import (
    attached_launcher,
    detached_launcher,
    launcher_of,
    list_attached,
    list_detached,
)
from tests.add_ons import needs
from tests.test_layers import PACKAGES, Source, sources

NAMES = (*list_attached(), *list_detached())
# The client of gateways is one file that needs no package; there "local" is a kind of policy.
# What `init` copies is a user's file. Add-ons with a launcher name it.
EXEMPT = (
    *("session/launchers/", "surreal_like/addons/gateway/clients/", "main/cli/project/"),
    *(
        f"{package}/addons/{name}/"
        for package in PACKAGES
        for name, each in add_ons().items()
        if each.launchers
    ),
)


def defaults(source: Source) -> Iterator[ast.expr | None]:
    """Yield defaults of parameters, fields, options and of the entry `launcher` of a section."""
    for node in source.nodes:
        if isinstance(node, ast.arguments):
            yield from (*node.defaults, *node.kw_defaults)
        elif isinstance(node, ast.AnnAssign) or (
            isinstance(node, ast.keyword) and node.arg == "default"
        ):
            yield node.value
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                named = isinstance(key, ast.Constant) and key.value == "launcher"
                default = value.args[0] if isinstance(value, ast.Call) and value.args else value
                yield default if named else None


def named(source: Source) -> list[int]:
    """Return the lines that name a launcher, but for defaults."""
    allowed = set(defaults(source))
    return [
        node.lineno
        for node in source.nodes
        if isinstance(node, ast.Constant) and node.value in NAMES and node not in allowed
    ]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('if on == "local": pass', [1]),
        ('x = {"a": "serial"}', [1]),
        ('x = ("local",)', [1]),
        ('f(on="local")', [1]),
        ('def f(on: str = "local", *, to="serial"): pass', []),
        ('class A:\n    on: str = "local"', []),
        ('add("--on", default="local")', []),
        ('x = {"launcher": "serial"}', []),
        ('x = {"launcher": Key("serial", "Launcher of a trial.")}', []),
        ('x = {"local": 1}', [1]),
    ],
)
def test_what_names_a_launcher(text: str, lines: list[int]) -> None:
    assert named(Source("session/a.py", text)) == lines


def test_no_other_file_names_a_launcher() -> None:
    files = [each for each in sources(*PACKAGES) if not each.path.startswith(EXEMPT)]
    wrong = [f"{each.path} line {line}" for each in files for line in named(each)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", NAMES)
def test_classes_of_a_launcher_are_there(name: str) -> None:
    launcher = launcher_of(name)
    assert launcher.name == name
    for home in (launcher.cluster, launcher.control, launcher.supervisor):
        assert not home or isinstance(load(home), type)


@needs("tmux")
def test_names_that_are_none() -> None:
    assert launcher_of("") == Launcher("")
    with pytest.raises(UsageError, match=r"no launcher 'seriel': there are .*did you mean serial"):
        attached_launcher("seriel")
    with pytest.raises(UsageError, match="surreal-like launch --on tmux"):
        attached_launcher("tmux")
    with pytest.raises(UsageError, match="serial runs in the thread that trains"):
        detached_launcher("serial")
    with pytest.raises(UsageError, match=r"detached run: local.*did you mean local"):
        detached_launcher("locl")
