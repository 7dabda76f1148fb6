"""Pictures of a tuning: scores of its trials, and the descent of a population."""

from __future__ import annotations

import json
import random
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex

from session.errors import UsageError
from session.folder import RunFolder
from surreal_like.addons.tuning.exploit_files import Arrow, donors, lineage, read_exploits
from surreal_like.addons.tuning.state import Trial, TrialState
from surreal_like.addons.tuning.tune_file import read_tune_file
from surreal_like.addons.tuning_plot.plot import TuningData, draw_lineage, draw_scores, plot_tuning
from tests.session.made_run import made_line

RATE, MINIBATCHES = "learner_config.algo.learning_rate.start", "learner_config.algo.minibatches"


def make(path: Path, trials: int, *, exploits: bool = True) -> Path:
    """Writes the folder of a tuning, whose trials report ten times."""
    draws = random.Random(0)
    path.mkdir()
    (path / "tune.yaml").write_text(
        f"""
algorithm: ppo
space:
  {RATE}: {{loguniform: [1.0e-5, 1.0e-1]}}
  {MINIBATCHES}: {{ordered: [1, 2, 4, 8]}}
tune:
  trials: {trials}
  stop: {{env_steps: 1000}}
  scheduler: pbt
  pbt: {{perturbation_interval: 100}}
"""
    )
    members = [
        Trial(f"trial-{number:03}", each, TrialState.terminated)
        for number, each in enumerate(read_tune_file(path / "tune.yaml").settings())
    ]
    lines = []
    offsets = dict.fromkeys((each.name for each in members), 0.0)
    for step in range(1, 11):
        for member in members:
            own = 100.0 * step
            member.time = own + offsets[member.name]
            member.score = 10 * step + draws.uniform(0, 40)
            run = RunFolder(path / member.name)
            run.path.mkdir(exist_ok=True)
            line = made_line(100 * step, training=member.score, episodes=20 * step)
            with run.progress.open("a") as file:
                file.write(json.dumps(line) + "\n")
        worst, *_, best = sorted(members, key=lambda each: each.score or 0.0)
        if exploits and step < 10:
            rate = {RATE: best.settings[RATE] * 0.8, MINIBATCHES: best.settings[MINIBATCHES]}
            lines.append(
                {
                    "recipient": worst.name,
                    "donor": best.name,
                    "recipient_time": worst.time,
                    "donor_time": best.time,
                    "new_settings": rate,
                }
            )
            offsets[worst.name] += best.time - worst.time
            worst.time, worst.settings, worst.generation = best.time, rate, worst.generation + 1
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (path / "pbt.jsonl").write_text(text + '{"recipient": "trial-000", "skipped": "x"}\n{"cut')
    state = {"format": 1, "trials": [asdict(each) for each in members]}
    (path / "tuning.json").write_text(json.dumps(state))
    return path


def test_parts_and_arrows_are_in_own_counts() -> None:
    first = {"a": {"x": 1}, "b": {"x": 2}, "c": {"x": 3}}
    exploits = [
        {
            "recipient": "a",
            "donor": "b",
            "recipient_time": 10,
            "donor_time": 30,
            "new_settings": {"x": 5},
        },
        {
            "recipient": "c",
            "donor": "a",
            "recipient_time": 20,
            "donor_time": 40,
            "new_settings": {"x": 6},
        },
    ]
    parts, arrows = lineage(first, exploits, {"a": 60, "b": 50, "c": 70})
    flat = {
        name: [(p.begin, p.end, p.root, p.settings["x"]) for p in own]
        for name, own in parts.items()
    }
    # The weights of a are 20 older than its own count after its exploit, those of c, too.
    assert flat == {
        "a": [(0, 10, "a", 1), (10, 40, "b", 5)],
        "b": [(0, 50, "b", 2)],
        "c": [(0, 20, "c", 3), (20, 50, "b", 6)],
    }
    assert arrows == [Arrow("b", "a", 30, 10), Arrow("a", "c", 20, 20)]
    assert donors([*exploits, exploits[0]]) == {
        "a": [(10, "b", 30), (10, "b", 30)],
        "c": [(20, "a", 40)],
    }


def test_the_best_trial_stands_out(tmp_path: Path) -> None:
    tuning = TuningData.read(make(tmp_path / "eight", 8))
    [axes] = draw_scores(tuning).axes
    lines = [line for line in axes.lines if np.size(line.get_xdata()) > 1]
    assert len(lines) == 8
    assert tuning.best is not None
    [thick] = [line for line in lines if line.get_linewidth() > 2]
    assert str(thick.get_label()).startswith(f"{tuning.best.name}@learning_rate=")
    assert thick.get_ydata()[-1] == tuning.best.score  # type: ignore[index]


def test_numbers_that_are_no_scores_are_not_drawn(tmp_path: Path) -> None:
    folder = make(tmp_path / "eight", 8)
    tuning = TuningData.read(folder)
    number, trial = next(pair for pair in enumerate(tuning.trials) if pair[1] is not tuning.best)
    line = made_line(1050, episodes=210, episodes_since_load=3)
    with RunFolder(folder / trial.name).progress.open("a") as file:
        file.write(json.dumps(line) + "\n")
    ends = {
        metric: list(draw_scores(tuning, metric).axes[0].lines)[2 * number].get_xdata()
        for metric in (None, "train.mean_return_100")
    }
    assert [np.max(xs) for xs in ends.values()] == [1000, 1050]


def test_many_trials_are_grey_beside_the_best(tmp_path: Path) -> None:
    tuning = TuningData.read(make(tmp_path / "forty", 40))
    [axes] = draw_scores(tuning).axes
    lines = [line for line in axes.lines if np.size(line.get_xdata()) > 1]
    assert len({to_hex(line.get_color()) for line in lines}) == 2
    legend = axes.get_legend()
    assert legend is not None
    [named] = legend.get_texts()
    assert tuning.best is not None
    assert named.get_text().startswith(tuning.best.name)


@pytest.mark.parametrize("trials", [3, 40])
def test_a_lineage_has_a_row_for_each_trial(tmp_path: Path, trials: int) -> None:
    tuning = TuningData.read(make(tmp_path / "tuning", trials))
    rows, rate, minibatches = draw_lineage(tuning).axes
    assert len(read_exploits(tuning.path, [each.name for each in tuning.trials])) == 9
    assert len(rows.lines) == len(rate.lines) == trials + 9
    assert [each.get_text() for each in rows.get_yticklabels()][:1] == ["trial-000"]
    assert rate.get_yscale() == "log"
    assert [each.get_text() for each in minibatches.get_yticklabels()] == ["1", "2", "4", "8"]


@pytest.mark.parametrize("trials", [3, 40])
def test_values_of_a_list_are_drawn_beside_their_name(tmp_path: Path, trials: int) -> None:
    tuning = TuningData.read(make(tmp_path / "tuning", trials))
    panel = draw_lineage(tuning).axes[2]
    heights = np.asarray([line.get_ydata()[0] for line in panel.lines])  # type: ignore[index]
    # Nearer to their own tick than to the middle between two.
    assert np.abs(heights - np.round(heights)).max() < 0.2


@pytest.mark.parametrize("bounds", ["[1.0e-3, 2.0e-3]", "[2.1e-4, 8.5e-4]", "[1.0e-5, 1.0e-1]"])
def test_a_logarithmic_axis_has_ticks_to_read_values_from(tmp_path: Path, bounds: str) -> None:
    folder = make(tmp_path / "tuning", 3)
    text = (folder / "tune.yaml").read_text().replace("[1.0e-5, 1.0e-1]", bounds)
    (folder / "tune.yaml").write_text(text)
    low, high = (float(each) for each in bounds.strip("[]").split(","))
    lines = [json.loads(each) for each in (folder / "pbt.jsonl").read_text().splitlines()[:-1]]
    for line in lines:
        if "new_settings" in line:
            line["new_settings"][RATE] = low
    (folder / "pbt.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    figure = draw_lineage(TuningData.read(folder))
    figure.draw_without_rendering()
    axis = figure.axes[1]
    shown = [
        tick.label1.get_text()
        for tick in axis.yaxis.get_major_ticks()
        if low * 0.99 <= tick.get_loc() <= high * 1.01
    ]
    assert len(shown) >= 2
    assert all(shown)
    assert len(shown) <= 8


def test_arrows_of_one_checkpoint_do_not_cover_each_other(tmp_path: Path) -> None:
    folder = make(tmp_path / "tuning", 4, exploits=False)
    settings = {RATE: 1e-3, MINIBATCHES: 2}
    loads = [("trial-001", 200.0), ("trial-002", 200.0), ("trial-003", 200.0), ("trial-001", 600.0)]
    lines = [
        {
            "recipient": name,
            "donor": "trial-000",
            "recipient_time": at,
            "donor_time": at,
            "new_settings": settings,
        }
        for name, at in loads
    ]
    (folder / "pbt.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = draw_lineage(TuningData.read(folder)).axes[0]
    arrows = [getattr(text, "arrow_patch", None) for text in rows.texts]
    bends = [arrow.get_connectionstyle().rad for arrow in arrows if arrow is not None]
    assert len(bends) == 4
    assert len(set(bends[:3])) == 3
    assert (bends[0], bends[3]) == (0.0, 0.0)


def test_files_of_pictures(tmp_path: Path) -> None:
    folder = make(tmp_path / "tuning", 3)
    for lineage_too in (False, True):
        path = plot_tuning(folder, out=tmp_path / "a.svg", lineage=lineage_too)
        assert path.stat().st_size > 1000
    plain = make(tmp_path / "plain", 3, exploits=False)
    with pytest.raises(UsageError, match="has no exploit to draw"):
        plot_tuning(plain, lineage=True, out=tmp_path / "b.png")
    with pytest.raises(UsageError, match="no metric 'train"):
        plot_tuning(plain, metric="train.mean_retrun", out=tmp_path / "b.png")
