"""Settings of trials as texts, the same in tables, messages and pictures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_SCHEDULE_START = ".start"


def short_names(keys: Iterable[str]) -> dict[str, str]:
    """Returns dotted key -> its last words, as many as make it unique.

    The ``start`` of a schedule is left out where that is unambiguous, so that
    ``learner_config.algo.learning_rate.start`` becomes ``learning_rate``.
    """
    keys = list(keys)
    shown = {key: key.removesuffix(_SCHEDULE_START) for key in keys}
    for key in keys:
        stem = shown[key]
        if any(other != key and other.startswith(f"{stem}.") for other in keys):
            shown[key] = key
    return {key: _unique(stem, list(shown.values())) for key, stem in shown.items()}


def _unique(stem: str, stems: list[str]) -> str:
    words = stem.split(".")
    # A word such as end or steps says nothing without its schedule.
    least = 2 if words[-1] in ("start", "end", "steps") else 1
    for number in range(least, len(words)):
        last = ".".join(words[-number:])
        if sum(each == last or each.endswith(f".{last}") for each in stems) == 1:
            return last
    return stem


def setting_text(value: Any) -> str:
    """Formats the value of a setting; numbers with six significant digits."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def settings_text(settings: Mapping[str, Any]) -> str:
    """Formats settings as ``learning_rate=0.0008,minibatches=8``."""
    names = short_names(settings)
    return ",".join(f"{names[key]}={setting_text(value)}" for key, value in settings.items())
