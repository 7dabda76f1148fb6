"""A Config gives plain values and keeps what their Keys say, however it is copied or merged."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable

import pytest

from session.config import Config, Key
from session.config.config import keys_of
from session.config.key import FROM_0, FROM_1, Idle, is_idle, section
from session.config.merge import leaves
from session.config.sections import complete_session
from session.errors import ConfigError

RATE = Key(0.1, "Step size.", unit="per step", within=FROM_0)
BASE = Config({"algo": section("Numbers.", {"rate": RATE, "plain": 2}), "top": Key([3], "T.")})


def test_values_are_plain_and_keys_have_dotted_names() -> None:
    assert BASE == {"algo": {"rate": 0.1, "plain": 2}, "top": [3]}
    assert json.loads(json.dumps(BASE)) == BASE.to_dict() == BASE
    keys = keys_of(BASE)
    assert set(keys) == {"algo", "algo.rate", "top"}
    assert keys["algo.rate"] is RATE
    assert keys["algo"].text == "Numbers."


@pytest.mark.parametrize(
    "again",
    [
        Config.copy,
        copy.copy,
        copy.deepcopy,
        lambda config: config | {"top": [4]},
        lambda config: {"other": 1} | config,
        lambda config: Config(Config({"a": config}).a),
        lambda config: Config({"algo": {"rate": 1.0}}).extend(config, strict=True),
        lambda config: Config({"algo": {"plain": 1}}).extend(config, abstract=True),
    ],
)
def test_keys_survive(again: Callable[[Config], Config]) -> None:
    found = keys_of(again(BASE))
    assert set(found) == {"algo", "algo.rate", "top"}
    assert found["algo.rate"].within == FROM_0
    assert found["algo.rate"].unit == "per step"


def test_another_default_keeps_the_rest_and_the_base_stays() -> None:
    changed = BASE.algo | {"rate": 0.5}
    assert changed.rate == 0.5
    assert BASE.algo.rate == 0.1
    assert keys_of(Config({"algo": changed}))["algo.rate"].text == "Step size."


def test_a_key_is_completed_by_that_of_the_base() -> None:
    own = Config({"algo": {"rate": Key(0.2, "Mine."), "plain": 1}, "top": Key([1], within=FROM_1)})
    own.extend(BASE, abstract=True)
    keys = keys_of(own)
    assert own.algo.rate == 0.2
    assert keys["algo.rate"] == Key(0.2, "Mine.", within=FROM_0)
    assert keys["top"].text == "T."
    assert keys["top"].within == FROM_1
    assert keys_of(BASE)["top"].within is None


def test_a_setting_without_effect_is_known_by_the_value_of_another() -> None:
    constant, off = Idle("kind", ("constant",)), Idle("top.use", (False, None))
    config = Config(
        {
            "rate": section("R.", {"kind": "linear", "end": Key(0, idle=constant), "start": 1}),
            "top": {"use": False, "deep": section("D.", {"inner": Key(1)}, idle=off)},
            "far": Key(1, idle=off),
        }
    )
    keys = keys_of(config)

    def idle(**values: object) -> list[str]:
        of = leaves(config) | {path.replace("_", "."): value for path, value in values.items()}
        return [path for path in of if is_idle(path, keys, of)]

    assert idle() == ["top.deep.inner", "far"]
    assert idle(top_use=True) == []
    assert idle(top_use=None, rate_kind="constant") == ["rate.end", "top.deep.inner", "far"]


def test_a_key_that_is_removed_has_no_facts() -> None:
    config = BASE.copy()
    del config.algo
    assert set(keys_of(config)) == {"top"}


def test_the_session_config_of_a_script_is_checked() -> None:
    assert complete_session({"seed": 3}).seed == 3
    with pytest.raises(ConfigError, match=r"^session_config\.seed is -1, expected 0 or more$"):
        complete_session({"seed": -1})
    with pytest.raises(ConfigError, match=r"^session_config\.at_end is 'stay', expected one of"):
        complete_session({"at_end": "stay"})
