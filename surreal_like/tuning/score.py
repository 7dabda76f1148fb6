"""The score of a trial: a number of its line of progress."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from session.config import Config
from session.config.merge import leaves
from session.did_you_mean import did_you_mean
from session.errors import ConfigError
from session.process.clock import CountedClock
from surreal_like.coordinator.run_stats import RunStats


def check_metric(metric: str, config: Config) -> None:
    """Rejects a metric that no line of progress of an experiment has.

    Raises:
        ConfigError: the message names the nearest one.
    """
    if metric.partition(".")[0] in ("metrics", "learn"):
        return
    if metric.startswith(("eval.", "best_eval.")):
        if config.session_config.evaluator.num < 1:
            raise ConfigError(
                f"tune.metric is {metric}, but there is no evaluator: set "
                "session_config.evaluator.num to 1"
            )
        return
    known = leaves(RunStats(config, CountedClock()).line(0, 0, []))
    if metric not in known:
        hint = did_you_mean(metric, known, lead="; ")
        raise ConfigError(f"tune.metric is {metric}: no line of progress has it{hint}")


def number_name(metric: str) -> str:
    """Returns the dotted name of the number of a line of progress that a metric means."""
    return f"{metric}.mean" if metric.startswith("metrics.") else metric


def number_at(line: Mapping[str, Any], metric: str) -> float | None:
    """Returns a number of a line of progress; of the experiment's own metrics the mean.

    Args:
        line: of progress.
        metric: dotted name; after ``metrics.`` the whole name of one.
    """
    name = number_name(metric)
    section = name.partition(".")[0]
    value = leaves({section: line.get(section)}).get(name)
    return float(value) if isinstance(value, int | float) else None


def without_score(line: Mapping[str, Any], tune: Mapping[str, Any]) -> str:
    """Explains why a trial with this last line of progress has no score."""
    metric: str = tune["metric"]
    if (value := number_at(line, metric)) is not None:
        return (
            f"has no score: {metric} is {value:.6g} after {_episodes(line)} episodes, "
            f"fewer than tune.min_episodes, {tune['min_episodes']}"
        )
    section = metric.partition(".")[0]
    if not _episodes(line) and section in ("train", "metrics"):
        return "has no score: none of its episodes has ended"
    names = sorted(line.get(section) or {}) if isinstance(line.get(section), Mapping) else []
    return (
        f"has no score: {metric} is no number in its last line of progress, which has under "
        f"{section}: {', '.join(names) or 'nothing'}"
    )


def score_of(line: Mapping[str, Any], tune: Mapping[str, Any]) -> float | None:
    """Returns the score that a line of progress shows, None if it shows none.

    Args:
        line: of progress.
        tune: section ``tune``.
    """
    metric: str = tune["metric"]
    if _episodes(line) < tune["min_episodes"] and metric.partition(".")[0] in ("train", "metrics"):
        return None
    return number_at(line, metric)


def _episodes(line: Mapping[str, Any]) -> int:
    """Returns the number of episodes since the start, or since the newest exploit."""
    episodes: int = line.get("episodes_since_load", line.get("episodes", 0))
    return episodes
