"""Writes what is generated in the documents: `python docs/generate.py`.

`docs/configuration.md` is made of the Keys of the default configs, the tables in
`docs/performance.md`, `docs/algorithms.md`, `docs/gateway.md`, `docs/tune.md`,
`docs/several_machines.md` and `docs/multi_agent.md` of `benchmarks/results/`. Tests hold that all
are up to date.
"""

from __future__ import annotations

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

from fleet import fleet_document  # noqa: E402
from gateway_soak import soak_table  # noqa: E402
from milestones import document  # noqa: E402
from scaling import scaling_document  # noqa: E402
from tables import gpu_table, learned_table, measured, samples_table  # noqa: E402
from targets import targets_table  # noqa: E402

from session.config.config import keys_of  # noqa: E402
from session.config.defaults import BASE_CONFIG  # noqa: E402
from session.config.key import Key, range_of  # noqa: E402
from session.config.placeholder import expectation, is_unresolved  # noqa: E402
from surreal_like.algorithm.catalog import list_algorithms  # noqa: E402
from surreal_like.algorithm.registry import find_algorithm  # noqa: E402
from surreal_like.experiment.resolve import defaults  # noqa: E402

PAGES = sorted((ROOT / "docs").glob("*.md"))
_EXAMPLES = re.compile(
    r"(<!-- generated: (examples/[\w./]+) -->\n(?:<!-- (?:run|shown)\b[^\n]*-->\n)*)"
    r".*?(<!-- end -->\n)",
    re.DOTALL,
)
PAGE = ROOT / "docs" / "configuration.md"
MEASURED = tuple(
    ROOT / "docs" / f"{name}.md"
    for name in (
        "performance",
        "algorithms",
        "gateway",
        "tune",
        "several_machines",
        "multi_agent",
        "sizes",
    )
)
RESULTS = ROOT / "benchmarks" / "results"
_TABLES = re.compile(
    r"(<!-- generated: benchmarks/results/(\w+)\.json -->\n).*?(<!-- end -->\n)", re.DOTALL
)
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
from the keys of the default configs (`session/config/defaults.py`, `default_config()` of each
algorithm and its `session_config`).

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
$ surreal-like plan experiment.yaml 'session_config.agent={num: 8, max: 16}'
```

Who has decided each value, the default, the algorithm, the file or the command line:

<!-- run -->
```console
$ surreal-like plan experiment.yaml --explain
```

The settings of an add-on, such as `session_config.kubernetes`, are shown where one of them is
given. A default that has no effect, because of the value of another setting, is left out; a
setting that was given without effect is marked.

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

    path: str
    default: Any
    keys: Mapping[str, Key]

    def row(self) -> str:
        """The line of the table."""
        key = self._key
        cells = [f"`{self.path}`", self._kind(), self._shown(), key.unit, key.text]
        return "| " + " | ".join(_escaped(cell) for cell in cells) + " |"

    @property
    def _key(self) -> Key:
        return self.keys.get(self.path, Key(self.default))

    def _kind(self) -> str:
        key = self._key
        wanted = expectation(key.optional or self.default, self.path)
        if key.one_of or wanted.kind == "enum":
            return ", ".join(f"`{choice}`" for choice in key.one_of or wanted.options)
        if wanted.kind == "list" and key.within is not None:
            return f"{_WORDS[wanted.kind]}, each {key.within}"
        number = wanted.kind in ("int", "float", "num")
        limits = f"{range_of(self.path, self.keys)}" if number else ""
        return f"{_WORDS[wanted.kind]}, {limits}" if limits else _WORDS[wanted.kind]

    def _shown(self) -> str:
        if is_unresolved(self.default):
            return "required"
        return "`None`" if self.default is None else f"`{json.dumps(self.default)}`"


def _escaped(cell: str) -> str:
    """A text that is shown as it stands in a cell of a table."""
    return cell.replace("|", "\\|").replace("<", "&lt;")


def configuration() -> str:
    """The text of `docs/configuration.md`."""
    keys = keys_of(BASE_CONFIG)
    parts = [HEAD, *_sections(BASE_CONFIG, keys, keys)]
    return "\n".join([*parts, *map(_algorithm, list_algorithms())])


def _algorithm(name: str) -> str:
    """The settings that an algorithm adds, and the defaults that it changes."""
    own = defaults(name)
    keys = keys_of(own.copy().extend(BASE_CONFIG, abstract=True))
    lines = [
        f"## Algorithm `{name}`\n",
        f"{inspect.getdoc(find_algorithm(name))} What it adds, or sets otherwise.\n",
    ]
    return "\n".join(lines) + "\n" + "\n".join(_sections(own, keys, keys_of(own)))


def _sections(
    config: Mapping[str, Any],
    keys: Mapping[str, Key],
    described: Mapping[str, Key],
    path: str = "",
    level: int = 2,
) -> Iterator[str]:
    """A table for the settings of a section, then its sections; each with its description."""
    inner = {key: f"{path}.{key}" if path else key for key in config}
    rows = [
        Setting(inner[key], value, keys).row()
        for key, value in config.items()
        if not (isinstance(value, Mapping) and value)
    ]
    text = described[path].text if path in described else ""
    if path and (rows or text):
        yield f"{'#' * level} `{path}`\n"
        if text:
            yield f"{text}\n"
    if rows:
        yield "| key | takes | default | unit | |\n|---|---|---|---|---|"
        yield "\n".join(rows) + "\n"
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from _sections(value, keys, described, inner[key], min(level + bool(path), 4))


def with_tables(text: str) -> str:
    """A page with the tables that have been measured last."""
    tables = {
        "learned": learned_table,
        "samples": samples_table,
        "milestones": document,
        "targets": targets_table,
        "gateway_soak": soak_table,
        "scaling": scaling_document,
        "fleet": fleet_document,
        "updates": gpu_table,
    }

    def newest(found: re.Match[str]) -> str:
        kept = json.loads((RESULTS / f"{found[2]}.json").read_text())
        kind = next((key for key in tables if key in kept), "")
        return f"{found[1]}\n{tables.get(kind, measured)(kept)}\n\n{found[3]}"

    return _TABLES.sub(newest, text)


def with_example_files(text: str) -> str:
    """A page with the files of `examples/` that it shows, as they are now."""

    def newest(found: re.Match[str]) -> str:
        path = ROOT / found[2]
        language = {".py": "python"}.get(path.suffix, path.suffix[1:])
        block = f"<!-- file: {path.name} -->\n```{language}\n{path.read_text()}```\n"
        return f"{found[1]}{block}{found[3]}"

    return _EXAMPLES.sub(newest, text)


if __name__ == "__main__":
    PAGE.write_text(configuration())
    for page in PAGES:
        page.write_text(with_example_files(page.read_text()))
    for page in MEASURED:
        page.write_text(with_tables(page.read_text()))
