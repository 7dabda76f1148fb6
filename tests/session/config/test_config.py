"""Config as a dict with attributes, overrides, layers and fingerprint; C1 to C24 are its rules."""

from __future__ import annotations

import copy
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from session import BASE_LEARNER_CONFIG, Config, ConfigError, StringEnum
from session.config.config import apply_overrides, check_resolved, explain, missing, override

EXPERIMENT = {
    "algorithm": "dqn",
    "learner_config": {"algo": {"gamma": 0.99, "n_step": 1}},
    "env_config": {"env_name": "gym:CartPole-v1", "obs_spec": {}},
    "session_config": {"seed": 0},
}


def run_python(code: str, *arguments: str) -> str:
    """What a fresh interpreter prints."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_config_is_what_the_package_exports() -> None:
    assert isinstance(BASE_LEARNER_CONFIG, Config)
    assert Config.__module__ == "session.config.config"


def test_attribute_equals_item() -> None:
    config = Config({"a": 1})
    config.b = 2
    config["c"] = 3
    assert (config.a, config["b"], config.c) == (1, 2, 3)
    del config.b
    assert config == {"a": 1, "c": 3}


def test_a_config_has_all_operations_of_a_dict() -> None:
    config = Config({"a": 1}, b={"c": 2})
    assert list(config.keys()) == ["a", "b"]
    assert list(config.items()) == [("a", 1), ("b", {"c": 2})]
    assert config.setdefault("d", {"e": 1}).e == 1
    assert config.setdefault("d", 5) == {"e": 1}
    config.update({"f": {"g": 1}})
    config |= {"h": {"i": 2}}
    assert (config.f.g, config.h.i) == (1, 2)
    assert config.pop("a") == 1
    assert config.get("a") is None
    assert "a" not in config
    assert len(config) == 4
    assert Config.fromkeys(["x"], 1) == {"x": 1}
    config.clear()
    assert config == {}


def test_mappings_inside_are_configs_too() -> None:
    config = Config({"a": {"b": {"c": 1}}, "steps": [{"d": 2}], "pair": (1, 2)})
    assert config.a.b.c == 1
    assert config.steps[0].d == 2
    assert config.pair == [1, 2]
    assert "a" in dir(config)


@pytest.mark.parametrize(
    "text", ["_str", "str_", "_sting_", "_Str_", "_enum[]_", "_foo_", "__int__"]
)
def test_what_only_looks_like_a_placeholder_is_refused_in_defaults(text: str) -> None:
    default = Config({"a": {"b": text}})
    wrong = r"^a\.b is '.*(did you mean|there are|lists its options)"
    with pytest.raises(ConfigError, match=wrong):
        Config().extend(default)
    with pytest.raises(ConfigError, match=wrong):
        default.copy().extend({}, abstract=True)


@pytest.mark.parametrize("text", ["bool_", "_all_", "_str", "_enum[]_"])
def test_a_word_that_looks_like_a_placeholder_is_a_value(text: str, tmp_path: Path) -> None:
    base: dict[str, Any] = {"env_args": {}, "name": "x", "kind": None, "names": []}
    given = {"env_args": {"dtype": text}, "name": text, "kind": text, "names": [text]}
    config = Config(given).extend(base, strict=True)
    assert config == given
    check_resolved(config)
    config.dump_file(tmp_path / "c.yaml")
    assert Config.load_file(tmp_path / "c.yaml") == given


@pytest.mark.parametrize("text", ["_int_", "_enum[a, b]_", "bool_", "\\_int_"])
def test_a_backslash_makes_a_placeholder_a_text(text: str, tmp_path: Path) -> None:
    config = Config({"name": f"\\{text}", "names": [f"\\{text}"]}).extend(
        {"name": "x", "names": []}
    )
    for ending in ("yaml", "json"):
        config.dump_file(tmp_path / f"c.{ending}")
        again = Config.load_file(tmp_path / f"c.{ending}")
        for twin in (config, again, Config(again.to_dict()), copy.deepcopy(again), again.copy()):
            assert (twin.name, twin.names) == (text, [text])
            check_resolved(twin)
            assert twin.fingerprint() == config.fingerprint()
    assert Config({"path": "\\d_", "other": "\\n"}) == {"path": "\\d_", "other": "\\n"}


def test_unresolved_placeholders_are_listed_at_once() -> None:
    config = Config({"a": {"n": "_int_", "ok": 1}, "kind": "_enum[x, y]_", "dims": ["_int_"]})
    assert missing(config) == {
        "a.n": "an integer",
        "kind": "one of x, y",
        "dims": "a list, each item an integer",
    }
    with pytest.raises(
        ConfigError, match=r"^missing: a\.n \(an integer\), kind \(one of x, y\), dims \(a list"
    ):
        check_resolved(config)
    check_resolved(Config({"a": {"n": 1}}))


def test_a_missing_attribute_names_the_nearest_key() -> None:
    config = Config({"algo": {"gamma": 0.9, "n_step": 1}})
    for kind in (ConfigError, AttributeError, KeyError):
        with pytest.raises(kind, match=r"no key algo\.gama; did you mean algo\.gamma\?"):
            _ = config.algo.gama
    with pytest.raises(ConfigError, match=r"^the config has no key x; keys here: algo"):
        _ = config["x"]
    with pytest.raises(ConfigError, match="no key x"):
        del config.x
    assert not hasattr(config, "x")
    assert getattr(config, "x", 5) == 5
    assert config.get("x", 6) == 6


def test_a_missing_key_of_a_file_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("algo: {gamma: 0.9}\nparts: [{a: 1}]\n")
    config = Config.load_file(path)
    for each in (config.algo, config.copy().algo, config.copy()["parts"][0]):
        with pytest.raises(ConfigError, match=f"^{re.escape(str(path))} has no key "):
            _ = each.x


def test_copies_and_pickles_share_nothing() -> None:
    config = Config({"a": {"b": [1, {"c": 2}]}, "env_args": {"keys": 1}})
    for twin in (
        copy.deepcopy(config),
        copy.copy(config),
        config.copy(),
        pickle.loads(pickle.dumps(config)),  # noqa: S301 our own bytes
    ):
        assert twin == config
        assert type(twin.a.b[1]) is Config
        twin.a.b[1].c = 3
        twin.a.d = 4
        with pytest.raises(ConfigError, match=r"no key a\.x"):
            _ = twin.a.x
    assert config == {"a": {"b": [1, {"c": 2}]}, "env_args": {"keys": 1}}


def test_a_config_equals_its_plain_dict() -> None:
    config = Config({"a": {"b": [{"c": (1, 2)}]}})
    plain = config.to_dict()
    assert config == plain == {"a": {"b": [{"c": [1, 2]}]}}
    assert (type(plain["a"]), type(plain["a"]["b"][0])) == (dict, dict)


def test_what_is_put_in_becomes_plain(tmp_path: Path) -> None:
    class Color(StringEnum):
        red = ()

    config = Config({"folder": tmp_path, "color": Color.red})
    assert config == {"folder": str(tmp_path), "color": "red"}
    assert type(config.color) is str
    config.dump_file(tmp_path / "c.yaml")
    with pytest.raises(ConfigError, match=r"^a\.b is .* of type list, which no file can hold;"):
        Config({"a": {"b": [object()]}}).dump_file(tmp_path / "c.yaml")


def test_numbers_of_numpy_become_python_s(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "size": np.int64(32),
        "rate": np.float32(0.5),
        "flag": np.bool_(True),
        "dim": [np.int64(2), np.array(3)],
        "name": np.str_("a"),
    }
    config = Config(given)
    config.more = np.uint8(7)
    assert config == {
        "size": 32, "rate": 0.5, "flag": True, "dim": [2, 3], "name": "a", "more": 7
    }  # fmt: skip
    assert [type(value) for value in config.values()] == [int, float, bool, list, str, int]
    assert [type(value) for value in config.dim] == [int, int]
    config.dump_file(tmp_path / "c.yaml")
    assert config.fingerprint() == Config.load_file(tmp_path / "c.yaml").fingerprint()
    assert Config({"size": np.int64(3)}).extend({"size": 1}) == {"size": 3}


VALUES = (3, 0.5, float("inf"), -float("inf"), True, None, "x y", "3", "Infinity", [1, "a"])


@pytest.mark.parametrize("value", [*VALUES, {"a": {"b": [1]}}, {}])
def test_an_override_is_read_back_as_the_value_that_was_given(value: Any) -> None:
    config = apply_overrides(Config(), [override("a.b", value)])
    assert config == {"a": {"b": value}}
    assert type(config.a.b) in (type(value), Config)


def test_an_override_takes_numbers_of_numpy_and_no_objects(tmp_path: Path) -> None:
    assert override("a.b", np.int64(3)) == "a.b=3"
    assert override("a.b", tmp_path) == f"a.b={tmp_path}"
    with pytest.raises(
        ConfigError, match=r"^a\.b is <object .* which no file can hold; .*file.py:Name$"
    ):
        override("a.b", object())


@pytest.mark.parametrize("kind", [dict, list])
def test_what_is_nested_too_deeply_is_one_error(kind: type) -> None:
    deep: Any = 1
    for _ in range(900):
        deep = {"a": deep} if kind is dict else [deep]
    with pytest.raises(ConfigError, match=r"^'a.*nested in more than 100 levels$"):
        Config({"a": deep})
    fine: Any = 1
    for _ in range(90):
        fine = {"a": fine}
    assert Config(fine).copy().extend({"b": 1}).to_dict() == {**fine, "b": 1}


def test_merging_with_a_bar_gives_a_config() -> None:
    config = Config({"a": {"b": 1}})
    for merged in (config | {"c": {"d": 2}}, {"c": {"d": 2}} | config):
        assert isinstance(merged, Config)
        assert merged.c.d == 2
        merged.a.b = 3
    assert config == {"a": {"b": 1}}


def test_override_of_one_entry_and_of_a_mapping() -> None:
    config = Config({"stop": {"eval_return": 475, "env_steps": 9}, "algo": {"lr": 1}})
    given = ["stop={seconds: 120}", "algo.lr=7e-4", "algo.dims=[1, 2]", "new.key=a=b", "folder="]
    assert apply_overrides(config, given) is config
    assert config == {
        "stop": {"seconds": 120},
        "algo": {"lr": 7e-4, "dims": [1, 2]},
        "new": {"key": "a=b"},
        "folder": None,
    }
    config.extend({"stop": {"seconds": None, "env_steps": None}, "algo": {"lr": 0.1}})
    assert config.stop == {"seconds": 120, "env_steps": None}


def test_override_of_an_unknown_path_is_refused_by_the_strict_extend() -> None:
    config = apply_overrides(Config(), ["algo.gama=0.9"])
    with pytest.raises(ConfigError, match=r"algo\.gama = 0\.9; did you mean algo\.gamma\?"):
        config.extend({"algo": {"gamma": 0.99}}, strict=True)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("algo", "override 'algo': write it as section.key=value"),
        ("algo..lr=1", "override 'algo..lr=1': write it as section.key=value"),
        ("n.lr=1", "override 'n.lr=1': n is 5, no mapping"),
        ("a=[1", "override 'a=[1':1: did not find expected ',' or ']'"),
        ("a={b: 1, b: 2}", "override 'a={b: 1, b: 2}':1: key 'b' stands twice"),
    ],
)
def test_bad_override(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        apply_overrides(Config({"n": 5}), [override])
    assert str(caught.value).startswith(message)


def test_command_line_beats_file_beats_algorithm_beats_base() -> None:
    defaults = Config({"a": 3, "b": 3, "c": 3}).extend({"a": 4, "b": 4, "c": 4, "d": 4})
    config = apply_overrides(Config({"a": 2, "b": 2}), ["a=1"]).extend(defaults, strict=True)
    assert config == {"a": 1, "b": 2, "c": 3, "d": 4}


def test_explain_names_the_strongest_layer() -> None:
    base = Config({"gamma": 0.99, "name": "_str_", "stop": {"a": None, "b": None}, "args": {}})
    algorithm = Config({"gamma": 0.9, "model": {"dims": [64]}})
    overrides = ["stop={a: 1}"]
    file = apply_overrides(Config({"gamma": 1, "stop": {"b": 2}, "args": {"keys": 3}}), overrides)
    explained = explain(
        [
            ("base", base),
            ("dqn", algorithm),
            ("file", file),
            ("command line", apply_overrides(Config(), overrides)),
        ]
    )
    assert explained == {
        "gamma": (1.0, "file"),
        "name": ("_str_", "base"),
        "stop.a": (1, "command line"),
        "stop.b": (None, "base"),
        "args.keys": (3, "file"),
        "model.dims": ([64], "dqn"),
    }


def test_explain_knows_a_number_that_stands_for_a_schedule() -> None:
    schedule = {"kind": "linear", "by": "x", "start": 1.0, "end": 0.5, "steps": 9, "points": []}
    explained = explain([("base", Config({"rate": schedule})), ("file", Config({"rate": 3}))])
    assert explained["rate.start"] == (3.0, "file")
    assert explained["rate.kind"] == ("constant", "file")
    assert explained["rate.steps"] == (9, "base")
    assert "rate" not in explained


def test_fingerprint_is_stable_across_processes_and_orders(tmp_path: Path) -> None:
    fingerprint = Config(EXPERIMENT).fingerprint()
    assert fingerprint == "ad69b6cf5cf1c90862dcc5d4f8410de4fbd39229c959e1adeafe70db054b174b"
    backwards = {key: EXPERIMENT[key] for key in reversed(EXPERIMENT)}
    assert Config(backwards).fingerprint() == fingerprint
    Config(EXPERIMENT).dump_file(tmp_path / "c.yaml")
    code = "import sys, session; print(session.Config.load_file(sys.argv[1]).fingerprint())"
    assert run_python(code, str(tmp_path / "c.yaml")) == fingerprint


def test_fingerprint_covers_what_is_learned_and_nothing_else() -> None:
    learner = {**EXPERIMENT["learner_config"], "model": {"activation": "relu"}}  # type: ignore[dict-item]
    experiment = {**EXPERIMENT, "learner_config": learner}
    fingerprint = Config(experiment).fingerprint()
    for same in (
        "session_config.seed=1",
        "env_config.obs_spec={dim: [4]}",
        "env_config.action_spec={}",
        "env_config.obs_keys=[]",
        "learner_config.model.frozen=[]",
        "learner_config.algo.bc_weight=0.0",
    ):
        assert apply_overrides(Config(experiment), [same]).fingerprint() == fingerprint
    for other in (
        "algorithm=ppo",
        "learner_config.algo.gamma=0.9",
        "env_config.env_name=gym:X",
        "env_config.obs_keys=[image]",
        "learner_config.model.frozen=[torso]",
    ):
        assert apply_overrides(Config(experiment), [other]).fingerprint() != fingerprint


def test_a_key_that_one_algorithm_had_before_is_a_later_one_of_another() -> None:
    """DQN has had cql_alpha for long; SAC got it together with cql_actions."""
    alpha, actions = "learner_config.algo.cql_alpha", "learner_config.algo.cql_actions=10"
    before = Config(EXPERIMENT).fingerprint()

    def changed(*overrides: str) -> bool:
        return apply_overrides(Config(EXPERIMENT), overrides).fingerprint() != before

    assert not changed(f"{alpha}=0.0", actions)
    assert changed(f"{alpha}=0.0")
    assert changed(f"{alpha}=1.0", actions)
