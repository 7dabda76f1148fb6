"""Flows that follow a script, and what pulls of a flow give, as short texts."""

from __future__ import annotations

from typing import Any

from surreal_like.dataflow import NOT_READY, PASSED, STALLED, Flow

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
