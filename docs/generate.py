"""Writes what is generated in the documents: `python docs/generate.py`.

`docs/configuration.md` is made of the default configs and the comments in their source,
`docs/api.md` of the public names and their docstrings (`docs/api_reference.py`), the picture
in README.md of the topology of `configs/cartpole_dqn.yaml`, the tables in `docs/performance.md`,
`docs/algorithms.md`, `docs/gateway.md`, `docs/tune.md` and `docs/several_machines.md` of
`benchmarks/results/`. Tests hold that all are up to date.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# As a script, this file has only its own folder on the path; benchmarks are scripts themselves.
sys.path += [path for path in (str(ROOT), str(ROOT / "benchmarks")) if path not in sys.path]

from gateway_soak import soak_table  # noqa: E402
from milestones import document  # noqa: E402
from scaling import scaling_document  # noqa: E402
from tables import learned_table, measured, samples_table  # noqa: E402
from targets import targets_table  # noqa: E402

from docs.api_reference import api_page  # noqa: E402
from main.cli.diagram import mermaid  # noqa: E402
from session.config.constraints import OPTIONAL, in_words, range_of  # noqa: E402
from session.config.defaults import BASE_CONFIG, CHOICES  # noqa: E402
from session.config.placeholder import expectation, is_unresolved  # noqa: E402
from surreal_like.algorithm.catalog import list_algorithms  # noqa: E402
from surreal_like.algorithm.registry import find_algorithm  # noqa: E402
from surreal_like.experiment.resolve import defaults  # noqa: E402
from surreal_like.run.request import RunRequest  # noqa: E402

PAGE = ROOT / "docs" / "configuration.md"
API = ROOT / "docs" / "api.md"
README = ROOT / "README.md"
MEASURED = tuple(
    ROOT / "docs" / f"{name}.md"
    for name in ("performance", "algorithms", "gateway", "tune", "several_machines")
)
RESULTS = ROOT / "benchmarks" / "results"
EXPERIMENT = ROOT / "configs" / "cartpole_dqn.yaml"
_PICTURE = re.compile(r"(<!-- generated: docs/generate.py -->\n)```mermaid\n.*?```\n", re.DOTALL)
_TABLES = re.compile(
    r"(<!-- generated: benchmarks/results/(\w+)\.json -->\n).*?(<!-- end -->\n)", re.DOTALL
)
_UNIT = re.compile(r"\s*\[([a-z][^\[\]]*)\](?=[.;])")
_WORDS = {
    "object": "anything",
    "singleton": "one value",
    "dict": "mapping",
    "list": "list",
    "int": "integer",
    "float": "number",
    "num": "number",
    "bool": "true or false",
    "str": "text",
}

HEAD = """\
# Configuration

Every setting, its default, and what it may be. This page is made by `python docs/generate.py`
from the default configs (`session/config/defaults.py`, `default_config()` of each algorithm and its
`session_config`)
and the comments that stand there.

An experiment file holds what differs from this, under the same four keys:

<!-- file: experiment.yaml -->
```yaml
algorithm: dqn
learner_config:
  algo: {n_step: 5}
env_config:
  env_name: gym:CartPole-v1
session_config:
  agent: {num: 4}
```

The command line changes single settings by their dotted key, or replaces a whole mapping of the
file:

<!-- run -->
```console
$ surreal-like plan experiment.yaml session_config.agent.num=8
$ surreal-like plan experiment.yaml 'session_config.agent={num: 8, threads: 2}'
```

Who has decided each value, the default, the algorithm, the file or the command line:

<!-- run -->
```console
$ surreal-like plan experiment.yaml --explain
```

A value must be of the kind of its default. A setting that is *required* has none. `None` is
`null` in YAML, and may always be written there; `{}` takes a mapping with any keys. An integer is
taken for a number, and `1e6` for an integer; a number in place of a schedule (`kind`, `by`,
`start`, ...) is a constant one, a text in place of a list of texts a list of one. Unknown keys and
wrong values are refused, with the nearest key or with what is expected. In default configs of your
own a required value is a placeholder: `_int_`, `_float_`, `_num_` (either), `_bool_`, `_str_`,
`_list_`, `[_int_]`, `_dict_`, `_enum[a, b]_`, `_singleton_` (no list, no mapping), `_object_`
(anything). To give such a word as a text, write a backslash before it: `\\_int_`. A key cannot be
the name of a method of
`Config` (`keys`, `items`, `copy`, ...), except in `env_args`, `eval_mode`, `torso_args`, `args` of
a wrapper and `obs_spec`, where others have chosen the names.

What `algorithm`, `learner_config` and `env_config` hold decides what is learned: it has a
fingerprint, and a run is resumed only with the same. `session_config` may change at every resume.
"""


@dataclass(frozen=True)
class Setting:
    """One line of the page."""

    key: str
    default: Any
    comment: str

    def row(self) -> str:
        """The line of the table."""
        unit = _UNIT.search(self.comment)
        meaning = _UNIT.sub("", self.comment, count=1)
        cells = [f"`{self.key}`", self._kind(), self._shown(), unit[1] if unit else "", meaning]
        return "| " + " | ".join(_escaped(cell) for cell in cells) + " |"

    def _kind(self) -> str:
        choices = CHOICES.get(self.key, ())
        wanted = expectation(OPTIONAL.get(self.key, self.default), self.key)
        if choices or wanted.kind == "enum":
            return ", ".join(f"`{choice}`" for choice in choices or wanted.options)
        limits = in_words(range_of(self.key)) if wanted.kind in ("int", "float", "num") else ""
        return f"{_WORDS[wanted.kind]}, {limits}" if limits else _WORDS[wanted.kind]

    def _shown(self) -> str:
        if is_unresolved(self.default):
            return "required"
        return "`None`" if self.default is None else f"`{json.dumps(self.default)}`"


def _escaped(cell: str) -> str:
    """A text that is shown as it stands in a cell of a table."""
    return cell.replace("|", "\\|").replace("<", "&lt;")


class Source:
    """A module's text: what its dicts are, and the comment above each of their keys."""

    def __init__(self, module: str) -> None:
        self.text = inspect.getsource(importlib.import_module(module))
        self.lines = self.text.splitlines()
        self.body = ast.parse(self.text).body

    def comment(self, line: int) -> str:
        """What stands as comment right above a line, counted from 1."""
        found: list[str] = []
        for text in reversed(self.lines[: line - 1]):
            if not text.lstrip().startswith("#"):
                break
            found.insert(0, text.strip().removeprefix("#").strip())
        return " ".join(found)

    def assigned(self, name: str) -> tuple[Source, ast.expr]:
        """Where and how a name of this module gets its value, imports followed."""
        for node in self.body:
            names = [each.name for each in node.names] if isinstance(node, ast.ImportFrom) else []
            if isinstance(node, ast.ImportFrom) and node.module and name in names:
                return Source(node.module).assigned(name)
            targets = (
                node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            )
            value = getattr(node, "value", None)
            if value is not None and any(isinstance(t, ast.Name) and t.id == name for t in targets):
                return self, value
        raise LookupError(f"nothing called {name} is assigned")

    def returned(self, function: str) -> ast.expr:
        """What a function of this module returns."""
        for node in self.body:
            if isinstance(node, ast.FunctionDef) and node.name == function:
                last = node.body[-1]
                if isinstance(last, ast.Return) and last.value is not None:
                    return last.value
        raise LookupError(f"no function {function} that returns its value at its end")

    def comments(self, node: ast.expr, path: str = "") -> Iterator[tuple[str, str]]:
        """Dotted key and comment of every entry of a dict, to any depth."""
        if isinstance(node, ast.Call) and len(node.args) == 1:  # Config(...), dict(...)
            yield from self.comments(node.args[0], path)
        elif isinstance(node, ast.Name):
            source, value = self.assigned(node.id)
            yield from source.comments(value, path)
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if key is None:  # **OTHERS
                    yield from self.comments(value, path)
                elif isinstance(key, ast.Constant) and isinstance(key.value, str):
                    inner = f"{path}.{key.value}" if path else key.value
                    # Without a comment it is a key of OTHERS once more, with another default.
                    if comment := self.comment(key.lineno):
                        yield inner, comment
                    yield from self.comments(value, inner)


def configuration() -> str:
    """The text of `docs/configuration.md`."""
    source = Source("session.config.defaults")
    comments = dict(source.comments(source.assigned("BASE_CONFIG")[1]))
    for section in ("LEARNER", "ENV", "SESSION"):
        _, value = source.assigned(f"BASE_{section}_CONFIG")
        comments[f"{section.lower()}_config"] = source.comment(value.lineno)
    parts = [HEAD, *_sections(BASE_CONFIG, comments)]
    for name, place in list_algorithms().items():
        parts.append(_algorithm(name, place.partition(":")[0]))
    return "\n".join(parts)


def _algorithm(name: str, module: str) -> str:
    """The settings that an algorithm adds, and the defaults that it changes."""
    algorithm = find_algorithm(name)
    source = Source(module)
    found = dict(source.comments(source.returned("default_config"), "learner_config"))
    base = Source("session.config.defaults")
    section = base.assigned("BASE_SESSION_CONFIG")[1]
    found |= dict(base.comments(section, "session_config"))
    lines = [
        f"## Algorithm `{name}`\n",
        f"{inspect.getdoc(algorithm)} What it adds, or sets otherwise.\n",
    ]
    return "\n".join(lines) + "\n" + "\n".join(_sections(defaults(name), found))


def _sections(
    config: Mapping[str, Any], comments: Mapping[str, str], path: str = "", level: int = 2
) -> Iterator[str]:
    """A table for the settings of a section, then its sections."""
    rows = []
    for key, value in config.items():
        inner = f"{path}.{key}" if path else key
        # What an algorithm only hands on has its comment elsewhere.
        if not (isinstance(value, Mapping) and value) and inner in comments:
            rows.append(Setting(inner, value, comments[inner]).row())
    if path and (rows or comments.get(path)):
        yield f"{'#' * level} `{path}`\n"
        if comments.get(path):
            yield f"{comments[path]}\n"
    if rows:
        yield "| key | takes | default | unit | |\n|---|---|---|---|---|"
        yield "\n".join(rows) + "\n"
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            inner = f"{path}.{key}" if path else key
            yield from _sections(value, comments, inner, min(level + bool(path), 4))


def readme(text: str) -> str:
    """README with the picture that the example's topology has now."""
    picture = mermaid(RunRequest(EXPERIMENT).resolve().topology)
    return _PICTURE.sub(lambda found: f"{found[1]}```mermaid\n{picture}\n```\n", text)


def with_tables(text: str) -> str:
    """A page with the tables that have been measured last."""
    tables = {
        "learned": learned_table,
        "samples": samples_table,
        "milestones": document,
        "targets": targets_table,
        "gateway_soak": soak_table,
        "scaling": scaling_document,
    }

    def newest(found: re.Match[str]) -> str:
        kept = json.loads((RESULTS / f"{found[2]}.json").read_text())
        kind = next((key for key in tables if key in kept), "")
        return f"{found[1]}\n{tables.get(kind, measured)(kept)}\n\n{found[3]}"

    return _TABLES.sub(newest, text)


if __name__ == "__main__":
    PAGE.write_text(configuration())
    API.write_text(api_page())
    README.write_text(readme(README.read_text()))
    for page in MEASURED:
        page.write_text(with_tables(page.read_text()))
