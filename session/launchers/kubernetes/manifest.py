"""Formats objects as readable YAML: block style, texts of several lines line by line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from session.config.file import PlainDumper


class _Dumper(PlainDumper):
    """Writes lists and texts of several lines in block style."""

    def represent_sequence(self, tag: str, sequence: Any, flow_style: Any = None) -> Any:
        return yaml.SafeDumper.represent_sequence(self, tag, sequence, flow_style=False)

    def represent_text(self, text: str) -> yaml.Node:
        return self.represent_scalar(
            "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
        )

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_representer(str, _Dumper.represent_text)


def dump_object(data: Any) -> str:
    """Formats one object as a YAML document, without the leading ``---``."""
    return str(yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1 << 16))


def dump_objects(objects: Iterable[Any]) -> str:
    """Formats objects as one YAML text."""
    return "---\n".join(map(dump_object, objects))
