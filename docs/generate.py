"""Writes what is generated in the documents: `python docs/generate.py`.

`docs/configuration.md` is made of the Keys of the default configs, the tables of the pages in
`MEASURED` of `benchmarks/results/`, that of the trained policies of their cards. Tests hold that
all are up to date.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# As a script, this file has only its own folder on the path; benchmarks are scripts themselves.
sys.path += [path for path in (str(ROOT), str(ROOT / "benchmarks")) if path not in sys.path]

from fleet import fleet_document, fleet_summary  # noqa: E402
from gateway_soak import soak_table  # noqa: E402
from milestones import document  # noqa: E402
from scaling import scaling_document  # noqa: E402
from tables import gpu_table, learned_table, measured, samples_table, summary  # noqa: E402
from targets import targets_table  # noqa: E402

from session.config.config import keys_of  # noqa: E402
from session.config.defaults import BASE_CONFIG  # noqa: E402
from session.config.key import Key, range_of  # noqa: E402
from session.config.learner_defaults import SCHEDULE_KEYS  # noqa: E402
from session.config.merge import join  # noqa: E402
from session.config.placeholder import expectation, is_unresolved  # noqa: E402
from surreal_like.algorithm.catalog import list_algorithms  # noqa: E402
from surreal_like.algorithm.registry import find_algorithm  # noqa: E402
from surreal_like.experiment.resolve import defaults  # noqa: E402
from surreal_like.experiment.trained import list_trained  # noqa: E402
from surreal_like.exploration.schedule import SCHEDULE_CONFIG  # noqa: E402

PAGES = sorted((ROOT / "docs").glob("*.md"))
_EXAMPLES = re.compile(
    r"(<!-- generated: (examples/[\w./]+) -->\n(?:<!-- (?:run|shown)\b[^\n]*-->\n)*)"
    r".*?(<!-- end -->\n)",
    re.DOTALL,
)
# Pictures in a row.
_BESIDE = 4
_CARDS = re.compile(r"(<!-- generated: configs/trained -->\n).*?(<!-- end -->\n)", re.DOTALL)
PAGE = ROOT / "docs" / "configuration.md"
ZOO = ROOT / "docs" / "zoo.md"
MEASURED = (
    ROOT / "benchmarks" / "README.md",
    *(
        ROOT / "docs" / f"{name}.md"
        for name in (
            "performance",
            "results",
            "gateway",
            "tune",
            "several_machines",
            "sizes",
        )
    ),
)
RESULTS = ROOT / "benchmarks" / "results"
# `in short` asks for a summary; behind a colon stands a part of the names of the groups to show.
_TABLES = re.compile(
    r"(<!-- generated: benchmarks/results/(\w+)\.json(, in short(?:: ([\w ]+))?)? -->\n)"
    r".*?(<!-- end -->\n)",
    re.DOTALL,
)
_WORDS = {
    "object": "anything",
    "singleton": "one value",
    "dict": "mapping",
    "list": "list",
    "int": "integer",
    "float": "number",
    "num": "number",
    "bool": "boolean",
    "str": "text",
}

HEAD = """\
# Configuration

Every setting, its default, and what it may be, written by `python docs/generate.py`. An
experiment file holds what differs from this, under the same four keys:

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
taken for a number, and `1e6` for an integer; a number in place of a schedule is a constant one, a
text in place of a list of texts a list of one. A function or a class is `file.py:name` or
`package.module:name`. Unknown keys and wrong values are refused, with the
nearest key or with what is expected. In default configs of your own a required value is a
placeholder: `_int_`, `_float_`, `_num_` (either), `_bool_`, `_str_`, `_list_`, `[_int_]`, `_dict_`,
`_enum[a, b]_`, `_singleton_` (no list, no mapping), `_object_` (anything). To give such a word as
a text, write a backslash before it: `\\_int_`. A key cannot be the name of a method of `Config`
(`keys`, `items`, `copy`, ...), except in `env_args`, `eval_mode`, `torso_args`, `args` of a wrapper
and `obs_spec`, where others have chosen the names.

What `algorithm`, `learner_config` and `env_config` hold decides what is learned: it has a
fingerprint, and a run is resumed only with the same. `session_config` may change at every resume.

## Schedules

A *schedule* has these keys, as in `learner_config.algo.learning_rate.kind`:"""

SEVERAL = """
## Several algorithms

Keys that these algorithms add, each with its most common default. The section of an algorithm
below has the keys of it alone, then the defaults in which it differs from the tables above."""


@dataclass(frozen=True)
class Setting:
    """One line of the page: a setting, a whole schedule, or a section with its description."""

    path: str
    default: Any
    keys: Mapping[str, Key]

    @property
    def is_section(self) -> bool:
        """True for a mapping of settings that have lines of their own."""
        value = self.default
        return isinstance(value, Mapping) and bool(value) and not self._is_schedule

    @property
    def facts(self) -> tuple[str, str]:
        """What it takes and what it means: all but the default."""
        return self._takes(), self.key.text

    @property
    def shown(self) -> str:
        """The default."""
        if is_unresolved(self.default):
            return "required"
        if self.is_section:
            return ""
        return "`None`" if self.default is None else f"`{json.dumps(self.default)}`"

    @property
    def key(self) -> Key:
        """What is known of it."""
        return self.keys.get(self.path, Key(self.default))

    def is_new(self, known: Setting | None) -> bool:
        """True where a line of another table, or None, does not say what this one is."""
        return known is None or not (self.is_section or self.facts == known.facts)

    def row(self) -> str:
        """The line of the table."""
        takes, text = self.facts
        return _row(f"`{self.path}`", takes, self.shown, text)

    @property
    def _is_schedule(self) -> bool:
        return isinstance(self.default, Mapping) and self.default.keys() == SCHEDULE_KEYS.keys()

    def _takes(self) -> str:
        if self.is_section:
            return "section"
        key = self.key
        wanted = expectation(key.optional or self.default, self.path)
        if key.one_of or wanted.kind == "enum":
            return ", ".join(f"`{choice}`" for choice in key.one_of or wanted.options)
        kind = "schedule" if self._is_schedule else _WORDS[wanted.kind]
        limits = ""
        if kind == "schedule" or wanted.kind in ("int", "float", "num"):
            limits = str(range_of(self.path, self.keys))
        elif wanted.kind == "list" and key.within is not None:
            limits = f"each {key.within}"
        limits = re.sub(r"(\S+) or more", r"≥ \1", limits)
        return ", ".join(filter(None, (kind, limits, key.unit)))


def _row(*cells: str) -> str:
    """A line of a table, with texts that are shown as they stand."""
    line = "|".join(cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells)
    return f"|{line}|"


def configuration() -> str:
    """The text of `docs/configuration.md`."""
    base = list(_settings(BASE_CONFIG, keys_of(BASE_CONFIG)))
    schedule = _settings(SCHEDULE_CONFIG, keys_of(SCHEDULE_CONFIG))
    own = {name: _own(name) for name in list_algorithms()}
    shared = _shared(own, {each.path for each in base})
    lines = [HEAD, *_table(_row(f"`{each.path}`", *each.facts) for each in schedule)]
    lines += ["\n## Every experiment", *_tables(base), SEVERAL]
    for names, settings in shared.items():
        lines.append("\n### " + ", ".join(f"`{name}`" for name in names))
        lines += _table(each.row() for each in settings)
    for name, settings in own.items():
        also = (each for names, some in shared.items() if name in names for each in some)
        known = {each.path: each for each in (*base, *also)}
        new = [each for each in settings if each.is_new(known.get(each.path))]
        other = [each for each in settings if each not in new]
        changed = [
            each for each in other if not each.is_section and each.shown != known[each.path].shown
        ]
        lines.append(f"\n## Algorithm `{name}`\n\n{inspect.getdoc(find_algorithm(name))}")
        lines += _table(each.row() for each in new)
        lines += _table(_row(f"`{each.path}`", each.shown) for each in changed)
    return "\n".join(lines) + "\n"


def _own(name: str) -> list[Setting]:
    """The settings that an algorithm adds, and the defaults that it changes."""
    own = defaults(name)
    return list(_settings(own, keys_of(own.copy().extend(BASE_CONFIG, abstract=True))))


def _shared(
    own: Mapping[str, list[Setting]], known: set[str]
) -> dict[tuple[str, ...], list[Setting]]:
    """Algorithms -> settings that they add with the same facts, with the most common default."""
    alike: dict[tuple[str, str, str], dict[str, Setting]] = {}
    for name, settings in own.items():
        for each in settings:
            if each.path not in known:
                alike.setdefault((each.path, *each.facts), {})[name] = each
    groups: dict[tuple[str, ...], list[Setting]] = {}
    for users in alike.values():
        if len(users) > 1:
            common = Counter(each.shown for each in users.values()).most_common(1)[0][0]
            one = next(each for each in users.values() if each.shown == common)
            groups.setdefault(tuple(users), []).append(one)
    return dict(sorted(groups.items(), key=lambda group: -len(group[0])))


def _settings(
    config: Mapping[str, Any], keys: Mapping[str, Key], path: str = ""
) -> Iterator[Setting]:
    """The settings of a section, then its sections, each followed by its own settings."""
    inner = [Setting(join(path, key), value, keys) for key, value in config.items()]
    yield from (each for each in inner if not each.is_section)
    for each in inner:
        if each.is_section:
            yield each
            yield from _settings(each.default, keys, each.path)


def _tables(settings: Iterable[Setting]) -> Iterator[str]:
    """A table for each section of the first two levels, below its description."""
    parts: list[list[Setting]] = [[]]
    for each in settings:
        if each.is_section and each.path.count(".") < 2:
            parts.append([])
        parts[-1].append(each)
    for part in parts:
        if part and part[0].is_section:
            head = part.pop(0)
            level = "#" * (head.path.count(".") + 2)
            yield f"\n{level} `{head.path}`\n\n{head.key.text}".rstrip()
        yield from _table(each.row() for each in part)


def _table(rows: Iterable[str]) -> list[str]:
    """The lines of a table, none without rows: key and default, or what it takes and means, too."""
    rows = list(rows)
    if not rows:
        return []
    columns = rows[0].replace("\\|", "").count("|") - 1
    head = {2: ("key", "default"), 3: ("key", "takes", ""), 4: ("key", "takes", "default", "")}
    return ["\n" + _row(*head[columns]), "|" + "---|" * columns, *rows]


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
        if found[3]:
            text = fleet_summary(kept) if kind == "fleet" else summary(kept, found[4] or "")
        else:
            text = tables.get(kind, measured)(kept)
        return f"{found[1]}\n{text}\n\n{found[5]}"

    return _TABLES.sub(newest, text)


def with_example_files(text: str) -> str:
    """A page with the files of `examples/` that it shows, as they are now."""

    def newest(found: re.Match[str]) -> str:
        path = ROOT / found[2]
        language = {".py": "python"}.get(path.suffix, path.suffix[1:])
        block = f"<!-- file: {path.name} -->\n```{language}\n{path.read_text()}```\n"
        return f"{found[1]}{block}{found[3]}"

    return _EXAMPLES.sub(newest, text)


def with_cards(text: str) -> str:
    """A page with pictures of the trained policies, and the table of their cards."""
    rows, pictured = [], []
    for name, card in list_trained().items():
        if (ROOT / "docs" / "images" / "zoo" / f"{name}.gif").exists():
            pictured.append(name)
        reached = card.reached.replace("+-", "±")
        seeds = ", ".join(f"{seed}: {mean:,.4g}" for seed, mean in card.seeds.items())
        cells = [
            f"`{name}`" + (f", extra `{card.extra}`" if card.extra else ""),
            f"`{card.environment}`, {card.algorithm}",
            f"{card.env_steps:,}",
            reached if "policies" in card.score else f"{reached} ({_range(card.score)})",
            f"**{card.seed}** of {seeds}",
        ]
        rows.append(f"|{'|'.join(cells)}|")
    head = "|name|environment, algorithm|env steps|mean return|seed|\n|---|---|---|---|---|"
    table = "\n".join([head, *rows])
    groups = [pictured[begin : begin + _BESIDE] for begin in range(0, len(pictured), _BESIDE)]
    whole = "\n\n".join([*map(_gallery, groups), table])
    return _CARDS.sub(lambda found: f"{found[1]}\n{whole}\n\n{found[2]}", text)


def _gallery(names: list[str]) -> str:
    """A row of pictures, and their names below."""
    pictures = [f"![{name}](images/zoo/{name}.gif)" for name in names]
    lines = (pictures, ["---"] * len(names), [f"`{name}`" for name in names])
    return "\n".join(f"|{'|'.join(line)}|" for line in lines)


def _range(score: Mapping[str, Any]) -> str:
    return f"{score['min_return']:,.6g} to {score['max_return']:,.6g}"


if __name__ == "__main__":
    PAGE.write_text(configuration())
    for page in PAGES:
        page.write_text(with_example_files(page.read_text()))
    for page in MEASURED:
        page.write_text(with_tables(page.read_text()))
    ZOO.write_text(with_cards(ZOO.read_text()))
