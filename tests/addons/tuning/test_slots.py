"""Slots of a tuning follow from the cores and the memory of the machine."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from session.config import Config
from session.errors import UsageError
from session.folder import RunFolder
from surreal_like.addons.tuning import slots
from surreal_like.addons.tuning.slots import Machine, find_slots, gpu_of
from surreal_like.addons.tuning.state import Trial, plain_trial
from surreal_like.addons.tuning.trial import choose_gpu
from surreal_like.addons.tuning.tune_defaults import TUNE_CONFIG
from surreal_like.experiment.resolve import resolve

GIB = 1 << 30
MACHINE = Machine(4, 8 * GIB)


@pytest.fixture(scope="module")
def config() -> Config:
    given = {"algorithm": "dqn", "env_config": {"env_name": "toy:chain"}, "session_config": {}}
    return resolve(Config(given))


def tune(**given: Any) -> dict[str, Any]:
    return {**TUNE_CONFIG.tune, **given}


def test_slots_are_cores_over_those_of_a_trial(config: Config) -> None:
    assert find_slots(tune(), config, MACHINE).num == 4
    assert find_slots(tune(trial_cores=1.5), config, MACHINE).num == 2
    assert find_slots(tune(trial_cores=3.0), config, MACHINE).num == 1
    found = find_slots(tune(slots=6), config, MACHINE)
    assert (found.num, found.note) == (
        6,
        "6 slots of 1 cores are more than the 4 of this machine: trials share them",
    )


def test_a_local_trial_gets_what_its_components_ask_for(config: Config) -> None:
    for cores, num, trial_cores in ((2, 1, 2), (64, 8, 7.25)):
        found = find_slots(tune(launcher="local"), config, Machine(cores, 64 * GIB))
        assert (found.num, found.trial_cores) == (num, trial_cores)
        assert ("a trial gets them all" in found.note) == (cores == 2)


def test_residents_are_bounded_by_memory(config: Config) -> None:
    given = tune(trial_memory_bytes=GIB)
    found = find_slots(given, config, MACHINE)
    assert (found.num, found.max_resident, found.note) == (4, 6, "")
    found = find_slots(given | {"slots": 8}, config, MACHINE)
    assert (found.num, found.max_resident) == (6, 6)
    assert found.note == "8 slots, but memory for 6 trials: 6 work at the same time"
    found = find_slots(given | {"max_resident": 2}, config, MACHINE)
    assert (found.num, found.max_resident) == (2, 2)


def test_gpus_bound_the_slots(config: Config) -> None:
    machine = Machine(16, 64 * GIB, ("2", "5"))
    for share, num in ((0.0, 16), (0.5, 4), (1 / 3, 6), (1.0, 2), (2.0, 1)):
        assert find_slots(tune(trial_gpus=share), config, machine).num == num
    for share, gpus in ((1.0, "2525"), (0.5, "2255"), (1 / 3, "2225")):
        assert "".join(gpu_of(slot, share, machine.gpus) for slot in range(4)) == gpus
    with pytest.raises(UsageError, match=r"tune.trial_gpus is 0.5, but this machine has 0 GPUs"):
        find_slots(tune(trial_gpus=0.5), config, MACHINE)


@pytest.mark.parametrize(("visible", "gpus"), [("", ()), ("3,7", ("3", "7")), (None, ("0", "1"))])
def test_gpus_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, visible: str | None, gpus: tuple[str, ...]
) -> None:
    for name in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(slots, "_NVIDIA", tmp_path)
    monkeypatch.delenv(slots.VISIBLE, raising=False)
    if visible is not None:
        monkeypatch.setenv(slots.VISIBLE, visible)
    assert slots.find_gpus() == gpus


def test_a_trial_sees_the_gpu_of_its_slot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trials = [Trial("trial-000", {}, slot=1), Trial("trial-001", {})]
    entries = [plain_trial(each) for each in trials]
    (tmp_path / "tuning.json").write_text(json.dumps({"format": 1, "trials": entries}))
    for share, name, seen in ((1.0, "trial-000", "7"), (1.0, "trial-001", "3,7"), (0.0, "", "3,7")):
        monkeypatch.setenv(slots.VISIBLE, "3,7")
        (tmp_path / "tune.yaml").write_text(f"algorithm: dqn\ntune: {{trial_gpus: {share}}}\n")
        choose_gpu(RunFolder(tmp_path), name or "trial-000")
        assert os.environ[slots.VISIBLE] == seen


def test_residents_follow_from_what_trials_use(config: Config) -> None:
    found = find_slots(tune(slots=2), config, MACHINE)
    replay = found.trial_bytes - 250_000_000
    assert found.residents(0.0) == found.max_resident == int(0.85 * 8 * GIB / found.trial_bytes)
    assert found.residents(GIB) == 6
    # Never fewer than work at the same time, nor more than full replays leave room for.
    assert found.residents(8 * GIB) == 2
    assert found.residents(1.0) == int(0.85 * 8 * GIB / replay)
    for given in ({"max_resident": 5}, {"trial_memory_bytes": GIB}):
        found = find_slots(tune(slots=2, **given), config, MACHINE)
        assert found.residents(4 * GIB) == found.max_resident


def test_a_trial_takes_replay_and_processes(config: Config) -> None:
    serial = find_slots(tune(), config, MACHINE).trial_bytes
    local = find_slots(tune(launcher="local"), config, MACHINE).trial_bytes
    assert 250_000_000 < serial < 500_000_000
    assert (local - serial) % 250_000_000 == 0
    assert local > serial


def test_what_can_never_start_is_refused(config: Config) -> None:
    with pytest.raises(UsageError, match=r"tune.trial_cores is 8, but this machine has 4 cores"):
        find_slots(tune(trial_cores=8.0), config, MACHINE)
    large = config.copy()
    large.learner_config.replay.capacity = 10**9
    with pytest.raises(UsageError, match=r"\(replay [\d.]+, 1 processes 0.2\).* has 8.6 available"):
        find_slots(tune(), large, MACHINE)
    with pytest.raises(UsageError, match=r"takes 9.0 GB \(tune.trial_memory_bytes\)"):
        find_slots(tune(trial_memory_bytes=9_000_000_000), config, MACHINE)
