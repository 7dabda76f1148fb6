"""Config files: YAML and JSON text to plain data and back; errors name file and line.

Plain values follow YAML 1.2: `1e8` and `7e-4` are numbers; `on`, `no`, `12:30` and dates are texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import Composer

from session import json_file
from session.atomic_file import write_atomically
from session.errors import ConfigError

try:
    from yaml import CSafeLoader as _SafeLoader
except ImportError:
    # PyYAML was built without libyaml: the same, six times slower.
    from yaml import SafeLoader as _SafeLoader  # type: ignore[assignment]

_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9][0-9_]*|0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_NULL = re.compile(r"~|null|Null|NULL|")
_TAG = "tag:yaml.org,2002:"
# Values of a file, each alias with all that it stands for, and how deep they nest: a few aliases of
# aliases are more data than any memory holds. A config of a run has some hundreds.
VALUES_LIMIT, DEPTH_LIMIT = 100_000, 100
_TOO_MANY = f"more than {VALUES_LIMIT} values"
_TOO_DEEP = f"nests too deeply, expected at most {DEPTH_LIMIT} levels"


class _Loader(Composer, _SafeLoader):
    """The safe loader with the plain values of YAML 1.2; duplicate keys are errors.

    libyaml parses, and Python composes, which counts the values, and bounds how deep they nest;
    libyaml would overflow the stack.
    """

    def __init__(self, text: str) -> None:
        _SafeLoader.__init__(self, text)
        Composer.__init__(self)
        self._values = self._depth = 0
        # Node of an anchor -> its values.
        self._sizes: dict[int, int] = {}

    def compose_node(self, parent: Any, index: Any) -> yaml.Node | None:
        before, alias = self._values, self.check_event(yaml.AliasEvent)
        self._depth += 1
        if self._depth > DEPTH_LIMIT:
            raise RecursionError
        node = super().compose_node(parent, index)
        self._depth -= 1
        self._values += self._sizes.get(id(node), 1) if alias else 1
        if not alias:
            self._sizes[id(node)] = self._values - before
        if self._values > VALUES_LIMIT:
            raise yaml.MarkedYAMLError(
                problem=f"{_TOO_MANY}, counted as often as aliases repeat them",
                problem_mark=node.start_mark if node is not None else None,
            )
        return node

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        if kind is yaml.ScalarNode and implicit[0]:
            return _TAG + _plain_kind(value)
        tag: str = super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]
        return tag

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        # Checked before merge keys (<<) are expanded, because those may repeat a key.
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen: set[Hashable] = set()
        for key, _ in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else id(key)
            if name in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"key {name!r} stands twice", problem_mark=key.start_mark
                )
            seen.add(name)
        return node

    def construct_document(self, node: yaml.Node) -> Any:
        # deep: builds the document at once, which detects and refuses a recursive alias.
        return self.construct_object(node, deep=True)

    def construct_number(self, node: yaml.ScalarNode) -> int:
        text = node.value.replace("_", "")
        return int(text, {"0x": 16, "0o": 8}.get(text[:2], 10))


_Loader.add_constructor(_TAG + "int", _Loader.construct_number)


class PlainDumper(yaml.SafeDumper):
    """Mappings as blocks, lists in one line, quotes where YAML 1.1 or 1.2 reads no text."""

    def represent_sequence(self, tag: str, sequence: Any, flow_style: Any = None) -> Any:
        return super().represent_sequence(tag, sequence, flow_style=True)

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        tag: str = super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]
        if kind is yaml.ScalarNode and implicit[0] and tag == _TAG + "str":
            return _TAG + _plain_kind(value)
        return tag


def _plain_kind(text: str) -> str:
    """Returns the kind of an unquoted text in YAML 1.2."""
    for kind, pattern in (("bool", _BOOL), ("int", _INT), ("float", _FLOAT), ("null", _NULL)):
        if pattern.fullmatch(text):
            return kind
    return "merge" if text == "<<" else "str"


def read_file(path: str | Path) -> dict[Any, Any]:
    """Reads the mapping in a .yaml, .yml or .json file; an empty file is an empty mapping.

    Raises ConfigError with file and line.
    """
    as_json = _is_json(path)
    try:
        text = json_file.read_file(path).decode()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is no UTF-8 text") from None
    data = _parse_json(text, f"{path}") if as_json else parse_yaml(text, f"{path}")
    if not isinstance(data, dict | None):
        raise ConfigError(
            f"{path}: holds {type(data).__name__}, expected a mapping of keys to values"
        )
    return data or {}


def write_file(path: str | Path, data: dict[str, Any]) -> None:
    """Writes plain data as .yaml, .yml or .json. Raises ConfigError if writing fails."""
    if _is_json(path):
        text = json.dumps(data, indent=2) + "\n"
    else:
        text = dump_yaml(data)
    try:
        write_atomically(Path(path), text)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None


def dump_yaml(data: Any, dumper: type[PlainDumper] = PlainDumper, **form: Any) -> str:
    """Returns plain data as the text of a YAML file; ``form``: keywords of ``yaml.dump``."""
    form = {"sort_keys": False, "allow_unicode": True, "width": 100, **form}
    return str(yaml.dump(data, Dumper=dumper, **form))


def inline_yaml(data: Any) -> str:
    """Returns plain data as one line of YAML."""
    text = dump_yaml(data, default_flow_style=True, width=1e9)
    return text.rstrip("\n").removesuffix("\n...")


def plain_value(text: str) -> Any:
    """Parses an unquoted text if YAML reads it as a number or bool, else returns the text."""
    if _plain_kind(text) in ("bool", "int", "float"):
        return yaml.load(text, Loader=_Loader)  # noqa: S506 it is a SafeLoader
    return text


def parse_yaml(text: str, source: str) -> Any:
    """Parses a YAML text. Raises ConfigError that begins with `source` and the line."""
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 it is a SafeLoader
    except yaml.MarkedYAMLError as error:
        # libyaml sees the end of a text on a line of its own.
        place, last = error.problem_mark, len(text.splitlines())
        line = min(place.line + 1, last) if place else last
        begin = error.context_mark.line + 1 if error.context_mark else line
        within = f", {error.context} from line {begin}" if begin < line else ""
        raise ConfigError(f"{source}:{line}: {error.problem}{within}") from None
    except RecursionError:
        raise ConfigError(f"{source}: {_TOO_DEEP}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{source}: {' '.join(str(error).split())}") from None


def _parse_json(text: str, source: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        data = dict(pairs)
        if len(data) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise ConfigError(f"{source}: key {twice!r} stands twice")
        return data

    try:
        data = json.loads(text, object_pairs_hook=unique) if text.strip() else None
    except json.JSONDecodeError as error:
        raise ConfigError(f"{source}:{error.lineno}: {error.msg}") from None
    except RecursionError:
        raise ConfigError(f"{source}: {_TOO_DEEP}") from None
    if _count(data) > VALUES_LIMIT:
        raise ConfigError(f"{source}: {_TOO_MANY}")
    return data


def _count(data: Any) -> int:
    """Returns the number of values in plain data."""
    found, waiting = 0, [data]
    while waiting:
        found, value = found + 1, waiting.pop()
        if isinstance(value, dict | list):
            waiting += value.values() if isinstance(value, dict) else value
    return found


def _is_json(path: str | Path) -> bool:
    ending = Path(path).suffix.lower()
    if ending not in (".json", ".yaml", ".yml"):
        raise ConfigError(f"{path}: a config file ends in .yaml, .yml or .json")
    return ending == ".json"
