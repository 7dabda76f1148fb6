"""Every row that was pushed is found again: at a clean stop, over cuts, over a killed replay."""

import os
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.proxy import Proxy
from tests.runs.by_hand import ByHand
from tests.runs.command import CARTPOLE, Record, Train, clean
from tests.session.tensorplex.reading import scalars

TCP = "session_config.launcher.transport=tcp"
OFTEN = "session_config.tensorplex.update_schedule=0.1"
# Acting, not learning, is to set the pace, so that chunks are under way when a connection is lost.
FEW = "learner_config.replay.samples_per_insert=8"


def resent(folder: Path, agent: str) -> int:
    """How many chunks an agent has sent again, as far as it has told."""
    points = scalars(folder / "tensorboard", f"agent.core/resent_chunks:agent-{agent}")
    return int(max(value for _, _, value in points))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("words", [("--agents", "3", "learner_config.replay.replay_shards=2")])
def test_two_shards_and_three_agents(run_folder: Path, words: tuple[str, ...]) -> None:
    stop = "session_config.stop={env_steps: 6000, eval_episodes: 10}"
    with Train(run_folder, CARTPOLE, *words, stop) as train:
        assert train.wait(180) == 0, train.words
    assert clean(train.result)
    assert train.result["experience"]["pushed"] == train.line["replay"]["size"]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", ["cut", "hold"])
def test_a_connection_that_is_lost_and_healed_leaves_no_hole(run_folder: Path, fault: str) -> None:
    stop = "session_config.stop={env_steps: 40000, eval_episodes: 10}"
    with ByHand(run_folder, stop, TCP, OFTEN, FEW, "learner_config.replay.capacity=100000") as run:
        book = run.addresses()
        endpoints = ("replay-0.experience", "replay-0.acks")
        with Proxy(book[endpoints[0]]) as experience, Proxy(book[endpoints[1]]) as acks:
            for endpoint, proxy in zip(endpoints, (experience, acks), strict=True):
                run.redirect(endpoint, proxy.address)
            run.start()
            for number in range(1, 6):
                run.steps(3000 * number)
                lose(run, fault, *(experience, acks)[: 1 + number % 2])
            ends = run.wait(180)
    assert set(ends.values()) == {0}
    assert clean(run.result)
    accounts = run.result["experience"]
    # Nothing has been evicted, so whatever was stored twice would be too many here.
    assert run.line["replay"]["evicted"] == 0
    assert run.line["replay"]["size"] == accounts["inserted"] == accounts["pushed"]
    assert sum(resent(run_folder, agent) for agent in "01") > 0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_slow_network_loses_nothing_and_ends_nothing(
    run_folder: Path, record_property: Record
) -> None:
    """All that goes from one component to another is on its way for 200 ms."""
    stop = "session_config.stop={env_steps: 4000, eval_episodes: 10}"
    with ByHand(run_folder, stop, TCP) as run, ExitStack() as stack:
        for endpoint, address in run.addresses().items():
            if endpoint != "supervisor.control":
                proxy = stack.enter_context(Proxy(address, delay_seconds=0.2))
                run.redirect(endpoint, proxy.address)
        run.start()
        ends = run.wait(180)
    assert set(ends.values()) == {0}
    assert clean(run.result)
    assert run.line["replay"]["size"] == run.result["experience"]["pushed"]
    assert not [event for event in run.events if event["event"] in ("lost", "rows_lost", "refused")]
    record_property("seen", f"200 ms: {run.result['experience']['pushed']} rows, each once")


def lose(run: ByHand, fault: str, *proxies: Proxy) -> None:
    """Loses connections until the run stands still, and heals them."""
    for proxy in proxies:
        made = proxy.connections
        if fault == "hold":
            proxy.hold()
        else:
            proxy.cut()
        run.quiet()
        proxy.cut()
        proxy.heal()
        run.until(lambda: proxy.connections >= made + 2)  # noqa: B023 - called at once


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_chunks_of_a_killed_replay_are_sent_again(run_folder: Path) -> None:
    stop = "session_config.stop={env_steps: 12000, eval_episodes: 10}"
    with Train(run_folder, CARTPOLE, OFTEN, stop) as train:
        train.steps(3000)
        replay = train.running_beat("replay-0")
        # It takes nothing any more, so that chunks are under way when it dies.
        os.kill(replay.pid, signal.SIGSTOP)
        train.quiet()
        before = train.line["experience"]
        train.kill("replay-0")
        assert train.wait(180) == 0, train.words
    result = train.result
    assert result["components"]["replay-0"]["restarts"] == 1
    assert clean(result)
    assert sum(resent(run_folder, agent) for agent in "01") > 0
    # The new one has what was acked by the old one and what was not, and each row once.
    rows = result["experience"]
    assert before["inserted"] <= train.line["replay"]["size"] <= rows["pushed"]
    assert rows["lost"] == 0
