"""Plays episodes with the trained policy of a run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from session.config import Config
from session.errors import UsageError
from session.process.seeding import component_seed, seed_all
from surreal_like.addons.scripts.algorithms import Trainable, begun
from surreal_like.addons.scripts.policy import load_policy
from surreal_like.agent.acting import Acting, ActingPolicy
from surreal_like.agent.evaluation import Evaluation, num_streams
from surreal_like.agent.player import Player
from surreal_like.data.episodes import mean_metrics
from surreal_like.data.policy_names import learning_policies
from surreal_like.data.task import tasks_of
from surreal_like.experiment.checkpoints import default_checkpoint
from surreal_like.experiment.find import choose_policy, find_in, find_run
from surreal_like.policies.evaluator_builder import make_player
from surreal_like.policies.fixed_policies import Trained, make_opponents


def evaluate(
    folder: str | Path,
    *,
    episodes: int = 100,
    checkpoint: str | int = "best",
    policies: Mapping[str, str | int] = MappingProxyType({}),
    seed: int | None = None,
    deterministic: bool = True,
    import_path: Sequence[str | Path] = (),
) -> dict[str, Any]:
    """Plays episodes in this process, with the environment of evaluators.

    Args:
        folder: the run folder, or the URL of its mirror.
        episodes: number of episodes; divided evenly among at most 100 streams.
        checkpoint: ``best``, ``latest``, or the iteration of a checkpoint.
        policies: policy -> its checkpoint, where it is another one.
        seed: seed of the environments; None: derived from the run's, with episodes not seen by its
            evaluators.
        deterministic: the best actions, or actions drawn from the policy.
        import_path: further folders with modules that the run needs.

    Returns:
        ``mean_return``, ``std_return``, ``min_return``, ``max_return``, ``mean_length``,
        ``episodes``, ``checkpoint``, ``seconds``; with several policies also ``policies``, the mean
        return of the agents of each, and ``seats``, that of each policy as each agent, such as
        ``main/player_1``.

    Raises:
        UsageError: the folder is no run folder or has no such checkpoint, ``episodes`` is below 1,
            or the seed is below 0.
        CheckpointError: the checkpoint is incomplete.
    """
    if episodes < 1:
        raise UsageError(f"cannot play {episodes} episodes: ask for at least one")
    if seed is not None and seed < 0:
        raise UsageError(f"the seed is {seed}, expected 0 or more")
    began = time.monotonic()
    trained = TrainedPolicies(folder, checkpoint, policies, import_path)
    session = trained.config.session_config
    if seed is None:
        seed = component_seed(session.seed, "evaluate", 1)
    streams = num_streams(session, episodes)
    with contextlib.ExitStack() as stack:
        stack.enter_context(seed_all(seed))
        player = trained.make_player(
            trained.config, deterministic=deterministic, num_envs=streams, seed=seed
        )
        stack.callback(player.close)
        played = Evaluation(episodes, streams)
        player.fetch()
        player.reset()
        while not played.over:
            player.fetch()
            player.step(played)
    seconds = time.monotonic() - began
    return {
        **played.summary(),
        **_by_seat(played),
        "checkpoint": trained.checkpoint,
        "seconds": seconds,
    }


def evaluate_policy(
    model: Trainable,
    env: None = None,
    n_eval_episodes: int = 10,
    deterministic: bool = True,
    *,
    seed: int | None = None,
) -> tuple[float, float]:
    """Returns mean and standard deviation of the returns of an algorithm that has learned.

    Args:
        model: the algorithm, such as ``PPO("CartPole-v1").learn(50_000)``.
        env: None: episodes are played in the environment of the run's evaluators.
        n_eval_episodes: number of episodes.
        deterministic: the best actions, or actions drawn from the policy.
        seed: seed of the environments; None: derived from the run's.

    Raises:
        UsageError: it has not learned yet, or an environment is given.
    """
    if env is not None:
        raise UsageError(
            "evaluate_policy plays the environment of the run: leave env out, as in "
            "evaluate_policy(model, n_eval_episodes=10); env_config.eval_mode changes its arguments"
        )
    folder = begun(model)
    checkpoint = default_checkpoint(find_run(folder))
    played = evaluate(
        folder,
        episodes=n_eval_episodes,
        checkpoint=checkpoint,
        seed=seed,
        deterministic=deterministic,
    )
    return played["mean_return"], played["std_return"]


def _by_seat(played: Evaluation) -> dict[str, dict[str, float]]:
    """Returns the mean return of each policy as each agent under ``seats``, if seats change."""
    metrics = mean_metrics([each for each in played.finished if "metrics" in each])
    prefix = "seat/"
    seats = {
        name.removeprefix(prefix): mean for name, mean in metrics.items() if name.startswith(prefix)
    }
    return {"seats": seats} if seats else {}


class TrainedPolicies:
    """The policies of a run, as checkpoints have them.

    Args:
        folder: the run folder.
        checkpoint: ``best``, ``latest``, or the iteration of a checkpoint.
        policies: policy -> its checkpoint, where it is another one.
        import_path: further folders with modules that the run needs.

    Attributes:
        config: config of the run.

    Raises:
        UsageError: the folder is no run folder, or has no such policy or checkpoint.
        CheckpointError: a checkpoint is incomplete.
    """

    def __init__(
        self,
        folder: str | Path,
        checkpoint: str | int,
        policies: Mapping[str, str | int],
        import_path: Sequence[str | Path],
    ) -> None:
        self._run = find_run(folder)
        self.config = self._run.read_config()
        env = self.config.env_config
        if (tasks := tasks_of(env)) is not None:
            # As the evaluators of the run play.
            tasks.play(env, self._run.last_progress().get("task", {}).get("settings", {}))
        for name in policies:
            choose_policy(self.config, name, self._run)
        self._policies = {
            name: load_policy(
                folder, policies.get(name, checkpoint), policy=name, import_path=import_path
            )
            for name in learning_policies(self.config)
        }

    @property
    def checkpoint(self) -> str:
        """Name of the checkpoint; with several policies also of the others, if they differ."""
        names = {name: str(each.checkpoint) for name, each in self._policies.items()}
        if len(set(names.values())) == 1:
            return next(iter(names.values()))
        return ", ".join(f"{name} {each}" for name, each in names.items())

    def make_player(
        self,
        config: Config,
        *,
        deterministic: bool,
        num_envs: int,
        seed: int,
        evaluation: bool = True,
        make: Callable[[str, Acting], ActingPolicy] = ActingPolicy,
    ) -> Player:
        """Builds the environments of an evaluation, and lets the policies play them.

        Args:
            config: config of the run, perhaps with other settings of the environment.
            deterministic: the best actions, or actions drawn from the policies.
            num_envs: number of environments.
            seed: seed of the environments.
            evaluation: False: the environments are those of training.
            make: makes what acts of the name of a policy and its agent.
        """
        learning = [
            make(name, Acting(policy.greedy if deterministic else policy.agent))
            for name, policy in self._policies.items()
        ]
        opponents = make_opponents(
            config,
            find_in(self._run),
            Trained(self._run.checkpoints, lambda policy: self._policies[policy].agent),
            num_envs=num_envs,
            seed=seed,
            evaluation=evaluation,
        )
        return make_player(
            [*learning, *opponents], config, num_envs=num_envs, seed=seed, evaluation=evaluation
        )
