"""`play`, `plot`, `evaluate` and `list runs`: what they print, and what they say to wrong words."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from main.cli.progress_lines import event_line
from main.cli.runs import find_runs
from session.errors import UsageError
from session.folder import RunFolder
from session.show.run_view import SHOWN_EVENTS
from tests.add_ons import needs
from tests.main.conftest import Command
from tests.session.made_run import made_beat, made_config, made_line, made_run

BEST = {"mean_return": 9.5}


@pytest.fixture
def runs(command: Command) -> list[str]:
    """Return the names of four runs below `runs/`: three seeds, and another one."""
    names = [f"chain-20250101-12000{seed}" for seed in (1, 2, 3)]
    for seed, name in enumerate(names, start=1):
        lines = [made_line(100, greedy=1.0, training=1.0), made_line(200, greedy=2.0 * seed)]
        result = {
            "status": "stopped",
            "goal_met": True,
            "best_eval": BEST,
            "env_steps": 200,
            "wall_seconds": 61.0,
        }
        made_run(Path("runs") / name, lines, config=made_config(seed), result=result)
    config = made_config(4, launcher="tmux", session_config__agent__num=5)
    made_run(Path("runs") / "walk-20250101-130000", [made_line(50)], config=config)
    return [*names, "walk-20250101-130000"]


# -- plot -----------------------------------------------------------------------------------------


def test_plot_names_the_file_that_it_drew(command: Command, runs: list[str]) -> None:
    said = command("plot", *runs[:3])
    assert (said.code, said.out, said.err) == (0, "chain-return.png\n", "")
    assert Path("chain-return.png").stat().st_size > 5000
    said = command(
        "plot", runs[0], "--metric", "lag.mean_versions", "--x", "seconds", "--out", "a.svg"
    )
    assert (said.code, said.out) == (0, "a.svg\n")
    assert "lag.mean_versions" in Path("a.svg").read_text()


def test_plot_lists_what_there_is(command: Command, runs: list[str]) -> None:
    said = command("plot", runs[0], "--list")
    head, *names = said.out.splitlines()
    assert head == "numbers of progress.jsonl:"
    assert "train.mean_return_100" in names
    assert names[-1] == "tags of TensorBoard:"


@pytest.mark.parametrize(
    ("word", "count"),
    [
        ("chain-20250101-120001", 1),
        ("runs/chain-20250101-120001", 1),
        ("chain", 3),
        ("chain-2025", 3),
        ("chain-*", 3),
        ("runs/chain-*1", 1),
        ("*", 4),
        ("runs", 4),
        ("latest", 1),
    ],
)
def test_runs_by_name_beginning_pattern_or_folder(runs: list[str], word: str, count: int) -> None:
    assert len(find_runs(word)) == count


def test_a_name_does_not_mean_runs_in_another_environment(command: Command) -> None:
    for name in ("chain-20250101-120000", "chain-Acrobot-v1-20250101-120000"):
        made_run(Path("runs") / name)
    assert [run.path.name for run in find_runs("chain")] == ["chain-20250101-120000"]
    assert len(find_runs("chain-")) == 2


def test_words_that_mean_no_run(command: Command, runs: list[str]) -> None:
    with pytest.raises(UsageError, match=r"no run fits 'chian-\*'; surreal-like list runs"):
        find_runs("chian-*")
    with pytest.raises(UsageError, match=r"no run 'chian-20250101-120001': .*did you mean chain-"):
        find_runs("chian-20250101-120001")


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["--metric", "lag.mean_version"], "did you mean lag.mean_versions"),
        (["--out", "a.bmp"], "must end in .png, .svg, .pdf"),
        (["--out", "no/a.png"], "there is no folder no"),
        (["--x", "days"], "invalid choice"),
    ],
)
def test_plot_refuses_in_one_line(
    command: Command, runs: list[str], words: list[str], answer: str
) -> None:
    said = command("plot", runs[0], *words)
    assert (said.code, said.out) == (2, "")
    assert answer in said.err
    assert said.err.count("\n") == 1


def test_compare_prints_scores_and_range_of_few_seeds(command: Command, runs: list[str]) -> None:
    made = [Path("runs") / f"run-20250101-14000{seed}" for seed in (1, 2, 3)]
    for seed, path in enumerate(made):
        config = made_config(seed, session_config__agent__num=5)
        made_run(path, [made_line(100, greedy=5.0)], config=config)
    said = command("compare", *runs[:3], "run", "--json", "compared.json")
    assert (said.code, said.err) == (0, "")
    head, _, names, chain, run, *rest = said.out.splitlines()
    assert head == "last eval.mean_return of each run, in units of the task"
    assert names.split("   ")[-1].strip() == "optimality gap"
    assert chain.split() == ["chain", "3", "1", "-", "-", "4", "2", "to", "6", "-"]
    assert run.split() == ["run", "3", "1", "-", "-", "5", "5", "to", "5", "-"]
    few = said.out.split("Fewer than 5 seeds show no interval, only their scores:\n")[1]
    assert few.splitlines()[:2] == ["chain: 2, 4, 6", "run: 5, 5, 5"]
    assert rest[1].split()[:5] == ["share", "of", "scores", "above", "2"]
    assert rest[-1].split()[:4] == ["chain", "over", "run", "0.33"]
    kept = json.loads(Path("compared.json").read_text())
    assert [each["mean"] for each in kept["methods"]] == [4.0, 5.0]
    assert kept["improvement"][0]["probability"] == pytest.approx(1 / 3)


def test_plot_without_a_report_says_so(command: Command) -> None:
    made_run(Path("runs") / "new")
    said = command("plot", "new")
    assert said.code == 2
    assert "nothing to plot yet" in said.err


# -- list runs ------------------------------------------------------------------------------------


def test_runs_are_listed_with_all_that_is_known(command: Command, runs: list[str]) -> None:
    made_beat(RunFolder(Path("runs") / runs[3]), "agent-0", "done")
    head, *rows = command("list", "runs").out.splitlines()
    assert head.split("   ")[0] == "run"
    assert [row.split()[0] for row in rows] == runs
    cells = [" ".join(row.split()[1:]) for row in rows]
    assert cells[0] == "goal met local dqn toy:chain 1 9.5 200 01:01"
    assert cells[3] == "cut off tmux dqn toy:chain 4 - 50 00:00"


def test_runs_as_json(command: Command, runs: list[str]) -> None:
    found = json.loads(command("list", "runs", "--json").out)
    assert [each["run"] for each in found] == runs
    assert found[0] == {
        "run": runs[0],
        "folder": f"runs/{runs[0]}",
        "state": "goal met",
        "launcher": "local",
        "algorithm": "dqn",
        "environment": "toy:chain",
        "seed": 1,
        "best_return": 9.5,
        "env_steps": 200,
        "wall_seconds": 61.0,
        "real_seconds": None,
    }
    assert found[3]["best_return"] is None
    assert command("list", "algorithms", "--json").code == 2


def test_what_a_counted_run_took_is_marked(command: Command) -> None:
    result = {"status": "stopped", "goal_met": True, "env_steps": 9, "wall_seconds": 3.2}
    serial = made_config(launcher="serial")
    made_run(Path("runs") / "a", config=serial, result=result)
    made_run(Path("runs") / "b", config=serial, result={**result, "real_seconds": 18.4})
    made_run(Path("runs") / "c", config=serial)
    rows = sorted(command("list", "runs").out.splitlines()[1:])
    assert [row.split("   ")[-1].strip() for row in rows] == [
        "00:03 counted",
        "00:18 (00:03 counted)",
        "-",
    ]


def test_no_runs_as_json_is_an_empty_list(command: Command) -> None:
    assert json.loads(command("list", "runs", "--json").out) == []


@needs("kubernetes")
def test_a_run_on_kubernetes_is_not_taken_for_planned(command: Command) -> None:
    made_run(Path("runs") / "far", config=made_config(launcher="kubernetes"))
    assert "on kubernetes" in command("list", "runs").out


def test_a_config_that_cannot_be_read_hides_no_other_run(command: Command, runs: list[str]) -> None:
    (Path("runs") / runs[0] / "config.yaml").write_text("a: [")
    said = command("list", "runs")
    assert (said.code, len(said.out.splitlines())) == (0, 5)
    assert json.loads(command("list", "runs", "--json").out)[-1]["algorithm"] is None


# -- play and evaluate ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["play", "evaluate"])
@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["nobody"], "no run 'nobody'"),
        ([], "the following arguments are required: RUN"),
        (["chain-20250101-120001", "--episodes", "0"], "cannot play 0 episodes"),
        (["chain-20250101-120001", "--episodes", "x"], "invalid int value"),
        (["chain-20250101-120001"], "has no checkpoint 'best'; it has none yet"),
        (["chain-20250101-120001", "--checkpoint", "7"], "has no checkpoint '7'; it has none yet"),
    ],
)
def test_what_cannot_be_played_is_one_line(
    command: Command, runs: list[str], name: str, words: list[str], answer: str
) -> None:
    said = command(name, *words)
    assert (said.code, said.out) == (2, "")
    assert answer in said.err
    assert said.err.count("\n") == 1


def test_a_step_that_was_not_saved_names_those_that_were(command: Command, runs: list[str]) -> None:
    for step in ("100", "200"):
        (Path("runs") / runs[0] / "checkpoints" / "learner" / step).mkdir(parents=True)
    for name in ("play", "evaluate"):
        said = command(name, runs[0], "--checkpoint", "150")
        assert said.code == 2
        assert "has no checkpoint '150'; it has 100, 200, latest" in said.err


def test_play_without_a_screen_names_the_way_out(
    command: Command, runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    said = command("play", runs[0])
    assert said.code == 2
    assert "no screen to open a window on: write a file with --video out.mp4" in said.err


@pytest.mark.slow
def test_play_reports_each_episode_and_the_video(command: Command, quick: None) -> None:
    done = command(
        *("train", "small.yaml", "--env", "gym:CartPole-v1", "--on", "serial", "--quiet"),
        *("session_config.stop.env_steps=200", "--folder", "runs/a"),
    )
    assert done.code == 0
    said = command("play", "a", "--video", "out.gif", "--episodes", "2")
    first, second, checkpoint, video = said.out.splitlines()
    assert first.startswith("episode 1: return ")
    assert second.startswith("episode 2: return ")
    # The parameters that the run ended with were evaluated.
    assert checkpoint == "checkpoint best of runs/a"
    named = command("play", "a", "--video", "out.gif", "--checkpoint", "latest")
    assert re.search(r"checkpoint \d+ of runs/a", named.out)
    assert video.startswith("out.gif: ")
    assert Path("out.gif").is_file()
    found = json.loads(command("play", "a", "--video", "out.gif", "--json").out)
    assert len(found["returns"]) == 1


def test_addresses_of_pages_are_shown_once_and_short() -> None:
    event = {
        "component": "tensorplex",
        "event": "prometheus",
        "detail": "http://127.0.0.1:9/metrics",
    }
    assert event_line(event) == "prometheus: http://127.0.0.1:9/metrics"
    assert {"tensorboard", "prometheus"} <= set(SHOWN_EVENTS)
