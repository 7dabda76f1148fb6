"""The agent's process over real sockets, with a learner and a replay that the test plays."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch

import main.ps
from session.errors import RefusedError
from session.process.context import Context
from session.process.service import IDLE_SECONDS, Frame
from session.wire.connection_monitor import ACCEPTED, Monitor
from surreal_like.agent.agent import Agent, AgentMode
from surreal_like.agent.loop import AgentService, make_agent, make_single_service
from surreal_like.errors import SpecError
from surreal_like.experience.chunk import GRADIENT, Chunk
from surreal_like.experience.chunk_sender import acting_of
from tests.runs.command import ROOT
from tests.surreal_like.agent.rig import LearnerPeer, Line, LineAgent, ReplayPeer, Rig, make_rig
from tests.surreal_like.agent.rig import rig as rig
from tests.surreal_like.ps.test_parameter_server import client


def building(agent: type[Agent]) -> Callable[[Context], AgentService]:
    """Builds the process of such an agent."""
    return lambda context: make_single_service(context, make_agent(context, agent, "training"))


def build(context: Context) -> AgentService:
    return building(LineAgent)(context)


def started(rig: Rig, incarnation: int = 5) -> Frame:
    return rig.start("agent-0", build, incarnation=incarnation)


def service(frame: Frame) -> AgentService:
    assert isinstance(frame._service, AgentService)
    return frame._service


def accounts(rig: Rig) -> Any:
    asking = rig.wire("learner", 9).dealer("ps.requests")
    return asking.request("accounts", timeout_seconds=5.0).fields["accounts"]


def test_an_agent_acts_with_what_it_fetches_and_its_rows_arrive(rig: Rig) -> None:
    learner, replay = LearnerPeer(rig), ReplayPeer(rig)
    frame = started(rig)
    learner.publish()
    rig.until(lambda: len(replay.chunks) >= 4)
    agent = service(frame)._sending.agent
    assert agent.agent_mode is AgentMode.training
    assert set(np.unique(replay.column("version"))) == {1}
    with torch.no_grad():
        values = learner.network(torch.as_tensor(replay.column("obs").reshape(-1, 2)))
    assert np.allclose(replay.column("extras/values").reshape(-1, 3), values.numpy(), atol=1e-6)
    assert (replay.column("action").reshape(-1) == values.argmax(1).numpy()).all()
    assert replay.column("step_type")[:, 0].tolist()[:8] == [0, 1, 1, 2, 0, 1, 1, 2]


def test_an_agent_has_the_last_word_on_its_chunks(rig: Rig) -> None:
    class Halving(LineAgent):
        def postprocess(self, chunk: Chunk) -> Chunk:
            columns = {**chunk.columns, "reward": chunk.columns["reward"] / 2}
            columns["extras/before"] = chunk.columns["reward"]
            return replace(chunk, columns=columns)

    learner, replay = LearnerPeer(rig), ReplayPeer(rig)
    frame = rig.start("agent-0", building(Halving))
    learner.publish()
    rig.until(lambda: len(replay.chunks) >= 2)
    assert replay.column("extras/before")[:4, 0].tolist() == [0, 1, 2, 3]
    assert replay.column("reward")[:4, 0].tolist() == [0, 0.5, 1, 1.5]
    # Returns count what the environment gave.
    assert replay.chunks[0].finished[0]["return"] == 6.0
    assert service(frame)._stepping.pop_recent()[0]["return"] == 6.0


def test_no_step_is_taken_before_the_first_parameters(rig: Rig) -> None:
    learner, replay = LearnerPeer(rig), ReplayPeer(rig)
    frame = started(rig)
    rig.until(lambda: frame._service)
    rig.pass_time(1.0)
    assert service(frame)._sending.sender.window.pushed == 0
    learner.publish()
    rig.until(lambda: replay.chunks)
    assert (replay.column("version") == 1).all()


def test_a_new_generation_has_an_agent_built_from_its_settings(rig: Rig) -> None:
    learner, replay = LearnerPeer(rig), ReplayPeer(rig)
    frame = started(rig)
    learner.publish()
    rig.until(lambda: replay.chunks)
    before = service(frame)._sending.agent
    before.rng.random()
    exploit: dict[str, Any] = {"generation": 1, "settings": {"learner_config.replay.min_size": 7}}
    learner.publish(**exploit)
    rig.until(lambda: service(frame)._sending.agent is not before)
    after = service(frame)._sending.agent
    assert (after.version, after.learner_config.replay.min_size) == (2, 7)
    assert before.learner_config.replay.min_size != 7
    assert after.rng.bit_generator.state == before.rng.bit_generator.state
    # Later versions of the same generation go to the same agent.
    learner.publish(**exploit)
    rig.until(lambda: (replay.column("version") == 3).any())
    assert service(frame)._sending.agent is after
    rig.until(lambda: rig.events("generation"))
    assert rig.events("generation") == ["1, built anew"]


def test_first_is_set_before_each_act(rig: Rig) -> None:
    learner, replay = LearnerPeer(rig), ReplayPeer(rig)
    frame = started(rig)
    learner.publish()
    rig.until(lambda: len(replay.chunks) >= 2)
    agent = service(frame)._sending.agent
    assert isinstance(agent, LineAgent)
    beginnings = [first[0] for first in agent.seen_first[:8]]
    assert beginnings == [True, False, False, False, True, False, False, False]


def test_acting_keeps_no_gradients(rig: Rig) -> None:
    seen: list[bool] = []

    class Watching(LineAgent):
        def act(self, obs: Any) -> Any:
            seen.append(torch.is_inference_mode_enabled())
            return super().act(obs)

    learner = LearnerPeer(rig)
    rig.start("agent-0", building(Watching))
    learner.publish()
    rig.until(lambda: len(seen) > 3)
    assert all(seen)
    assert not torch.is_inference_mode_enabled()


def test_newer_parameters_are_taken_while_it_steps(rig: Rig) -> None:
    learner, replay = LearnerPeer(rig), ReplayPeer(rig)
    frame = started(rig)
    for version in (1, 2, 3):
        learner.publish(env_steps=100 * version)
        rig.until(lambda: replay.chunks and replay.column("version")[-1, 0] == learner.version)
    versions = replay.column("version")[:, 0]
    assert set(versions.tolist()) == {1, 2, 3}
    assert (np.diff(versions) >= 0).all()
    assert service(frame)._sending.agent.progress == (300, 30)


def test_one_version_acts_in_all_of_an_unroll_that_becomes_one_row() -> None:
    unrolls: list[Chunk] = []

    def pack(chunk: Chunk) -> Chunk:
        unrolls.append(chunk)
        columns = {name: column[:1, :1] for name, column in chunk.columns.items()}
        columns[GRADIENT] = np.zeros((1, 1, 3), np.float32)
        return replace(chunk, columns=columns, streams=[0])

    def build_packing(context: Context) -> AgentService:
        acting_of(context).pack = pack
        return build(context)

    words: Any = {"sender": {"flush_iteration": 7}, "agent": {"fetch_parameter_mode": "step:1"}}
    with make_rig(**words) as rig:
        rig.start("ps", main.ps.build)
        learner, replay = LearnerPeer(rig), ReplayPeer(rig)
        rig.start("agent-0", build_packing)
        for wanted in range(2, 20, 2):
            learner.publish()
            rig.until(lambda wanted=wanted: len(replay.chunks) >= wanted)  # type: ignore[misc]
    versions = [set(each.columns["version"].ravel().tolist()) for each in unrolls]
    assert [len(each) for each in versions] == [1] * len(unrolls)
    assert len(set.union(*versions)) > 3
    assert [(chunk.size, chunk.rows) for chunk in replay.chunks] == [
        (1, number) for number in range(1, len(replay.chunks) + 1)
    ]
    # Of two streams with chunks of seven rows, two of which are no steps.
    assert [chunk.env_steps for chunk in replay.chunks[:2]] == [10, 20]
    assert replay.chunks[0].finished


def test_a_full_window_stops_stepping_until_replay_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surreal_like.experience.chunk_sender.MAX_UNACKED_BYTES", 1500)
    with make_rig() as rig:
        rig.start("ps", main.ps.build)
        learner, replay = LearnerPeer(rig), ReplayPeer(rig)
        replay.open = False
        frame = started(rig)
        learner.publish()
        rig.until(lambda: frame._service and not service(frame)._sending.sender.window.ready)
        window = service(frame)._sending.sender.window
        pushed = window.pushed
        rig.pass_time(0.5)
        assert window.pushed == pushed
        assert window.unacked_bytes <= 1500
        # Only an ack can let it go on, which wakes it.
        assert window.next_to_send() is None
        assert service(frame).rest_seconds() == 10 * IDLE_SECONDS
        window.lost()
        assert service(frame).rest_seconds() == IDLE_SECONDS
        replay.open = True
        rig.until(lambda: window.pushed > pushed)


def test_a_ack_that_makes_room_is_followed_by_a_step_at_once(rig: Rig) -> None:
    rig.config.session_config.sender.max_unacked_chunks = 1
    learner, replay = LearnerPeer(rig), ReplayPeer(rig)
    replay.open = False
    frame = started(rig)
    learner.publish()
    rig.until(lambda: frame._service and not service(frame)._sending.window.ready)
    flags: list[bool] = []
    tick = service(frame).tick

    def counted() -> bool:
        flags.append(tick())
        return flags[-1]

    service(frame).tick = counted  # type: ignore[method-assign]
    rig.pass_time(0.1)
    assert not any(flags)
    replay.open = True
    flags.clear()
    rig.until(lambda: service(frame)._sending.window.ready)
    # Nobody wakes an agent that sleeps now.
    assert flags[-1]


def test_at_the_end_of_the_run_everything_is_handed_over(rig: Rig) -> None:
    learner, replay = LearnerPeer(rig), ReplayPeer(rig)
    frame = started(rig)
    learner.publish()
    rig.until(lambda: len(replay.chunks) > 2)
    learner.publish(final=True)
    rig.until(lambda: frame.finished)
    assert replay.chunks[-1].tail or replay.chunks[-1].columns["step_type"][-1, 0] == 2
    (goodbye,) = replay.goodbyes
    assert goodbye["rows"] == replay.rows()
    account = accounts(rig)["agent-0/5"]
    assert account["final"]
    assert account["pushed"] == account["inserted"] == replay.rows()
    assert (account["unacked"], account["dropped"]) == (0, 0)
    assert account["env_steps"] == int((replay.column("step_type") != 0).sum())


def test_an_agent_that_is_asked_to_end_says_goodbye_too(rig: Rig) -> None:
    learner, replay = LearnerPeer(rig), ReplayPeer(rig)
    frame = started(rig)
    learner.publish()
    rig.until(lambda: replay.chunks)
    frame.context.stopping = True
    rig.until(lambda: frame.finished)
    assert len(replay.goodbyes) == 1
    assert accounts(rig)["agent-0/5"]["final"]


def test_without_replay_the_leave_has_a_deadline(rig: Rig) -> None:
    learner = LearnerPeer(rig)
    frame = started(rig)
    learner.publish()
    rig.until(lambda: frame._service and service(frame)._sending.sender.window.pushed)
    learner.publish(final=True)
    rig.until(lambda: service(frame)._sending.leaving.begun)
    began = rig.clock.now()
    for _ in range(400):
        rig.step(0.05)
        if frame.finished:
            break
    assert frame.finished
    assert 6.9 < rig.clock.now() - began < 10.0
    account = accounts(rig)["agent-0/5"]
    assert account["final"]
    assert account["unacked"] == account["pushed"] > 0


def test_without_a_parameter_server_the_leave_has_a_deadline(rig: Rig) -> None:
    learner, replay = LearnerPeer(rig), ReplayPeer(rig)
    frame = started(rig)
    learner.publish()
    rig.until(lambda: replay.chunks)
    rig.frames.pop("ps").context.wire.close(0)
    frame.context.stopping = True
    rig.pass_time(12.0)
    assert frame.finished
    assert len(replay.goodbyes) == 1


def test_an_agent_stays_after_its_goodbye_where_the_run_says_so() -> None:
    with make_rig(at_end="idle") as rig:
        rig.start("ps", main.ps.build)
        learner, replay = LearnerPeer(rig), ReplayPeer(rig)
        frame = started(rig)
        learner.publish()
        rig.until(lambda: replay.chunks)
        learner.publish(final=True)
        rig.until(lambda: replay.goodbyes)
        rig.pass_time(5.0)
        assert not frame.finished
        frame.context.stopping = True
        rig.pass_time(0.01)
        assert frame.finished


def test_other_modules_than_the_learners_end_the_agent_with_both_sides(rig: Rig) -> None:
    learner = LearnerPeer(rig)
    started(rig)
    learner.publish(network=Line(width=7))
    with pytest.raises(SpecError, match=r"\[3, 2\].*\[7, 2\]"):
        rig.until(lambda: False)


def test_a_replaced_agent_ends_when_it_asks(rig: Rig) -> None:
    learner, _ = LearnerPeer(rig), ReplayPeer(rig)
    frame = started(rig)
    learner.publish()
    rig.until(lambda: frame._service and service(frame)._sending.sender.window.pushed)
    rig.frames.pop("agent-0")
    started(rig, incarnation=6)
    rig.pass_time(0.2)
    rig.frames["older"] = frame
    with pytest.raises(RefusedError, match="replaced by incarnation 6"):
        rig.until(lambda: False)


def test_what_has_happened_since_the_last_report_is_reported_at_the_end(rig: Rig) -> None:
    learner, replay = LearnerPeer(rig), ReplayPeer(rig)
    frame = started(rig)
    learner.publish()
    rig.until(lambda: len(replay.chunks) > 3)
    assert rig.scalars("agent/0") == {}
    frame.context.stopping = True
    rig.until(lambda: frame.finished)
    rig.until(lambda: rig.scalars("agent/0"))
    assert rig.scalars("agent/0")["return"] == 6.0


def test_agents_report_speed_returns_and_lag(rig: Rig) -> None:
    learner, replay = LearnerPeer(rig), ReplayPeer(rig)
    frame = started(rig)
    learner.publish()
    rig.until(lambda: len(replay.chunks) > 3)
    rig.clock.seconds += 1.0
    rig.until(lambda: "return" in rig.scalars("agent/0"))
    values = rig.scalars("agent/0")
    assert values["return"] == 6.0
    assert values["episode_length"] == 3.0
    assert values["steps_per_second"] > 0
    assert {"version_lag", ".core/unacked_bytes", "my/action"} <= set(values)
    assert service(frame).status()["version"] == 1.0


def test_agents_of_one_run_draw_different_torch_numbers(rig: Rig) -> None:
    draws = []
    for name in ("agent-0", "agent-1"):
        make_agent(rig.context(name), LineAgent, AgentMode.training)
        draws.append(float(torch.rand(())))
    assert draws[0] != draws[1]


def test_fetching_never_holds_up_the_steps(rig: Rig) -> None:
    learner, replay = LearnerPeer(rig), ReplayPeer(rig)
    frame = started(rig)
    learner.publish()
    rig.until(lambda: replay.chunks)
    server = rig.frames.pop("ps")  # it answers nothing from now on
    chunks = len(replay.chunks)
    rig.until(lambda: len(replay.chunks) > chunks + 3)
    rig.frames["ps"] = server
    learner.publish()
    rig.until(lambda: service(frame)._sending.agent.version == 2)
    assert client(rig).fetch(5.0) is not None


class PatientAgent(LineAgent):
    """Waits for the version that follows each of its unrolls."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.synchronous = True


def test_a_synchronous_agent_waits_for_the_version_after_each_unroll(rig: Rig) -> None:
    learner, replay = LearnerPeer(rig), ReplayPeer(rig)
    rig.start("agent-0", building(PatientAgent))
    learner.publish()
    for version in (1, 2, 3):
        rig.until(lambda: len(replay.chunks) == learner.version)
        rig.pass_time(1.5)
        assert len(replay.chunks) == version
        assert (replay.chunks[-1].columns["version"] == version).all()
        learner.publish()


def test_a_synchronous_agent_that_waits_sees_the_end(rig: Rig) -> None:
    learner, replay = LearnerPeer(rig), ReplayPeer(rig)
    frame = rig.start("agent-0", building(PatientAgent))
    learner.publish()
    rig.until(lambda: replay.chunks)
    learner.publish(final=True)
    rig.until(lambda: frame.finished)
    assert frame.exit_code == 0


def test_a_synchronous_agent_outlives_its_parameter_server(rig: Rig) -> None:
    learner, replay = LearnerPeer(rig), ReplayPeer(rig)
    rig.start("agent-0", building(PatientAgent))
    learner.publish()
    rig.until(lambda: replay.chunks)
    rig.pass_time(0.5)
    server = rig.frames.pop("ps")  # it answers nothing from now on
    rig.pass_time(6.0)
    rig.frames["ps"] = server
    learner.publish()
    rig.until(lambda: len(replay.chunks) == 2)


def test_a_synchronous_agent_does_not_wait_for_an_unroll_that_died_with_replay(rig: Rig) -> None:
    learner, replay = LearnerPeer(rig), ReplayPeer(rig)
    frame = rig.start("agent-0", building(PatientAgent))
    learner.publish()
    rig.until(lambda: frame._service)
    window = service(frame)._sending.sender.window
    rig.until(lambda: replay.chunks and window.empty)
    rig.pass_time(1.0)
    assert len(replay.chunks) == 1
    replay.die()
    other = ReplayPeer(rig, 8)
    rig.until(lambda: other.chunks)
    assert (other.column("version") == 1).all()
    rig.pass_time(1.0)
    assert len(other.chunks) == 1


def test_a_synchronous_agent_does_not_wait_for_an_unroll_that_was_dropped(rig: Rig) -> None:
    learner, replay = LearnerPeer(rig), ReplayPeer(rig)
    replay.refusing = True
    frame = rig.start("agent-0", building(PatientAgent))
    learner.publish()
    rig.until(lambda: replay.chunks)
    replay.refusing = False
    rig.until(lambda: len(replay.chunks) == 2)
    rig.pass_time(1.0)
    assert len(replay.chunks) == 2
    window = service(frame)._sending.sender.window
    assert (window.dropped, window.inserted) == tuple(each.size for each in replay.chunks)


def test_a_learner_that_begins_with_older_versions_is_not_waited_for(rig: Rig) -> None:
    learner, replay = LearnerPeer(rig), ReplayPeer(rig)
    rig.start("agent-0", building(PatientAgent))
    learner.version = 40
    learner.publish()
    rig.until(lambda: replay.chunks)
    learner.incarnation, learner.version = learner.incarnation + 1, 0
    learner.publish()
    rig.until(lambda: len(replay.chunks) == 2)
    assert (replay.chunks[-1].columns["version"] == 1).all()


def test_an_agent_has_one_connection_to_the_parameter_server() -> None:
    """So that ``security.max_connections`` limits the number of agents, not half of it."""
    with make_rig(agent={"num": 4}) as rig:
        server = rig.start("ps", main.ps.build)
        rig.until(lambda: server._service)
        router: Any = server._service.wait_on()[0]  # type: ignore[union-attr]
        assert router.endpoint == "ps.requests"
        monitor = Monitor(router.raw, ACCEPTED)
        learner, replay = LearnerPeer(rig), ReplayPeer(rig)
        frames = [rig.start(f"agent-{number}", build) for number in range(4)]
        learner.publish()
        rig.until(lambda: replay.chunks and all(frame._service for frame in frames))
        rig.until(lambda: all(service(frame)._sending.agent.version for frame in frames))
        learner.publish(final=True)
        rig.until(lambda: all(service(frame)._sending.leaving.begun for frame in frames))
        rig.pass_time(100.0)
        assert all(service(frame)._sending.leaving.over for frame in frames)
        assert len(list(monitor.events())) == 4
        monitor.close()


def test_a_step_makes_few_calls() -> None:
    """Of this project's functions, in the middle of a chunk: as many as before, 59."""
    ours = (f"{ROOT}/surreal_like/", f"{ROOT}/session/")
    counts, calls = [], list[str]()

    def note(frame: FrameType, event: str, given: object) -> None:
        code = frame.f_code
        # Comprehensions are calls in some versions of Python only.
        if event == "call" and code.co_filename.startswith(ours) and "comp>" not in code.co_name:
            calls.append(code.co_name)

    with make_rig(sender={"flush_iteration": 10_000, "flush_time": 0.0}) as rig:
        rig.start("ps", main.ps.build)
        learner, _ = LearnerPeer(rig), ReplayPeer(rig)
        frame = started(rig)
        learner.publish()
        rig.until(lambda: frame._service and service(frame)._steps)
        for _ in range(50):
            sys.setprofile(note)
            service(frame).tick()
            sys.setprofile(None)
            counts.append(len(calls))
            calls.clear()
    assert min(counts) <= 59
