"""Population based training with trials of several processes: exploits keep all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from session.folder import RunFolder
from session.process.heartbeat import read_beats
from tests.addons.tuning.runs.test_tune import ended, start, trials
from tests.addons.tuning.runs.test_tune_pbt import FILE, RATE, exploits, lines
from tests.polling import until

pytestmark = pytest.mark.slow
# Rows of an update: one unroll of 32 streams. One row of an episode is no step, the newest
# observation; the shortest episode of CartPole has 8 steps.
ROWS, SHORTEST = 32 * 32, 8


@pytest.mark.timeout(250)
def test_exploits_keep_the_processes_of_a_trial(tmp_path: Path) -> None:
    file, folder = tmp_path / "small.yaml", tmp_path / "tuning"
    file.write_text(FILE.replace("stop: {env_steps: 12_000}", "stop: {env_steps: 18_000}"))
    process = start(folder, str(file), "tune.launcher=local", "tune.trials=2", "tune.slots=2")
    seen: dict[tuple[str, str], set[int]] = {}

    def over() -> bool:
        for trial in folder.glob("trial-*"):
            for name, beat in read_beats(trial / "alive").items():
                seen.setdefault((trial.name, name), set()).add(beat.pid)
        return (folder / "result.json").is_file()

    until(over)
    ended(process, 0)
    assert {each["failures"] for each in trials(folder).values()} == {0}
    assert {"learner", "agent-0", "replay-0", "ps"} <= {name for _, name in seen}
    assert set(map(len, seen.values())) == {1}, seen
    found = exploits(folder)
    assert found
    assert all(each["in_place"] for each in found)
    shown = [_rate_is_new(folder, each) for each in found]
    assert any(shown)


def _rate_is_new(folder: Path, exploit: dict[str, Any]) -> bool:
    """Checks the first learning rate after an exploit, by the updates that the weights have had.

    It is the mean of the updates of its line. Rows that are left out after an exploit are never
    learned from, so the steps that were taken say less than the number of updates.

    Returns:
        False if the budget was used up before an update.
    """
    progress = lines(RunFolder(folder / exploit["recipient"]).progress)
    later = [each for each in progress if each["generation"] == exploit["generation"]]
    first = next((each for each in later if each.get("learn")), None)
    if first is None:
        return False
    share = first["learn"]["learning_rate"] / exploit["new_settings"][RATE]
    donor = lines(RunFolder(folder / exploit["donor"]).progress)
    times = [each["time"] for each in donor]
    # More than one where a line was written before its updates, or its rows, were all counted.
    before = [each["iterations"] for each in times if each["env_steps"] == exploit["donor_time"]]
    last = first["time"]["iterations"]
    fewest, most = (min(before) + 1 + last) / 2, (max(before) + 1 + last) / 2
    # The schedule goes from its start to 0 in 150,000 steps.
    assert 1 - most * ROWS / 150_000 <= share + 1e-9
    assert share <= 1 - fewest * ROWS * SHORTEST / (SHORTEST + 1) / 150_000 + 1e-9
    assert any(each["held_seconds"] > 0 for each in progress)
    return True
