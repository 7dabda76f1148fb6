"""StringEnum: members are their own names."""

from __future__ import annotations

import copy
import json
import pickle

import pytest

from session import StringEnum


class Mode(StringEnum):
    """An example with a method, which is no member."""

    training = ()
    eval_stochastic = ()
    eval_deterministic = ()

    def is_eval(self) -> bool:
        return self is not Mode.training


def test_members_equal_their_names() -> None:
    assert [member.name for member in Mode] == ["training", "eval_stochastic", "eval_deterministic"]
    assert list(Mode) == ["training", "eval_stochastic", "eval_deterministic"]
    assert Mode.training == "training"
    assert {"training": 1}[Mode.training] == 1
    assert isinstance(Mode.training, str)
    assert Mode.eval_stochastic.is_eval()


def test_members_are_shown_as_their_names() -> None:
    assert f"{Mode.training}" == str(Mode.training) == "training"
    assert json.dumps([Mode.training]) == '["training"]'


def test_members_are_found_by_name_and_by_text() -> None:
    assert Mode("training") is Mode["training"] is Mode.training
    with pytest.raises(ValueError, match="'train' is not a valid Mode"):
        Mode("train")


def test_members_survive_copy_and_pickle() -> None:
    assert copy.deepcopy(Mode.training) is Mode.training
    assert pickle.loads(pickle.dumps(Mode.training)) is Mode.training  # noqa: S301 our own bytes
