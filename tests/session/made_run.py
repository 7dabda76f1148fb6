"""Run folders as runs leave them, made by hand: config, progress, result, logs, event files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from session.config.config import Config, apply_overrides
from session.config.defaults import BASE_CONFIG
from session.folder import RunFolder
from session.process.heartbeat import Beat, State, write_beat
from session.tensorplex.event_files import EventFile, summary_values

STARTED = 1_700_000_000.0


def made_config(seed: int = 0, *, launcher: str = "local", **settings: Any) -> Config:
    """A resolved config; settings are `section__key=value`."""
    experiment = {
        "algorithm": "dqn",
        "env_config": {"env_name": "toy:chain"},
        "session_config": {"seed": seed},
    }
    config = Config(experiment).extend(BASE_CONFIG, strict=True)
    words = [f"{key.replace('__', '.')}={json.dumps(value)}" for key, value in settings.items()]
    config = apply_overrides(config, words)
    config["run"] = {"started": STARTED, "first_started": STARTED, "launcher": launcher}
    return config


def made_line(
    env_steps: int, *, greedy: float | None = None, training: float = 0.0, **more: Any
) -> dict[str, Any]:
    """A line of progress: 100 steps take a second and give 10 updates."""
    seconds, updates = env_steps / 100, env_steps // 10
    scored = {"env_steps": env_steps, "iteration": updates, "wall_seconds": seconds}
    evaluation = None if greedy is None else {"mean_return": greedy, "episodes": 4, **scored}
    return {
        "run_id": "x",
        "wall_seconds": seconds,
        "env_steps": env_steps,
        "episodes": env_steps // 50,
        "iterations": updates,
        "train": {"mean_return_100": training, "episode_length_100": 7.0},
        "eval": evaluation,
        "best_eval": evaluation,
        "rates": {"env_steps_per_second": 100.0, "updates_per_second": 10.0},
        "lag": {"mean_versions": 2.5, "max_versions": 4, "mean_updates": None},
        "replay": {"size": env_steps},
        "waiting_share": 0.25,
        **more,
    }


def made_run(
    path: Path,
    lines: Iterable[Mapping[str, Any]] = (),
    *,
    config: Config | None = None,
    result: Mapping[str, Any] | None = None,
) -> RunFolder:
    """A folder with these lines of progress, and this result if it is over."""
    folder = RunFolder(path)
    folder.create()
    (config if config is not None else made_config()).dump_file(folder.config)
    folder.addresses.write_text("{}")
    folder.progress.write_text("".join(json.dumps(line) + "\n" for line in lines))
    if result is not None:
        folder.result.write_text(json.dumps(result))
    return folder


def made_events(folder: RunFolder, title: str, points: Mapping[int, float]) -> None:
    """An event file in `tensorboard/` with one curve."""
    file = EventFile(folder.tensorboard, STARTED)
    for step, value in points.items():
        record = {"kind": "scalar", "tag": title, "value": value}
        file.add_values(STARTED + step, step, summary_values(record, {}, lambda name: name))
    file.flush()


def made_beat(folder: RunFolder, name: str, state: str = "running", pid: int = 0) -> None:
    """A component's sign of life."""
    write_beat(folder.alive, Beat(name, 1, State(state), pid, STARTED))
