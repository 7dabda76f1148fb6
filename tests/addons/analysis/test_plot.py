"""Pictures of runs: which lines there are, what they say, and where the file goes."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from PIL import Image

from session.errors import MissingExtra, UsageError
from session.folder import RunFolder
from session.program import install_line
from surreal_like.addons.analysis.plot import draw, metrics, plot
from surreal_like.addons.analysis.run_groups import group
from tests.session.made_run import made_config, made_events, made_line, made_run


def make(path: Path, seed: int, end: int, *, goal_met: bool = True, **settings: object) -> Path:
    """A run whose greedy return is steps / 10 + seed, whose training return is a tenth of it."""
    config = made_config(seed, **{"session_config__stop__eval_return": 100, **settings})  # type: ignore[arg-type]
    lines = [
        made_line(steps, greedy=steps / 10 + seed, training=steps / 100)
        for steps in range(0, end + 1, 100)
    ]
    made_run(path, lines, config=config, result={"status": "stopped", "goal_met": goal_met})
    return path


@pytest.fixture
def seeds(tmp_path: Path) -> list[Path]:
    return [
        make(tmp_path / f"chain-20250101-120000-seed{seed}", seed, 1000 + 100 * seed)
        for seed in (0, 1, 2)
    ]


def axes_of(runs: list[Path], metric: str | None = None, x: str = "env_steps") -> Axes:
    return draw(group([RunFolder(run) for run in runs]), metric, x).axes[0]


def points(line: Line2D) -> npt.NDArray[np.float64]:
    return np.asarray(line.get_xydata())


def said(axes: Axes) -> list[str]:
    legend = axes.get_legend()
    assert legend is not None
    return [text.get_text() for text in legend.get_texts()]


def thick(axes: Axes) -> list[Line2D]:
    return [line for line in axes.lines if line.get_linewidth() > 1.2]


@pytest.mark.parametrize("others", [None, 200, 100])
def test_a_goal_of_one_of_two_experiments_has_its_name_and_colour(
    tmp_path: Path, others: int | None
) -> None:
    stop = "session_config__stop__eval_return"
    settings: dict[str, Any] = {stop: others, "env_config__num_envs": 3}
    one = make(tmp_path / "one", 0, 1000, env_config__num_envs=2)
    other = make(tmp_path / "other", 0, 1000, **settings)
    axes = axes_of([one, other])
    goals = [text for text in axes.texts if text.get_text().startswith("goal")]
    if others == 100:
        assert [text.get_text() for text in goals] == ["goal 100"]
        return
    labels = said(axes)[:2]
    wanted = [f"goal 100 of {labels[0]}", f"goal 200 of {labels[1]}"]
    assert [text.get_text() for text in goals] == wanted[: 1 + (others is not None)]
    curves = {line.get_color() for line in thick(axes)}
    dotted = [line for line in axes.lines if line.get_linewidth() == 1]
    assert len({line.get_color() for line in dotted} & curves) == len(dotted) == len(goals)


def test_three_seeds_are_mean_and_band_of_evaluation_and_training(seeds: list[Path]) -> None:
    axes = axes_of(seeds)
    assert said(axes) == [
        "greedy evaluation: mean of 3 runs",
        "training, last 100 episodes: mean of 3 runs",
        "band: lowest to highest run",
    ]
    greedy, training = thick(axes)
    assert greedy.get_color() != training.get_color()
    assert greedy.get_linestyle() != training.get_linestyle()
    at_500 = points(greedy)[np.argmin(abs(points(greedy)[:, 0] - 500))]
    assert at_500[1] == pytest.approx(at_500[0] / 10 + 1)
    # Runs that reached the goal keep their last value: 100, 111 and 122.
    assert points(greedy)[-1] == pytest.approx([1200, 111])
    texts = [text.get_text() for text in axes.texts]
    assert "goal 100" in texts
    assert "mean: solved runs keep their last value" in texts
    assert axes.get_title(loc="left") == "chain"
    assert "dqn on toy:chain · seeds 0, 1, 2" in texts
    assert axes.get_xlabel() == "environment steps"
    # Each run is there, too, in faint lines.
    assert len([line for line in axes.lines if line.get_linewidth() < 1]) == 6


def test_many_experiments_leave_room_for_their_curves(tmp_path: Path) -> None:
    """What they are stands below the title, each environment once, and no wider than the axes."""
    names = {"dqn": "a", "ppo": "a", "sac": "b" * 200}
    for number, (algorithm, env) in enumerate(names.items()):
        config = made_config(0, env_config__env_name=f"toy:{env}", algorithm=algorithm)
        made_run(tmp_path / f"{number}", [made_line(9, greedy=1.0)], config=config)
    figure = draw(group([RunFolder(tmp_path / name) for name in "012"]))
    figure.draw_without_rendering()
    axes = figure.axes[0]
    [below] = [
        text for text in axes.texts if text.get_text().startswith("dqn, ppo on toy:a; sac on")
    ]
    assert below.get_text().endswith(" ...")
    whole = figure.get_window_extent()
    assert below.get_window_extent().x1 <= whole.x1
    assert axes.get_window_extent().width > 0.7 * whole.width


def test_runs_that_were_cut_off_end_the_mean(tmp_path: Path) -> None:
    runs = [make(tmp_path / f"a-seed{s}", s, 500 + 500 * s, goal_met=False) for s in (0, 1)]
    axes = axes_of(runs)
    assert points(thick(axes)[0])[-1][0] == 500
    assert all("last value" not in text.get_text() for text in axes.texts)


@pytest.mark.parametrize(
    ("metric", "end"), [("best_eval.mean_return", 1200), ("rates.env_steps_per_second", 1000)]
)
def test_only_returns_go_on_where_a_run_has_ended(seeds: list[Path], metric: str, end: int) -> None:
    assert points(thick(axes_of(seeds, metric))[0])[-1][0] == end


def test_one_run_has_neither_mean_nor_band(seeds: list[Path]) -> None:
    axes = axes_of(seeds[:1], x="seconds")
    assert said(axes) == ["greedy evaluation", "training, last 100 episodes"]
    assert axes.get_xlabel() == "seconds"
    assert points(axes.lines[0])[1] == pytest.approx([1.0, 10.0])


def test_a_mode_that_does_not_judge_has_a_line_of_its_own(
    seeds: list[Path], tmp_path: Path
) -> None:
    shown = {"mean_return": 7.0, "env_steps": 150, "iteration": 15, "wall_seconds": 1.5}
    lines = [made_line(200, greedy=1.0, eval_stochastic=shown)]
    axes = axes_of([made_run(tmp_path / "a", lines).path])
    assert said(axes)[-1] == "stochastic evaluation"
    assert points(axes.lines[-1])[0] == pytest.approx([150, 7.0])
    assert "stochastic evaluation" not in said(axes_of(seeds))


def test_the_axis_begins_at_zero_also_where_reports_begin_late(tmp_path: Path) -> None:
    run = made_run(tmp_path / "a", [made_line(steps, greedy=1.0) for steps in (500, 900)])
    assert axes_of([run.path]).get_xlim()[0] == 0


@pytest.mark.parametrize("steps", [(900, 903, 906), (500, 500, 500), (40, 44, 900)])
def test_dots_of_very_short_runs_are_whole_and_beside_the_legend(
    tmp_path: Path, steps: tuple[int, ...]
) -> None:
    paths = [tmp_path / f"r-{seed}" for seed in range(3)]
    for seed, (path, at) in enumerate(zip(paths, steps, strict=True)):
        made_run(path, [made_line(at, training=10.0 * seed)], config=made_config(seed))
    figure = draw(group([RunFolder(path) for path in paths]))
    figure.draw_without_rendering()
    [axes] = figure.axes
    legend = axes.get_legend()
    assert legend is not None
    frame, ground = axes.get_window_extent(), legend.get_window_extent()
    dots = [line for line in axes.lines if line.get_marker() == "o"]
    assert len(dots) == 3
    for line in dots:
        [(x, y)] = axes.transData.transform(line.get_xydata())
        radius = line.get_markersize() / 2 * figure.dpi / 72
        assert frame.x0 + radius < x < frame.x1 - radius
        assert frame.y0 + radius < y < frame.y1 - radius
        assert not ground.contains(x, y)


def test_intervals_surround_the_interquartile_mean(tmp_path: Path) -> None:
    """Of seeds 0 to 4 the returns at a step lie 1 apart; one of five is left out at each end."""
    runs = [make(tmp_path / f"a-seed{seed}", seed, 500) for seed in (0, 1, 2, 3, 9)]
    axes = draw(group([RunFolder(run) for run in runs]), band="interval").axes[0]
    assert said(axes)[0] == "greedy evaluation: interquartile mean of 5 runs"
    assert said(axes)[-1] == "band: 95 % interval of the mean"
    assert points(thick(axes)[0])[-1] == pytest.approx([500, 52])
    edge = np.asarray(axes.collections[0].get_paths()[0].vertices)
    last = edge[edge[:, 0] == 500][:, 1]
    assert 50 < last.min() < 52 < last.max() < 59


def test_curves_of_one_point_are_dots(tmp_path: Path) -> None:
    runs = []
    for seed in range(3):
        line = made_line(500 + seed, greedy=1.0)
        runs.append(made_run(tmp_path / f"a-seed{seed}", [line], config=made_config(seed)))
    axes = axes_of([run.path for run in runs])
    assert [line.get_marker() for line in axes.lines if len(points(line)) == 1] == ["o"] * 6


def test_an_interval_of_few_seeds_is_refused(seeds: list[Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="chain has 2 seeds, an interval needs 5 or more"):
        plot(seeds[:2], out=tmp_path / "a.png", band="interval")
    with pytest.raises(UsageError, match="no band 'rang': there are range, interval"):
        plot(seeds, out=tmp_path / "a.png", band="rang")
    assert not (tmp_path / "a.png").exists()


def test_several_experiments_have_a_colour_each(seeds: list[Path], tmp_path: Path) -> None:
    other = make(tmp_path / "other-20250101-120000", 0, 600, session_config__agent__num=9)
    axes = axes_of([*seeds, other])
    assert said(axes) == [
        "chain, mean of 3 runs",
        "other",
        "greedy evaluation",
        "training, last 100 episodes",
        "band: lowest to highest run",
    ]
    colours = [line.get_color() for line in thick(axes)]
    assert colours[0] == colours[1] != colours[2] == colours[3]
    assert axes.get_title(loc="left") == "2 experiments"


def test_a_metric_by_its_dotted_name_or_tag(seeds: list[Path]) -> None:
    made_events(RunFolder(seeds[0]), "learn/loss", {100: 2.0, 300: 1.0})
    made_events(RunFolder(seeds[1]), "learn/loss", {100: 4.0, 300: 3.0})
    axes = axes_of(seeds, "learn/loss", "iterations")
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("learn/loss", "updates")
    assert said(axes) == ["learn/loss: mean of 2 runs", "band: lowest to highest run"]
    [mean] = thick(axes)
    assert points(mean)[0] == pytest.approx([10, 3])
    axes = axes_of(seeds, "rates.env_steps_per_second")
    assert points(thick(axes)[0])[0][1] == 100
    assert not [text for text in axes.texts if text.get_text().startswith("goal")]


def test_a_metric_that_is_the_goal_has_its_line(tmp_path: Path) -> None:
    lines = [made_line(100, metrics={"my/score": {"mean": 2.0}})]
    config = made_config(session_config__stop__metric="my/score", session_config__stop__above=3.0)
    run = made_run(tmp_path / "a", lines, config=config)
    axes = axes_of([run.path], "metrics.my/score.mean")
    assert "goal 3" in [text.get_text() for text in axes.texts]


def test_rows_of_a_shard_are_named_on_the_axis(seeds: list[Path]) -> None:
    made_events(RunFolder(seeds[0]), "replay.core/size:replay-0", {100: 2.0})
    assert axes_of(seeds, "replay.core/size").get_xlabel() == "rows of the shard"


def test_the_file_has_a_name_of_its_own(
    seeds: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert plot(seeds) == Path("chain-return.png")
    assert plot(seeds[0], metric="lag.mean_versions", x="seconds") == Path(
        "chain-lag.mean_versions.png"
    )
    other = make(tmp_path / "other", 0, 600, session_config__agent__num=9)
    assert plot([*seeds, other], metric="waiting_share") == Path("2-experiments-waiting_share.png")
    with Image.open("chain-return.png") as image:
        assert image.size[0] >= 900
        assert np.asarray(image.convert("L")).min() < 100


@pytest.mark.parametrize("name", ["a.svg", "a.pdf", "a.PNG"])
def test_other_kinds_of_pictures(seeds: list[Path], tmp_path: Path, name: str) -> None:
    assert plot(seeds, out=tmp_path / name).stat().st_size > 1000


def test_what_there_is_to_draw(seeds: list[Path]) -> None:
    made_events(RunFolder(seeds[0]), "learn/loss", {100: 2.0})
    names, tags = metrics(seeds)
    assert "train.mean_return_100" in names
    assert tags == ["learn/loss"]


def test_what_cannot_be_drawn_is_one_clear_line(seeds: list[Path], tmp_path: Path) -> None:
    empty = made_run(tmp_path / "empty").path
    for runs, options, words in (
        ([], {}, "name at least one"),
        ([tmp_path], {}, "is not a run folder"),
        (seeds, {"x": "days"}, "no axis 'days': there are env_steps, seconds, iterations"),
        (seeds, {"out": "a.bmp"}, r"must end in \.png, \.svg, \.pdf"),
        (seeds, {"out": tmp_path / "no" / "a.png"}, "there is no folder"),
        (seeds, {"metric": "lag.mean_version"}, r"did you mean lag\.mean_versions"),
        ([empty], {}, "nothing to plot yet: no return was reported in .*empty"),
    ):
        with pytest.raises(UsageError, match=words):
            plot(runs, **options)


def test_without_matplotlib_the_extra_is_named(
    seeds: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match=re.escape(install_line("plot"))):
        plot(seeds, out="a.png")


def test_long_names_leave_the_axes_their_width(tmp_path: Path) -> None:
    """A legend that was wider than the picture halved the axes, and was cut."""
    lines = [made_line(steps, greedy=1.0) for steps in (100, 900)]
    for number in (1, 2):
        changes: dict[str, Any] = {
            "env_config.env_name": "gym:a_package_of_environments:TheirLongestName-v5",
            "learner_config.replay.capacity": 1_000_000 + number,
            "learner_config.replay.min_size": 100_000 + number,
            "learner_config.replay.batch_size": 10_000 + number,
        }
        for seed in (1, 2):
            made_run(tmp_path / f"{number}{seed}", lines, config=made_config(seed, **changes))
    runs = [RunFolder(path) for path in sorted(tmp_path.iterdir())]
    figure = draw(group(runs))
    figure.draw_without_rendering()
    [axes] = figure.axes
    legend = axes.get_legend()
    assert legend is not None
    width = figure.get_window_extent().width
    assert axes.get_window_extent().width > 0.8 * width
    assert legend.get_window_extent().x1 < width
