"""A replay that is killed loses no row that it has acked, and stores none twice."""

from pathlib import Path

import pytest

from tests.runs.command import CARTPOLE, Train, clean
from tests.runs.kept_rows import kill_often


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["UniformReplay", "PrioritizedReplay"])
def test_many_kills_under_load(kind: str, tmp_path: Path) -> None:
    found = kill_often(50, kind, tmp_path / "run", seed=3)
    assert found["sent"] > 0
    assert found["stored"] == found["sent"]
    assert (found["lost"], found["stored_twice"]) == (0, 0)


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("keep", ["process", "none"])
def test_the_account_of_a_run_says_what_a_kill_has_cost(keep: str, run_folder: Path) -> None:
    words = (f"session_config.replay.keep={keep}", "session_config.stop={env_steps: 20000}")
    with Train(run_folder, CARTPOLE, *words) as train:
        train.steps(5000)
        before = train.line["replay"]["size"]
        train.kill("replay-0")
        assert train.wait(180) == 0, train.words
    rows = train.result["experience"]
    reported = train.events_of("rows_lost")
    if keep == "process":
        assert rows["lost"] == 0
        assert not reported
        (restored,) = train.events_of("restored")
        assert int(restored["detail"].split()[0]) >= before
    else:
        assert rows["lost"] >= before
        assert len(reported) == 1
        assert reported[0]["detail"].startswith("replay-0 ended, and with it ")
        assert "lost with a replay shard" in train.words
    assert clean(train.result)
