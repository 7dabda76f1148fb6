"""Methods side by side: which runs belong together, what is computed, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from session.config import Config
from session.errors import ConfigError, UsageError
from surreal_like.addons.analysis.comparison import compare
from tests.session.made_run import made_config, made_line, made_run

# Scores of the golden numbers of `test_statistics.py`: rows are seeds, columns are tasks.
RAINBOW = ((0.1, 0.9), (0.4, 1.2), (0.6, 1.0), (0.2, 0.8), (0.5, 1.5))
DQN = ((0.1, 0.7), (0.3, 1.0), (0.5, 1.1), (0.2, 0.6), (0.4, 0.9))
TASKS = ("gym:CartPole-v1", "gym:Acrobot-v1")
UNITS = "gym:CartPole-v1: {low: 0, high: 1}\ngym:Acrobot-v1: {low: 0, high: 1}\n"


def make(folder: Path, scores: tuple[tuple[float, ...], ...], **settings: object) -> list[Path]:
    """Runs of one method: one for each seed and task; an earlier score counts nothing."""
    paths = []
    for task, column in zip(TASKS, zip(*scores, strict=True), strict=False):
        for seed, score in enumerate(column):
            # Each task has a goal of its own.
            of_task = {"env_config__env_name": task, "session_config__stop__eval_return": len(task)}
            config = made_config(seed, **{**of_task, **settings})  # type: ignore[arg-type]
            path = folder / f"{task[4:8]}-20250101-120000-seed{seed}"
            made_run(
                path, [made_line(100, greedy=9.0), made_line(200, greedy=score)], config=config
            )
            paths.append(path)
    return paths


@pytest.fixture
def both(tmp_path: Path) -> list[Path]:
    rainbow = make(tmp_path / "rainbow", RAINBOW, learner_config__model__noisy=0.5)
    return [*rainbow, *make(tmp_path / "dqn", DQN, session_config__stop__eval_return=3)]


@pytest.fixture
def units(tmp_path: Path) -> Path:
    path = tmp_path / "units.yaml"
    path.write_text(UNITS)
    return path


def test_tasks_of_one_method_are_joined(both: list[Path], units: Path) -> None:
    found = compare(both, normalize=units)
    first, second = found["methods"]
    assert first["label"].startswith("dqn on 2 tasks (")
    assert "noisy 0.5" in first["label"]
    assert (first["tasks"], first["seeds"]) == (sorted(TASKS), 5)
    assert first["scores"] == [[b, a] for a, b in RAINBOW]
    assert (first["iqm"], first["gap"]) == (pytest.approx(0.7), pytest.approx(0.35))
    assert first["interval"] == pytest.approx([0.567, 0.85], abs=0.02)
    assert first["profile"]["above"] == pytest.approx([1, 0.8, 0.6, 0.5, 0.2, 0.1])
    assert second["scores"] == [[b, a] for a, b in DQN]
    [pair] = found["improvement"]
    assert (pair["of"], pair["over"]) == (first["label"], second["label"])
    assert pair["probability"] == pytest.approx(0.66)
    assert pair["interval"][0] < 0.66 < pair["interval"][1]


@pytest.mark.parametrize("number", [3, 4])
def test_few_seeds_have_scores_and_a_range_and_no_interval(
    number: int, tmp_path: Path, units: Path
) -> None:
    few = make(tmp_path / "few", RAINBOW[:number], learner_config__model__noisy=0.5)
    found = compare([*few, *make(tmp_path / "many", DQN)], normalize=units)
    first, second = found["methods"]
    assert "iqm" not in first
    assert "interval" not in first
    scores = [one for row in first["scores"] for one in row]
    assert len(scores) == 2 * number
    assert first["mean"] == pytest.approx(sum(scores) / len(scores))
    assert first["range"] == [min(scores), max(scores)]
    assert "mean" not in second
    assert len(second["interval"]) == 2
    # Nor has a pair of which one has few.
    [pair] = found["improvement"]
    assert "interval" not in pair


def test_several_tasks_have_no_mean_before_they_are_normalized(both: list[Path]) -> None:
    found = compare(both)
    assert all("iqm" not in each and "profile" not in each for each in found["methods"])
    assert found["improvement"][0]["probability"] == pytest.approx(0.66)


def test_one_task_is_compared_in_its_own_units(tmp_path: Path) -> None:
    runs = make(tmp_path, tuple((row[0] * 100,) for row in RAINBOW))
    [method] = compare(runs)["methods"]
    assert method["label"] == "Cart"
    assert method["iqm"] == pytest.approx(110 / 3)
    assert method["profile"]["thresholds"] == pytest.approx([10, 20, 30, 40, 50])
    assert "gap" not in method
    assert compare(runs)["improvement"] == []


def test_low_and_high_are_those_of_the_file(tmp_path: Path) -> None:
    runs = make(tmp_path / "runs", tuple((10 + row[0],) for row in RAINBOW))
    path = tmp_path / "units.json"
    path.write_text('{"gym:CartPole-v1": {"low": 10, "high": 10.5}}')
    [method] = compare(runs, normalize=path)["methods"]
    assert method["iqm"] == pytest.approx(2 * 1.1 / 3)


def test_the_last_digits_of_sums_in_float32_do_not_count(tmp_path: Path) -> None:
    runs = make(tmp_path / "runs", tuple((-2 - 3e-8 * seed,) for seed in range(3)))
    path = tmp_path / "units.json"
    path.write_text('{"gym:CartPole-v1": {"low": -2, "high": 0.65}}')
    [method] = compare(runs, normalize=path)["methods"]
    assert method["scores"] == [[0.0]] * 3


def test_experiments_of_the_same_task_are_two_methods(tmp_path: Path) -> None:
    runs = make(tmp_path / "a", RAINBOW)
    runs += make(tmp_path / "b", DQN, session_config__stop__eval_return=3)
    assert [each["tasks"] for each in compare(runs)["methods"]] == [sorted(TASKS)] * 2


def test_a_setting_that_older_runs_of_a_task_lack_makes_no_other_method(tmp_path: Path) -> None:
    runs = make(tmp_path, RAINBOW)
    for path in runs[:5]:
        config = Config.load_file(path / "config.yaml")
        del config["session_config"]["tensorplex"]["debug_summaries"]
        config.dump_file(path / "config.yaml")
    assert [each["tasks"] for each in compare(runs)["methods"]] == [sorted(TASKS)]


def test_other_metrics_are_compared(tmp_path: Path) -> None:
    runs = make(tmp_path, tuple((row[0],) for row in RAINBOW))
    [method] = compare(runs, metric="best_eval.iteration")["methods"]
    assert method["scores"] == [[20]] * 5


@pytest.mark.parametrize(
    ("number", "options", "words"),
    [
        (2, {}, "Cart has 2 seeds, a comparison needs 3 or more: .* --seeds 1..5"),
        (0, {}, "name at least one"),
        (3, {"metric": "eval.mean_retrun"}, r"did you mean eval\.mean_return"),
        (8, {}, "dqn on 2 tasks has 3 to 5 seeds per task, expected equally many"),
    ],
)
def test_too_little_is_refused(
    tmp_path: Path, number: int, options: dict[str, str], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        compare(make(tmp_path, RAINBOW)[:number], **options)


def test_a_run_without_the_metric_is_named(tmp_path: Path) -> None:
    runs = make(tmp_path, tuple((row[0],) for row in RAINBOW))
    (runs[1] / "progress.jsonl").write_text("")
    with pytest.raises(UsageError, match=r"seed1 has no eval\.mean_return yet"):
        compare(runs)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gym:CartPole-v1: 3", "is 3, expected {low: NUMBER, high: NUMBER}"),
        ("gym:CartPole-v1: {low: 0, hihg: 1}", "expected {low: NUMBER, high: NUMBER}"),
        ("gym:CartPole-v1: {low: a, high: 1}", "expected finite numbers"),
        ("gym:CartPole-v1: {low: 0, high: .nan}", "expected finite numbers"),
        ("gym:CartPole-v1: {low: 1, high: 1}", "low 1, not below 1"),
        ("gym:CartPole-v0: {low: 0, high: 1}", "has no gym:CartPole-v1; did you mean gym:Cart"),
        ("", "has no gym:CartPole-v1; add 'gym:CartPole-v1: {low: , high: }'"),
    ],
)
def test_a_wrong_file_of_scales_is_refused(tmp_path: Path, text: str, words: str) -> None:
    runs = make(tmp_path / "runs", tuple((row[0],) for row in RAINBOW))
    path = tmp_path / "units.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words):
        compare(runs, normalize=path)
