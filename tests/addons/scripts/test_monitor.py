"""The three monitors: what they count, when they report, and to whom."""

import io
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest

from session.config import Config
from session.config.defaults import BASE_SESSION_CONFIG
from session.errors import ConfigError, UsageError
from session.tensorplex.metrics_client import TensorplexClient
from session.wire.telemetry_buffer import Channel
from surreal_like import ExpSenderWrapper, GymAdapter
from surreal_like.addons.scripts.monitor import (
    ConsoleMonitor,
    EpisodeMonitor,
    EvalTensorplexMonitor,
    TrainingTensorplexMonitor,
)
from surreal_like.env.environment import Env, Info, Step, VectorEnv, VectorStep
from tests.clock import HandClock

Monitor = type[TrainingTensorplexMonitor] | type[EvalTensorplexMonitor]
SPECS = {
    "obs_spec": {"type": "float32", "dim": [1]},
    "action_spec": {"type": "discrete", "dim": [2]},
}
SESSION = BASE_SESSION_CONFIG
STAY = np.zeros(2, np.int64)


class Fixed(VectorEnv):
    """Two streams: episodes of 2 and 3 steps; each step pays the stream's number plus 1."""

    def __init__(self, **info: Any) -> None:
        self.num_envs = 2
        self.obs_spec, self.action_spec = SPECS["obs_spec"], SPECS["action_spec"]
        self.info = info
        self.closed = False
        self._steps = np.zeros(2, np.int64)

    def reset(self) -> tuple[npt.NDArray[Any], Info]:
        self._steps = np.zeros(2, np.int64)
        return np.zeros((2, 1), np.float32), {}

    def step(self, actions: npt.NDArray[Any]) -> VectorStep:
        lengths = np.array([2, 3])
        fresh = self._steps == lengths
        self._steps = np.where(fresh, 0, self._steps + 1)
        reward = np.where(fresh, 0, [1, 2]).astype(np.float32)
        last = self._steps == lengths
        ended, cut = last & np.array([True, False]), last & np.array([False, True])
        return np.zeros((2, 1), np.float32), reward, ended, cut, dict(self.info)

    def close(self) -> None:
        self.closed = True


class Corridor(Env):
    """One environment, three steps long."""

    obs_spec, action_spec = SPECS["obs_spec"], SPECS["action_spec"]

    def reset(self) -> tuple[npt.NDArray[Any], Info]:
        self.left = 3
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Step:
        self.left -= 1
        info = {"metrics": {"my/score": self.left}, "raw_reward": 10.0}
        return np.zeros(1, np.float32), 0.5, self.left == 0, False, info


class Kept:
    """A metrics client whose records can be looked at."""

    def __init__(self, clock: HandClock) -> None:
        self._channel = Channel(None, "tensorplex")
        self.client = TensorplexClient("agent/0", self._channel, clock=clock)

    @property
    def reports(self) -> list[tuple[int, Any]]:
        return [(record["step"], record["values"]) for record, _ in self._channel._records]


@pytest.fixture
def clock() -> HandClock:
    return HandClock(100.0)


@pytest.fixture
def kept(clock: HandClock) -> Kept:
    return Kept(clock)


@pytest.mark.parametrize("make", [TrainingTensorplexMonitor, EvalTensorplexMonitor])
@pytest.mark.parametrize("seconds", [1.0, 2.0])
def test_a_monitor_reports_once_per_interval(
    make: Monitor, seconds: float, clock: HandClock, kept: Kept
) -> None:
    session = {"tensorplex": {"update_schedule": seconds}}
    env = make(Fixed(), 0, Config(session), tensorplex=kept.client, clock=clock)
    env.reset()
    for _ in range(4):
        clock.seconds += seconds / 4 - 1e-9
        env.step(STAY)
    assert kept.reports == []
    clock.seconds += 1e-8
    env.step(STAY)
    # Rows: stream 0 is 1 1 R 1 1, stream 1 is 2 2 2 R 2.
    expected = {"steps_per_second": 8 / seconds, "return": 10 / 3, "episode_length": 7 / 3}
    assert kept.reports == [(8, pytest.approx(expected))]
    clock.seconds += seconds
    env.step(STAY)
    assert kept.reports[1] == (9, pytest.approx({"steps_per_second": 1 / seconds}))


def test_summaries_of_the_newest_step_are_there_for_others(clock: HandClock) -> None:
    env = EpisodeMonitor(Fixed(), interval_seconds=0, clock=clock)
    env.reset()
    seen = []
    for _ in range(6):
        env.step(STAY)
        seen.append([(summary["return"], summary["length"]) for summary in env.finished])
    assert seen == [[], [(2.0, 2)], [(6.0, 3)], [], [(2.0, 2)], []]
    assert (env.env_steps, env.episodes) == (9, 3)


def test_single_env_becomes_a_stream_and_returns_are_raw(clock: HandClock, kept: Kept) -> None:
    env = TrainingTensorplexMonitor(Corridor(), 0, SESSION, tensorplex=kept.client, clock=clock)
    obs, _ = env.reset()
    assert isinstance(obs, np.ndarray)
    assert (env.num_envs, obs.shape) == (1, (1, 1))
    for _ in range(3):
        obs, reward, terminated, truncated, _ = env.step(np.zeros(1, np.int64))
    assert (reward.tolist(), terminated.tolist(), truncated.tolist()) == ([0.5], [True], [False])
    assert env.finished == [{"return": 30.0, "length": 3, "metrics": {"my/score": 0.0}}]
    clock.seconds += 1.0
    env.step(np.zeros(1, np.int64))
    expected = {"my/score": 0.0, "steps_per_second": 3.0, "return": 30.0, "episode_length": 3.0}
    assert kept.reports == [(3, expected)]


def test_what_passes_is_not_changed(clock: HandClock) -> None:
    env = ConsoleMonitor(Fixed(own=3), clock=clock)
    plain = Fixed(own=3)
    assert same(env.reset(), plain.reset())
    assert same(env.step(STAY), plain.step(STAY))


def same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_reset_forgets_open_episodes(clock: HandClock) -> None:
    env = EpisodeMonitor(Fixed(), interval_seconds=0, clock=clock)
    env.reset()
    env.step(STAY)
    env.step(STAY)  # stream 0 has ended
    env.reset()
    assert env.finished == []
    env.step(STAY)  # no row of stream 0 is a reset now
    env.step(STAY)
    assert [summary["return"] for summary in env.finished] == [2.0]
    assert env.env_steps == 8


def test_last_episodes_are_reported_on_close(clock: HandClock, kept: Kept) -> None:
    inner = Fixed()
    env = TrainingTensorplexMonitor(inner, 0, SESSION, tensorplex=kept.client, clock=clock)
    env.reset()
    env.step(STAY)
    env.step(STAY)
    clock.seconds += 0.5
    env.close()
    expected = {"steps_per_second": 8.0, "return": 2.0, "episode_length": 2.0}
    assert kept.reports == [(4, expected)]
    assert inner.closed


def test_curves_are_drawn_over_the_steps_that_are_given(clock: HandClock, kept: Kept) -> None:
    env = TrainingTensorplexMonitor(
        Fixed(), 0, SESSION, tensorplex=kept.client, clock=clock, global_step=lambda: 12345
    )
    env.reset()
    clock.seconds += 1
    env.step(STAY)
    assert [step for step, _ in kept.reports] == [12345]


CLIENT_IDS: list[tuple[Callable[[], Any], str]] = [
    (lambda: TrainingTensorplexMonitor(Fixed(), 3, SESSION), "agent/3"),
    (lambda: TrainingTensorplexMonitor(Fixed(), 3, SESSION, False), "session/agents"),
    (lambda: EvalTensorplexMonitor(Fixed(), 1, SESSION), "eval/1"),
    (lambda: EvalTensorplexMonitor(Fixed(), 1, SESSION, separate_plots=False), "session/evals"),
]


@pytest.mark.parametrize(("make", "client_id"), CLIENT_IDS)
def test_client_id_names_the_component_that_reports(
    make: Callable[[], Any], client_id: str
) -> None:
    assert make().tensorplex.client_id == client_id


@pytest.mark.parametrize("agent_id", ["one", -1, None, 1.5])
def test_agent_id_must_be_a_number(agent_id: Any) -> None:
    with pytest.raises(UsageError, match=r"agent_id is .*expected a number"):
        TrainingTensorplexMonitor(Fixed(), agent_id, SESSION)


def test_a_monitor_works_without_a_server() -> None:
    env = TrainingTensorplexMonitor(
        Fixed(), agent_id=0, session_config=SESSION, separate_plots=True
    )
    env.reset()
    for _ in range(10):
        env.step(STAY)
    env.close()


def test_plain_dicts_are_configs_enough() -> None:
    env = TrainingTensorplexMonitor(Fixed(), 0, SESSION.to_dict())
    env.reset()
    env.step(STAY)


def test_the_console_shows_a_table(clock: HandClock) -> None:
    stream = io.StringIO()
    metrics = [{"my/score": 0.25}, None]
    env = ConsoleMonitor(Fixed(metrics=metrics), interval_seconds=1, stream=stream, clock=clock)
    env.reset()
    clock.seconds += 1
    env.step(STAY)
    for _ in range(4):
        clock.seconds += 0.25
        env.step(STAY)
    lines = [" ".join(line.split()) for line in stream.getvalue().splitlines()]
    assert lines == [
        "env steps steps/s episodes return min max length",
        "2 2.0 0 - - - -",
        "8 6.0 3 3.33 2.00 6.00 2.33 my/score 0.25",
    ]


def test_console_repeats_its_header(clock: HandClock) -> None:
    stream = io.StringIO()
    env = ConsoleMonitor(Fixed(), interval_seconds=1, stream=stream, clock=clock)
    env.reset()
    for _ in range(41):
        clock.seconds += 1
        env.step(STAY)
    assert stream.getvalue().count("env steps") == 3


def test_console_writes_to_the_standard_output(
    clock: HandClock, capsys: pytest.CaptureFixture[str]
) -> None:
    env = ConsoleMonitor(Fixed(), interval_seconds=1, clock=clock)
    env.reset()
    clock.seconds += 1
    env.step(STAY)
    assert "steps/s" in capsys.readouterr().out


def test_one_step_episodes_need_bounded_memory(clock: HandClock, kept: Kept) -> None:
    env = TrainingTensorplexMonitor(Fixed(), 0, SESSION, tensorplex=kept.client, clock=clock)
    env.reset()
    for _ in range(3000):
        env.step(STAY)
    assert env.episodes > 1000
    assert len(env._unreported) == 1000


@pytest.mark.parametrize("make", [TrainingTensorplexMonitor, EvalTensorplexMonitor])
def test_a_misspelt_setting_of_a_script_is_refused(make: Monitor, kept: Kept) -> None:
    wrong = {"tensorplex": {"update_schedul": {"agent": 1.0}}}
    with pytest.raises(ConfigError, match=r"update_schedul\b.*update_schedule"):
        make(Fixed(), 0, wrong, tensorplex=kept.client)


@pytest.mark.parametrize("wrap", [ExpSenderWrapper, ConsoleMonitor])
def test_an_environment_of_gymnasium_needs_the_adapter(wrap: Any) -> None:
    with pytest.raises(UsageError) as refused:
        wrap(gymnasium.make("CartPole-v1"))
    assert str(refused.value) == (
        "TimeLimit is an environment of Gymnasium, expected a surreal_like Env or VectorEnv: write "
        "GymAdapter(env) in its place"
    )
    wrap(GymAdapter(gymnasium.make("CartPole-v1")))


def test_a_monitor_fills_what_a_session_config_leaves_out() -> None:
    session = {"sender": {"flush_iteration": 4}}
    for monitor in (TrainingTensorplexMonitor, EvalTensorplexMonitor):
        monitor(GymAdapter("CartPole-v1"), 0, session).close()
