"""Environments that break the rules, one each, and some of which a note is due."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from surreal_like.env.environment import Env, Step
from tests.surreal_like.env.joint_samples import InTurns, Script, TwoLives


class OfGym(gymnasium.Env[Any, Any]):
    """Does one thing wrong, named by `what`, from its third step on."""

    observation_space: Any = spaces.Box(-1, 1, (3,), np.float32)
    action_space: Any = spaces.Discrete(2)

    def __init__(self, what: str = "") -> None:
        self.what = what

    def _see(self) -> Any:
        return np.zeros(3, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.now = 0
        return self._see(), {}

    def step(self, action: Any) -> Any:
        self.now += 1
        obs, over, wrong = self._see(), self.now == 5, self.now > 2
        if wrong and self.what == "exit":
            sys.exit("the licence is missing")
        if wrong and self.what in ("nothing", "four"):
            return None if self.what == "nothing" else (obs, 1.0, over, {})
        changes: Any = {
            "far": (0, np.full(3, 7, np.float32)),
            "short": (0, np.zeros(2, np.float32)),
            "text": (1, "1"),
            "two": (1, np.array([1.0, 2.0])),
            "none": (1, None),
            "flag": (2, "no"),
            "list": (4, {"metrics": [1]}),
            "array": (4, {"metrics": np.zeros(2)}),
            "word": (4, {"metrics": {"far": "7"}}),
        }
        result = [obs, 1.0, over, False, {}]
        if wrong and self.what in changes:
            place, value = changes[self.what]
            result[place] = value
        return tuple(result)

    def close(self) -> None:
        if self.what == "close":
            raise RuntimeError("the door is stuck")


class Exits(OfGym):
    """Its constructor ends the process."""

    def __init__(self) -> None:
        sys.exit(3)


class OldReset(OfGym):
    """Resets as environments of gym did."""

    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


class NoOptions(OfGym):
    """Its `reset` takes no options."""

    def reset(self, *, seed: int | None = None) -> Any:  # type: ignore[override]
        return super().reset(seed=seed)


class MaskOfGym(OfGym):
    """Allows no action, or has a mask of another size or another kind of numbers."""

    def __init__(self, what: str = "") -> None:
        super().__init__(what)
        size = 3 if what == "size" else 2
        mask = spaces.MultiBinary(size)
        self.observation_space = spaces.Dict(observation=OfGym.observation_space, action_mask=mask)

    def _see(self) -> Any:
        mask = np.array([0, self.what != "zeros"], np.int8)
        seen = {"observation": super()._see(), "action_mask": mask}
        return {**seen, "action_mask": "no"} if self.what == "word" else seen


class Slashed(OfGym):
    """A part of its observations has a slash in its name."""

    observation_space = spaces.Dict({"arm/left": OfGym.observation_space})


class FarBatch(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """A batch whose observations lie outside of their space."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012
    single_observation_space: Any = OfGym.observation_space
    single_action_space: Any = OfGym.action_space

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return np.full((self.num_envs, 3), 7, np.float32), {}

    def step(self, actions: Any) -> Any:
        ends = np.zeros(self.num_envs, np.bool_)
        return self.reset()[0], np.ones(self.num_envs), ends, ends, {}


class Keyed(Env):
    """Its observation is a dict that no nest can be."""

    obs_spec = {"type": "float32", "dim": [1]}  # noqa: RUF012
    action_spec = {"type": "discrete", "dim": [2]}  # noqa: RUF012

    def reset(self) -> Any:
        return {7: np.zeros(1, np.float32)}, {}

    def step(self, action: Any) -> Step:
        return np.zeros(1, np.float32), 0.0, True, False, {}


class Joins(Script):
    """The second agent joins late, a third never."""

    def __init__(self) -> None:
        super().__init__({"a_0": (0, 5), "a_1": (2, 4), "a_2": (9, 10)})


class Vanishes(TwoLives):
    """The second agent is gone without a flag."""

    def step(self, actions: dict[str, Any]) -> Any:
        result = super().step(actions)
        self.agents = self.agents[:1]
        return result


class ComesBack(TwoLives):
    """The second agent is there again after its end."""

    def step(self, actions: dict[str, Any]) -> Any:
        result = super().step(actions)
        if self.now == 4:
            self.agents = ["a_0", "a_1"]
            result[0]["a_1"] = self._obs()
        return result


class Unseen(TwoLives):
    """The second agent lives without an observation."""

    def step(self, actions: dict[str, Any]) -> Any:
        result = super().step(actions)
        result[0].pop("a_1", None)
        return result


class Unflagged(TwoLives):
    """The step leaves out the flags of the second agent."""

    def step(self, actions: dict[str, Any]) -> Any:
        result = super().step(actions)
        result[2].pop("a_1", None)
        return result


class Unnamed(TwoLives):
    """The environment names no agents."""

    def __init__(self) -> None:
        super().__init__()
        self.possible_agents = []


class Stranger(TwoLives):
    """An agent joins that was not named."""

    def __init__(self) -> None:
        super().__init__()
        self.possible_agents = ["a_0"]


class Blurred(TwoLives):
    """An observation of the second agent is no number."""

    def _obs(self) -> Any:
        return np.array([np.nan if self.now == 2 else self.now], np.float32)


class Rich(TwoLives):
    """A reward is infinite."""

    def step(self, actions: dict[str, Any]) -> Any:
        result = super().step(actions)
        result[1]["a_1"] = np.inf
        return result


class Pair(TwoLives):
    """The agents have different actions."""

    def __init__(self) -> None:
        Script.__init__(self, {"speaker_0": (0, 3), "listener_0": (0, 3), "listener_1": (0, 3)})

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2 if agent.startswith("speaker") else 3)


class MaskedLives(TwoLives):
    """Only the last action is legal, after the fourth step none."""

    stuck = False

    def _mask(self) -> Any:
        return np.array([0, 0, not (self.stuck and self.now > 1)], np.int8)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        observations, infos = super().reset(seed)
        return observations, {name: {"action_mask": self._mask()} for name in infos}

    def step(self, actions: dict[str, Any]) -> Any:
        if set(actions.values()) != {2}:
            raise ValueError("an illegal action")
        *result, infos = super().step(actions)
        return *result, {name: {"action_mask": self._mask()} for name in infos}


class Stuck(MaskedLives):
    """No action is legal after two steps."""

    stuck = True


class UnseededLives(TwoLives):
    """Draws from no generator that a seed reaches."""

    def _obs(self) -> Any:
        return np.random.default_rng().random(1).astype(np.float32)


class Shared(TwoLives):
    """Copies share the step."""

    shared = [0.0]  # noqa: RUF012

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.shared[0] = 0.0
        return super().reset(seed)

    def _obs(self) -> Any:
        self.shared[0] += 1
        return np.array(self.shared, np.float32)


class Far(TwoLives):
    """The second agent sees what lies outside of its space."""

    def observation_space(self, agent: str) -> Any:
        return (
            spaces.Box(-1, 1, (1,), np.float32)
            if agent == "a_1"
            else super().observation_space(agent)
        )


class LeftMask(MaskedLives):
    """An info lacks its mask after the first step."""

    def step(self, actions: dict[str, Any]) -> Any:
        *result, infos = super().step(actions)
        return *result, {"a_0": infos["a_0"]}


class WideMask(MaskedLives):
    """A mask has another size than there are actions."""

    def _mask(self) -> Any:
        return np.ones(4, np.int8)


class Unpaid(TwoLives):
    """A reward is a text."""

    def step(self, actions: dict[str, Any]) -> Any:
        result = super().step(actions)
        result[1]["a_1"] = "much"
        return result


class Failing(TwoLives):
    """The third step fails."""

    def step(self, actions: dict[str, Any]) -> Any:
        if self.now == 2:
            raise KeyError("valve")
        return super().step(actions)


class Quits(TwoLives):
    """The third step ends the process."""

    def step(self, actions: dict[str, Any]) -> Any:
        if self.now == 2:
            sys.exit(0)
        return super().step(actions)


class Locked(TwoLives):
    """Cannot be closed."""

    def close(self) -> None:
        raise RuntimeError("the door is stuck")


class ComesBackInTurns(InTurns):
    """In turns, the first agent is there again once both have ended."""

    def step(self, action: Any) -> None:
        super().step(action)
        if not self.agents:
            self.agents, self.agent_selection = ["a"], "a"


class UnflaggedInTurns(InTurns):
    """In turns, the flags of an agent are missing."""

    def step(self, action: Any) -> None:
        super().step(action)
        self.terminations.pop("b", None)
