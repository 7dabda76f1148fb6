"""extend: what is filled in, what is refused, and in which words; C7 to C24 are its rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from session import Config, ConfigError
from session.config.config import apply_overrides

PARTIAL_DEFAULT: dict[str, Any] = {
    "demo": {
        "replay": {"host": "localhost", "port": 6379},
        "ps": {"host": "192.168.11.11", "port": 8888},
    },
    "obs_spec": {"type": "continuous", "dim": [64, 64, 3]},
}
PARTIAL_USER: dict[str, Any] = {
    "demo": {"replay": {"host": "myreplayhost"}, "ps": {"port": 12345}},
    "obs_spec": {"extra": "special_extra"},
}
PARTIAL_FILLED: dict[str, Any] = {
    "demo": {
        "replay": {"host": "myreplayhost", "port": 6379},
        "ps": {"host": "192.168.11.11", "port": 12345},
    },
    "obs_spec": {"type": "continuous", "dim": [64, 64, 3], "extra": "special_extra"},
}
DEMANDING_DEFAULT: dict[str, Any] = {
    "demo": {
        "replay": {"host": "localhost", "port": 6379, "flag": "_bool_"},
        "ps": {"host": "_str_", "port": "_int_"},
    },
    "obs_spec": {"type": "_enum[continuous,discrete]_", "dim": "_list_"},
}
DEMANDING_USER: dict[str, Any] = {
    "demo": {"replay": {"flag": False}, "ps": {"host": "mypshost", "port": 12345}},
    "obs_spec": {"type": "discrete", "dim": [128, 128]},
}
DEMANDING_FILLED: dict[str, Any] = {
    "demo": {
        "replay": {"host": "localhost", "port": 6379, "flag": False},
        "ps": {"host": "mypshost", "port": 12345},
    },
    "obs_spec": {"type": "discrete", "dim": [128, 128]},
}


def refusal(user: dict[str, Any], base: dict[str, Any], **how: bool) -> str:
    """The message with which `base` refuses `user`."""
    with pytest.raises(ConfigError) as caught:
        Config(user).extend(base, **how)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_extend_fills_missing_entries_in_place() -> None:
    config = Config({"a": {"b": 1}})
    section = config.a
    config.extend({"a": {"b": 0, "c": 2}, "d": {"e": 3}})
    assert config == {"a": {"b": 1, "c": 2}, "d": {"e": 3}}
    assert config.a is section
    assert config.d.e == 3


def test_user_value_wins_and_unknown_keys_are_kept() -> None:
    config = Config({"a": 5, "obs_spec": {"extra": {"x": 1}}}).extend(
        {"a": 1, "obs_spec": {"type": "uint8"}}
    )
    assert config == {"a": 5, "obs_spec": {"type": "uint8", "extra": {"x": 1}}}


def test_extended_config_equals_the_merged_one() -> None:
    assert Config(PARTIAL_USER).extend(Config(PARTIAL_DEFAULT)) == Config(PARTIAL_FILLED)


def test_extend_checks_against_placeholders() -> None:
    assert Config({"port": 1}).extend({"port": "_int_"}) == {"port": 1}
    assert refusal({"port": "x"}, {"port": "_int_"}) == "port is 'x', expected an integer"


def test_a_placeholder_is_required() -> None:
    assert refusal({}, {"a": {"port": "_int_"}}) == "missing: a.port (an integer)"


def test_what_the_user_gives_is_completed_by_partial_defaults() -> None:
    config = Config(PARTIAL_USER)
    config.extend(Config(PARTIAL_DEFAULT))
    assert config == Config(PARTIAL_FILLED)


def test_what_the_user_gives_fills_demanding_defaults() -> None:
    config = Config(DEMANDING_USER)
    config.extend(Config(DEMANDING_DEFAULT))
    assert config == Config(DEMANDING_FILLED)


def test_int_for_float_is_converted() -> None:
    config = Config({"gamma": 1, "lr": 1}).extend({"gamma": 0.99, "lr": "_float_"})
    assert [type(value) for value in config.values()] == [float, float]


def test_integral_float_for_int_is_converted() -> None:
    config = Config({"capacity": 1e8, "size": 1e3}).extend({"capacity": 5, "size": "_int_"})
    assert config == {"capacity": 100000000, "size": 1000}
    assert [type(value) for value in config.values()] == [int, int]
    assert refusal({"size": 2.5}, {"size": 1}) == "size is 2.5, expected an integer"
    assert refusal({"size": float("inf")}, {"size": 1}) == "size is inf, expected an integer"


@pytest.mark.parametrize(
    ("user", "default", "message"),
    [
        ("5", 5, "k is '5' (it is a text: leave its quotes out), expected an integer"),
        (True, 5, "k is True, expected an integer"),
        (1, True, "k is 1, expected true or false"),
        (True, 0.5, "k is True, expected a number"),
        (1, "x", "k is 1, expected a text"),
        (5, [1], "k is 5, expected a list"),
        ({"a": 1}, 5, "k is {'a': 1}, expected an integer"),
        (5, {"a": 1}, "k is 5, expected a mapping of a, such as {a: 1}"),
        (
            True,
            {"every": 0, "b": {}},
            "k is True, expected a mapping of every, b, such as {every: 0}",
        ),
        (5, {"a": {"b": 1}}, "k is 5, expected a mapping of a"),
        (5, {}, "k is 5, expected a mapping"),
    ],
)
def test_plain_default_has_a_kind(user: Any, default: Any, message: str) -> None:
    assert refusal({"k": user}, {"k": default}) == message


def test_none_default_accepts_anything() -> None:
    for value in (None, 1, "x", [1], {"a": 1}):
        assert Config({"k": value}).extend({"k": None}, strict=True) == {"k": value}


def test_none_is_refused_elsewhere() -> None:
    defaults: list[Any] = [1, "x", [], {}, {"a": 1}, "_singleton_", "_str_", "_dict_"]
    for default in defaults:
        assert "k is None, expected" in refusal({"k": None}, {"k": default})
    assert Config({"k": None}).extend({"k": "_object_"}) == {"k": None}


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ({"algo": {"gama": 1}}, "unknown key algo.gama = 1; did you mean algo.gamma?"),
        ({"gamma": 0.9}, "unknown key gamma = 0.9; did you mean algo.gamma?"),
        ({"agol": {}}, "unknown key agol = {}; did you mean algo?"),
        ({"algo": {"xyz": 1}}, "unknown key algo.xyz = 1; keys here: gamma, n_step"),
        (
            {"algo.gamma": 1},
            "unknown key algo.gamma = 1; write it as nested mappings, without dots",
        ),
    ],
)
def test_strict_refuses_unknown_keys(user: dict[str, Any], message: str) -> None:
    base: dict[str, Any] = {"algo": {"gamma": 0.99, "n_step": 1}, "device": "auto"}
    assert refusal(user, base, strict=True) == message
    kept = Config(user).extend(base)
    assert set(kept) == {*base, *user}
    assert set(kept.algo) == {*base["algo"], *user.get("algo", {})}


def test_strict_keeps_unknown_keys_of_open_dicts() -> None:
    user = {"args": {"x": {"y": 1}}, "more": {"z": 1}}
    assert Config(user).extend({"args": {}, "more": "_dict_"}, strict=True) == user


def test_an_empty_default_is_open_at_the_top_too() -> None:
    assert Config({"a": 1}).extend({}, strict=True) == {"a": 1}


def test_nearest_key_is_the_one_in_the_nearest_section() -> None:
    base = {"agent": {"threads": 1}, "learner": {"threads": 1}, "eval": {"threads": 1}}
    message = refusal({"learner": {"thread": 2}}, base, strict=True)
    assert message == "unknown key learner.thread = 2; did you mean learner.threads?"


@pytest.mark.parametrize(
    ("user", "hint"),
    [
        ({"algo": {"gama": 1}}, "did you mean learner_config.algo?"),
        ({"learner_config": {"model": {"core": "lstm"}}}, "keys here: shared"),
        ({"session_config": {"agents": {"num": 3}}}, "did you mean session_config.agent?"),
        ({"session_config": {"agent": {"agents": 3}}}, "did you mean session_config.slurm.agents?"),
        ({"session_config": {"agent": {"mode": 1}}}, "keys here: num"),
        ({"vectors": "sync"}, "keys here: algorithm, learner_config, env_config, session_config"),
    ],
)
def test_a_hint_comes_from_the_section_or_is_the_name_itself(
    user: dict[str, Any], hint: str
) -> None:
    base = {
        "algorithm": "dqn",
        "learner_config": {"algo": {"gamma": 0.99, "mode": "hard"}, "model": {"shared": 1}},
        "env_config": {"vector": "auto"},
        "session_config": {"agent": {"num": 1}, "slurm": {"agents": 1}, "evaluator": {"mode": "a"}},
    }
    message = refusal(user, base, strict=True)
    assert message.startswith("unknown key ")
    assert message.endswith(f"; {hint}")


def test_a_long_value_is_shown_in_part() -> None:
    assert refusal({"k": "x" * 1000}, {"k": 1}) == f"k is '{'x' * 56}..., expected an integer"


def test_placeholder_may_stay_between_defaults() -> None:
    base = Config({"n": "_num_", "name": "_str_", "size": 1})
    algorithm = Config({"n": "_int_", "size": "_int_"})
    with pytest.raises(ConfigError, match=r"^missing: name \(a text\)$"):
        algorithm.extend(base)
    algorithm.extend(base, abstract=True)
    assert algorithm == {"n": "_int_", "name": "_str_", "size": "_int_"}
    assert Config({"n": 1, "name": "x", "size": 2}).extend(algorithm, strict=True).n == 1


def test_placeholder_must_not_widen() -> None:
    assert refusal({"n": "_num_"}, {"n": "_int_"}) == "n is '_num_', expected an integer"
    assert refusal({"n": "_str_"}, {"n": 1}) == "n is '_str_', expected an integer"
    assert refusal({"n": "_dict_"}, {"n": {"a": 1}}) == (
        "n is '_dict_', expected a mapping of a, such as {a: 1}"
    )


def test_placeholder_inside_a_list_is_for_each_item() -> None:
    assert Config({"dims": []}).extend({"dims": ["_int_"]}).dims == []
    dims = Config({"dims": [1, 2e0]}).extend({"dims": ["_int_"]}).dims
    assert (dims, type(dims[1])) == ([1, 2], int)
    assert "expected a list, each item an integer" in refusal(
        {"dims": [1, "x"]}, {"dims": ["_int_"]}
    )
    assert refusal({}, {"dims": ["_int_"]}).startswith("missing: dims")
    assert "holds nothing else" in refusal({}, {"dims": ["_int_", 1]})


def test_a_mapping_inside_a_list_is_checked_too() -> None:
    base = {"a": [{"b": "_int_", "c": 1, "d": [["_str_"]]}]}
    filled = Config({"a": [{"b": 2e0, "d": []}, {"b": 3, "c": 4.0, "d": [["x"]]}]})
    assert filled.extend(base, strict=True) == {
        "a": [{"b": 2, "c": 1, "d": []}, {"b": 3, "c": 4, "d": [["x"]]}]
    }
    assert Config({"a": []}).extend(base) == {"a": []}
    assert refusal({"a": [{"b": "x"}]}, base) == "a[0].b is 'x', expected an integer"
    assert refusal({"a": [{"d": []}, {}]}, base) == (
        "missing: a[0].b (an integer), a[1].b (an integer), "
        "a[1].d (a list, each item a list, each item a text)"
    )
    assert refusal({"a": [5]}, base) == "a[0] is 5, expected a mapping of b, c, d"
    assert refusal({"a": [{"bb": 1}]}, base, strict=True) == (
        "unknown key a[0].bb = 1; did you mean a[0].b?"
    )
    assert refusal({}, base).startswith("missing: a (a list, each item a mapping)")
    with pytest.raises(ConfigError, match=r"a\[0\]\.b is '_num_', expected an integer"):
        Config({"a": [{"b": "_num_"}]}).extend(base, abstract=True)


def test_missing_section_lists_its_required_leaves() -> None:
    base = {"demo": {"ps": {"host": "_str_", "port": "_int_", "ok": 1}, "n": "_num_"}}
    assert refusal({}, base) == (
        "missing: demo.ps.host (a text), demo.ps.port (an integer), demo.n (a number)"
    )


def test_extend_returns_self_and_never_aliases_the_default() -> None:
    base = Config({"a": {"dims": [1, {"x": 1}]}, "open": {}})
    config = Config()
    assert config.extend(base) is config
    config.a.dims[1].x = 2
    config.a.dims.append(3)
    config.open.y = 1
    assert base == {"a": {"dims": [1, {"x": 1}]}, "open": {}}


def test_refused_extend_changes_nothing() -> None:
    config = Config({"b": {"c": 1}, "z": "x"})
    with pytest.raises(ConfigError):
        config.extend({"a": 1, "b": {"c": 0, "d": 1}, "z": 1})
    assert config == {"b": {"c": 1}, "z": "x"}


def test_reserved_names_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^items: items is a method of Config"):
        Config({"items": 1})
    with pytest.raises(ConfigError, match=r"^a\.extend: extend is a method"):
        Config({"a": {}}).a.extend = 1
    assert refusal({}, {"a": {"keys": 1}}).startswith("a.keys: keys is a method")
    config = Config({"a": {}})
    for put in (
        lambda: Config({"a": {"keys": 1}}),
        lambda: Config({"a": [{"b": {"keys": 1}}]}),
        lambda: config.__setitem__("keys", 1),
        lambda: config.a.__setitem__("keys", 1),
        lambda: config.update(keys=1),
        lambda: config.setdefault("keys", 1),
        lambda: config | {"keys": 1},
        lambda: Config.fromkeys(["keys"]),
        lambda: apply_overrides(config, ["a.keys=1"]),
        lambda: apply_overrides(config, ["a={b: [{keys: 1}]}"]),
    ):
        with pytest.raises(ConfigError, match=r"keys: keys is a method of Config, choose another"):
            put()
    assert config == {"a": {}}


def test_reserved_names_are_refused_in_files(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("a: {b: [{keys: 1}]}\n")
    with pytest.raises(ConfigError) as caught:
        Config.load_file(path)
    assert str(caught.value) == (
        f"{path}: a.b[0].keys: keys is a method of Config, choose another key"
    )


def test_reserved_names_stand_where_others_choose_the_names() -> None:
    given: dict[str, Any] = {
        "env_args": {"keys": 1},
        "obs_spec": {"items": {"type": "uint8", "dim": [3]}},
        "wrappers": [{"wrapper": "a:B", "args": {"copy": True}}],
    }
    config = Config({"env_config": given}).extend({"env_config": {}}, strict=True)
    assert config.env_config["obs_spec"]["items"].dim == [3]
    assert config == {"env_config": given}
    with pytest.raises(ConfigError, match=r"^env_config\.env_args\.keys: keys is a method"):
        config.env_config.env_args.keys = 1


def test_reserved_names_stand_in_open_dicts() -> None:
    config = Config({"env_args": {"keys": 1, "copy": True}}).extend({"env_args": {}}, strict=True)
    assert config.env_args["keys"] == 1
    assert list(config.env_args.keys()) == ["keys", "copy"]


SCHEDULE = {"kind": "linear", "by": "x", "start": 1.0, "end": 0.5, "steps": 9, "points": []}


@pytest.mark.parametrize("number", [3e-4, 1])
def test_a_number_in_place_of_a_schedule_is_a_constant_one(number: float) -> None:
    config = Config({"a": {"rate": number}}).extend({"a": {"rate": SCHEDULE}}, strict=True)
    assert config.a.rate == {**SCHEDULE, "kind": "constant", "start": float(number)}
    assert isinstance(config.a.rate.start, float)


def test_a_text_in_place_of_a_model_is_its_torso() -> None:
    base = {"model": {"torso": "", "torso_args": {}, "width": 1}}
    config = Config({"model": "a.b:C"}).extend(base, strict=True)
    assert config == {"model": {"torso": "a.b:C", "torso_args": {}, "width": 1}}


def test_a_text_in_place_of_a_list_of_texts_is_a_list_of_one() -> None:
    base = {"modes": ["a", "b"]}
    assert Config({"modes": "c"}).extend(base, strict=True) == {"modes": ["c"]}
    assert "expected a list" in refusal({"modes": 1}, base)


@pytest.mark.parametrize("default", [[], [1], ["_str_"], ["a", 1]])
def test_a_text_is_no_list_of_anything_else(default: Any) -> None:
    assert "expected a list" in refusal({"modes": "c"}, {"modes": default})


@pytest.mark.parametrize("wrong", [True, "x", [1.0]])
def test_nothing_else_is_taken_for_a_schedule(wrong: Any) -> None:
    said = refusal({"rate": wrong}, {"rate": SCHEDULE})
    assert "expected a number or a mapping, such as {kind: piecewise, points: " in said
    assert "expected a mapping" in refusal({"rate": 1.0}, {"rate": {"kind": "", "start": 0.0}})


@pytest.mark.parametrize("default", [SCHEDULE, 1.0, 1, True])
def test_a_number_in_quotes_is_named_as_a_text(default: Any) -> None:
    text = {bool: "true", int: "12"}.get(type(default), "1e-4")
    said = refusal({"rate": text}, {"rate": default})
    assert f"rate is '{text}' (it is a text: leave its quotes out), expected " in said
    assert "quotes" not in refusal({"rate": "fast"}, {"rate": default})
