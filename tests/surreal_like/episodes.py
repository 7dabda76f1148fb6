"""Episodes at random, played through an agent's wrappers, and slow twins of samples of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import torch

from session import nest
from session.config import Config
from session.config.defaults import BASE_SESSION_CONFIG
from session.nest import Array
from surreal_like.data.frames import stack_spec
from surreal_like.env.environment import Env, Step, VectorEnv, VectorStep, VectorWrapper
from surreal_like.env.frame_stack import FrameStack
from surreal_like.env.vector import SyncVector
from surreal_like.experience.chunk import Chunk
from surreal_like.experience.row_writer import RowWriter
from surreal_like.replay.replay import Replay
from surreal_like.transform.normalizer import Normalizer

STREAMS = 3
_SENT = ("action", "q_taken", "q_greedy")


class Episodes(Env):
    """Each observation has a number of its own; episodes end at random, in both ways.

    Args:
        numbers: of the observations.
        random: decides everything.
        goals: rewards are those of goals, which also end episodes; else they are random.
    """

    obs_spec = {  # noqa: RUF012
        "position": {"type": "float32", "dim": [3]},
        "number": {"type": "int64", "dim": []},
        "image": {"type": "uint8", "dim": [2, 3]},
        "achieved_goal": {"type": "float32", "dim": [2]},
        "desired_goal": {"type": "float32", "dim": [2]},
    }
    action_spec = {"type": "discrete", "dim": [100]}  # noqa: RUF012

    def __init__(
        self, numbers: Iterator[int] | None = None, random: Random | None = None, goals: bool = True
    ) -> None:
        self._numbers = itertools.count() if numbers is None else numbers
        self._random, self._goals = random or Random(0), goals

    def reset(self) -> tuple[Any, dict[str, Any]]:
        return self._look(), {}

    def step(self, action: int) -> Step:
        obs, end = self._look(), self._random.choice("MMMMMMTU")
        if not self._goals:
            return obs, self._random.gauss(0, 3), end == "T", end == "U", {}
        goals: Any = obs["achieved_goal"], obs["desired_goal"], {}
        there = bool(self.compute_terminated(*goals))
        return obs, float(self.compute_reward(*goals)), there or end == "T", end == "U", {}

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return -np.abs(achieved - desired).sum(-1)

    def compute_terminated(self, achieved: Any, desired: Any, info: Any) -> Any:
        return (achieved == desired).all(-1)

    def _look(self) -> dict[str, Any]:
        number = next(self._numbers)
        return {
            "number": np.array(number),
            "position": np.array([self._random.gauss(5, 9) for _ in range(3)], np.float32),
            "image": np.full((2, 3), number % 251, np.uint8),
            **{f"{kind}_goal": self._goal() for kind in ("achieved", "desired")},
        }

    def _goal(self) -> Array:
        return np.array([self._random.randrange(3) for _ in range(2)], np.float32)


@dataclass(eq=False)
class Seen:
    """One row as the agent had it: observation, what led to it, and the action that it took."""

    number: int
    obs: dict[str, Array]
    normal: dict[str, Array]
    reward: float
    end: str
    first: bool
    # Where streams were cut no action was taken: the writer fills zeros in.
    sent: Mapping[str, Any] = field(default_factory=lambda: dict.fromkeys(_SENT, 0))
    before: Seen | None = None
    after: Seen | None = None

    def goal(self, kind: str) -> Array:
        """The newest frame's."""
        goal: Array = self.obs[f"{kind}_goal"].reshape(-1, 2)[-1]
        return goal

    def outcome(self, goal: Array | None) -> tuple[float, str]:
        """Reward and end, for the own goal or for another one."""
        if goal is None:
            return self.reward, self.end
        achieved, twin = self.goal("achieved"), Episodes()
        end = self.end
        if twin.compute_terminated(achieved, goal, {}):
            end = "T"
        elif end == "T" and twin.compute_terminated(achieved, self.goal("desired"), {}):
            end = "U"
        return float(twin.compute_reward(achieved, goal, {})), end

    def later(self) -> Iterator[Seen]:
        """The rows after it in its episode."""
        row = self
        while not row.end and row.after is not None:
            row = row.after
            yield row


@dataclass(frozen=True)
class Learned:
    """Settings of what is learned from rows.

    Attributes:
        n_step, gamma: of sums.
        clip, scale: of each reward.
    """

    n_step: int = 1
    gamma: float = 0.9
    clip: float = 0.0
    scale: float = 1.0

    @property
    def algo(self) -> dict[str, float]:
        names = {f"reward_{name}": getattr(self, name) for name in ("clip", "scale")}
        return {"n_step": self.n_step, "gamma": self.gamma, **names}

    def reward(self, reward: float) -> float:
        bound = self.clip or float("inf")
        return max(-bound, min(bound, reward)) * self.scale

    def transition(self, row: Seen, goal: Array | None) -> tuple[Seen, float, float, bool]:
        """Last row, sum, discount, and whether it ends in a termination."""
        total, discount, end = 0.0, 1.0, ""
        for _ in range(self.n_step):
            assert row.after is not None
            row = row.after
            reward, end = row.outcome(goal)
            total += discount * self.reward(reward)
            discount *= self.gamma * (end != "T")
            if end:
                break
        return row, total, discount, end == "T"


class Writing(VectorWrapper):
    """What an agent's wrapper does with the writer of its chunks, without a connection."""

    def __init__(self, env: VectorEnv, writer: RowWriter) -> None:
        super().__init__(env)
        self._writer = writer

    def reset(self) -> tuple[Any, Any]:
        self._writer.end({})
        obs, info = self.env.reset()
        self._writer.begin(obs, info)
        return obs, info

    def step(self, actions: Any) -> VectorStep:
        actions, extras = self._writer.unpack(actions)
        self._writer.act(actions, extras, version=1, now=0.0, metrics={})
        step = self.env.step(actions)
        self._writer.observe(*step)
        return step


class Played:
    """An agent's loop around a writer whose chunks are kept.

    Args:
        replay: class that the chunks are for.
        frames: in a stack.
        random: decides everything.
        steps: of a chunk.
        goals: rewards are those of goals.

    Attributes:
        rows: by the numbers of their observations.
        chunks: in the order in which they were sent.
    """

    def __init__(
        self, replay: type[Replay], frames: int, random: Random, steps: int, *, goals: bool = False
    ) -> None:
        numbers = itertools.count()
        specs: Any = {"obs_spec": Episodes.obs_spec, "action_spec": Episodes.action_spec}
        settings = Config({"sender": {"flush_iteration": steps}}).extend(BASE_SESSION_CONFIG)
        writer = RowWriter(
            STREAMS, **specs, settings=settings.sender, overlap=replay.overlap, send=self._send
        )
        writer.keep_frames(frames - 1)
        envs = [Episodes(numbers, random, goals) for _ in range(STREAMS)]
        # Its steps take actions and what is sent beside them.
        self.env: Any = Writing(SyncVector(envs, **specs), writer)
        if frames > 1:
            self.env = FrameStack(self.env, frames)
        self.normalizer = Normalizer(stack_spec(Episodes.obs_spec, frames))
        self.normalizer.update(_noise(frames))
        self.rows: dict[int, Seen] = {}
        self.chunks: list[Chunk] = []
        self._random = random
        self._newest: list[Seen | None] = [None] * STREAMS
        self._reset()

    def play(self, steps: int) -> None:
        for _ in range(steps):
            if self._random.random() < 0.05:
                self._reset()
            actions = np.array([self._random.randrange(100) for _ in range(STREAMS)])
            values = {
                name: np.array([self._random.gauss(0, 1) for _ in range(STREAMS)], np.float32)
                for name in _SENT[1:]
            }
            for stream, row in enumerate(self._newest):
                assert row is not None
                row.sent = {"action": actions[stream]} | {k: v[stream] for k, v in values.items()}
            obs, reward, terminated, truncated, _ = self.env.step((actions, values))
            ends = np.where(terminated, "T", np.where(truncated, "U", ""))
            self._see(obs, reward.tolist(), ends.tolist())

    def _reset(self) -> None:
        # Nothing is left of episodes that have all just begun.
        if all(row is not None and row.first for row in self._newest):
            self._newest = [row and row.before for row in self._newest]
        # Where all episodes have just ended, this is what happens without it, too.
        if not all(row is not None and row.end for row in self._newest):
            self._newest = [None] * STREAMS
        self._see(self.env.reset()[0], [0.0] * STREAMS, [""] * STREAMS)

    def _see(self, obs: Any, rewards: list[float], ends: list[str]) -> None:
        normal = normalized(self.normalizer, obs)
        for stream in range(STREAMS):
            seen = {name: leaf[stream].copy() for name, leaf in obs.items()}
            before, number = self._newest[stream], int(seen["number"].flat[-1])
            first = before is None or bool(before.end)
            row = Seen(
                number,
                seen,
                {name: leaf[stream] for name, leaf in normal.items()},
                rewards[stream],
                ends[stream],
                first,
                before=before,
            )
            if before is not None:
                before.after = row
            self._newest[stream] = self.rows[number] = row

    def _send(self, chunk: Chunk) -> None:
        self._check_returns(chunk.columns["obs/number"][: chunk.length], chunk.finished)
        chunk.sequence, chunk.sender, chunk.incarnation = len(self.chunks) + 1, "agent-0", 1
        self.chunks.append(chunk)

    def _check_returns(self, numbers: Array, finished: Any) -> None:
        """Returns that are reported with a chunk are sums of the environment's own rewards."""
        expected = []
        for row in (self.rows[number] for number in numbers.flat):
            if row.end:
                total, at = 0.0, row
                while not at.first:
                    assert at.before is not None
                    total, at = total + at.reward, at.before
                expected.append(total)
        found = [each["return"] for each in finished]
        np.testing.assert_allclose(sorted(found), sorted(expected), rtol=1e-5, atol=1e-5)


def normalized(normalizer: Normalizer, obs: dict[str, Array]) -> dict[str, Array]:
    """What a network with this normaliser is given."""
    found = normalizer(nest.map(torch.from_numpy, dict(obs)))
    return {name: leaf.numpy() for name, leaf in found.items()}


def _noise(frames: int) -> Any:
    specs = stack_spec(Episodes.obs_spec, frames)
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(20, *spec["dim"], generator=generator) * 4 + 3
        for name, spec in specs.items()
    }


_OF_SEQUENCES = ("rewards", "discounts", "dones", "first", "mask")


class Checker:
    """Compares batches with what the agent had.

    Args:
        played: the episodes.
        learned: settings of rewards and sums.
    """

    def __init__(self, played: Played, learned: Learned) -> None:
        self._played, self._learned = played, learned

    def transitions(self, batch: Any) -> None:
        """Rows, some of them with the goal of a later row of their episode."""
        extras = batch["extras"]
        relabelled = extras.get("relabelled", np.zeros(len(batch["rewards"]), np.bool_))
        starts = self._rows(batch["obs"])
        goals = [
            goal if other else None
            for goal, other in zip(batch["obs"]["desired_goal"], relabelled, strict=True)
        ]
        for row, goal in zip(starts, goals, strict=True):
            later = [tuple(each.goal("achieved")) for each in row.later()]
            assert goal is None or tuple(goal) in later
        found = [self._learned.transition(*each) for each in zip(starts, goals, strict=True)]
        self._observations(batch["obs"], starts, goals)
        self._observations(batch["obs_next"], [each[0] for each in found], goals)
        self._sent(batch, starts)
        self._close(batch["rewards"], [each[1] for each in found])
        self._close(batch["discounts"], [each[2] for each in found])
        self._close(batch["dones"], [each[3] for each in found])

    def unrolls(self, batch: Any) -> None:
        """Whole unrolls: they go over the ends of episodes."""
        number = batch["obs"]["number"]
        for place in range(number.shape[1]):
            rows = [self._played.rows[int(number[0, place].flat[-1])]]
            for each in number[1:, place]:
                # A row that a reset has replaced may have been sent as the last of an unroll.
                rows.append(self._played.rows[int(each.flat[-1])])
                assert rows[-1].before is rows[-2]
            self._sequence(batch, place, rows, 0)

    def sequences(self, batch: Any, burn_in: int) -> None:
        """Sequences within an episode, padded with its first and its last row."""
        number = batch["obs"]["number"]
        for place in range(number.shape[1]):
            rows = [self._played.rows[int(number[burn_in, place].flat[-1])]]
            for _ in range(burn_in):
                first, before = rows[0].first, rows[0].before
                assert first or before is not None
                rows.insert(0, rows[0] if first or before is None else before)
            while len(rows) < len(number):
                rows.append(next(rows[-1].later(), rows[-1]))
                assert rows[-1] is not rows[-2] or rows[-1].end
            self._sequence(batch, place, rows, burn_in)

    def _sequence(self, batch: Any, place: int, rows: list[Seen], burn_in: int) -> None:
        one = {name: batch[name][:, place] for name in ("actions", *_OF_SEQUENCES)}
        one["extras"] = {name: leaf[:, place] for name, leaf in batch["extras"].items()}
        # Behind the end of an episode stacks are of its last frame: nothing is learned there.
        within = 1 + max(t for t, row in enumerate(rows) if not t or row is not rows[t - 1])
        seen = {name: leaf[:within, place] for name, leaf in batch["obs"].items()}
        self._observations(seen, rows[:within])
        acted, after = rows[:-1], rows[1:]
        self._sent(one, acted)
        padding = np.array([row is then for row, then in zip(acted, after, strict=True)])
        begins = [row.first and not again for row, again in zip(rows, [*padding, 0], strict=True)]
        np.testing.assert_array_equal(one["first"], begins)
        real = ~padding & [not row.end for row in acted]
        np.testing.assert_array_equal(one["mask"], real & (np.arange(len(acted)) >= burn_in))
        steps = [row for row, is_real in zip(after, real, strict=True) if is_real]
        terminated = np.array([row.end == "T" for row in steps], np.bool_)
        self._close(one["rewards"][real], [self._learned.reward(row.reward) for row in steps])
        self._close(one["dones"][real], terminated)
        self._close(one["discounts"][real], self._learned.gamma * ~terminated)

    def first_errors(self, replay: Any) -> None:
        """Errors by the agent's values, of all rows that may be drawn."""
        numbers = replay.selector.list_rows()
        starts = self._rows({"number": replay.view.gather(replay.storage, numbers)["obs/number"]})
        expected = []
        for row in starts:
            end, total, discount, _ = self._learned.transition(row, None)
            target = total + discount * end.sent["q_greedy"]
            expected.append(abs(target - row.sent["q_taken"]))
        self._close(replay.acting_errors(numbers), expected)

    def _rows(self, obs: Any) -> list[Seen]:
        return [self._played.rows[int(number.flat[-1])] for number in obs["number"]]

    def _observations(self, obs: Any, rows: list[Seen], goals: Any = None) -> None:
        """Bit for bit as the agent had them, and within 1e-6 behind the normaliser."""
        for name, leaf in obs.items():
            expected = np.array([row.obs[name] for row in rows])
            for place, goal in enumerate(goals or ()):
                if name == "desired_goal" and goal is not None:
                    expected[place] = goal
            assert leaf.dtype == expected.dtype
            np.testing.assert_array_equal(leaf, expected)
        # The parts of an observation may be in any order.
        normal = normalized(self._played.normalizer, dict(reversed(obs.items())))
        for name in Episodes.obs_spec.keys() - {"desired_goal"}:
            expected = np.array([row.normal[name] for row in rows])
            np.testing.assert_allclose(normal[name], expected, atol=1e-6)

    def _sent(self, batch: Any, rows: list[Seen]) -> None:
        np.testing.assert_array_equal(batch["actions"], [row.sent["action"] for row in rows])
        for name in _SENT[1:]:
            expected = [row.sent[name] for row in rows]
            np.testing.assert_array_equal(batch["extras"][name], expected)

    def _close(self, found: Any, expected: Any) -> None:
        np.testing.assert_allclose(found, np.array(expected, np.float64), rtol=1e-5, atol=1e-5)
