"""The promises about environments, one test for each."""

import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from session.config import Config
from session.config.sections import sections_of
from session.errors import ConfigError
from session.process.script import current_context
from surreal_like import (
    ConsoleMonitor,
    Env,
    EvalTensorplexMonitor,
    ExpSenderWrapper,
    GymAdapter,
    TrainingTensorplexMonitor,
    UniformReplay,
    Wrapper,
)
from surreal_like.env import make_env, make_vector_env
from surreal_like.errors import SpecError
from surreal_like.experience.chunk import Chunk
from surreal_like.experience.chunk_sender import ExpSender
from tests.api.parts import Doubled, MyEnv
from tests.api.planned import end_script, looking_on, planned_script
from tests.api.stage import Stage, experiment

STAY = np.zeros(1, np.int64)


class Recorder:
    """Sends the steps of an environment, and shows the chunks that arrive."""

    def __init__(self, stage: Stage, env: Any, **sender: Any) -> None:
        self.stage = stage
        stage.config.session_config.sender.update(sender)
        self.pull = stage.context("replay-0").wire.pull("replay-0.experience")
        self.env = ExpSenderWrapper(
            env,
            stage.config.learner_config,
            stage.config.session_config,
            context=stage.context("agent-0"),
        )
        self.env.reset()

    def step(self, times: int, action: Any = STAY) -> None:
        for _ in range(times):
            self.env.step(action)
            self.stage.round()

    def chunks(self) -> list[Chunk]:
        """Those that have arrived since the last call."""
        found = []
        for _ in range(3):
            self.env.pump()
            self.stage.round()
        while (message := self.pull.receive()) is not None:
            found.append(Chunk.from_message(message))
        return found


# -- environments and wrappers -------------------------------------------------------------------


def test_a_new_env_extends_env() -> None:
    env = make_env({"env_name": "tests.api.parts:MyEnv", "env_args": {"length": 2}})
    assert isinstance(env, Env)
    env.reset()
    assert [env.step(0)[2] for _ in range(2)] == [False, True]
    with pytest.raises(TypeError, match="abstract"):
        Env()  # type: ignore[abstract]


def test_wrappers_extend_wrapper() -> None:
    env = make_env({"env_name": "tests.api.parts:MyEnv", "wrappers": ["tests.api.parts:Doubled"]})
    assert isinstance(env, Wrapper)
    env.reset()
    _, reward, _, _, info = env.step(0)
    assert (reward, info["raw_reward"]) == (2.0, 1.0)
    assert isinstance(env.unwrapped, MyEnv)


def test_reset_gives_observation_and_info() -> None:
    for env in (MyEnv(), Doubled(MyEnv()), GymAdapter("gym:CartPole-v1")):
        obs, info = env.reset()
        assert obs.shape == (4,)
        assert isinstance(info, dict)
        env.close()


def test_metadata_is_a_class_level_dict_that_is_merged() -> None:
    class Mine(MyEnv):
        metadata = {"limit": 5}  # noqa: RUF012

    class Bare(Mine):
        pass

    assert MyEnv.metadata == {"author": "me", "limit": 3}
    assert Mine.metadata == Bare.metadata == {"author": "me", "limit": 5}
    assert Doubled(MyEnv()).metadata == {"author": "me", "limit": 6}
    assert Env.metadata == {}


# -- specs ---------------------------------------------------------------------------------------


def test_specs_come_from_the_config_where_it_has_them() -> None:
    class Silent(MyEnv):
        obs_spec = None  # type: ignore[assignment]
        action_spec = None  # type: ignore[assignment]

    from surreal_like.env.registry import specs_of

    given = {
        "obs_spec": {"type": "float32", "dim": [4]},
        "action_spec": {"type": "discrete", "dim": [2]},
    }
    assert specs_of(Silent(), given) == (given["obs_spec"], given["action_spec"])
    assert specs_of(MyEnv(), {}) == (given["obs_spec"], given["action_spec"])
    with pytest.raises(SpecError, match=r"env_config\.obs_spec is not given"):
        specs_of(Silent(), {"env_name": "silent"})


def test_environments_have_no_spaces() -> None:
    for env in (MyEnv(), Doubled(MyEnv()), GymAdapter("gym:CartPole-v1")):
        for name in ("action_space", "obs_space", "observation_space"):
            assert not hasattr(env, name)
        env.close()


def test_info_travels_as_columns_and_each_frame_once(stage: Stage) -> None:
    env_config = {
        "env_name": "tests.api.parts:MyEnv",
        "info_keys": ["mood"],
        "vector": "sync",
        "num_envs": 2,
    }
    # The run was resolved without the information.
    stage.config.learner_config.replay.columns = {}
    recorder = Recorder(stage, make_vector_env(env_config, num_envs=2, seed=0))
    recorder.step(8, np.zeros(2, np.int64))
    first, _ = recorder.chunks()
    assert first.columns["extras/mood"].tolist() == [[t, t] for t in (0, 1, 2, 3)]
    # Neither the sender nor replay holds an observation twice: the next one is the next row's.
    assert [name for name in first.columns if name.startswith("obs")] == ["obs"]
    replay = UniformReplay(**sections_of(stage.config))
    replay.insert(first)
    batch = replay.aggregate_batch(replay.sample(32))
    assert {"obs", "obs_next"} < set(batch)
    row_bytes = sum(column[0, 0].nbytes for column in first.columns.values())
    capacity = stage.config.learner_config.replay.capacity
    assert replay.statistics()["size_bytes"] < capacity * (row_bytes + 32)


class DictEnv(gymnasium.Env[Any, Any]):
    observation_space = gymnasium.spaces.Dict(
        {
            "image": gymnasium.spaces.Box(0, 255, (8, 8, 3), np.uint8),
            "goal": gymnasium.spaces.Discrete(5),
        }
    )
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        return self.observation_space.sample(), 0.0, False, True, {}


@pytest.mark.parametrize(
    ("env", "obs_spec", "action_type"),
    [
        ("gym:CartPole-v1", {"type": "float32", "dim": [4]}, "discrete"),
        ("gym:Pendulum-v1", {"type": "float32", "dim": [3]}, "continuous"),
        ("gym:FrozenLake-v1", {"type": "int64", "dim": []}, "discrete"),
        ("gym:Blackjack-v1", None, "discrete"),
        (DictEnv(), None, "continuous"),
    ],
)
def test_the_adapter_makes_any_gym_env_compatible(
    env: Any, obs_spec: dict[str, Any] | None, action_type: str
) -> None:
    adapter = GymAdapter(env)
    assert adapter.action_spec["type"] == action_type
    for key, value in (obs_spec or {}).items():
        assert adapter.obs_spec[key] == value
    adapter.seed(3)
    obs, _ = adapter.reset()
    if obs_spec is None:
        assert set(adapter.obs_spec) in ({"0", "1", "2"}, {"image", "goal"})
        assert type(obs) in (tuple, dict)
    dim = adapter.action_spec["dim"]
    action = 0 if action_type == "discrete" else np.zeros(dim, np.float32)
    result = adapter.step(action)
    assert len(result) == 5
    assert type(result[1]) is float
    adapter.close()


def test_a_spec_that_differs_from_the_env_s_is_an_error_with_both() -> None:
    with pytest.raises(SpecError, match=r"obs_spec.* given .*\[5\].* environment has .*\[4\]"):
        experiment("env_config.obs_spec={type: float32, dim: [5]}")
    with pytest.raises(SpecError, match=r"action_spec.* given .*\[3\].* environment has .*\[2\]"):
        experiment("env_config.action_spec={type: discrete, dim: [3]}")
    same = experiment("env_config.action_spec={type: discrete, dim: [2]}")
    assert same.env_config.action_spec == {"type": "discrete", "dim": [2]}


# -- the sender ----------------------------------------------------------------------------------


def test_the_wrapper_has_a_sender_that_sends_to_replay(script: Config) -> None:
    """As in a script: from the config alone, over the sockets of a planned run."""
    replay = UniformReplay(**sections_of(script))
    replay.start_threads()
    env = ExpSenderWrapper(MyEnv(), session_config=script.session_config)
    env.reset()
    assert isinstance(env.sender, ExpSender)
    for _ in range(9):
        env.step(STAY)
    env.close()  # sends the rest, and waits for the acks
    assert replay.statistics()["size"] == 10
    context = current_context()
    assert context is not None
    assert context.name == "agent-0"
    accounts = context.wire.dealer("ps.requests").request("accounts").fields["accounts"]
    [account] = accounts.values()
    assert account["final"]
    assert account["pushed"] == account["inserted"] == 10
    assert account["unacked"] == account["dropped"] == 0


def test_each_step_goes_towards_the_network(stage: Stage) -> None:
    recorder = Recorder(stage, MyEnv(), flush_iteration=1)
    for step in range(1, 4):
        recorder.step(1)
        [chunk] = recorder.chunks()
        assert chunk.sequence == step
        assert chunk.columns["obs"].tolist() == [[[step - 1.0] * 4]]


def test_learner_config_may_be_left_out(stage: Stage) -> None:
    session_config = stage.config.session_config
    both = ExpSenderWrapper(MyEnv(), stage.config.learner_config, session_config)
    one = ExpSenderWrapper(MyEnv(), session_config=session_config)
    for env in (both, one):
        assert env.num_envs == 1
        assert env.obs_spec == MyEnv.obs_spec


def test_rows_are_sent_together_in_chunks(stage: Stage) -> None:
    recorder = Recorder(stage, MyEnv(), flush_iteration=6)
    recorder.step(5)
    assert recorder.chunks() == []
    recorder.step(8)
    chunks = recorder.chunks()
    assert [chunk.shape for chunk in chunks] == [(6, 1), (6, 1)]
    assert chunks[0].columns["step_type"][:, 0].tolist() == [0, 1, 1, 2, 0, 1]


def test_session_config_has_a_section_for_the_sender(config: Config) -> None:
    assert config.session_config.sender.flush_iteration == 4
    settings = Config({"sender": {"flush_iteration": 100}})
    ExpSenderWrapper(MyEnv(), session_config=settings)
    with pytest.raises(ConfigError, match="flush_iteration is 0"):
        ExpSenderWrapper(MyEnv(), session_config=Config({"sender": {"flush_iteration": 0}}))


def test_a_chunk_that_has_waited_long_enough_goes(stage: Stage) -> None:
    recorder = Recorder(stage, MyEnv(), flush_iteration=100, flush_time=0.5)
    recorder.step(3)
    assert recorder.chunks() == []
    stage.rounds(0.5)
    [chunk] = recorder.chunks()
    assert chunk.shape == (3, 1)


# -- monitors ------------------------------------------------------------------------------------


def played(make: Callable[[Env], Any], stage: Stage) -> None:
    env = make(Doubled(MyEnv()))
    env.reset()
    for _ in range(1100):  # more than a second, four rows an episode
        env.step(STAY)
        stage.round()


def test_monitors_report_return_and_speed_to_tensorplex(stage: Stage) -> None:
    stage.listen("tensorplex")
    session_config = stage.config.session_config

    def training(env: Env) -> TrainingTensorplexMonitor:
        client = stage.context("agent-0").tensorplex
        return TrainingTensorplexMonitor(
            env, 0, session_config, tensorplex=client, clock=stage.clock
        )

    def evaluation(env: Env) -> EvalTensorplexMonitor:
        client = stage.context("eval-0").tensorplex
        return EvalTensorplexMonitor(env, 0, session_config, tensorplex=client, clock=stage.clock)

    for make, client_id in ((training, "agent/0"), (evaluation, "eval/0")):
        played(make, stage)
        reports = [r for r in stage.records("tensorplex") if r.get("id") == client_id]
        assert reports[0]["values"] == {
            "return": 3.0,
            "episode_length": 3.0,
            "steps_per_second": pytest.approx(750.0, rel=0.01),
        }


def test_in_a_script_the_monitor_finds_tensorplex_itself(config: Config, tmp_path: Path) -> None:
    config = config.copy()
    config.session_config.tensorplex.update_schedule = 0.01
    with (
        planned_script(config, tmp_path / "run", telemetry=["loggerplex"]) as script,
        looking_on(script, "tensorplex") as wire,
    ):
        records = wire.pull("tensorplex.records", high_water_mark=1000)
        UniformReplay(**sections_of(script)).start_threads()
        env: Any = ExpSenderWrapper(MyEnv(), session_config=script.session_config)
        env = TrainingTensorplexMonitor(
            env, agent_id=0, session_config=script.session_config, separate_plots=True
        )
        env.reset()
        deadline = time.monotonic() + 20
        reports: list[Any] = []
        while not reports:
            assert time.monotonic() < deadline
            env.step(STAY)
            if (message := records.receive()) is not None:
                reports += [r for r in message.fields["records"] if "return" in r.get("values", {})]
        assert reports[0]["id"] == "agent/0"
        assert reports[0]["values"]["return"] == 3.0
        end_script(script)


def test_the_console_monitor_prints_a_table_and_needs_no_server() -> None:
    stream = io.StringIO()
    env = ConsoleMonitor(Doubled(MyEnv()), stream=stream, interval_seconds=0.0)
    env.reset()
    for _ in range(8):
        env.step(STAY)
    env.close()
    header, row = stream.getvalue().splitlines()
    assert header.replace("env steps", "env_steps").split() == [
        "env_steps",
        "steps/s",
        "episodes",
        "return",
        "min",
        "max",
        "length",
    ]
    cells = row.split()
    assert cells[0] == "6"
    assert cells[2:] == ["2", "3.00", "3.00", "3.00", "3.00"]
