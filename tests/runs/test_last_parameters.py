"""Runs end with an evaluation of the parameters that they end with."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import safetensors.numpy

from surreal_like import evaluate, load_policy, train
from surreal_like.coordinator.learners import Learners
from surreal_like.data.batch import Sampled
from surreal_like.data.policy_names import PolicyId
from surreal_like.learner.publisher import Publisher
from surreal_like.learner.run_link import LearnerLink
from surreal_like.learner.worker import LearnerWorker
from surreal_like.network.flat import read_flat
from tests.runs.command import ROOT

pytestmark = pytest.mark.usefixtures("quick")

SMALL = {
    "session_config.agent.num": 1,
    "session_config.sender.flush_iteration": 8,
    "session_config.evaluator.interval_seconds": 0.5,
    "learner_config.model.hidden_sizes": [8],
    "learner_config.replay.batch_size": 8,
}
OFF_POLICY = {"learner_config.replay.min_size": 64, "session_config.stop.env_steps": 300}
ON_POLICY = {"session_config.stop.iterations": 12}
ALGORITHMS = {
    "dqn": ("gym:CartPole-v1", OFF_POLICY),
    "ppo": ("gym:CartPole-v1", ON_POLICY),
    "sac": ("gym:Pendulum-v1", OFF_POLICY),
    "td3": ("gym:Pendulum-v1", OFF_POLICY),
}
EPISODES = 20
# Each of two policies plays a cart of its own.
CARTS = ROOT / "configs" / "multi_cartpole_mixed.yaml"


def tensors(folder: Path) -> dict[str, Any]:
    found = safetensors.numpy.load_file(folder / "params.safetensors")
    return {name: found[name].tobytes() for name in sorted(found)}


def newest(folder: Path, policy: str = "default") -> Path:
    place = folder / "checkpoints" / PolicyId(policy).checkpoints
    return max((each for each in place.iterdir() if each.name.isdigit()), key=lambda p: int(p.name))


def run(folder: Path, algorithm: str, env: str, words: dict[str, Any]) -> dict[str, Any]:
    stop = {"session_config.stop.eval_return": None, "session_config.stop.eval_episodes": EPISODES}
    ended = train(
        algorithm=algorithm,
        env=env,
        launcher="serial",
        folder=folder,
        overrides={**SMALL, **stop, "session_config.import_path": [str(ROOT)], **words},
    )
    return dict(ended.result)


def check(folder: Path, result: dict[str, Any], policy: str = "default") -> None:
    final = result["final_eval"]
    assert final["episodes"] == EPISODES
    checkpoint = newest(folder, policy)
    state = json.loads((checkpoint / "state.json").read_text())
    assert (final["iteration"], final["hash"]) == (state["iteration"], state["hash"])
    assert final["version"] == state["version"] + 1
    loaded = load_policy(folder, "latest", policy=policy).agent.module_dict()
    assert hashlib.sha256(read_flat(loaded).data).hexdigest() == final["hash"]
    seen = {name: value for name, value in result["eval"].items() if name != "confirmed"}
    assert seen == {name: final[name] for name in seen}
    # What is in the file is what the number is of.
    best = folder / "checkpoints" / PolicyId(policy).best
    if json.loads((best / "state.json").read_text())["version"] == final["version"]:
        assert tensors(best) == tensors(checkpoint)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Environment steps of the rows of all batches of unrolls, before and after each of them."""
    totals = [0]
    to_batch = LearnerLink.to_batch

    def count(link: LearnerLink, sampled: Sampled) -> Any:
        # A row that begins an episode is no step; the last one of an unroll begins the next.
        new = ~sampled.columns["first"][:-1, ~sampled.columns["replayed"]]
        totals.append(totals[-1] + int(new.sum()))
        return to_batch(link, sampled)

    monkeypatch.setattr(LearnerLink, "to_batch", count)
    return totals


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, set[int]]]:
    """Environment steps of evaluations, and those of the newest parameters that played.

    The numbers beside the best parameters of each policy must be those of their publication.
    """
    published: defaultdict[bytes, set[int]] = defaultdict(set)
    numbers: defaultdict[bytes, set[tuple[int, int]]] = defaultdict(set)
    found: list[tuple[int, set[int]]] = []
    publish, save_best = Publisher.publish, Learners.save_best

    def record(publisher: Publisher, flat: Any, *args: Any, **given: Any) -> None:
        published[flat.tobytes()].add(given["env_steps"])
        numbers[flat.tobytes()].add((publisher.version + 1, given["iteration"]))
        publish(publisher, flat, *args, **given)

    def compare(learners: Learners, flats: Any, score: Any) -> None:
        steps = (published[flat.tobytes()] for flat in flats.values())
        found.append((score["env_steps"], set(map(max, itertools.product(*steps)))))
        save_best(learners, flats, score)

    def compare_numbers(worker: LearnerWorker, flat: Any, score: Any) -> None:
        assert (score["version"], score["iteration"]) in numbers[flat.tobytes()]
        save_one(worker, flat, score)

    save_one = LearnerWorker.save_best
    monkeypatch.setattr(LearnerWorker, "save_best", compare_numbers)
    monkeypatch.setattr(Publisher, "publish", record)
    monkeypatch.setattr(Learners, "save_best", compare)
    return found


def evaluations(folder: Path) -> dict[int, int]:
    """Iteration of each evaluated version -> its environment steps."""
    lines = [json.loads(line) for line in (folder / "progress.jsonl").read_text().splitlines()]
    return {line["eval"]["iteration"]: line["eval"]["env_steps"] for line in lines if line["eval"]}


@pytest.mark.parametrize(
    "algorithm", ["dqn", *(pytest.param(name, marks=pytest.mark.slow) for name in ("sac", "td3"))]
)
def test_the_number_of_a_run_is_that_of_its_newest_checkpoint(
    algorithm: str, tmp_path: Path
) -> None:
    env, words = ALGORITHMS[algorithm]
    folder = tmp_path / "run"
    result = run(folder, algorithm, env, words)
    check(folder, result)
    final = result["final_eval"]
    assert final["iteration"] == result["iterations"]
    other = evaluate(folder, episodes=50, checkpoint="latest")
    errors = [each["std_return"] / math.sqrt(each["episodes"]) for each in (final, other)]
    assert abs(final["mean_return"] - other["mean_return"]) < 4 * math.hypot(*errors)
    # Replay had so many rows when it drew the last batch; agents go on until they know of the end.
    assert 200 < final["env_steps"] <= result["env_steps"]


@pytest.mark.slow
def test_steps_of_a_version_are_those_of_the_unrolls_it_has_learned_from(
    tmp_path: Path, counted: list[int]
) -> None:
    env, words = ALGORITHMS["ppo"]
    folder = tmp_path / "run"
    often = {
        "session_config.evaluator.interval_seconds": 0.01,
        "session_config.learner.report_seconds": 0.01,
    }
    result = run(folder, "ppo", env, {**words, **often})
    check(folder, result)
    found = evaluations(folder)
    assert max(found) > 0
    assert found == {iteration: counted[iteration] for iteration in found}
    state = json.loads((newest(folder) / "state.json").read_text())
    assert state["env_steps"] == counted[-1] <= result["env_steps"]


@pytest.mark.slow
def test_so_is_that_of_each_of_two_policies(tmp_path: Path, played: list[Any]) -> None:
    words = {
        "policies.left.learner_config.replay.batch_size": 4,
        "policies.right.learner_config.replay.min_size": 64,
        "env_config.num_envs": 4,
        # Steps count with rows of the first cart, and `right` learns from them sooner.
        "env_config.policy_mapping": {"cart_0": "right", "cart_1": "left"},
        "session_config.stop": {"env_steps": 600, "eval_episodes": EPISODES},
        "session_config.evaluator.interval_seconds": 0.01,
    }
    folder = tmp_path / "run"
    result = dict(train(str(CARTS), launcher="serial", folder=folder, overrides=words).result)
    check(folder, result, policy="left")
    hashes = result["final_eval"]["hashes"]
    for policy in ("left", "right"):
        state = json.loads((newest(folder, policy) / "state.json").read_text())
        assert hashes[policy] == state["hash"]
        assert state["iteration"] > 0
    assert len(played) > 2
    assert all(steps in newest for steps, newest in played)
    # A step of both carts counts once.
    assert 300 < result["final_eval"]["env_steps"] <= result["env_steps"]
