"""Rows of every form in which agents write them, as readable text.

``python -m tests.runs.golden_rows`` writes ``tests/golden/rows.json`` anew. The actions follow from
the observations alone, so that no machine's arithmetic is in the file.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from session.config import Config
from session.errors import ConfigError
from session.wire import Message
from surreal_like import Agent, Algorithm, Learner, Module, train
from tests.runs.sent_chunks import facts_of, recorded
from tests.surreal_like.env.joint_samples import Script

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "rows.json"
HERE = "tests.runs.golden_rows"
BATCHED = "tests.surreal_like.env.batched_samples:Own"
# Chunks that are kept of each form, of its beginning and of its end.
FIRST, LAST = 4, 2


class One(Module):
    """One number, which no action depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.number = torch.nn.Parameter(torch.zeros(1))


class Rule(Agent):
    """Chooses actions by a rule, and sends what it was given along."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.one = One()

    def act(self, obs: Any) -> Any:
        seen = obs if isinstance(obs, torch.Tensor) else obs["observation"]
        flat = seen.reshape(len(seen), -1).numpy()
        actions = (flat.sum(1).astype(np.int64) * 5 + 2 * self.streams) % 3
        extras: dict[str, Any] = {"first": self.first.astype(np.float32)}
        state = self.initial_state(len(actions)) if self.state is None else self.state
        if state is not None:
            before = torch.where(torch.from_numpy(self.first), 0.0, state)
            extras["state"] = before.numpy().copy()
            self.state = before + 1.0
        return actions, extras

    def initial_state(self, n: int) -> Any:
        return torch.zeros(n) if self.learner_config.model.memory else None

    def module_dict(self) -> Any:
        return {"one": self.one}

    @classmethod
    def default_config(cls) -> Config:
        return Config({"model": {"memory": False}, "replay": {"min_size": 1, "batch_size": 2}})


class Nothing(Learner):
    """Learns nothing of a batch."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.one = One()

    def learn(self, batch: Any) -> dict[str, Any]:
        return {"loss": torch.zeros(())}

    def module_dict(self) -> Any:
        return {"one": self.one}


class RowsRule(Algorithm):
    agent, learner = Rule, Nothing
    actions = ("discrete",)


class UnrollsRule(RowsRule):
    replay = "FIFOReplay"


class Lives(Script):
    """One agent ends early, one joins late."""

    def __init__(self) -> None:
        super().__init__({"a_0": (0, 7), "a_1": (0, 3), "a_2": (2, 5)})


_SINGLE = {"env_config.env_name": BATCHED}
_JOINT = {
    "env_config.env_name": f"{HERE}:Lives",
    "env_config.policy_mapping": {"a_*": "ours"},
    "policies": {"ours": {}},
}
_IN_STEP = {**_SINGLE, "env_config.env_args": {"resets_in_step": True}}
FORMS: dict[str, dict[str, Any]] = {
    f"{cut}, {kind}, {'unrolls' if overlap else 'rows'}": {
        **settings,
        "session_config.sender.cut": cut,
        "algorithm": "UnrollsRule" if overlap else "RowsRule",
    }
    for cut in ("steps", "episodes")
    for kind, settings in (("single", _SINGLE), ("joint", _JOINT), ("in the step", _IN_STEP))
    for overlap in (False, True)
}
FORMS |= {
    "steps, one stream, rows": {**FORMS["steps, single, rows"], "env_config.num_envs": 1},
    "episodes, one stream, rows": {**FORMS["episodes, single, rows"], "env_config.num_envs": 1},
    "frames, rows": {**FORMS["steps, single, rows"], "env_config.frame_stack": 3},
    "frames, unrolls": {**FORMS["steps, single, unrolls"], "env_config.frame_stack": 3},
    "frames, in the step, unrolls": {
        **FORMS["steps, in the step, unrolls"],
        "env_config.frame_stack": 3,
    },
    "frames, joint, unrolls": {**FORMS["steps, joint, unrolls"], "env_config.frame_stack": 3},
    "memory, unrolls": {
        **FORMS["steps, single, unrolls"],
        "learner_config.model.memory": True,
    },
    "memory, joint, unrolls": {
        **FORMS["steps, joint, unrolls"],
        "learner_config.model.memory": True,
    },
}


def play(form: str, folder: Path) -> list[tuple[str, Message]]:
    """Runs a form in one thread; returns its chunks.

    Raises:
        ConfigError: the form cannot be written.
    """
    settings = dict(FORMS[form])
    algorithm = f"{HERE}:{settings.pop('algorithm')}"
    chunks: list[tuple[str, Message]] = []
    more = {
        "env_config.num_envs": 2,
        "session_config.sender.flush_iteration": 4,
        "session_config.agent.num": 1,
        "session_config.evaluator.num": 0,
        "session_config.stop": {"iterations": 40, "eval_episodes": 1},
        **settings,
    }
    with recorded(lambda end, message: chunks.append((end, message))):
        train(
            algorithm=algorithm,
            env=more.pop("env_config.env_name"),
            overrides=more,
            folder=folder,
            launcher="serial",
        )
    return chunks


def show(chunks: list[tuple[str, Message]]) -> Iterator[dict[str, Any]]:
    """Yields the first and the last chunks, column by column."""
    for _, message in [*chunks[:FIRST], *chunks[-LAST:]]:
        facts = {name: each for name, each in facts_of(message).items() if "acked" not in name}
        columns = {name: f"{each.dtype} {each.tolist()}" for name, each in message.arrays.items()}
        yield {**facts, "columns": dict(sorted(columns.items()))}


def describe(form: str) -> Any:
    """Returns what the golden file has of a form: its first chunks, or why it is refused."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return list(show(play(form, Path(folder, "run"))))
        except ConfigError as error:
            return str(error)


def main() -> int:
    """Writes the golden file."""
    found = {form: describe(form) for form in FORMS}
    GOLDEN.write_text(json.dumps(found, indent=1) + "\n")
    for form, each in found.items():
        sys.stdout.write(f"{form:40} {each if isinstance(each, str) else len(each)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
