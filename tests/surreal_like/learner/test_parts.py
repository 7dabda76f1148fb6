"""Parts of networks that stay as they are, and parts that come from another run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from session.config.defaults import BASE_SESSION_CONFIG
from session.errors import CheckpointError, ConfigError
from session.folder import RunFolder
from session.process.clock import CountedClock
from surreal_like.algorithm.dqn import DQN
from surreal_like.algorithm.impala import Impala
from surreal_like.algorithm.ppo import PPO
from surreal_like.algorithm.sac import SAC
from surreal_like.algorithm.td3 import TD3
from surreal_like.data.batch import Batch
from surreal_like.errors import SpecError
from surreal_like.experiment.checkpoints import start_with
from surreal_like.learner.learner import Learner
from surreal_like.learner.saver import Content, Saver
from surreal_like.learner.target import TargetNetwork
from surreal_like.network.flat import named_tensors
from tests.surreal_like.algorithm import test_dqn, transitions, unrolls
from tests.surreal_like.learner.ranks import POLICY, feed, ranks
from tests.surreal_like.learner.test_group import continuous_rows, rows, streams

UPDATES = 50
Make = Callable[..., Learner]


def made_by(algorithm: Any, configs: Any) -> Make:
    """Returns what makes a learner with frozen parts."""

    def make(*frozen: str, **model: Any) -> Learner:
        torch.manual_seed(0)
        learner = {"model": {"frozen": [*frozen], "hidden_sizes": [8], **model}}
        made: Learner = algorithm.learner(**configs(algorithm, learner=learner))
        feed(made, ())
        return made

    return make


CASES: dict[str, tuple[Make, Callable[[int], Batch]]] = {
    "dqn": (made_by(DQN, lambda _, learner: test_dqn.configs(learner=learner)), rows),
    "ppo": (made_by(PPO, unrolls.configs), streams),
    "impala": (made_by(Impala, unrolls.configs), streams),
    "sac": (made_by(SAC, transitions.options), continuous_rows),
    "td3": (made_by(TD3, transitions.options), continuous_rows),
}
every_case = pytest.mark.parametrize(("make", "batch"), CASES.values(), ids=CASES)


def all_of(learner: Learner) -> dict[str, torch.Tensor]:
    """Returns copies of all tensors of the networks and of their targets."""
    saved = learner.checkpointed()
    networks: dict[str, torch.nn.Module] = dict(learner.module_dict())
    networks |= {name: each for name, each in saved.items() if isinstance(each, torch.nn.Module)}
    targets = {n: each.module for n, each in saved.items() if isinstance(each, TargetNetwork)}
    return {name: x.detach().clone() for name, x in named_tensors(networks | targets).items()}


def changed(before: dict[str, torch.Tensor], learner: Learner) -> set[str]:
    """Returns the parts at the top in which a tensor has changed."""
    now = all_of(learner)
    return {
        name.rpartition("/")[2].partition(".")[0]
        for name, tensor in before.items()
        if not torch.equal(tensor, now[name])
    }


@every_case
def test_frozen_parts_keep_their_bits_and_the_others_learn(
    make: Make, batch: Callable[[int], Batch]
) -> None:
    frozen = ("torso", "normalizer")
    learner = make(*frozen, normalize_obs=True)
    usual = make(normalize_obs=True)
    assert learner.optimizers.keys() == usual.optimizers.keys()
    before, then = all_of(learner), all_of(usual)
    for seed in range(UPDATES):
        learner.learn(batch(seed))
        usual.learn(batch(seed))
    assert changed(then, usual) >= {"torso", "normalizer", "head"}
    assert changed(before, learner) == changed(then, usual) - {*frozen}
    sizes = [sum(each.size for each in x.optimizers.values()) for x in (learner, usual)]
    assert sizes[0] < sizes[1]


def test_critics_that_are_looked_through_keep_their_frozen_parts() -> None:
    make, batch = CASES["sac"]
    learner = make("layers.weights")
    before = all_of(learner)
    for seed in range(UPDATES):
        learner.learn(batch(seed))
    now = all_of(learner)
    same = {name for name, tensor in before.items() if torch.equal(tensor, now[name])}
    assert same == {name for name in now if "layers.weights" in name}
    assert len(same) == 4
    for name, each in learner.checkpointed()["critics"].named_parameters():  # type: ignore[attr-defined]
        assert each.requires_grad == (each.grad is not None) == ("weights" not in name)


def test_a_frozen_head_of_values_keeps_its_unit() -> None:
    make, batch = CASES["impala"]
    learner = make("value_head", normalize_values=True)
    before = all_of(learner)
    learner.learn(batch(0))
    assert "value_head" not in changed(before, learner)


def test_ranks_keep_the_frozen_parts_of_all() -> None:
    make, batch = CASES["dqn"]
    with ranks(lambda: {POLICY: make("torso")}) as made:
        feed(made.learners[0][POLICY], map(batch, range(5)))
        before = all_of(made.learners[0][POLICY])
        for _ in range(5):
            made.learn()
        made.wait()
        for learners in made.learners:
            assert changed(before, learners[POLICY]) == {"head"}


@pytest.mark.parametrize(
    ("frozen", "words"),
    [
        (("torsoo",), r"model\.frozen: no network has a part 'torsoo'; did you mean torso\?"),
        (("x",), r"no network has a part 'x'; there are torso, head$"),
        (("torso", "head"), r"leaves nothing of 'optimizer' to train: it has torso, head"),
    ],
)
def test_wrong_parts_are_refused(frozen: tuple[str, ...], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        CASES["dqn"][0](*frozen).checkpointed()


def saver(learner: Learner, folder: RunFolder) -> Saver:
    return Saver(learner, folder, BASE_SESSION_CONFIG.checkpoint, CountedClock())


@every_case
def test_a_checkpoint_with_frozen_parts_is_resumed(
    make: Make, batch: Callable[[int], Batch], tmp_path: Path
) -> None:
    folder, learner = RunFolder(tmp_path), make("torso")
    learner.learn(batch(0))
    saver(learner, folder).save(1, 0, "id")
    again = make("torso")
    saver(again, folder).restore()
    before = all_of(learner)
    assert changed(before, again) == set()
    for each in (learner, again):
        each.learn(batch(1))
    assert changed(all_of(learner), again) == set()
    assert "torso" not in changed(before, again)


@pytest.mark.parametrize("donor", CASES)
@pytest.mark.parametrize("name", ["dqn", "sac"])
def test_a_part_comes_from_a_run_of_any_algorithm(name: str, donor: str, tmp_path: Path) -> None:
    given, taken = (CASES[each][0](hidden_sizes=[8, 8]) for each in (donor, name))
    with torch.no_grad():
        for network in given.module_dict().values():
            for each in network.parameters():
                each.add_(1.0)
    path = saver(given, RunFolder(tmp_path / "donor")).save(1, 0, "id")
    before, folder = all_of(taken), RunFolder(tmp_path / "new")
    start_with(folder, path, parts=["torso"])
    state = saver(taken, folder).restore()
    assert state is not None
    assert state["parts"] == ["torso"]
    assert changed(before, taken) == {"torso"}
    published = named_tensors(given.module_dict())
    theirs = {name.partition("/")[2]: x for name, x in published.items()}
    now = all_of(taken)
    torso = [each for each in now if "/torso." in each]
    # Of the network and of its target.
    assert len(torso) == (8 if name == "dqn" else 4)
    assert all(torch.equal(now[each], theirs[each.partition("/")[2]]) for each in torso)


def test_a_part_that_is_not_published_comes_from_a_run_too(tmp_path: Path) -> None:
    make, batch = CASES["sac"]
    given, taken = make(), make()
    given.learn(batch(0))
    path = saver(given, RunFolder(tmp_path / "donor")).save(1, 0, "id")
    before = all_of(taken)
    Content.read_parts(taken, path, ["layers"]).give(taken)
    assert changed(before, taken) == {"layers"}
    now = all_of(taken)
    # The targets are copies of the critics that came.
    for name, tensor in now.items():
        if name.startswith("target/layers"):
            assert torch.equal(tensor, now[name.replace("target", "critics")])


@pytest.mark.parametrize(
    ("parts", "model", "words"),
    [
        (["torsi"], {}, r"--parts: no network has a part 'torsi'; did you mean torso\?"),
        (
            ["torso"],
            {"hidden_sizes": [9]},
            r"torso\.mlp\.layers\.0\.weight has float32 \[9, 4\] in this network, "
            r"float32 \[8, 4\] in that one",
        ),
        (
            ["torso"],
            {"hidden_sizes": []},
            r"no network has a part 'torso'; there are head",
        ),
        (
            ["torso"],
            {"hidden_sizes": [8, 3]},
            r"torso\.mlp\.layers\.1\.weight has float32 \[3, 8\] in this network, nothing in that",
        ),
        (["normalizer"], {"normalize_obs": True}, r"no part 'normalizer' in it, only head, torso"),
    ],
)
def test_parts_that_do_not_fit_are_refused(
    parts: list[str], model: dict[str, Any], words: str, tmp_path: Path
) -> None:
    make = CASES["dqn"][0]
    path = saver(make(), RunFolder(tmp_path)).save(1, 0, "id")
    taken = make(**model)
    before = all_of(taken)
    with pytest.raises((ConfigError, SpecError), match=words):
        Content.read_parts(taken, path, parts)
    assert changed(before, taken) == set()


def test_a_torso_with_more_layers_is_refused(tmp_path: Path) -> None:
    make = CASES["dqn"][0]
    path = saver(make(hidden_sizes=[8, 8]), RunFolder(tmp_path)).save(1, 0, "id")
    with pytest.raises(SpecError, match=r"layers\.1\.bias has nothing in this network, float32"):
        Content.read_parts(make(), path, ["torso"])


def test_a_damaged_checkpoint_gives_no_parts(tmp_path: Path) -> None:
    make = CASES["dqn"][0]
    path = saver(make(), RunFolder(tmp_path)).save(1, 0, "id")
    (path / "optimizer.pt").write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"cannot read .*optimizer\.pt"):
        Content.read_parts(make(), path, ["torso"])
