"""A run that follows the settings which led to a trial."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from session.config import Config
from session.errors import ConfigError, UsageError
from surreal_like.tuning.exploit import replay_file, schedule_of
from surreal_like.tuning.scheduler import Decision, FixedSchedule, Load
from surreal_like.tuning.state import Exploit, Trial, plain_trial
from surreal_like.tuning.tune_file import read_tune_file
from surreal_like.tuning.tuning import Tuning
from tests.surreal_like.tuning.test_tuning import kinds, report

RATE = "learner_config.algo.learning_rate.start"
CHANGES = [
    {"time": 0, "settings": {"x": 1.0}},
    {"time": 20, "settings": {"x": 2.0}},
    {"time": 40, "settings": {"x": 3.0}},
]


def line(recipient: str, donor: str, time: float, value: float) -> dict[str, Any]:
    settings = {RATE: value}
    times = {"recipient_time": time, "donor_time": time}
    return {"recipient": recipient, "donor": donor, **times, "new_settings": settings}


EXPLOITS = [
    line("a", "b", 10, 0.1),
    line("b", "c", 20, 0.2),
    {"recipient": "b", "skipped": "too old"},
    line("a", "b", 30, 0.3),
    line("b", "a", 40, 0.4),
]


@pytest.mark.parametrize(
    ("trial", "ancestor", "changes"),
    [
        ("c", "c", []),
        ("a", "c", [(20, 0.2), (30, 0.3)]),
        ("b", "c", [(20, 0.2), (30, 0.3), (40, 0.4)]),
    ],
)
def test_the_schedule_follows_the_weights(
    trial: str, ancestor: str, changes: list[tuple[float, float]]
) -> None:
    found, schedule = schedule_of(trial, EXPLOITS)
    assert found == ancestor
    assert [(each["time"], each["settings"][RATE]) for each in schedule] == changes


def test_changes_are_due_at_their_times() -> None:
    scheduler = FixedSchedule(CHANGES)
    assert scheduler.report(0, 19.0, None) == {0: Decision()}
    assert scheduler.report(0, 25.0, None) == {0: Decision(load=Load(0, {"x": 2.0}))}
    # One that could not be carried out is due again; of two the newest one counts.
    scheduler.on_load(0, None)
    assert scheduler.report(0, 45.0, None) == {0: Decision(load=Load(0, {"x": 3.0}))}
    scheduler.on_load(0, {"x": 3.0})
    again = FixedSchedule(CHANGES)
    again.restore(json.loads(json.dumps(scheduler.state())))
    for each in (scheduler, again):
        assert each.report(0, 50.0, None) == {0: Decision()}
    assert scheduler.on_end(0) == {}


@pytest.mark.parametrize("changes", [[], CHANGES[1:], CHANGES[:1] + CHANGES[:0:-1], [{"time": 0}]])
def test_a_wrong_schedule_is_refused(changes: list[Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        FixedSchedule(changes)


def test_a_trial_saves_before_it_goes_on_with_other_settings() -> None:
    tuning = Tuning([Trial("trial-000", {"x": 1.0})], FixedSchedule(CHANGES), slots=1)
    tuning.choose(0.0)
    assert kinds(report(tuning, 0, 1, 0, 5.0)) == [(0, "continue")]
    assert kinds(report(tuning, 0, 2, 0, 5.0)) == [(0, "save")]
    exploit = Exploit(0, 0, {"x": 2.0})
    assert report(tuning, 0, 2, 1, 5.0) == [exploit]
    tuning.take_over(exploit, 20.0)
    assert kinds(tuning.on_exploit(exploit, 20.0)) == [(0, "load")]
    assert kinds(report(tuning, 0, 2, 2, 5.0)) == [(0, "continue")]
    assert kinds(report(tuning, 0, 3, 0, 5.0)) == [(0, "continue")]


@pytest.fixture
def tuning(tmp_path: Path) -> Path:
    given = {
        "algorithm": "ppo",
        "env_config": {"env_name": "toy:chain"},
        "session_config": {"seed": 7, "stop": {"env_steps": 400}},
        "space": {RATE: {"loguniform": [1e-4, 1e-2]}},
        "tune": {"trials": 3, "scheduler": "pbt", "pbt": {"perturbation_interval": 50}},
    }
    Config(given).dump_file(tmp_path / "tune.yaml")
    first = read_tune_file(tmp_path / "tune.yaml").settings()
    trials = [
        plain_trial(Trial(name, settings, generation=int(name != "c")))
        for name, settings in zip("abc", first, strict=True)
    ]
    (tmp_path / "tuning.json").write_text(json.dumps({"format": 1, "trials": trials}))
    (tmp_path / "pbt.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in EXPLOITS))
    return tmp_path


def test_the_file_of_a_replay(tuning: Path) -> None:
    first = read_tune_file(tuning / "tune.yaml").settings()
    file = replay_file(tuning / "b", ["tune.max_failures=0"])
    assert file.settings() == [first[2]]
    assert file.experiment.session_config.seed == 7 + 2
    assert (file.report_every, file.tune.trials, file.tune.max_failures) == (5.0, 1, 0)
    scheduler = file.scheduler()
    assert isinstance(scheduler, FixedSchedule)
    assert [time for time, _ in scheduler.changes] == [0, 20, 30, 40]
    # As its folder has it, for a resume.
    file.to_config().dump_file(tuning / "again.yaml")
    again = read_tune_file(tuning / "again.yaml")
    assert (again.tune, again.settings()) == (file.tune, file.settings())
    (tuning / "pbt.jsonl").unlink()
    assert replay_file(tuning / "a").settings() == [first[0]]


def test_what_cannot_be_replayed(tuning: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no trial of a tuning"):
        replay_file(tmp_path / "elsewhere" / "a")
    with pytest.raises(UsageError, match="has no trial d; there are 3"):
        replay_file(tuning / "d")
    with pytest.raises(ConfigError, match=r"tune\.replay: times of changes are \[\]"):
        read_tune_file(tuning / "tune.yaml", ["tune.scheduler=replay"])
