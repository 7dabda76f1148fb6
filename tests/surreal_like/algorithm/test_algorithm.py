"""An algorithm names its parts and refuses what it cannot work on."""

import re
from typing import Any

import pytest

from session.config import Config
from session.config.defaults import BASE_CONFIG, BASE_LEARNER_CONFIG
from session.errors import ConfigError
from surreal_like.agent.agent import Agent
from surreal_like.algorithm.algorithm import Algorithm, defaults_of, session_defaults_of
from surreal_like.algorithm.catalog import list_algorithms
from surreal_like.algorithm.registry import find_algorithm
from surreal_like.errors import SpecError
from surreal_like.experiment.resolve import defaults, extend_user
from surreal_like.learner.learner import Learner

VECTOR = {"type": "float32", "dim": [4]}


class MyLearner(Learner):
    @classmethod
    def default_config(cls) -> Config:
        return Config({"algo": {"my_rate": 0.5}})


class Mine(Algorithm):
    learner = MyLearner
    replay = "my_package.my_replay:MyReplay"


def test_an_algorithm_adds_its_replay_to_the_defaults_of_its_learner() -> None:
    config = Mine.default_config()
    assert config == {"algo": {"my_rate": 0.5}, "replay": {"type": Mine.replay}}
    assert MyLearner.default_config() == {"algo": {"my_rate": 0.5}}


def algorithm_of(
    agent: dict[str, Any] | None, learner: dict[str, Any], *, elsewhere: bool = False
) -> type[Algorithm]:
    """An algorithm whose agent and learner have these defaults; elsewhere: the agent is a base."""

    class MyAgent(Agent):
        @classmethod
        def default_config(cls) -> Any:
            return agent

    class MyLearner(Learner):
        @classmethod
        def default_config(cls) -> Any:
            return learner

    if elsewhere:
        MyAgent.default_config.__func__.__module__ = "a.library"  # type: ignore[attr-defined]

    class Mine(Algorithm):
        pass

    Mine.agent, Mine.learner = MyAgent, MyLearner
    return Mine


def test_the_defaults_of_agent_and_learner_extend_each_other() -> None:
    rate = {"kind": "linear", "by": "x", "start": 1.0, "end": 0.5, "steps": 9, "points": []}
    mine = algorithm_of(
        {"algo": {"eps": 0.1, "n": "_int_", "both": 1}},
        {"algo": {"lr": 0.2, "n": 3, "both": 1.0, "rate": rate}, "model": {"width": 4}},
    )
    config = mine.default_config()
    assert config.algo == {"lr": 0.2, "n": 3, "both": 1, "rate": rate, "eps": 0.1}
    assert config.model == {"width": 4}
    assert config.replay.type == Algorithm.replay


def test_agent_and_learner_must_not_contradict_each_other() -> None:
    mine = algorithm_of({"algo": {"eps": 0.1}}, {"algo": {"eps": 0.2}})
    with pytest.raises(ConfigError) as caught:
        mine.default_config()
    assert str(caught.value) == (
        "learner_config.algo.eps is 0.2 in MyLearner.default_config() and 0.1 in "
        "MyAgent.default_config(): write it in one of them"
    )


def test_an_agent_of_a_library_gives_way_to_the_learner_of_the_algorithm() -> None:
    agent = {"algo": {"eps": 0.1, "more": 1}}
    mine = algorithm_of(agent, {"algo": {"eps": 0.2}}, elsewhere=True)
    assert mine.default_config().algo == {"eps": 0.2, "more": 1}


def test_default_config_must_be_a_class_method_and_give_a_mapping() -> None:
    class OfInstance(Learner):
        def default_config(self) -> Any:  # type: ignore[override]
            return {}

    mine = algorithm_of({}, {})
    mine.learner = OfInstance
    wrong = r"^OfInstance\.default_config\(\) is an instance method: make it a classmethod$"
    with pytest.raises(ConfigError, match=wrong):
        defaults_of(mine)
    with pytest.raises(ConfigError, match=r"^MyAgent.* gives None, expected a Config or a dict$"):
        algorithm_of(None, {}).default_config()


@pytest.mark.parametrize("name", sorted(list_algorithms()))
def test_agent_and_learner_have_the_same_defaults(name: str) -> None:
    algorithm = find_algorithm(name)
    assert algorithm.agent.default_config() == algorithm.learner.default_config()


@pytest.mark.parametrize("name", sorted(list_algorithms()))
def test_agents_of_what_learns_from_rows_never_run_far_ahead(name: str) -> None:
    """With an update per step they wait for the learner: what then lies in chunks is old."""
    config = defaults(name).extend(BASE_CONFIG, abstract=True)
    agent, sender = config.session_config.agent, config.session_config.sender
    under_way = sender.flush_iteration * sender.max_unacked_chunks
    if name in ("ppo", "impala"):
        assert config.session_config == BASE_CONFIG.session_config
    else:
        # Steps of each stream; updates per step fall with the samples of a row.
        share = config.learner_config.replay.samples_per_insert / 128
        assert share * under_way <= 8
        assert share < 1 or agent.fetch_parameter_mode == "step:4"


def test_an_algorithm_sets_defaults_of_the_session_and_the_user_has_the_last_word() -> None:
    default = defaults("sac").extend(BASE_CONFIG, abstract=True)
    user = Config({"algorithm": "sac", "env_config": {"env_name": "toy:any"}})
    user.session_config = {"sender": {"flush_iteration": 7}}
    sender = extend_user(user, default).session_config.sender
    assert (sender.flush_iteration, sender.max_unacked_chunks) == (7, 2)
    assert sender.cut == BASE_CONFIG.session_config.sender.cut


@pytest.mark.parametrize(
    ("session", "words"),
    [
        ({"sendr": {}}, r"^Mine\.session_config: unknown key session_config\.sendr .*sender"),
        ({"agent": {"num": "two"}}, r"^Mine\.session_config: session_config\.agent\.num .*two"),
        (3, r"^Mine\.session_config is 3, expected a dict$"),
    ],
)
def test_wrong_defaults_of_the_session_name_the_algorithm(session: Any, words: str) -> None:
    mine = algorithm_of({}, {})
    mine.session_config = session
    with pytest.raises(ConfigError, match=words):
        session_defaults_of(mine)


@pytest.mark.parametrize("name", sorted(list_algorithms()))
def test_defaults_extend_the_base_and_say_which_replay(name: str) -> None:
    config = find_algorithm(name).default_config().extend(BASE_LEARNER_CONFIG)
    assert config.replay.type == find_algorithm(name).replay
    assert config.replay.batch_size > 0


@pytest.mark.parametrize(
    ("action_spec", "words"),
    [
        (
            {"type": "continuous", "dim": [1], "low": -2.0, "high": 2.0},
            "gym:Pendulum-v1 has continuous [1]: try ddpg, impala, ppo, sac or td3",
        ),
        (
            {"type": "continuous", "dim": [1]},
            "gym:Pendulum-v1 has continuous [1]: try impala or ppo",
        ),
        (
            {"type": "multi_discrete", "dim": [3, 2]},
            "gym:Pendulum-v1 has multi_discrete [3, 2]: try impala or ppo",
        ),
    ],
)
def test_dqn_refuses_actions_that_are_not_discrete(action_spec: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError) as refused:
        find_algorithm("dqn").check(VECTOR, action_spec, env_name="gym:Pendulum-v1")
    said = re.sub(" (a3c|bc|iql),", "", str(refused.value))  # of add-ons
    assert said == f"DQN needs discrete actions, but {words}"


@pytest.mark.parametrize("name", ["ddpg", "td3", "sac"])
def test_actions_without_finite_bounds_are_refused(name: str) -> None:
    algorithm, spec = find_algorithm(name), {"type": "continuous", "dim": [2], "low": -1.0}
    for high in (None, float("inf"), [1.0, float("inf")]):
        with pytest.raises(
            SpecError, match=r"bounds, but my:Env has \[2\] from -1\.0 to "
        ) as refused:
            algorithm.check(VECTOR, {**spec, "high": high}, env_name="my:Env")
        assert algorithm.__name__ in str(refused.value)
    algorithm.check(VECTOR, {**spec, "high": [1.0, 2.0]})
    find_algorithm("ppo").check(VECTOR, spec)


def test_dqn_takes_discrete_actions_on_any_observation() -> None:
    dqn = find_algorithm("dqn")
    for obs_spec in (VECTOR, {"0": VECTOR, "1": {"type": "int64", "dim": [], "num": 3}}):
        dqn.check(obs_spec, {"type": "discrete", "dim": [2]})


def test_an_algorithm_that_says_nothing_takes_all_actions() -> None:
    for kind in ("discrete", "continuous"):
        Mine.check(VECTOR, {"type": kind, "dim": [2]})


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        (
            "ppo",
            "uniform_replay:UniformReplay",
            "PPO learns from whole unrolls, as FIFOReplay gives, but learner_config.replay.type is "
            "UniformReplay, which gives single rows",
        ),
        (
            "dqn",
            "fifo_replay:FIFOReplay",
            "DQN learns from single rows, as UniformReplay gives, but learner_config.replay.type "
            "is FIFOReplay, which gives whole unrolls",
        ),
    ],
)
def test_a_replay_that_gives_other_batches_is_refused(name: str, kind: str, words: str) -> None:
    config = {"replay": {"type": f"surreal_like.replay.{kind}"}}
    with pytest.raises(ConfigError) as refused:
        find_algorithm(name).check_replay(config)
    assert str(refused.value) == words


def test_another_replay_of_the_same_batches_is_taken() -> None:
    kind = "PrioritizedReplay"
    find_algorithm("dqn").check_replay({"replay": {"type": kind}})
    find_algorithm("ppo").check_replay({"replay": {"type": find_algorithm("ppo").replay}})


def test_a_malformed_spec_is_refused() -> None:
    with pytest.raises(SpecError, match="obs_spec"):
        Mine.check({"type": "float32"}, {"type": "discrete", "dim": [2]})
