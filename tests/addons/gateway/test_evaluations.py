"""Evaluations that sessions of mode evaluate play for the learner."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from tests.addons.gateway.rig import Client, Stage, make_stage
from tests.surreal_like.agent.rig import Line
from tests.surreal_like.agent.test_evaluation_reporter import ControlPeer

EPISODES = 3


@contextmanager
def evaluating(
    **gateway: Any,
) -> Iterator[tuple[Stage, ControlPeer]]:
    """A stage whose learner asks for evaluations of three episodes."""
    session: Any = {"stop": {"eval_episodes": EPISODES}, "evaluator": {"num": 0}}
    with make_stage(**session, gateway=gateway) as stage:
        yield stage, ControlPeer(stage.rig)


@pytest.fixture
def scene() -> Iterator[tuple[Stage, ControlPeer]]:
    with evaluating() as made:
        yield made


def player(stage: Stage) -> Client:
    return stage.client(mode="evaluate")


def play(client: Client, reward: float = 1.0) -> dict[str, Any]:
    """One episode of one step; gives the answer of its first observation."""
    answer = client.request("reset")
    assert answer["kind"] == "action", answer
    assert client.request("end", reward=reward)["kind"] == "episode"
    return answer


def reset(client: Client) -> None:
    """Begins an episode without waiting for the answer."""
    client.seq += 1
    client.send(kind="reset", seq=client.seq, observation=[0, 1])


def waits(stage: Stage, client: Client) -> bool:
    stage.rig.pass_time(5.1)
    return client.next() == {"kind": "wait", "seq": client.seq, "reason": "evaluation"}


def test_a_score_has_all_episodes_of_one_version(scene: tuple[Stage, ControlPeer]) -> None:
    stage, control = scene
    client = player(stage)
    versions = []
    for reward in (1.0, 2.0, 6.0):
        versions.append(play(client, reward)["version"])
        stage.learner.publish(env_steps=500)
        stage.rig.pass_time(1.2)
    assert versions == [1, 1, 1]
    stage.rig.until(lambda: control.reports)
    score, has_flat = control.reports[0]
    assert has_flat
    assert score.pop("seconds") > 0
    expected = {
        "mean_return": 3.0,
        "std_return": float(np.std([1, 2, 6])),
        "min_return": 1.0,
        "max_return": 6.0,
        "mean_length": 1.0,
        "episodes": 3,
        "version": 1,
        "incarnation": stage.learner.incarnation,
        "iteration": 10,
        "confirm": False,
        "mode": "eval_deterministic",
    }
    assert score.items() >= expected.items()
    stage.rig.pass_time(1.1)
    assert play(client)["version"] == 4


def test_the_agent_is_greedy_and_no_row_is_recorded(scene: tuple[Stage, ControlPeer]) -> None:
    stage, control = scene
    client = player(stage)
    for _ in range(EPISODES):
        play(client)
    stage.rig.until(lambda: control.reports)
    account = stage.finish()
    assert account["pushed"] == account["env_steps"] == account["episodes"] == 0


@pytest.mark.parametrize(
    ("evaluators", "decide", "mode"),
    [
        (0, False, "eval_deterministic"),
        (1, False, "eval_clients"),
        (1, True, "eval_deterministic"),
    ],
)
def test_clients_score_beside_own_evaluators_only_where_a_key_says_so(
    evaluators: int, decide: bool, mode: str
) -> None:
    stop, gateway = {"eval_episodes": EPISODES}, {"clients_decide": decide}
    with make_stage(stop=stop, gateway=gateway, evaluator={"num": evaluators}) as stage:
        control, client = ControlPeer(stage.rig), player(stage)
        for _ in range(EPISODES):
            play(client, 1e5)
        stage.rig.until(lambda: control.reports)
        assert control.reports[0][0]["mode"] == mode


def test_an_episode_waits_until_there_is_something_to_evaluate(
    scene: tuple[Stage, ControlPeer],
) -> None:
    stage, control = scene
    client = player(stage)
    for _ in range(EPISODES):
        play(client)
    stage.rig.until(lambda: control.reports)
    reset(client)
    assert waits(stage, client)
    # Neither an error, however long it takes, nor a reason to be sent away.
    stage.rig.pass_time(70.0)
    assert {client.next()["kind"] for _ in range(5)} == {"wait"}
    assert len(control.reports) == 1
    stage.learner.publish(network=Line())
    answers = [client.next()]
    while answers[-1]["kind"] == "wait":
        answers.append(client.next())
    assert answers[-1]["version"] == 2


def test_every_ticket_is_waited_for(scene: tuple[Stage, ControlPeer]) -> None:
    stage, control = scene
    slow, fast = player(stage), player(stage)
    slow.request("reset")
    play(fast, 2.0)
    play(fast, 2.0)
    # Its third episode belongs to the next evaluation: all tickets of this one are taken.
    reset(fast)
    assert waits(stage, fast)
    assert not control.reports
    slow.request("step")
    slow.request("end")
    stage.rig.until(lambda: control.reports)
    assert control.reports[0][0]["mean_return"] == 2.0


@pytest.mark.parametrize("how", ["bye", "reset", "lost"])
def test_the_ticket_of_a_session_that_ends_is_taken_by_another(
    scene: tuple[Stage, ControlPeer], how: str
) -> None:
    stage, control = scene
    dying, other = player(stage), player(stage)
    dying.request("reset")
    play(other)
    play(other)
    if how == "bye":
        dying.ask(kind="bye")
    elif how == "reset":
        dying.request("reset")
        dying.request("end")
    else:
        dying.close()
        stage.rig.pass_time(30.1)
    if how != "reset":
        play(other)
    stage.rig.until(lambda: control.reports)
    assert control.reports[0][0]["episodes"] == EPISODES


def test_a_good_score_is_confirmed_with_the_same_version_on_new_seeds(
    scene: tuple[Stage, ControlPeer],
) -> None:
    stage, control = scene
    control.answers.append({"confirm": True, "best": 1.0})
    client = Client(stage)
    seeds = [client.hello(mode="evaluate")["seed"]]
    for _ in range(2 * EPISODES):
        client.request("reset")
        seeds.append(client.request("end")["seed"])
        stage.learner.publish()
    stage.rig.until(lambda: len(control.reports) == 2)
    (first, _), (second, _) = control.reports
    assert [first["confirm"], second["confirm"]] == [False, True]
    assert first["version"] == second["version"] == 1
    assert len(set(seeds)) == len(seeds)


def test_seeds_of_evaluations_never_equal_those_of_training(
    scene: tuple[Stage, ControlPeer],
) -> None:
    stage, _ = scene
    seeds: dict[str, list[int]] = {}
    for mode in ("train", "evaluate", "act"):
        for _ in range(3):
            client = Client(stage)
            seeds.setdefault(mode, []).append(client.hello(mode=mode)["seed"])
            client.ask(kind="bye")
    assert {seed % 2 for seed in seeds["evaluate"]} == {1}
    assert {seed % 2 for seed in seeds["train"] + seeds["act"]} == {0}


def test_an_evaluation_without_sessions_is_given_up(scene: tuple[Stage, ControlPeer]) -> None:
    stage, control = scene
    client = player(stage)
    play(client)
    client.ask(kind="bye")
    stage.learner.publish()
    stage.rig.pass_time(1.5)
    client = player(stage)
    assert [play(client)["version"] for _ in range(EPISODES)] == [2] * EPISODES
    stage.rig.until(lambda: control.reports)
    assert control.reports[0][0]["version"] == 2


def test_sessions_of_several_environments_take_a_ticket_for_each_episode() -> None:
    with evaluating(num_envs=2) as (stage, control):
        client = stage.client(mode="evaluate", num_envs=2)
        assert client.request("reset", observation=[[0, 0], [1, 0]])["version"] == 1

        def step(reward: list[float], ended: list[bool]) -> dict[str, Any]:
            none = [False, False]
            fields = {"reward": reward, "terminated": ended, "truncated": none}
            return client.request("step", observation=[[0, 1], [1, 1]], **fields)

        step([2.0, 1.0], [True, False])
        # The third ticket: stream 0 begins again.
        step([0.0, 1.0], [False, False])
        step([3.0, 1.0], [True, False])
        # There is none for its next episode, which is played and does not count.
        step([0.0, 1.0], [False, False])
        step([50.0, 0.0], [True, False])
        client.seq += 1
        no = {"terminated": [False, True], "truncated": [False, False]}
        client.send(
            kind="step", seq=client.seq, observation=[[0, 1], [1, 1]], reward=[0.0, 6.0], **no
        )
        stage.rig.until(lambda: control.reports)
        score = control.reports[0][0]
        assert (score["mean_return"], score["max_return"]) == (5.0, 10.0)


def test_a_score_that_the_learner_refuses_ends_no_session(
    scene: tuple[Stage, ControlPeer],
) -> None:
    stage, control = scene
    control.refusal = "of another run"
    trainer, client = stage.client(), player(stage)
    for _ in range(EPISODES):
        play(client)
    stage.rig.pass_time(0.5)
    assert trainer.request("reset")["kind"] == "action"

    def logged() -> bool:
        texts = [record.get("text", "") for record in stage.rig.records]
        return any("refuses a score: of another run" in text for text in texts)

    stage.rig.until(logged)


def test_a_session_that_waits_for_an_evaluation_does_not_delay_the_end(
    scene: tuple[Stage, ControlPeer],
) -> None:
    stage, control = scene
    client = player(stage)
    for _ in range(EPISODES):
        play(client)
    stage.rig.until(lambda: control.reports)
    reset(client)
    stage.rig.pass_time(0.1)
    stage.frame.context.stopping = True
    goodbye = client.next()
    assert (goodbye["kind"], goodbye["reason"]) == ("goodbye", "draining")
