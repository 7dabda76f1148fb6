"""Public names, their signatures, and the options of commands are those that are kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from tests.public_names import FILE, PACKAGES, compare, describe_all, describe_class

AGAIN = """names that documents call public have changed:

  {changes}

If this is wanted: write it into CHANGELOG.md (what is gone or renamed under "What you must do"),
then run: python -m tests.public_names"""


class Base:
    """A base without a public name."""

    size: int

    def __init__(self, size: int, *, word: str = "a") -> None:
        self.size, self.word, self._hidden = size, word, 0

    def act(self, obs: list[int]) -> int:
        """Acts."""
        local: int = 1
        return local

    def _step(self) -> None: ...


class Child(Base, dict[str, int]):
    """A class with all kinds of members."""

    kind = "child"

    @classmethod
    def act(cls, obs: list[int], greedy: bool = False) -> int:
        """Acts in another way."""
        return 0

    @cached_property
    def plan(self) -> str:
        """A value."""
        return ""

    @property
    def rate(self) -> float:
        """A value that may be set."""
        return 0.0

    @rate.setter
    def rate(self, rate: float) -> None: ...


@dataclass
class Data:
    """A class with a constructor that is made."""

    first: int
    second: list[str] = field(default_factory=list)


def test_public_names_and_signatures_are_the_kept_ones() -> None:
    changes = compare(FILE.read_text(encoding="utf-8"), describe_all())
    assert not changes, AGAIN.format(changes="\n  ".join(changes))


def test_the_page_names_the_packages_whose_names_are_public() -> None:
    page = (FILE.parents[2] / "docs" / "upgrading.md").read_text(encoding="utf-8")
    public = page.partition("## What is public")[2].partition("\n## ")[0]
    assert [name for name in PACKAGES if f"`{name}`" not in public] == []


def test_members_of_a_class_are_described_with_those_that_it_inherits() -> None:
    assert list(describe_class("Child", Child, {})) == [
        "class Child(dict)",
        "Child(self, size: int, *, word: str='a') -> None",
        "Child.act(cls, obs: list[int], greedy: bool=False) -> int",
        "Child.kind",
        "Child.plan -> str",
        "Child.rate: float",
        "Child.size: int",
        "Child.word",
    ]
    assert next(describe_class("Child", Child, {id(Base): "Base"})) == "class Child(Base, dict)"
    assert list(describe_class("Data", Data, {})) == [
        "class Data()",
        "Data(first, second=...)",
        "Data.first: int",
        "Data.second: list[str]",
    ]


def test_a_changed_signature_is_shown_as_it_was_and_as_it_is() -> None:
    kept, now = "a(x)\nb(x)\nc\n", "a(x)\nb(x, y)\nc\nd\n"
    assert compare(kept, now) == ["-b(x)", "+b(x, y)", "+d"]
    assert compare(kept, kept) == []
