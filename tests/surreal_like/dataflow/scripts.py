"""Flows that follow a script, what pulls of a flow give as short texts, a link without a run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from session.process.clock import WallClock
from session.process.context import Context
from surreal_like.dataflow import NOT_READY, PASSED, STALLED, Flow
from surreal_like.learner.learner import Learner
from surreal_like.learner.run_link import LearnerLink

LETTERS = {"N": NOT_READY, "S": STALLED, "P": PASSED}
_END = "END"


class Script(Flow):
    """Gives the words of a text one after the other: N, S and P are signals; counts its pulls."""

    def __init__(self, words: str) -> None:
        super().__init__("script")
        self.words = words.split()
        self.pulls = 0

    def pull(self) -> Any:
        self.pulls += 1
        if not self.words:
            raise StopIteration
        word = self.words.pop(0)
        return LETTERS.get(word, word)


def endless(name: str) -> Flow:
    """Gives name1, name2, ..."""
    return Script(" ".join(f"{name}{number}" for number in range(1, 200)))


def word(item: Any) -> str:
    return next((letter for letter, signal in LETTERS.items() if item is signal), str(item))


def pulled(flow: Flow, most: int = 1000) -> str:
    """The results of pulls up to the first end."""
    words = []
    for _ in range(most):
        try:
            words.append(word(flow.pull()))
        except StopIteration:
            return " ".join([*words, _END])
    return " ".join(words)


def link(learner: Learner, **methods: Any) -> None:
    """Connect a learner to a replay that has these methods only."""
    context = cast(Context, SimpleNamespace(clock=WallClock(), pulse=lambda: None))
    before = cast(
        LearnerLink,
        SimpleNamespace(
            replay=SimpleNamespace(
                **{"count_steps": lambda sampled: None, "learned_steps": 0} | methods
            ),
            publisher=SimpleNamespace(version=0),
            ahead=None,
        ),
    )
    learner._link = LearnerLink(
        context, learner.learner_config, learner.device, learner.module_dict, before=before
    )
