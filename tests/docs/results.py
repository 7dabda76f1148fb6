"""Results of benchmarks that the documents show."""

from __future__ import annotations

import json
from typing import Any

from docs.generate import MEASURED, RESULTS


def names_with(key: str) -> list[str]:
    """Returns the names of the kept results that have a key."""
    return sorted(
        path.stem for path in RESULTS.glob("*.json") if key in json.loads(path.read_text())
    )


def result(name: str) -> Any:
    """Returns a kept result."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def shown_result(name: str) -> Any:
    """Returns a kept result; fails if no document has its table."""
    mark = f"<!-- generated: benchmarks/results/{name}.json -->"
    assert any(mark in page.read_text() for page in MEASURED)
    return result(name)
