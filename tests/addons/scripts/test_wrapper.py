"""The wrapper that sends experience, over real sockets to a replay that the test plays."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from session.config import Config
from session.errors import ConfigError, UsageError
from session.process.context import Context
from session.wire import Address, AddressBook
from surreal_like.addons.scripts.wrapper import ExpSenderWrapper
from surreal_like.env.environment import VectorEnv
from surreal_like.env.vector import SyncVector
from surreal_like.errors import DataError
from surreal_like.experience import chunk_sender
from surreal_like.experience.chunk_sender import acting_of
from tests.polling import readable
from tests.session.wire.rig import free_port
from tests.surreal_like.agent.rig import Count, Failing, ReplayPeer, Rig, make_rig

ACTIONS = np.array([1, 2])


@pytest.fixture
def rig() -> Iterator[Rig]:
    with make_rig() as made:
        yield made


def vector(lengths: tuple[int, ...] = (3, 3), **keywords: Any) -> VectorEnv:
    envs = [Count(length, **keywords) for length in lengths]
    return SyncVector(
        envs, obs_spec=Count.obs_spec, action_spec=Count.action_spec, info_keys=("clock",)
    )


def wrap(rig: Rig, env: Any = None, *, context: Context | None = None) -> ExpSenderWrapper:
    context = context or rig.context("agent-0")
    return ExpSenderWrapper(env or vector(), context=context)


def pump_until(rig: Rig, env: ExpSenderWrapper, condition: Any) -> None:
    def pumped() -> bool:
        env.pump()
        return bool(condition())

    rig.until(pumped)


def play(env: ExpSenderWrapper, steps: int) -> None:
    for _ in range(steps):
        env.step(np.resize(ACTIONS, env.num_envs))


def test_steps_arrive_as_chunks_of_flush_iteration_rows(rig: Rig) -> None:
    replay, env = ReplayPeer(rig), wrap(rig)
    obs, _ = env.reset()
    assert obs.shape == (2, 2)
    play(env, 8)
    pump_until(rig, env, lambda: len(replay.chunks) == 2)
    assert [chunk.shape for chunk in replay.chunks] == [(4, 2), (4, 2)]
    assert [chunk.rows for chunk in replay.chunks] == [8, 16]
    # Three steps, terminated; then the reset row; three steps, truncated.
    assert replay.column("step_type")[:, 0].tolist() == [0, 1, 1, 2, 0, 1, 1, 2]
    assert replay.column("discount")[:, 0].tolist() == [1, 1, 1, 0, 1, 1, 1, 1]
    assert replay.column("reward")[:, 0].tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert replay.column("obs")[:, 0, 1].tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert replay.column("obs")[:, 0, 0].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert replay.column("action").tolist() == [[1, 2]] * 8
    assert replay.column("extras/clock")[:, 0].tolist() == [0.5, 1.5, 1.5, 1.5] * 2


def test_headers_count_steps_and_episodes_and_carry_their_summaries(rig: Rig) -> None:
    replay, env = ReplayPeer(rig), wrap(rig)
    env.reset()
    play(env, 8)
    pump_until(rig, env, lambda: len(replay.chunks) == 2)
    first, second = replay.chunks
    assert (first.env_steps, second.env_steps) == (6, 12)
    assert (first.episodes, second.episodes) == (2, 4)
    summary = {"return": 6.0, "length": 3, "metrics": {"my/action": 1.0}}
    assert first.finished[0] == summary
    assert [len(chunk.finished) for chunk in replay.chunks] == [2, 2]
    assert [chunk.streams for chunk in replay.chunks] == [[0, 1], [0, 1]]


def test_a_summary_travels_with_the_chunk_that_has_the_last_row(rig: Rig) -> None:
    replay, env = ReplayPeer(rig), wrap(rig, vector((4, 4)))
    env.reset()
    play(env, 4)  # the ends have been seen, but their rows wait for an action
    pump_until(rig, env, lambda: len(replay.chunks) == 1)
    assert replay.chunks[0].finished == []
    play(env, 4)
    pump_until(rig, env, lambda: len(replay.chunks) == 2)
    assert len(replay.chunks[1].finished) == 2
    assert replay.chunks[1].columns["step_type"][0].tolist() == [2, 2]


def test_an_env_alone_is_a_vector_of_one_stream(rig: Rig) -> None:
    replay = ReplayPeer(rig)
    context = rig.context("agent-0")
    env = ExpSenderWrapper(Count(), session_config=rig.config.session_config, context=context)
    obs, _ = env.reset()
    assert obs.shape == (1, 2)
    obs, reward, terminated, truncated, _ = env.step(torch.tensor([2]))
    assert (obs.shape, reward.shape, terminated.shape, truncated.shape) == (
        (1, 2),
        (1,),
        (1,),
        (1,),
    )
    play(env, 3)
    pump_until(rig, env, lambda: replay.chunks)
    assert replay.column("action").tolist() == [[2], [1], [1], [1]]


def test_a_script_that_resets_after_the_end_goes_on_in_the_same_stream(rig: Rig) -> None:
    replay = ReplayPeer(rig)
    env = wrap(rig, Count())
    env.reset()
    for _ in range(6):
        _, _, terminated, truncated, _ = env.step(np.array([1]))
        if terminated | truncated:
            env.reset()
    env.finish()
    pump_until(rig, env, lambda: replay.goodbyes)
    assert replay.column("step_type")[:, 0].tolist() == [0, 1, 1, 2, 0, 1, 1, 2]
    assert replay.column("action")[:, 0].tolist() == [1, 1, 1, 0, 1, 1, 1, 0]
    assert {tuple(chunk.streams) for chunk in replay.chunks} == {(0,)}
    assert replay.goodbyes[0]["env_steps"] == 6


def test_a_reset_inside_an_episode_cuts_the_streams(rig: Rig) -> None:
    replay, env = ReplayPeer(rig), wrap(rig, vector((2, 9)))
    env.reset()
    play(env, 2)  # the first stream is at its end, the second is not
    env.reset()
    play(env, 4)
    pump_until(rig, env, lambda: len(replay.chunks) == 2)
    cut, rest = replay.chunks
    assert (cut.tail, rest.tail) == (True, False)
    assert cut.columns["step_type"].tolist() == [[0, 0], [1, 1], [2, 1]]
    assert rest.columns["step_type"][0].tolist() == [0, 0]
    assert (cut.streams, rest.streams) == ([0, 1], [2, 3])
    assert [len(chunk.finished) for chunk in replay.chunks] == [1, 1]


@pytest.mark.parametrize("at", [3, 5])
@pytest.mark.parametrize("streams", [1, 2])
def test_a_step_that_fails_joins_no_two_episodes(rig: Rig, streams: int, at: int) -> None:
    """Also where the chunk before the failed step is full, with at 5."""
    specs: dict[str, Any] = {"obs_spec": Count.obs_spec, "action_spec": Count.action_spec}
    replay = ReplayPeer(rig)
    envs = [Failing() for _ in range(streams)]
    envs[0].at = at
    env = wrap(rig, SyncVector(envs, **specs))
    env.reset()
    with pytest.raises(RuntimeError, match="the simulator is gone"):
        play(env, 9)
    env.reset()
    play(env, 4)
    env.finish()
    pump_until(rig, env, lambda: replay.chunks and sum(c.length for c in replay.chunks) >= at + 4)
    rows: dict[int, list[list[int]]] = {}
    for chunk in replay.chunks:
        for place, stream in enumerate(chunk.streams):
            episode = chunk.columns["obs"][:, place, 0].astype(int).tolist()
            kinds = chunk.columns["step_type"][:, place].tolist()
            rows.setdefault(stream, []).extend(map(list, zip(episode, kinds, strict=True)))
    # Each episode is in streams of its own, and begins with a FIRST row.
    assert len(rows) == 2 * streams
    for stream, known in rows.items():
        assert {episode for episode, _ in known} == {stream // streams}
        assert [kind for _, kind in known] == [0, *[1] * (len(known) - 1)]


def test_resets_without_a_step_between_send_nothing(rig: Rig) -> None:
    replay, env = ReplayPeer(rig), wrap(rig)
    env.reset()
    env.reset()
    play(env, 4)
    env.finish()
    pump_until(rig, env, lambda: replay.goodbyes)
    assert [chunk.streams for chunk in replay.chunks] == [[0, 1]]
    assert replay.column("step_type")[:, 0].tolist() == [0, 1, 1, 2]


def test_the_end_sends_the_last_observation_and_a_goodbye(rig: Rig) -> None:
    replay, env = ReplayPeer(rig), wrap(rig)
    env.reset()
    play(env, 2)
    env.finish()
    pump_until(rig, env, lambda: env.sender.window.empty)
    (chunk,) = replay.chunks
    assert chunk.tail
    assert chunk.columns["obs"][:, 0, 1].tolist() == [0, 1, 2]
    assert chunk.columns["action"][:, 0].tolist() == [1, 1, 0]
    assert replay.goodbyes == [
        {
            "seq": 2,
            "rows": 6,
            "env_steps": 4,
            "episodes": 0,
            "acked": 0,
            "acked_rows": 0,
            "filled": 0.25,
        }
    ]
    assert env.sender.account() == {
        "pushed": 6,
        "inserted": 6,
        "dropped": 0,
        "unacked": 0,
        "env_steps": 4,
        "episodes": 0,
        "final": True,
    }


def test_an_end_before_the_first_step_says_nothing(rig: Rig) -> None:
    env = wrap(rig)
    env.reset()
    env.finish()
    assert env.sender.window.empty
    assert env.sender.account()["final"]


def test_extras_become_columns_and_do_not_reach_the_environment(rig: Rig) -> None:
    replay, env = ReplayPeer(rig), wrap(rig)
    env.reset()
    extras = {"values": torch.ones(2, 3, requires_grad=True), "state": {"h": np.zeros((2, 4))}}
    for _ in range(4):
        env.step((torch.tensor([0, 1]), extras))
    pump_until(rig, env, lambda: replay.chunks)
    columns = replay.chunks[0].columns
    assert columns["extras/values"].shape == (4, 2, 3)
    assert columns["extras/state/h"].dtype == np.float64
    assert columns["action"].tolist() == [[0, 1]] * 4


def test_an_agent_may_use_its_arrays_again(rig: Rig) -> None:
    replay, env = ReplayPeer(rig), wrap(rig)
    env.reset()
    actions, value = np.zeros(2, np.int64), np.zeros(2, np.float32)
    for number in range(4):
        actions[:], value[:] = number % 2, number
        env.step((actions, {"value": value}))
    pump_until(rig, env, lambda: replay.chunks)
    assert replay.column("action")[:, 0].tolist() == [0, 1, 0, 1]
    assert replay.column("extras/value")[:, 0].tolist() == [0, 1, 2, 3]


def test_rows_carry_the_version_of_the_parameters(rig: Rig) -> None:
    replay, context = ReplayPeer(rig), rig.context("agent-0")
    env = wrap(rig, context=context)
    env.reset()
    for version in (3, 3, 4, 5):
        acting_of(context).version = version
        play(env, 1)
    pump_until(rig, env, lambda: replay.chunks)
    assert replay.column("version")[:, 0].tolist() == [3, 3, 4, 5]


def test_returns_are_counted_from_raw_rewards(rig: Rig) -> None:
    class Clipped(SyncVector):
        def step(self, actions: Any) -> Any:
            obs, reward, terminated, truncated, _ = super().step(actions)
            return obs, np.minimum(reward, 1.0), terminated, truncated, {"raw_reward": reward}

    env = Clipped([Count()], obs_spec=Count.obs_spec, action_spec=Count.action_spec)
    wrapped = wrap(rig, env)
    wrapped.reset()
    play(wrapped, 3)
    assert wrapped.finished == [{"return": 6.0, "length": 3, "metrics": {}}]


def test_a_return_that_replay_would_not_accept_is_refused_at_the_sender(rig: Rig) -> None:
    class Clipped(SyncVector):
        def step(self, actions: Any) -> Any:
            obs, reward, terminated, truncated, _ = super().step(actions)
            raw = np.full_like(reward, np.inf)
            return obs, reward, terminated, truncated, {"raw_reward": raw}

    env = Clipped([Count()], obs_spec=Count.obs_spec, action_spec=Count.action_spec)
    wrapped = wrap(rig, env)
    wrapped.reset()
    with pytest.raises(DataError, match="an episode ended with a return of inf"):
        play(wrapped, 30)


def test_a_report_gets_each_episode_once(rig: Rig) -> None:
    env = wrap(rig, vector((2, 3)))
    env.reset()
    ended = 0
    for _ in range(8):
        play(env, 1)
        ended += len(env.finished)
    recent = env.pop_recent()
    assert [episode["length"] for episode in recent] == [2, 3, 2, 3, 2]
    assert (ended, env.pop_recent()) == (5, [])


def test_first_says_where_an_episode_begins(rig: Rig) -> None:
    env = wrap(rig, vector((2, 3)))
    env.reset()
    seen = [env.first.tolist()]
    for _ in range(5):
        play(env, 1)
        seen.append(env.first.tolist())
    no, yes = False, True
    assert seen == [[yes, yes], [no, no], [no, no], [yes, no], [no, yes], [no, no]]


def test_a_NaN_is_refused_at_the_sender_with_its_name(rig: Rig) -> None:
    class Sick(Count):
        def _observe(self) -> Any:
            return np.full(2, np.nan, np.float32)

    replay, env = ReplayPeer(rig), wrap(rig, Sick())
    with pytest.raises(DataError, match=r"^obs in stream 0: NaN"):
        env.reset()
    rig.pass_time(0.05)
    assert not replay.chunks


@pytest.mark.parametrize("actions", [np.zeros(2, np.float32), torch.zeros(2)], ids=str)
def test_actions_of_a_wrong_dtype_are_refused(rig: Rig, actions: Any) -> None:
    env = wrap(rig)
    env.reset()
    with pytest.raises(DataError, match=r"^action: float32 given, expected int64"):
        env.step(actions)


def test_a_step_before_the_first_reset_is_refused(rig: Rig) -> None:
    with pytest.raises(UsageError, match="reset"):
        wrap(rig).step(ACTIONS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cut": "episodes"}, r"sender\.cut is episodes, but there are 2 streams"),
        ({"flush_iteration": 0}, r"sender\.flush_iteration is 0"),
    ],
)
def test_settings_of_the_sender_are_checked(settings: dict[str, Any], message: str) -> None:
    with make_rig(sender=settings) as rig, pytest.raises(ConfigError, match=message):
        wrap(rig)


def test_one_stream_may_be_cut_at_the_ends_of_its_episodes() -> None:
    with make_rig(sender={"cut": "episodes", "flush_iteration": 100}) as rig:
        replay, env = ReplayPeer(rig), wrap(rig, vector((3,)))
        env.reset()
        play(env, 8)
        pump_until(rig, env, lambda: len(replay.chunks) == 2)
        assert [chunk.shape for chunk in replay.chunks] == [(4, 1), (4, 1)]


@pytest.mark.parametrize("large", [False, True])
def test_small_chunks_that_come_fast_leave_together(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, *, large: bool
) -> None:
    replay, env = ReplayPeer(rig), wrap(rig)
    env.reset()
    play(env, 4)
    pump_until(rig, env, lambda: len(replay.chunks) == 1)
    monkeypatch.setattr(chunk_sender, "_TOGETHER_SECONDS", 3600.0)
    env._rows._pump_at = float("inf")
    if large:
        monkeypatch.setattr(chunk_sender, "_TOGETHER_BYTES", 1)
    play(env, 8)
    window = env.sender.window
    assert (window.next_to_send() is None) is large
    env.pump()
    assert window.next_to_send() is None
    rig.until(lambda: len(replay.chunks) == 3)


def test_one_chunk_in_a_few_is_stamped(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surreal_like.experience.chunk_sender.TRACE_EVERY", 2)
    replay, env = ReplayPeer(rig), wrap(rig)
    env.reset()
    play(env, 16)
    pump_until(rig, env, lambda: len(replay.chunks) == 4)
    assert [bool(chunk.stamps) for chunk in replay.chunks] == [False, True, False, True]
    stamps = replay.chunks[1].stamps
    assert stamps["first"] <= stamps["stepped"] <= stamps["cut"] <= stamps["sent"]


def test_a_full_window_is_not_ready_until_replay_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surreal_like.experience.chunk_sender.MAX_UNACKED_BYTES", 800)
    with make_rig() as rig:
        replay, env = ReplayPeer(rig), wrap(rig)
        replay.open = False
        env.reset()
        steps = 0
        while env.ready and steps < 100:
            play(env, 1)
            steps += 1
        window = env.sender.window
        assert 4 < steps < 100
        assert 0 < window.unacked_bytes <= 800
        replay.open = True
        pump_until(rig, env, lambda: env.ready)
        assert window.pushed == window.inserted + window.unacked


def test_a_restarted_replay_gets_what_the_dead_one_did_not_confirm(rig: Rig) -> None:
    first, env = ReplayPeer(rig, 7), wrap(rig)
    env.reset()
    play(env, 4)
    pump_until(rig, env, lambda: env.sender.window.empty)
    first.acking = False
    play(env, 8)
    pump_until(rig, env, lambda: len(first.chunks) == 3)
    first.die()
    second = ReplayPeer(rig, 8)
    play(env, 4)
    pump_until(rig, env, lambda: env.sender.window.empty)
    assert [chunk.sequence for chunk in second.chunks] == [2, 3, 4]
    assert second.missing == []
    account = env.sender.account()
    assert (account["pushed"], account["inserted"], account["dropped"]) == (32, 32, 0)


def test_acks_for_an_older_start_of_this_agent_are_not_ours(rig: Rig) -> None:
    replay, env = ReplayPeer(rig), wrap(rig)
    replay.acking = False
    env.reset()
    play(env, 4)
    pump_until(rig, env, lambda: replay.chunks)
    replay.acking = True
    replay.incarnation -= 1
    for _ in range(300):
        env.pump()
        rig.step()
    assert env.sender.window.acked == 0
    replay.incarnation += 1
    pump_until(rig, env, lambda: env.sender.window.empty)


class Cable:
    """A TCP proxy that a test can cut; what it holds is lost then."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._ending = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._lock = threading.Lock()
        self._thread.start()

    def _run(self) -> None:
        while not self._ending:
            with self._lock:
                ends = {end: other for pair in self._pairs for end, other in (pair, pair[::-1])}
            for end in readable([self._listener, *ends], 0.01):
                if end is self._listener:
                    self._accept()
                else:
                    self._pass_on(end, ends[end])

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        try:
            far = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            near.close()
            return
        with self._lock:
            self._pairs.append((near, far))

    def _pass_on(self, end: socket.socket, other: socket.socket) -> None:
        try:
            data = end.recv(65536)
            if data:
                other.sendall(data)
                return
        except OSError:
            pass  # cut meanwhile
        self._drop([pair for pair in self._pairs if end in pair])

    def _drop(self, pairs: list[tuple[socket.socket, socket.socket]]) -> None:
        with self._lock:
            self._pairs = [pair for pair in self._pairs if pair not in pairs]
        for pair in pairs:
            for end in pair:
                end.close()

    def cut(self) -> None:
        """Ends all connections; new ones are passed on."""
        self._drop(list(self._pairs))

    def close(self) -> None:
        self._ending = True
        self._thread.join()
        self.cut()
        self._listener.close()


def test_a_connection_cut_and_healed_leaves_no_hole_and_nothing_twice(rig: Rig) -> None:
    port = free_port()
    cable = Cable(port)
    address = Address(f"tcp://127.0.0.1:{port}", f"tcp://127.0.0.1:{cable.port}")
    rig.book = AddressBook({**rig.book, "replay-0.experience": address})
    replay, env = ReplayPeer(rig), wrap(rig)
    try:
        env.reset()
        for _ in range(6):
            before = len(replay.chunks)
            play(env, 9)
            pump_until(rig, env, lambda seen=before: len(replay.chunks) > seen)
            replay.open = False  # what follows is under way when the cable is cut
            play(env, 10)
            cable.cut()
            replay.open = True
        env.finish()
        pump_until(rig, env, lambda: env.sender.window.empty)
    finally:
        cable.close()
    assert [chunk.sequence for chunk in replay.chunks] == list(range(1, len(replay.chunks) + 1))
    # Every step of both streams, once and in order.
    assert replay.column("obs")[:, 0, 1].tolist() == [step % 4 for step in range(115)]
    assert len(replay.goodbyes) == 1
    account = env.sender.account()
    assert account["pushed"] == account["inserted"] == replay.rows() == 230
    assert account["unacked"] == 0
    assert env.sender.window.resent > 0


UNROLLS = Config({"replay": {"type": "FIFOReplay"}})


def test_an_unroll_ends_with_the_row_that_the_next_one_begins_with(rig: Rig) -> None:
    replay = ReplayPeer(rig)
    env = ExpSenderWrapper(vector((3, 5)), UNROLLS, context=rig.context("agent-0"))
    env.reset()
    play(env, 3)
    assert env.sender.window.pushed == 0
    play(env, 1)  # the row after four steps is seen: the unroll goes before its action is known
    pump_until(rig, env, lambda: len(replay.chunks) == 1)
    play(env, 8)
    pump_until(rig, env, lambda: len(replay.chunks) == 3)
    assert [chunk.shape for chunk in replay.chunks] == [(5, 2)] * 3
    assert [(chunk.size, chunk.rows, chunk.overlap) for chunk in replay.chunks] == [
        (8, 8, 1),
        (8, 16, 1),
        (8, 24, 1),
    ]
    for before, after in itertools.pairwise(replay.chunks):
        for name in ("step_type", "reward", "discount", "obs", "extras/clock", "version"):
            np.testing.assert_array_equal(before.columns[name][-1], after.columns[name][0])
        assert not before.columns["action"][-1].any()
        assert after.columns["action"][0].tolist() == [1, 2]
    # As without overlap: three steps, terminated, the reset row, ...
    types = [chunk.columns["step_type"][:-1, 0].tolist() for chunk in replay.chunks]
    assert types == [[0, 1, 1, 2]] * 3
    # Each environment step and each episode counts once.
    assert [chunk.env_steps for chunk in replay.chunks] == [6, 12, 19]
    assert [chunk.episodes for chunk in replay.chunks] == [1, 3, 5]


def test_what_an_agent_leaves_with_is_counted_with_its_last_row(rig: Rig) -> None:
    replay = ReplayPeer(rig)
    env = ExpSenderWrapper(vector((9, 9)), UNROLLS, context=rig.context("agent-0"))
    env.reset()
    play(env, 4)
    env.finish()  # right after an unroll: its last row has not been counted yet
    pump_until(rig, env, lambda: len(replay.chunks) == 2)
    last = replay.chunks[-1]
    assert (last.shape, last.size, last.overlap, last.tail) == ((1, 2), 2, 0, True)
    assert (last.rows, last.env_steps) == (10, 8)


@pytest.mark.parametrize(
    ("sender", "said"),
    [({"flush_time": 2.0}, "set it to null"), ({"cut": "episodes"}, "write steps")],
)
def test_unrolls_are_whole(rig: Rig, sender: dict[str, Any], said: str) -> None:
    session = Config({"sender": sender})
    with pytest.raises(ConfigError, match=f"whole unrolls.*{said}"):
        ExpSenderWrapper(Count(), UNROLLS, session, context=rig.context("agent-0"))


def test_a_misspelt_setting_of_a_script_is_refused() -> None:
    words = r"session_config\.sender\.flush_iteratoin.*flush_iteration"
    with pytest.raises(ConfigError, match=words):
        ExpSenderWrapper(Count(), session_config={"sender": {"flush_iteratoin": 5}})
