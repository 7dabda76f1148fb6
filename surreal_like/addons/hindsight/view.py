"""Hindsight: transitions as if a goal that was reached later had been the desired one.

Andrychowicz et al. 2017, "Hindsight experience replay". Stored rows never change; a goal is
chosen, and rewards are computed anew, when a transition is sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from session.config import Config
from session.config.named_code import load_callable
from session.errors import ConfigError
from session.nest import Array
from surreal_like.addons.episodes.episode_index import EpisodeIndex
from surreal_like.data.casts import cast
from surreal_like.data.frames import stack_size
from surreal_like.data.spec import is_leaf
from surreal_like.data.timestep import Flags
from surreal_like.env.registry import SeveralAgents, make_env
from surreal_like.errors import DataError
from surreal_like.experience.chunk import Chunk
from surreal_like.replay.replay import Replay
from surreal_like.replay.storage import ColumnStorage, Empty, Rows
from surreal_like.replay.view.n_step import Floats, NStepView, Transitions, stored_outcome
from surreal_like.transform.reward import RewardTransform, make_reward_transform

# Achieved goals, desired goals, further columns -> one value per row.
GoalFunction = Callable[[Any, Any, Any], Any]
Info = Mapping[str, Array]
Event = Callable[[str, str], None]

_KEY = "learner_config.replay.hindsight"


class GoalReward:
    """Computes the outcome of steps for any goal.

    Args:
        compute_reward: takes ``(achieved [M, ...], desired [M, ...], info)`` of M rows, or of one.
        compute_terminated: takes the same; None if the goal ends no episode.
        event: records ``(kind, detail)``.

    Attributes:
        terminates: whether the goal can end an episode.
    """

    def __init__(
        self,
        compute_reward: GoalFunction,
        compute_terminated: GoalFunction | None = None,
        *,
        event: Event = lambda kind, detail: None,
    ) -> None:
        self.terminates = compute_terminated is not None
        self._reward = _OverRows(compute_reward, "compute_reward", event)
        self._terminated = _OverRows(compute_terminated, "compute_terminated", event)

    def rewards(self, achieved: Array, desired: Array, info: Info) -> Floats:
        """Returns the rewards of M steps by the goals achieved at their ends, ``[M]`` float32.

        Raises:
            DataError: the function fails, or gives no finite number for each row.
        """
        return cast("compute_reward", self._reward(achieved, desired, info), np.float32)

    def terminated(self, achieved: Array, desired: Array, info: Info) -> Flags:
        """Returns whether M steps end their episodes by their goals, ``[M]``; raises as above."""
        return cast("compute_terminated", self._terminated(achieved, desired, info), np.bool_)


class _OverRows:
    """Calls a function with all rows at once if it takes batches, else once for each row.

    A first call with two rows shows that: only a result of shape [2] is that of a batch. Some
    functions of environments reduce over the whole batch, and give one value.
    """

    def __init__(self, function: GoalFunction | None, name: str, event: Event) -> None:
        self._function, self._name, self._event = function, name, event
        self._batches: bool | None = None

    def __call__(self, achieved: Array, desired: Array, info: Info) -> npt.NDArray[np.float64]:
        if not len(achieved):
            return np.zeros(0)
        if self._batches is None:
            self._batches = self._takes_batches(achieved, desired, info)
        try:
            if self._batches:
                values: Any = self._call(achieved, desired, info)
            else:
                rows = range(len(achieved))
                values = [self._call(achieved[i], desired[i], _row(info, i)) for i in rows]
            result = np.asarray(values, np.float64)
        except Exception as error:
            raise DataError(f"{self._name} failed: {type(error).__name__}: {error}") from error
        if result.shape != (len(achieved),) or not np.isfinite(result).all():
            raise DataError(
                f"{self._name} gave {'' if result.shape == (len(achieved),) else result.shape} "
                f"for {len(achieved)} goals, expected one finite number each"
            )
        return result

    def _call(self, achieved: Any, desired: Any, info: Any) -> Any:
        assert self._function is not None
        return self._function(achieved, desired, info)

    def _takes_batches(self, achieved: Array, desired: Array, info: Info) -> bool:
        two = np.arange(2) % len(achieved)
        try:
            result = self._call(achieved[two], desired[two], {k: v[two] for k, v in info.items()})
            if np.shape(result) == (2,):
                return True
            why = f"gives shape {list(np.shape(result))} for two goals"
        except Exception as error:  # noqa: BLE001 - what it raises for single goals is an error
            why = f"fails for two goals: {type(error).__name__}"
        self._event("goals_one_by_one", f"{self._name} {why}: it is called once for each row")
        return False


def _row(info: Info, place: int) -> dict[str, Any]:
    return {name: column[place] for name, column in info.items()}


def make_goal_reward(reward: str, env_config: Mapping[str, Any], event: Event) -> GoalReward:
    """Makes the rewards of ``learner_config.replay.hindsight.reward``.

    Args:
        reward: ``env`` for the environment's own functions, which is built once here, or
            ``package.module:function``.
        env_config: the experiment's.
        event: records ``(kind, detail)``.

    Raises:
        ConfigError: there is no such function.
    """
    if reward != "env":
        if ":" not in reward:
            raise ConfigError(
                f"{_KEY}.reward is '{reward}', expected env, package.module:function or "
                "file.py:function"
            )
        return GoalReward(load_callable(reward, f"{_KEY}.reward"), event=event)
    try:
        env = make_env(env_config)
    except SeveralAgents:
        raise ConfigError(_missing_reward(env_config)) from None
    compute_reward = _method(env, "compute_reward")
    if compute_reward is None:
        env.close()
        raise ConfigError(_missing_reward(env_config))
    return GoalReward(compute_reward, _method(env, "compute_terminated"), event=event)


def _missing_reward(env_config: Mapping[str, Any]) -> str:
    return (
        f"{_KEY}.reward is env, but {env_config['env_name']} has no method "
        "compute_reward(achieved, desired, info): name a function package.module:function of "
        "the same arguments"
    )


def _method(env: Any, name: str) -> GoalFunction | None:
    """Returns a method of an environment, or of the Gymnasium environment inside; None without."""
    method = getattr(env, name, None)
    if method is None and (inner := getattr(env, "gym_env", None)) is not None:
        method = getattr(inner.unwrapped, name, None)
    return method if callable(method) else None


# Goals are float32 here and float64 in simulators, so a few rewards at a threshold may differ.
_TOLERANCE = 1e-5
_SHARE_OF_WRONG = 0.01
# Weight of the older batches, at each new one, in the means that are reported.
_KEPT = 0.99


@dataclass(frozen=True)
class Relabelling:
    """Settings of hindsight.

    Attributes:
        proportion: probability that a sampled row is relabelled.
        strategy: row whose achieved goal is taken: ``future``, uniformly one after the sampled row;
            ``final``, the newest row of the episode; ``episode``, uniformly one after FIRST.
        achieved: part of the observations that has the achieved goal.
        desired: part that has the desired one, of the same shape.
        info_keys: columns of ``extras`` that the functions of goals get.
        check_rows: so many rows that are not relabelled must have the rewards that are computed
            for them; 0: no check.
    """

    proportion: float = 0.8
    strategy: str = "future"
    achieved: str = "achieved_goal"
    desired: str = "desired_goal"
    info_keys: tuple[str, ...] = ()
    check_rows: int = 0


class HindsightView(NStepView):
    """Makes n-step transitions, some of them with a goal that was achieved in the same episode.

    Args:
        n: steps, at least 1.
        gamma: discount per step, multiplied with the environment's own.
        goals: rewards and terminations by goals.
        relabelling: which rows get which goals.
        transform: changes single rewards, also those computed anew.
        seed: seeds the generator.
    """

    def __init__(
        self,
        n: int,
        gamma: float,
        *,
        goals: GoalReward,
        relabelling: Relabelling | None = None,
        transform: RewardTransform | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(n, gamma, transform=transform)
        self._goals = goals
        self._how = how = relabelling or Relabelling()
        self._achieved, self._desired = f"obs/{how.achieved}", f"obs/{how.desired}"
        self._check = _RewardCheck(how.check_rows)
        self._index: EpisodeIndex | None = None
        # Rows, relabelled rows, sum of their rewards; older batches count less and less.
        self._sums = [0.0, 0.0, 0.0]
        self.reseed(seed)

    def check(self, chunk: Chunk) -> None:
        """Raises DataError for an unroll, and for a chunk without goals."""
        super().check(chunk)
        for name in (self._achieved, self._desired):
            if name not in chunk.columns:
                raise DataError(f"chunk from {chunk.sender}: no column '{name}' for hindsight")

    def ready(self, storage: ColumnStorage, numbers: Rows, step_type: Array) -> tuple[Flags, Rows]:
        """Finds the rows that an insert has made sampleable; adds the new ones to the index."""
        if self._index is None:
            self._index = EpisodeIndex(storage.capacity)
        self._index.insert(storage, numbers, step_type)
        return super().ready(storage, numbers, step_type)

    def gather(
        self, storage: ColumnStorage, numbers: Rows, empty: Empty | None = None
    ) -> dict[str, Array]:
        """Returns transitions, some of them relabelled; see :meth:`NStepView.gather`.

        Returns:
            The columns of :class:`NStepView`, and ``extras/relabelled`` bool ``[B]``.

        Raises:
            DataError: a row has been evicted, or the functions of goals do not give the rewards
                that are stored.
        """
        storage.require(numbers)
        goal_rows = self.draw(storage, numbers)
        relabelled = goal_rows >= 0
        self._check_stored(storage, numbers, relabelled)
        found, goals = self.transitions_with(storage, numbers, goal_rows)
        batch = self._columns(storage, numbers, found, empty)
        batch["extras/relabelled"] = relabelled
        for name in (self._desired, self._desired.replace("obs", "obs_next", 1)):
            batch[name][relabelled] = goals
        rewards = found.rewards[relabelled]
        new = len(numbers), len(rewards), float(rewards.sum())
        self._sums = [_KEPT * kept + number for kept, number in zip(self._sums, new, strict=True)]
        return batch

    def draw(self, storage: ColumnStorage, numbers: Rows) -> Rows:
        """Draws for each row the row whose achieved goal is taken, ``[B]``; -1: none."""
        index = self._index
        goal_rows = np.full(len(numbers), -1)
        chosen = self._generator.random(len(numbers)) < self._how.proportion
        if index is None or not chosen.any():
            return goal_rows
        index.evict(storage.oldest)
        episodes, places = index.place(numbers[chosen])
        last = index.last(episodes)
        if self._how.strategy == "future":
            last = self._between(places + 1, last)
        elif self._how.strategy == "episode":
            last = self._between(index.first(episodes), last)
        goal_rows[chosen] = index.row(episodes, last)
        return goal_rows

    def _between(self, first: Rows, last: Rows) -> Rows:
        return first + (self._generator.random(len(first)) * (last - first + 1)).astype(np.int64)

    def transitions_with(
        self, storage: ColumnStorage, numbers: Rows, goal_rows: Rows
    ) -> tuple[Transitions, Array]:
        """Returns ends and sums of transitions for goals of other rows, and these goals.

        A row at which the goal ends the episode ends the transition. A stored termination that the
        old goal has caused, and the new one does not, is none.

        Args:
            storage: holds the rows.
            numbers: numbers of the first rows, ``[B]``, sampleable.
            goal_rows: numbers of the rows whose achieved goals are desired, ``[B]``; -1 leaves the
                transition as it is stored.
        """
        chosen = np.flatnonzero(goal_rows >= 0)
        goals = storage.take(self._achieved, storage.locate(goal_rows[chosen]))
        if not len(chosen):
            return self.transitions(storage, numbers), goals
        return self._sum(storage, numbers, partial(self._outcome, storage, chosen, goals)), goals

    def _outcome(
        self, storage: ColumnStorage, chosen: Rows, goals: Array, end: Rows
    ) -> tuple[Floats, Floats, Flags]:
        """Returns what is stored at the ends of steps, anew for some of them."""
        rewards, discounts, last = stored_outcome(storage, end)
        end = end[chosen]
        achieved, info = storage.take(self._achieved, end), self._info(storage, end)
        rewards[chosen] = self._goals.rewards(achieved, goals, info)
        if not self._goals.terminates:
            return rewards, discounts, last
        ended = self._goals.terminated(achieved, goals, info)
        stored = np.flatnonzero((discounts[chosen] == 0.0) & ~ended)
        old = storage.take(self._desired, end[stored])
        some = {name: column[stored] for name, column in info.items()}
        discounts[chosen[stored[self._goals.terminated(achieved[stored], old, some)]]] = 1.0
        discounts[chosen[ended]] = 0.0
        last[chosen[ended]] = True
        return rewards, discounts, last

    def _info(self, storage: ColumnStorage, rows: Rows) -> dict[str, Array]:
        return {key: storage.take(f"extras/{key}", rows) for key in self._how.info_keys}

    def _check_stored(self, storage: ColumnStorage, numbers: Rows, relabelled: Flags) -> None:
        """Compares stored rewards with those that the goals of the same rows give."""
        self._check.raise_wrong()
        if not self._check.left:
            return
        start = storage.locate(numbers[~relabelled][: self._check.left])
        end = start + storage.distance(start)
        achieved, desired = storage.take(self._achieved, end), storage.take(self._desired, end)
        computed = self._goals.rewards(achieved, desired, self._info(storage, end))
        self._check.add(storage.take("reward", end), computed, achieved, desired)

    def reseed(self, seed: int) -> None:
        # The selector has a generator of the same seed.
        self._generator = np.random.default_rng([seed, 1])

    def statistics(self) -> dict[str, float]:
        """Share of relabelled rows and the mean of their sums, over about 100 requests."""
        rows, relabelled, reward = self._sums
        return {
            "relabelled": relabelled / max(rows, 1.0),
            "relabelled_reward": reward / relabelled if relabelled else 0.0,
        }

    def state(self) -> dict[str, Any]:
        """The generator; the index is made anew."""
        return {"generator": self._generator.bit_generator.state}

    def restore(self, state: Mapping[str, Any], storage: ColumnStorage) -> None:
        self._index = EpisodeIndex.of(storage) if storage.names else None
        if state:
            self._generator.bit_generator.state = state["generator"]


class _RewardCheck:
    """Counts rewards that are not those stored, over the first rows.

    Args:
        rows: number of rows to compare.
    """

    def __init__(self, rows: int) -> None:
        self.left = rows
        self._allowed = _SHARE_OF_WRONG * rows
        self._wrong = 0
        self._shown = ""

    def add(self, stored: Array, computed: Array, achieved: Array, desired: Array) -> None:
        """Compares rewards ``[M]``; raises DataError if too many differ."""
        self.left -= len(stored)
        wrong = np.flatnonzero(~np.isclose(stored, computed, rtol=_TOLERANCE, atol=_TOLERANCE))
        self._wrong += len(wrong)
        if len(wrong):
            row = wrong[0]
            self._shown = (
                f"stored {stored[row]:g}, computed {computed[row]:g} for the achieved goal "
                f"{achieved[row].tolist()} and the desired goal {desired[row].tolist()}"
            )
        self.raise_wrong()

    def raise_wrong(self) -> None:
        """Raises DataError if too many rewards differed."""
        if self._wrong > self._allowed:
            raise DataError(
                f"{_KEY}.reward does not give the rewards of the environment: {self._shown}; name "
                f"the function that does, or set {_KEY}.check_rows to 0"
            )


def check_hindsight(config: Config | Replay, kind: type[Replay], **facts: bool) -> None:
    """Raises ConfigError if goals are to be relabelled by a replay that cannot do that."""
    proportion = config.learner_config["replay"]["hindsight"]["proportion"]
    if proportion and not kind.relabels:
        raise ConfigError(
            f"{_KEY}.proportion is {proportion:g}, but {kind.__name__} relabels no goals: set it "
            "to 0, or learner_config.replay.type to UniformReplay or PrioritizedReplay"
        )


def make_hindsight_view(replay: Replay, seed: int) -> HindsightView | None:
    """Makes the view of ``learner_config.replay.hindsight``; None if no goals are relabelled.

    Raises:
        ConfigError: the replay relabels no goals, or the environment has no such goals or no
            reward for them.
    """
    check_hindsight(replay, type(replay))
    learner_config, env_config = replay.learner_config, replay.env_config
    settings, algo = learner_config["replay"]["hindsight"], learner_config["algo"]
    if not settings["proportion"]:
        return None
    if stack_size(env_config) > 1:
        raise ConfigError(
            f"{_KEY}.proportion is {settings['proportion']:g}, but env_config.frame_stack is "
            f"{stack_size(env_config)}: goals are not stacked; set one of them to 0"
        )
    _check_parts(env_config["obs_spec"], settings["achieved"], settings["desired"])
    return HindsightView(
        algo["n_step"],
        algo["gamma"],
        goals=make_goal_reward(
            settings["reward"], env_config, lambda kind, detail: replay.log.event(kind, detail)
        ),
        relabelling=Relabelling(
            settings["proportion"],
            settings["strategy"],
            settings["achieved"],
            settings["desired"],
            tuple(env_config["info_keys"]),
            settings["check_rows"],
        ),
        transform=make_reward_transform(algo),
        seed=seed,
    )


def _check_parts(obs_spec: Mapping[str, Any], achieved: str, desired: str) -> None:
    """Raises ConfigError unless the observations have both goals, of one shape."""
    if not obs_spec:  # not known yet: each chunk is checked
        return
    parts = [] if is_leaf(obs_spec) else [name for name in obs_spec if is_leaf(obs_spec[name])]
    for key, name in (("achieved", achieved), ("desired", desired)):
        if name not in parts:
            raise ConfigError(
                f"{_KEY}.{key} is '{name}', but the observations have "
                f"{'the parts ' + ', '.join(parts) if parts else 'no parts'}: hindsight needs an "
                "environment with goals"
            )
    shapes = [obs_spec[name].get("dim") for name in (achieved, desired)]
    if shapes[0] != shapes[1]:
        raise ConfigError(
            f"{_KEY}: '{achieved}' has the shape {shapes[0]}, '{desired}' {shapes[1]}; expected "
            "the same of both"
        )
