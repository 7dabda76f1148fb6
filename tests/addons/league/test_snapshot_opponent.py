"""Snapshots of a policy: which are drawn, which live, and what an episode against one counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from session.config import Config
from surreal_like.addons.league import snapshot_opponent
from surreal_like.addons.league.snapshot_opponent import Load, PublishedSnapshots, SnapshotOpponent
from surreal_like.agent.agent import Agent
from surreal_like.data.parameters import Parameters
from surreal_like.data.rows import Rows
from surreal_like.ps.parameter_server import ParameterStore
from tests.surreal_like.agent.rig import LearnerPeer, Rig
from tests.surreal_like.agent.rig import rig as rig

LIVING = (0, 200, 400)


class Constant(Agent):
    """Plays the iteration of the snapshot that it has loaded."""

    plays = -1

    def act(self, obs: Any) -> Any:
        return np.full(len(self.streams), self.plays)


def build(agent: type[Constant], seed: int) -> Constant:
    spec = {"type": "float32", "dim": [1]}
    config = Config({"obs_spec": spec, "action_spec": {"type": "discrete", "dim": [1000]}})
    session = Config({"seed": seed, "folder": None, "agent": {"num": 1}, "gateway": {"num": 0}})
    return agent(
        learner_config=Config({"algo": {}}),
        env_config=config,
        session_config=session,
        agent_id=0,
        agent_mode="eval_stochastic",
    )


class Stored:
    """Snapshots that are there at once."""

    def get(self, choose: Callable[[Sequence[int]], int | None]) -> tuple[str, Load] | None:
        chosen = choose(LIVING)

        def load(agent: Agent) -> None:
            agent.plays = 900 if chosen is None else chosen  # type: ignore[attr-defined]

        return "main" if chosen is None else f"main-{chosen}", load


def past(agent: type[Constant] = Constant, **settings: Any) -> SnapshotOpponent:
    complete = {"snapshots_of": "main", "draw": "uniform", "latest_share": 0.0, "episodes": 2}
    config = Config({**complete, **settings})
    policy = SnapshotOpponent("past", config, partial(build, agent), Stored(), num_envs=2, seed=3)
    policy.begin(2)
    policy.fetch()
    return policy


def rows(*streams: int) -> Rows:
    count = len(streams)
    flags, zeros = np.zeros(count, bool), np.zeros(count, np.float32)
    numbers = np.array(streams)
    return Rows(numbers, np.zeros((count, 1), np.float32), zeros, flags, flags, ~flags, numbers)


def summary(main: float) -> dict[str, Any]:
    return {"return": 0.0, "length": 3, "metrics": {"policy/main": main, "policy/past": -main}}


def play(
    policy: SnapshotOpponent, episodes: int, outcome: Callable[[int], float] = lambda _: 0.0
) -> Any:
    """Plays episodes of the first environment; returns how often each snapshot played."""
    played: Counter[int] = Counter()
    for _ in range(episodes):
        policy.fetch()
        [action] = policy.act(rows(0)).tolist()
        played[action] += 1
        policy.end_step([(0, summary(outcome(action)))])
    return played


def test_each_snapshot_is_drawn_as_often() -> None:
    played = play(past(), 1200)
    assert played.keys() == set(LIVING)
    assert all(300 < count < 500 for count in played.values())


def test_a_share_of_draws_takes_the_newest_parameters() -> None:
    played = play(past(latest_share=0.5), 1200)
    assert 480 < played[900] < 720


def test_hard_draws_prefer_those_that_are_not_beaten() -> None:
    # Weights (1 - w)^2 + 0.05: 1.05 for one that always wins, 0.05 for those that never do.
    played = play(past(draw="hard"), 3000, lambda plays: -1.0 if plays == 200 else 1.0)
    assert played[200] / 3000 == pytest.approx(1.05 / 1.15, abs=0.1)


def test_a_draw_holds_for_its_episodes_and_each_environment_changes_at_its_end() -> None:
    policy = past(episodes=2)
    before = policy.act(rows(0, 1)).tolist()
    assert before[0] == before[1]
    # Both episodes of the draw have ended in one environment; the other one goes on.
    after = before
    for _ in range(50):
        policy.end_step([(0, summary(0.0))])
        policy.end_step([(0, summary(0.0))])
        policy.fetch()
        after = policy.act(rows(0, 1)).tolist()
        assert after[1] == before[1]
        if after[0] != before[0]:
            break
    assert after[0] != before[0]
    assert policy.act(rows(1)).tolist() == before[1:]


def test_an_episode_against_a_snapshot_is_won_or_lost() -> None:
    policy = past()
    [action] = policy.act(rows(0)).tolist()
    for main, share in ((2.0, 1.0), (-1.0, 0.0), (0.0, 0.5)):
        ended = summary(main)
        policy.act(rows(0))
        policy.end_step([(0, ended)])
        won = {name: each for name, each in ended["metrics"].items() if name.startswith("won/")}
        assert won == {f"won/main-{action}": share}


def test_the_hooks_of_a_snapshot_see_its_own_episodes() -> None:
    seen: list[float] = []

    class Hooked(Constant):
        def post_episode(self, episodes: Sequence[Mapping[str, Any]]) -> None:
            seen.extend(each["return"] for each in episodes)

    policy = past(agent=Hooked, episodes=1)
    policy.act(rows(0, 1))
    policy.end_step([(0, {**summary(0.0), "return": 1.0})])
    policy.fetch()
    policy.act(rows(0, 1))
    both = [(0, {**summary(0.0), "return": 2.0}), (1, {**summary(0.0), "return": 3.0})]
    policy.end_step(both)
    assert sorted(seen) == [1.0, 2.0, 3.0]


def test_a_fetch_that_could_not_be_sent_is_repeated(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = LearnerPeer(rig)
    learner.publish(policy="default-10")
    learner.publish(snapshots=[10])
    snapshots = PublishedSnapshots(rig.context("agent-0"), "default")
    post = type(snapshots.socket).post
    lost: list[Any] = []

    def refuses(socket: Any, call: Any, now: float) -> bool:
        if not lost and call.make().kind == "fetch":
            lost.append(call)
            return False
        return post(socket, call, now)

    monkeypatch.setattr(type(snapshots.socket), "post", refuses)
    got: list[str] = []

    def get() -> bool:
        answer = snapshots.get(lambda living: living[0])
        got.extend([answer[0]] if answer else [])
        return bool(got)

    rig.until(get)
    assert got == ["default-10"]
    assert lost


def _choose(iteration: int | None, living: Sequence[int]) -> int | None:
    return iteration


def test_a_snapshot_that_was_drawn_before_needs_no_request(rig: Rig) -> None:
    learner = LearnerPeer(rig)
    learner.publish(policy="default-10")
    learner.publish(policy="default-20")
    learner.publish(snapshots=[10, 20])
    snapshots = PublishedSnapshots(rig.context("agent-0"), "default")

    def draw(iteration: int | None) -> str:
        got: list[str] = []

        def get() -> bool:
            answer = snapshots.get(lambda living: iteration)
            got.extend([answer[0]] if answer else [])
            return bool(got)

        rig.until(get)
        return got[0]

    names = [draw(each) for each in (10, 20, None)]
    assert names == ["default-10", "default-20", "default"]
    # At once, without a round of the parameter server.
    for each, name in zip((10, None, 20), ("default-10", "default", "default-20"), strict=True):
        answer = snapshots.get(partial(_choose, each))
        assert answer is not None
        assert answer[0] == name
    # Newer parameters of the policy itself are fetched.
    learner.publish(snapshots=[10, 20])
    rig.until(lambda: snapshots.get(lambda living: None) is None)
    rig.until(lambda: snapshots.get(lambda living: None))
    assert snapshots._kept["default"].version == learner.version


def test_a_snapshot_that_is_not_there_yet_is_asked_for_again(rig: Rig) -> None:
    learner = LearnerPeer(rig)
    learner.publish(snapshots=[10])
    snapshots = PublishedSnapshots(rig.context("agent-0"), "default")
    refused: list[str] = []

    def get() -> tuple[str, Any] | None:
        asked, found = snapshots._asked, snapshots.get(lambda living: 10)
        refused.extend([asked[0]] if asked and snapshots._asked is not asked and not found else [])
        return found

    rig.until(lambda: get() or refused)
    assert refused == ["default-10"]
    # After a pause: else the parameter server would get a request in each round of the agent.
    assert get() is None
    assert snapshots._asked is None
    learner.publish(policy="default-10")
    rig.until(get)


def test_few_bytes_of_snapshots_are_kept(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = LearnerPeer(rig)
    size = learner.publish(policy="default-10").flat.nbytes
    monkeypatch.setattr(snapshot_opponent, "_KEPT_BYTES", 2 * size)
    snapshots = PublishedSnapshots(rig.context("agent-0"), "default")
    for number in (10, 20, 30):
        snapshots._keep(f"default-{number}", learner.publish(policy=f"default-{number}"))
    assert list(snapshots._kept) == ["default-20", "default-30"]


def test_the_store_keeps_the_snapshots_that_live() -> None:
    store = ParameterStore()

    def put(version: int, policy: str, **info: Any) -> None:
        flat = np.zeros(0, np.uint8)
        assert store.put(Parameters(flat, (), version, 1, 0, info, policy))

    put(1, "main-0")
    put(1, "main", snapshots=[0])
    put(201, "main-200")
    put(1, "other")
    put(1, "other-0")
    put(2, "main", snapshots=[0, 200])
    assert all(store.newest(name) for name in ("main-0", "main-200", "other-0"))
    put(3, "main", snapshots=[200])
    assert store.newest("main-0") is None
    assert store.newest("main-200") is not None
    assert store.newest("other-0") is not None, "not of this policy"
