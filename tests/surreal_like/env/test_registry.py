from copy import deepcopy
from pathlib import Path
from typing import Any, cast

import gymnasium
import pytest
from gymnasium.envs.registration import EnvSpec

from session.config import Config
from session.errors import ConfigError
from surreal_like.env.gym_adapter import GymAdapter
from surreal_like.env.kinds import extra_of, list_environments, list_prefixes
from surreal_like.env.registry import derive_specs, make_env, make_joint_env
from surreal_like.env.toy import JOINT_TOYS, TOYS, Chain
from surreal_like.env.wrappers import ActionRepeat, ClipAction, LimitEpisodeLength
from surreal_like.errors import SpecError

GYM_SAMPLES = "tests.surreal_like.env.gym_samples"
SAMPLES = "tests.surreal_like.env.samples"
TWO = {"type": "discrete", "dim": [2]}


def layers(env: Any) -> list[str]:
    """The class names from the outside to the inside."""
    names = [type(env).__name__]
    while hasattr(env, "env"):
        env = env.env
        names.append(type(env).__name__)
    return names


def test_the_three_forms_of_a_name() -> None:
    assert isinstance(make_env({"env_name": "gym:CartPole-v1"}), GymAdapter)
    assert isinstance(make_env({"env_name": "toy:chain"}), Chain)
    assert layers(make_env({"env_name": f"{SAMPLES}:Counter"})) == ["Counter"]
    assert layers(make_env({"env_name": f"{GYM_SAMPLES}:Rich"})) == ["GymAdapter"]
    assert layers(make_env({"env_name": f"{SAMPLES}:build_chain"})) == ["Chain"]


WRONG_NAMES = [
    ("CartPole-v1", "no environment 'CartPole-v1'; did you mean gym:CartPole-v1"),
    ("CartPol", "did you mean gym:CartPole"),
    ("chain", "did you mean toy:chain"),
    ("toy:chian", "no environment 'toy:chian'; did you mean toy:chain"),
    ("gym:CartPole-v9", "did you mean gym:CartPole-v"),
    # Hints come from near: no name of another kind, no word that is half alike, no module.
    ("toy:CartPole", "no environment 'toy:CartPole'; did you mean toy:multi_cartpole\\?$"),
    ("minigrid", "no environment 'minigrid'; expected toy:NAME, gym:NAME"),
    ("surreal_like.env:registri", "surreal_like.env has no 'registri'$"),
    (
        "zzzzzzzzz",
        "expected toy:NAME, gym:NAME, gymvec:NAME, .*package.module:Class or file.py:Class",
    ),
    ("", "no environment ''"),
    ("nowhere.to:Find", "nowhere.to:Find' cannot be imported.*session_config.import_path"),
    (f"{SAMPLES}:Cuonter", "has no 'Cuonter'; did you mean .*Counter"),
    (f"{SAMPLES}:build_text", "gives a str, expected a surreal_like Env or VectorEnv"),
]


@pytest.mark.parametrize(("name", "message"), WRONG_NAMES)
def test_a_wrong_name_says_what_was_meant(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        make_env({"env_name": name})
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


def test_arguments_and_those_of_evaluation() -> None:
    config = {
        "env_name": "toy:chain",
        "env_args": {"length": 5, "cost": 0.5},
        "eval_mode": {"length": 6},
    }
    trained, evaluated = make_env(config), make_env(config, evaluation=True)
    assert isinstance(trained, Chain)
    assert isinstance(evaluated, Chain)
    assert (trained.length, trained.cost) == (5, 0.5)
    assert (evaluated.length, evaluated.cost) == (6, 0.5)
    frozen = {"env_name": "gym:FrozenLake-v1", "eval_mode": {"map_name": "8x8"}}
    assert derive_specs(frozen)[0]["num"] == 16
    env = make_env(frozen, evaluation=True)
    assert env.obs_spec["num"] == 64


@pytest.mark.parametrize("name", ["toy:chain", f"{SAMPLES}:Counter", f"{GYM_SAMPLES}:Rich"])
def test_arguments_that_no_constructor_has_are_a_config_error(name: str) -> None:
    with pytest.raises(ConfigError, match=r"env_config.env_args: .*unexpected.*'lenght'"):
        make_env({"env_name": name, "env_args": {"lenght": 3}})


def test_wrappers_stand_in_order_around_the_environment() -> None:
    config = {
        "env_name": "toy:target",
        "action_repeat": 2,
        "wrappers": [
            f"{SAMPLES}:Scaled",
            {"wrapper": f"{SAMPLES}:Scaled", "args": {"factor": 5.0}, "training_only": True},
        ],
        "limit_episode_length": 3.0,
    }
    env = make_env(config)
    expected = ["LimitEpisodeLength", "Scaled", "Scaled", "ActionRepeat", "ClipAction", "Target"]
    assert layers(env) == expected
    assert isinstance(env, LimitEpisodeLength)
    assert env.env.factor == 5.0  # type: ignore[attr-defined]
    assert layers(make_env(config, evaluation=True)) == expected[:2] + expected[3:]


def test_nothing_configured_means_nothing_around() -> None:
    config = {
        "env_name": "toy:chain",
        "env_args": {},
        "wrappers": [],
        "limit_episode_length": 0,
        "action_repeat": 1,
        "eval_mode": {},
        "obs_spec": {},
        "action_spec": {},
    }
    assert layers(make_env(config)) == ["Chain"]
    assert isinstance(make_env({**config, "action_repeat": 2}), ActionRepeat)
    assert isinstance(make_env({"env_name": "toy:target", "clip_action": False}), ClipAction)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"args": {}}, "neither"),
        ({"wrapper": "a:b", "arguments": {}}, "neither"),
        (3, "neither"),
        (f"{SAMPLES}:Nothing", "has no 'Nothing'"),
        ({"wrapper": f"{SAMPLES}:Scaled", "args": {"fcator": 1}}, "unexpected.*'fcator'"),
        (f"{SAMPLES}:len", "has no 'len'"),
        ("builtins:repr", "gives no surreal_like.env.Env"),
    ],
)
def test_a_wrong_wrapper_is_named(entry: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"env_config.wrappers.* .*{message}"):
        make_env({"env_name": "toy:chain", "wrappers": [entry]})


def test_specs_come_from_the_environment_unless_given() -> None:
    derived = derive_specs({"env_name": "toy:chain"})
    assert derived == ({"type": "float32", "dim": [8]}, TWO)
    given = {"env_name": "toy:chain", "obs_spec": {"dim": [8]}, "action_spec": TWO}
    assert derive_specs(given) == derived


def test_unknown_specs_are_asked_for() -> None:
    config: dict[str, Any] = {"env_name": f"{SAMPLES}:Silent"}
    with pytest.raises(SpecError, match=r"env_config.obs_spec is not given.*attribute obs_spec"):
        derive_specs(config)
    config.update(obs_spec={"type": "float32", "dim": [2]}, action_spec=TWO)
    assert derive_specs(config) == (config["obs_spec"], TWO)


def test_derive_specs_closes_what_it_built(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []
    monkeypatch.setattr(Chain, "close", lambda self: closed.append(self))
    derive_specs({"env_name": "toy:chain"})
    assert len(closed) == 1
    with pytest.raises(ConfigError):
        make_env({"env_name": "toy:chain", "wrappers": ["x:y"]})
    assert len(closed) == 2


def test_every_listed_name_has_a_prefix_and_toys_build() -> None:
    names = list_environments()
    assert "gym:CartPole-v1" in names
    assert "toy:grid" in names
    assert len(set(names)) == len(names)
    for name in names:
        assert name.partition(":")[0] in list_prefixes()
        if name.removeprefix("toy:") in TOYS:
            make_env({"env_name": name}).close()
        if name.removeprefix("toy:") in JOINT_TOYS:
            make_joint_env({"env_name": name}).close()


WORDED = {"env_name": "tests.surreal_like.env.gym_samples:Worded"}
ONLY_STATE = "tests.surreal_like.env.gym_samples:OnlyState"


def test_a_part_without_a_spec_is_named_with_the_setting_that_leaves_it_out() -> None:
    """E1."""
    words = r"of the part 'mission'.*leave it out \(env_config.obs_keys has"
    with pytest.raises(SpecError, match=words):
        make_env(WORDED)


def test_parts_of_observations_are_used_on_request() -> None:
    """Those that cannot be numbers may stand beside them."""
    env = make_env({**WORDED, "obs_keys": ["state", "many", "image"]})
    assert set(env.obs_spec) == {"image", "state", "many"}
    obs, _ = env.reset()
    assert set(obs) == set(env.obs_spec)
    assert set(env.step(0)[0]) == set(env.obs_spec)


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({"obs_keys": ["imag"]}, r"env_config.obs_keys is \['imag'\].*did you mean image\?"),
    ],
)
def test_parts_that_are_not_there_cannot_be_chosen(
    chosen: dict[str, list[str]], words: str
) -> None:
    with pytest.raises(ConfigError, match=f"(?s){words}") as caught:
        make_env({**WORDED, **chosen})
    assert "but the observations have " in str(caught.value)
    assert "mission" in str(caught.value)


def test_wrappers_of_gymnasium_are_applied_before_spaces_are_checked() -> None:
    wrappers = [{"wrapper": ONLY_STATE, "args": {"factor": 2.0}}, f"{SAMPLES}:Scaled"]
    env = make_env({**WORDED, "wrappers": wrappers})
    assert env.obs_spec == {"type": "float32", "dim": [2]}
    env.seed(1)
    assert env.reset()[0].shape == (2,)
    assert env.step(0)[1] == 3.0


def test_wrappers_of_gymnasium_come_before_ours() -> None:
    wrappers = [f"{SAMPLES}:Scaled", ONLY_STATE]
    with pytest.raises(ConfigError, match=r"OnlyState extends gymnasium.Wrapper.*come first"):
        make_env({**WORDED, "obs_keys": ["state"], "wrappers": wrappers})


def test_wrappers_of_gymnasium_are_for_gymnasium_environments() -> None:
    with pytest.raises(ConfigError, match="toy:chain is no Gymnasium environment"):
        make_env({"env_name": "toy:chain", "wrappers": [ONLY_STATE]})


def test_a_name_of_another_package_gets_the_complete_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = tmp_path / "mazes-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: mazes\nVersion: 1.0\nRequires-Dist: gymnasium>=1\n")
    (metadata / "top_level.txt").write_text("mazes\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=r"write gym:mazes:Mazes-Small-v0$"):
        make_env({"env_name": "gym:Mazes-Small-v0"})
    with pytest.raises(ConfigError, match=r"named gym:PACKAGE:Qqq-v0 \(installed: .*mazes"):
        make_env({"env_name": "gym:Qqq-v0"})


def test_environments_that_no_extra_makes_buildable_are_not_listed() -> None:
    names = list_environments()
    assert {"gym:CartPole-v1", "gym:Ant-v5", "gym:LunarLander-v3", "toy:chain"} <= {*names}
    assert not [n for n in names if n.startswith(("gym:Ant-v2", "gym:phys2d/", "gym:GymV2"))]


def test_what_another_package_puts_in_their_place_is_not_listed_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theirs = EnvSpec("Ant-v2", entry_point="gymnasium_robotics.envs.mujoco.ant_v2:AntEnv")
    monkeypatch.setitem(gymnasium.registry, "Ant-v2", theirs)
    assert extra_of("gym:Ant-v2") == "?"


def test_an_environment_that_needs_an_extra_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert extra_of("gym:LunarLander-v3") == ""
    monkeypatch.setattr("surreal_like.env.core_kinds.is_installed", lambda package: False)
    names = ("gym:LunarLander-v3", "gym:Ant-v5", "gym:CartPole-v1", "toy:chain")
    assert [extra_of(name) for name in names] == ["box2d", "mujoco", "", ""]


TAKERS = f"""
from {GYM_SAMPLES} import NativeCounter, Rich
from {SAMPLES} import Counter, Scaled
from tests.surreal_like.env.joint_samples import TwoLives
import gymnasium


def take(robot, goals):
    robot["arm"]["mass"] *= 2
    return robot["arm"].pop("size"), goals.pop()


class Own(Counter):
    def __init__(self, robot, goals):
        super().__init__(*take(robot, goals)[1:])


class Gym(Rich):
    def __init__(self, robot, goals):
        super().__init__()
        take(robot, goals)


class Several(TwoLives):
    def __init__(self, robot, goals):
        super().__init__()
        take(robot, goals)


class Many(NativeCounter):
    def __init__(self, num_envs, robot, goals):
        super().__init__(num_envs)
        take(robot, goals)


class Around(Scaled):
    def __init__(self, env, robot, goals):
        super().__init__(env)
        take(robot, goals)


class GymAround(gymnasium.Wrapper):
    def __init__(self, env, robot, goals):
        super().__init__(env)
        take(robot, goals)


def around_several(env, robot, goals):
    take(robot, goals)
    return env
"""
NESTED = {"robot": {"arm": {"mass": 2, "size": 3}}, "goals": [[4]]}


@pytest.mark.parametrize(
    ("name", "wrapper"),
    [
        *(("Own", ""), ("Gym", ""), ("Several", ""), ("Many", "")),
        *(("Own", "Around"), ("Gym", "GymAround"), ("Several", "around_several")),
    ],
)
@pytest.mark.parametrize("section", [Config, dict])
def test_each_copy_gets_arguments_of_its_own(
    tmp_path: Path, name: str, wrapper: str, section: type
) -> None:
    (tmp_path / "takers.py").write_text(TAKERS)
    at = f"{tmp_path}/takers.py"
    given: dict[str, Any] = {"env_name": f"{at}:{name}", "env_args": NESTED}
    given["eval_mode"] = {"robot": NESTED["robot"]}
    if wrapper:
        given["wrappers"] = [{"wrapper": f"{at}:{wrapper}", "args": NESTED}]
    env_config, before = section(deepcopy(given)), deepcopy(given)
    make: Any = make_joint_env if name == "Several" else make_env
    for evaluation in (False, True, False, True):
        make(env_config, evaluation).close()
    assert env_config == before


def test_an_adapter_leaves_the_arguments_of_its_config() -> None:
    given: dict[str, Any] = {"env_args": {"desc": ["FF", "SG"]}}

    def take(desc: list[str]) -> Any:
        return gymnasium.make("FrozenLake-v1", desc=[desc.pop()])

    gymnasium.register("Taking-v0", cast(Any, take))
    try:
        for _ in range(2):
            GymAdapter("Taking-v0", given).close()
    finally:
        del gymnasium.registry["Taking-v0"]
    assert given == {"env_args": {"desc": ["FF", "SG"]}}
