"""Population based training with trials of several processes: exploits keep all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from session.folder import RunFolder
from session.process.heartbeat import read_beats
from tests.polling import until
from tests.runs.test_tune import ended, start, trials
from tests.runs.test_tune_pbt import FILE, RATE, exploits, lines

pytestmark = pytest.mark.slow
# Rows of an unroll of 32 streams, and unrolls that were sent and not learned from.
UNROLL, UNROLLS_WAITING = 32 * 32, 2


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
    shown = [_rate_is_new(RunFolder(folder / each["recipient"]), each) for each in found]
    assert any(shown)


def _rate_is_new(run: RunFolder, exploit: dict[str, Any]) -> bool:
    """Checks the first learning rate after an exploit, by the time of the weights.

    Returns:
        False if the budget was used up before an update.
    """
    progress = lines(run.progress)
    later = [each for each in progress if each["generation"] == exploit["generation"]]
    rates = [each["learn"]["learning_rate"] for each in later if each.get("learn")]
    if not rates:
        return False
    share = rates[0] / exploit["new_settings"][RATE]
    # The schedule goes from its start to 0 in 150,000 steps.
    assert 1 - later[-1]["time"]["env_steps"] / 150_000 <= share
    # The weights had not learned from all rows by then: one unroll waits, one is on its way.
    learned = exploit["donor_time"] - UNROLLS_WAITING * UNROLL
    assert share <= 1 - learned / 150_000 + 1e-9
    assert any(each["held_seconds"] > 0 for each in progress)
    return True
