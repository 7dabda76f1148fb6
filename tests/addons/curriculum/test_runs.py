"""Curricula in whole runs."""

from __future__ import annotations

import signal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from surreal_like import train
from surreal_like.addons.curriculum.curriculum import Curriculum
from tests.docs.examples import write_files
from tests.runs.command import ROOT, Train, balanced, clean
from tests.runs.serial_faults import SerialRun, play

pytestmark = pytest.mark.usefixtures("quick")

SAMPLES = "tests.surreal_like.env.task_samples"
FUNCTIONS = "tests.addons.curriculum.functions"
STAGES = {
    "env_config.env_name": f"{SAMPLES}:Tasked",
    "env_config.curriculum": f"{FUNCTIONS}:by_steps",
    "session_config.stop.env_steps": 3000,
    # Reports often enough to see each stage.
    "session_config.learner.report_seconds": 0.02,
    "learner_config.replay.samples_per_insert": 0.5,
}


def tasks(events: list[dict[str, Any]]) -> list[tuple[int, Any]]:
    """Returns number and length of each task, in the order of the events."""
    found = (event for event in events if event["event"] == "task")
    return [(event["number"], event["task"]["length"]) for event in found]


@pytest.mark.slow
def test_a_learner_that_is_killed_goes_on_with_its_task(tmp_path: Path) -> None:
    def kill_in_stage_2(run: SerialRun) -> Any:
        record = run.running("learner").coordinator.record
        run.until(lambda: record.task["number"] == 2)
        return run.kill_and_wait("learner").coordinator.record.task["number"]

    ended = play(tmp_path / "run", kill_in_stage_2, STAGES)
    assert ended.seen == 2
    # A killed process loses its events of the last second.
    assert tasks(ended.events)[-1] == (3, 4)
    assert ended.result["task"] == {"number": 3, "settings": {"length": 4}}
    assert ended.progress[-1]["task"] == ended.result["task"]
    # Episodes of the newest task have its length, so they have been reset with it.
    assert ended.progress[-1]["metrics"]["task"]["max"] == 3.0
    assert ended.progress[-1]["train"]["episode_length_100"] > 3.0


@pytest.mark.slow
def test_in_one_thread_it_is_asked_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    choose = Curriculum.choose

    def count(source: Curriculum, context: Any, record: Any, learners: Any) -> bool:
        asked.append(record.accounts.env_steps)
        return choose(source, context, record, learners)

    monkeypatch.setattr(Curriculum, "choose", count)
    train(
        algorithm="dqn",
        env=f"{SAMPLES}:Tasked",
        launcher="serial",
        folder=tmp_path / "run",
        overrides={
            "env_config.curriculum": f"{FUNCTIONS}:by_steps",
            "session_config.import_path": [str(ROOT)],
            "session_config.stop": {"env_steps": 1500, "eval_episodes": 2},
            "learner_config.replay": {"min_size": 100, "samples_per_insert": 1.0},
        },
    )
    gaps = [after - before for before, after in pairwise(asked)]
    assert max(gaps) <= 400


@pytest.mark.slow
def test_only_episodes_of_the_present_task_count(tmp_path: Path) -> None:
    """Episodes of an earlier task that end after the change are left out, as are evaluations."""
    seen: list[tuple[int, int, bool]] = []

    def watch(run: SerialRun) -> Any:
        owner = run.running("learner").coordinator
        record = owner.record

        def look() -> bool:
            progress, task = owner._tasks.progress(record, owner.learners), record.task
            seen.append((task["number"], progress.episodes, progress.evaluation is not None))
            newest = [each for each in record.episodes if "task" in each["metrics"]]
            own = [each for each in newest if each["metrics"]["task"] == task["number"]]
            assert progress.episodes >= len(own)
            assert len(record.task_episodes) == min(100, progress.episodes)
            own += record.task_episodes
            assert all(each["length"] == task["settings"]["length"] for each in own)
            assert "task" not in progress.metrics
            return bool(task["number"] == 3)

        run.until(look)

    play(tmp_path / "run", watch, STAGES)
    for number in (2, 3):
        first = next(each for each in seen if each[0] == number)
        assert first[1:] == (0, False)
    assert any(each[0] == 2 and each[1] > 0 for each in seen)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_example_of_the_page_is_killed_and_resumed_in_its_second_stage(
    run_folder: Path,
) -> None:
    home = run_folder.parent
    write_files(ROOT / "docs" / "environment_options.md", home)
    (home / "held.py").write_text(
        "from pathlib import Path\n\nfrom .stairs import next_task\n\n\n"
        "def hold(progress, task):\n"
        "    wait = task.get('height') == 4 and not (Path(__file__).parent / 'go').exists()\n"
        "    return None if wait else next_task(progress, task)\n"
    )
    words = (str(home / "stairs.yaml"), f"env_config.curriculum={home}/held.py:hold")
    with Train(run_folder, *words) as train:
        train.until(lambda: len(train.events_of("task")) == 2, seconds=60)
        train.kill("learner")
        train.learn(20)
        train.signal(signal.SIGKILL)
        train.wait()
    with Train(run_folder, "--resume") as train:
        # The rows of the second stage are lost: without new ones the third is learned from nothing.
        train.learn(500)
        (home / "go").touch()
        assert train.wait(200) == 0, train.words
    assert [event["task"]["height"] for event in train.events_of("task")] == [2, 4, 8]
    assert train.result["goal_met"] is True
    assert train.result["task"] == {"number": 3, "settings": {"height": 8}}
    assert balanced(train.result)


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("launcher", ["serial", "local"])
def test_an_error_in_the_function_ends_the_run_with_its_place(
    run_folder: Path, launcher: str
) -> None:
    settings = {**STAGES, "env_config.curriculum": f"{FUNCTIONS}:raises_later"}
    words = [f"{key}={value}" for key, value in settings.items()]
    words += ["--on", launcher, "--algorithm", "dqn", f"session_config.import_path=[{ROOT}]"]
    with Train(run_folder, *words) as train:
        assert train.wait(100) == 1, train.words
    assert "ZeroDivisionError" in train.words
    assert "functions.py" in train.words
    if launcher == "local":
        assert train.result["status"] == "failed"
        assert train.result["reason"].startswith("env_config.curriculum: ZeroDivisionError")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_tasks_reach_environments_of_several_agents_and_all_policies(tmp_path: Path) -> None:
    carts = str(ROOT / "configs" / "multi_cartpole_mixed.yaml")
    words = (
        f"env_config.curriculum={FUNCTIONS}:by_steps",
        f"session_config.import_path=[{ROOT}]",
        "session_config.stop={env_steps: 4000, eval_episodes: 5}",
        "policies.left.learner_config.replay.batch_size=4",
        "policies.right.learner_config.replay.min_size=100",
        "env_config.num_envs=4",
        "session_config.learner.report_seconds=0.05",
    )
    with Train(tmp_path / "run", carts, "--on", "serial", "--quiet", *words) as train:
        assert train.wait(200) == 0, train.words
    assert tasks(train.events) == [(1, 1), (2, 2), (3, 4)]
    assert train.line["metrics"]["task"]["max"] == 3.0
    assert clean(train.result)
