"""The glossary of metrics and a run say the same, word for word."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from session.folder import RunFolder
from session.launchers.serial import SerialLauncher
from session.process.clock import CountedClock
from session.tensorplex.groups import place_of_title
from surreal_like.addons.hindsight.view import GoalReward, HindsightView
from surreal_like.addons.tuning.result import result_of, write_session
from surreal_like.addons.tuning.scheduler import Fifo
from surreal_like.addons.tuning.state import Trial, TrialState, plain_trial
from surreal_like.addons.tuning.tuning_state_machine import Tuning
from surreal_like.algorithm.catalog import describe_algorithms, list_algorithms
from surreal_like.algorithm.registry import find_algorithm
from surreal_like.coordinator.run_stats import RunStats
from surreal_like.experiment.read import read_experiment
from surreal_like.experiment.resolve import defaults, resolve
from surreal_like.experiment.topology import make_topology
from surreal_like.replay.kinds import FIFOReplay, UniformReplay
from tests.session.tensorplex.reading import read
from tests.surreal_like.algorithm.transitions import ACTION, make_transitions
from tests.surreal_like.algorithm.unrolls import DISCRETE, make_batch
from tests.surreal_like.algorithm.unrolls import configs as algorithm_configs
from tests.surreal_like.coordinator.test_run_stats import config as run_config
from tests.surreal_like.replay.configs import configs

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
ROUNDS = 20_000
# Only these may be missing in a run in which all goes well.
WHEN_WRONG = {("session", "dropped_records/<component>"), ("agent/0", "agent/env_restarts")}
# Of runs that joined machines, or a GPU, work for.
NOT_HERE = {("learner", "return/guests"), ("learner", "performance/feed_share")}
FIRST = {
    *("return/train", "return/greedy", "return/best"),
    *("steps_per_second/env", "steps_per_second/learn"),
}
SMALL = {
    "learner_config.replay": {
        # It reports what all others report, and more.
        "type": "PrioritizedReplay",
        "min_size": 64,
        "batch_size": 32,
        "samples_per_insert": 8.0,
    },
    "learner_config.model.hidden_sizes": [16],
    "learner_config.algo": {"learning_rate": 5e-3, "epsilon": {"steps": 400}},
    "env_config.num_envs": 4,
    "session_config.agent.num": 1,
    "session_config.sender.flush_iteration": 8,
    "session_config.evaluator.interval_seconds": 0.05,
    "session_config.learner.report_seconds": 0.05,
    "session_config.tensorplex.update_schedule": 0.05,
}


@dataclass
class Ended:
    """What a serial run has left."""

    curves: dict[tuple[str, str], list[float]]
    lines: list[dict[str, Any]]
    status: dict[str, set[str]]
    result: dict[str, Any]


def play(
    path: Path,
    algorithm: str,
    env_name: str,
    *,
    changed: Mapping[str, Any] = MappingProxyType({}),
    **stop: Any,
) -> Ended:
    words = [f"{key}={json.dumps(value)}" for key, value in {**SMALL, **changed}.items()]
    words.append(f"session_config.stop={json.dumps(stop)}")
    config = resolve(read_experiment(None, words, algorithm=algorithm, env_name=env_name))
    config["run"] = {"started": 0.0, "first_started": 0.0, "seconds_before": 0.0}
    folder = RunFolder(path)
    folder.create()
    config.dump_file(folder.config)
    status: dict[str, set[str]] = {}
    with SerialLauncher(config, make_topology(config), folder, prepare=one_thread) as launcher:
        launcher.launch()
        for _ in range(ROUNDS):
            for frame in launcher.frames.living():
                service = frame._service if frame.state == "running" else None
                if service is not None:
                    status.setdefault(frame.context.component.kind, set()).update(service.status())
            launcher.poll()
            if not launcher.running:
                break
    lines = [json.loads(line) for line in folder.progress.read_text().splitlines()]
    return Ended(curves_of(folder.tensorboard), lines, status, dict(folder.read_result() or {}))


def one_thread() -> None:
    torch.set_num_threads(1)


def curves_of(root: Path) -> dict[tuple[str, str], list[float]]:
    """(Component, tag) -> values, as TensorBoard reads them."""
    if not root.exists():
        return {}
    events = read(root)
    places = {title: place_of_title(title) for title in events.Tags()["scalars"]}
    return {
        (place.component, place.tag): [each.value for each in events.Scalars(title)]
        for title, place in places.items()
    }


@pytest.fixture(scope="module")
def dqn(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    path = tmp_path_factory.mktemp("dqn") / "run"
    return play(path, "dqn", "toy:bandit", eval_return=0.95, env_steps=20_000, eval_episodes=20)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    path = tmp_path_factory.mktemp("own") / "run"
    place = "tests.docs.own_numbers"
    stop: dict[str, Any] = {
        "metric": "my/score",
        "above": 3,
        "env_steps": 20_000,
        "eval_episodes": 20,
    }
    return play(path, f"{place}:Reporting", f"{place}:Scored", **stop)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Two policies play a cart each."""
    changed = {
        "policies": {"left": {}, "right": {}},
        "env_config.policy_mapping": {"cart_0": "left", "cart_1": "right"},
    }
    path = tmp_path_factory.mktemp("two") / "run"
    stop = {"env_steps": 1500, "eval_episodes": 3}
    return play(path, "dqn", "toy:multi_cartpole", changed=changed, **stop)


def expand(text: str) -> list[str]:
    """Return the names that `a/{b,c}` stands for."""
    head, _, rest = text.partition("{")
    inner, brace, tail = rest.partition("}")
    return (
        [f"{head}{each}{end}" for each in inner.split(",") for end in expand(tail)]
        if brace
        else [text]
    )


def rows(title: str) -> Iterator[list[str]]:
    """What the lists below a heading say: name, component or algorithms, meaning.

    The second stands behind the name, or in a line of its own above the list; some have none.
    """
    section = DOCUMENT.read_text().partition(f"\n{title}\n")[2].partition("\n#")[0]
    found = re.findall(r"^Of `(.+)`:$|^\* `([^`]+)`(?: \((.+?)\))?: (.+)$", section, re.MULTILINE)
    assert found, title
    of = ""
    for above, name, behind, meaning in found:
        of = above or of
        second = [each.strip("`") for each in (of, behind) if each]
        for names in product(*map(expand, (name, *second))) if name else ():
            yield [*names, meaning]


def reported_by(algorithm: str) -> set[tuple[str, str]]:
    """(Component, tag) that the learner of an algorithm reports."""
    found = [
        (component, tag)
        for tag, component, algorithms, *_ in rows("### What learners report")
        if algorithms == "all" or algorithm.upper() in algorithms.split(", ")
    ]
    assert len(found) == len(set(found))
    return set(found)


def listed(*titles: str) -> set[tuple[str, str]]:
    """(Component, tag) of the tables below these headings."""
    found = [(component, tag) for title in titles for tag, component, *_ in rows(title)]
    assert len(found) == len(set(found))
    return set(found)


TABLES = (
    "### What to look at first",
    "### How the parts keep up with each other",
    "### What a replay shard counts",
    "### Only when something is wrong",
)


def drawn() -> set[tuple[str, str]]:
    """(Component, tag) of a run of DQN in which everything happens that may."""
    return listed(*TABLES) | reported_by("dqn")


def paths(value: Any, at: Sequence[str] = ()) -> Iterator[str]:
    """The dotted paths of all values; names of one's own may have dots and are left as <name>."""
    if not isinstance(value, Mapping):
        yield ".".join(at)
        return
    for key, each in value.items():
        own = at in (("learn",), ("metrics",), ("plan", "operators"))
        shown = "<policy>" if at == ("policies",) else "<name>" if own else key
        yield from paths(each, (*at, shown))


def test_a_run_draws_exactly_the_curves_of_the_glossary(dqn: Ended) -> None:
    assert dqn.result["goal_met"] is True
    assert set(dqn.curves) == drawn() - WHEN_WRONG - NOT_HERE


def test_several_policies_draw_exactly_the_curves_of_the_glossary(two: Ended) -> None:
    of_policies, known = set(two.curves) - drawn(), set()
    for row in listed("### Where there are several policies"):
        patterns = [re.sub("<[a-z]+>", ".+", re.escape(text)) for text in row]
        found = {each for each in of_policies if all(map(re.fullmatch, patterns, each))}
        assert found, row
        known |= found
    assert known == of_policies


def test_lines_and_result_of_several_policies_have_the_fields_of_the_glossary(two: Ended) -> None:
    documented = {row[0] for row in rows("### Lines with several policies")}
    for numbers in (two.lines[-1], two.result):
        assert set(paths({"policies": numbers["policies"]})) == documented
    assert {f"{name}/loss" for name in ("left", "right")} <= two.lines[-1]["learn"].keys()


@pytest.mark.slow
def test_evaluators_of_a_second_mode_are_shown_and_judge_nothing(tmp_path: Path) -> None:
    """The random mode judges, so the goal that the best actions reach is not met."""
    changed = {
        "session_config.evaluator.num": 2,
        "session_config.evaluator.mode": ["eval_stochastic", "eval_deterministic"],
        "learner_config.algo.eval_epsilon": 1.0,
    }
    stop: dict[str, Any] = {"eval_return": 0.95, "env_steps": 4000, "eval_episodes": 20}
    ended = play(tmp_path / "run", "dqn", "toy:bandit", changed=changed, **stop)
    curves, result, line = ended.curves, ended.result, ended.lines[-1]
    assert max(curves["learner", "return/deterministic"]) >= 0.95
    assert result["goal_met"] is False
    assert result["best_eval"]["mean_return"] < 0.95
    greedy = curves["learner", "return/greedy"]
    assert result["best_eval"]["mean_return"] == pytest.approx(max(greedy))
    assert ("learner", "return/confirmed") not in curves
    state = json.loads((tmp_path / "run/checkpoints/best/state.json").read_text())
    assert (state["mode"], state["mean_return"]) == (
        "eval_stochastic",
        result["best_eval"]["mean_return"],
    )
    assert set(line["eval_deterministic"]) == set(result["best_eval"])
    assert "eval_stochastic" not in line
    assert "eval_deterministic" not in result
    shown = listed("### Where evaluators play in several modes")
    of_other_mode = {(place, tag.replace("<mode>", "deterministic")) for place, tag in shown}
    of_one_mode = drawn() - WHEN_WRONG - NOT_HERE - {("learner", "return/confirmed")}
    assert set(curves) == of_one_mode | of_other_mode


def test_a_queue_of_unrolls_counts_what_the_glossary_says() -> None:
    usual, queue = (
        set(kind(**configs(capacity=10_000, min_size=1)).statistics())
        for kind in (UniformReplay, FIFOReplay)
    )
    reported = {("replay-0", f"replay.core/{name}") for name in queue - usual}
    assert reported == listed("### What only a queue of unrolls counts")
    assert usual <= queue


def test_hindsight_counts_what_the_glossary_says() -> None:
    view = HindsightView(1, 0.9, goals=GoalReward(lambda achieved, desired, info: 0.0))
    reported = {("replay-0", f"replay.core/{name}") for name in view.statistics()}
    assert reported == listed("### What hindsight adds to a shard")


def test_a_newcomer_finds_the_first_tags_in_the_learners_folder(dqn: Ended) -> None:
    assert listed("### What to look at first") > {("learner", tag) for tag in FIRST}
    best = dqn.curves["learner", "return/best"]
    assert best == sorted(best)
    assert best[-1] == pytest.approx(dqn.result["best_eval"]["mean_return"])
    assert len(dqn.curves["learner", "return/confirmed"]) == 1


def test_progress_has_exactly_the_fields_of_the_glossary(dqn: Ended, own: Ended) -> None:
    # Before the first evaluation the whole of it is null.
    whole = [line for line in (*dqn.lines, *own.lines) if line["eval"] and line["best_eval"]]
    emitted = {path for line in whole for path in paths(line)}
    documented = [row[0] for row in rows("## progress.jsonl")]
    assert sorted({*emitted, "feed_share", "guests"}) == sorted(documented)
    plans = [line["plan"] for line in dqn.lines]
    assert all(plan["rows_taken"] == plan["rows_trained"] for plan in plans)
    # What is under way: requests in flight times the batches of one.
    most = 2 * 8 * defaults("dqn").learner_config.replay.batch_size
    assert 0 <= dqn.result["experience"]["sampled"] - plans[-1]["rows_taken"] <= most
    learn = {("learner", f"learn/{name}") for line in whole for name in line["learn"]}
    assert learn == reported_by("dqn")


def test_lines_of_a_trial_have_the_fields_of_the_glossary() -> None:
    fields = []
    for run in ({}, {"trial": "trial-000"}):
        config = run_config()
        config["run"] = run
        fields.append({*paths(RunStats(config, CountedClock()).line(0, 0, []))})
    assert {"report", *fields[1] - fields[0]} == {row[0] for row in rows("### Lines of a trial")}


def test_a_tuning_has_the_curves_and_numbers_of_the_glossary(tmp_path: Path) -> None:
    trial = Trial("trial-000", {}, TrialState.terminated, score=1.0)
    write_session(tmp_path, trial)
    shown = EventAccumulator(str(tmp_path / "trial-000" / "tensorboard"))
    shown.Reload()
    tags = shown.Tags()["scalars"]
    assert {("trial-000/tensorboard", tag) for tag in tags} == listed("### What a tuning adds")
    tuning = Tuning([trial], Fifo(), slots=1)
    [ended] = result_of(tmp_path, tuning, 0.0)["trials"].values()
    documented = [row[0] for row in rows("### Trials of a tuning")]
    assert documented == list(dict.fromkeys([*plain_trial(trial), *ended]))


@pytest.mark.parametrize("name", sorted({*list_algorithms()} - {"dqn"}))
def test_what_other_learners_report_is_in_the_glossary(name: str) -> None:
    algorithm = find_algorithm(name)
    rows = describe_algorithms()[name].learns_from == "rows"
    options = {"replay": {"sequence": {"burn_in": 1}}, "model": {"hidden_sizes": [4]}}
    made = algorithm_configs(algorithm, ACTION if rows else DISCRETE, learner=options)
    learner = algorithm.learner(**made)
    batch = make_transitions() if rows else make_batch(DISCRETE)
    if describe_algorithms()[name].learns_from == "sequences":
        batch["weights"] = torch.ones(batch.rewards.shape[1])
        batch.extras["memory"] = torch.zeros(*batch.rewards.shape, 128)
    reported = {("learner", f"learn/{key}") for key in (learner.learn(batch) or {})}
    assert reported == reported_by(name)


OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("dqn", {"distribution": {"kind": "categorical"}}),
    ("dqn", {"cql_alpha": 1.0}),
    ("sac", {"cql_alpha": 1.0}),
    ("td3", {"bc_weight": 2.5}),
    ("dqn", {"normalize_rewards": True}),
    ("ppo", {"learner": {"model": {"normalize_values": True}}}),
    ("impala", {"learner": {"model": {"normalize_values": True}}}),
    ("ppo", {"learner": {"parts": [{"part": "rnd"}]}}),
    ("a3c", {"delay_compensation": {"weight": 1.0}}),
]


def test_what_options_add_is_in_the_glossary() -> None:
    added: set[tuple[str, str]] = set()
    for name, options in OPTIONS:
        reported = []
        for changed in ({}, options):
            algorithm = find_algorithm(name)
            spec = ACTION if name in ("sac", "td3") else DISCRETE
            learner = algorithm.learner(**algorithm_configs(algorithm, spec, **changed))
            rows = describe_algorithms()[name].learns_from == "rows"
            batch = make_transitions() if rows else make_batch(DISCRETE)
            if name == "dqn":
                batch["actions"] = torch.zeros(len(batch.rewards), dtype=torch.int64)
            reported.append({("learner", f"learn/{key}") for key in learner.learn(batch)})
        assert reported[0] < reported[1]
        added |= reported[1] - reported[0]
    assert added == listed("### What options add")


def test_every_number_of_a_component_is_in_the_glossary(dqn: Ended) -> None:
    documented: dict[str, set[str]] = {}
    for key, kind, _ in rows("## State of the components"):
        documented.setdefault(kind, set()).add(key)
    # Of the frame of each service.
    assert documented.pop("all") == {"idle_seconds"}
    assert dqn.status == documented


def test_the_numbers_of_a_mirror(tmp_path: Path) -> None:
    changed = {"session_config.mirror": f"file://{tmp_path}/bucket"}
    ended = play(tmp_path / "run", "dqn", "toy:bandit", changed=changed, iterations=20)
    documented = {key for key, *_ in rows("### What a mirror reports")}
    assert ended.status["mirror"] == documented


def test_every_row_has_a_meaning() -> None:
    titles = (
        *TABLES,
        "### What learners report",
        "### What options add",
        "### Where there are several policies",
        "### Lines with several policies",
        "### What hindsight adds to a shard",
        "### What only a queue of unrolls counts",
        "### What a tuning adds",
        "### Your own",
        "## progress.jsonl",
        "### Trials of a tuning",
        "## State of the components",
        "### What a mirror reports",
    )
    for title in titles:
        for row in rows(title):
            assert row[-1], row


def test_own_numbers_of_an_environment_are_a_goal(own: Ended) -> None:
    assert own.result["status"] == "stopped"
    assert own.result["goal_met"] is True
    assert own.result["reason"].startswith("my/score 3 reached")
    score = own.lines[-1]["metrics"]["my/score"]
    assert (score["min"], score["max"]) == (2.0, 6.0)
    assert 3.0 <= score["mean"] <= 5.0


def test_own_numbers_stand_in_progress_once_episodes_have_ended(own: Ended) -> None:
    assert own.lines[0]["metrics"] == {}
    last = own.lines[-1]["metrics"]
    assert set(last) >= {"my/score", "my/luck", "my/asked", "my/parity", "my/batches"}
    # Two episodes in three have no luck, which is no number.
    assert last["my/luck"]["min"] >= 3.0
    assert last["my/asked"]["min"] < last["my/asked"]["mean"] < last["my/asked"]["max"]
    json.dumps(own.lines, allow_nan=False)


def test_own_numbers_are_curves_of_the_components_that_reported_them(own: Ended) -> None:
    curves = set(own.curves)
    own_tags = {row[0].replace("<name>", "(.+)"): row[1] for row in rows("### Your own")}
    assert {
        *(("learner", f"metrics/my/score/{key}") for key in ("mean", "min", "max")),
        *(("agent-0", f"agent/my/{name}") for name in ("score", "luck", "asked", "parity")),
        *(("eval-0", f"eval/my/{name}") for name in ("score", "asked", "parity")),
        ("learner", "learner/my/batches"),
    } <= curves
    for folder, tag in curves - drawn():
        assert any(re.fullmatch(form, tag) and at == folder for form, at in own_tags.items()), tag
