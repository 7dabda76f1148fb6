"""`surreal-like client`: environments of this library as clients."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from main.addons.gateway import client
from main.addons.join import join
from main.cli import main
from session.errors import ConfigError, SurrealError, UsageError
from surreal_like.addons.gateway import driving
from surreal_like.addons.gateway.clients import surreal_client
from surreal_like.addons.gateway.driving import drive, encode_obs
from surreal_like.env.registry import make_env
from tests.addons.gateway.rig import Stage, make_stage
from tests.addons.gateway.test_surreal_client import Playing
from tests.drawing import draw
from tests.surreal_like.agent.rig import Count

FILES = Path(surreal_client.__file__).parent
ENV = "tests.surreal_like.agent.rig:Count"
COMMAND = [sys.executable, "-m", "main.cli", "client"]
# The processes of the command do not look for modules in the working folder.
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}


def test_an_environment_is_played_as_an_agent_plays_it(stage: Stage) -> None:
    said: list[str] = []
    played = Playing(stage, lambda a: drive(a, ENV, episodes=3, say=said.append)).result()
    assert played == 3
    assert said == [f"episode {number}: return 6 in 3 steps" for number in (1, 2, 3)]
    assert stage.finish()["episodes"] == 3
    # Count ends by a termination and a truncation, in turn.
    ends = stage.replay.column("discount")[:, 0].tolist()[3::4]
    assert ends == [0.0, 1.0, 0.0]
    metrics = [each["metrics"] for chunk in stage.replay.chunks for each in chunk.finished]
    assert all(each.keys() == {"my/action"} for each in metrics)


def test_the_end_of_the_run_is_the_end_of_the_client(stage: Stage) -> None:
    playing = Playing(stage, lambda address: drive(address, ENV))
    stage.rig.until(lambda: stage.service._recorder.sender.episodes > 3)
    stage.learner.publish(final=True)
    assert playing.result() > 3


class Noting(Count):
    """Notes what the global generators give at the begin of each episode."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn: list[float] = []

    def reset(self) -> Any:
        self.drawn += draw()
        return super().reset()


def test_each_episode_of_one_seed_draws_the_same_from_the_global_generators(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn = []
    for _ in range(2):
        env = Noting()
        monkeypatch.setattr(driving, "make_env", lambda env_config, env=env: env)
        with make_stage() as stage:
            assert Playing(stage, lambda a: drive(a, "Noting", episodes=3)).result() == 3
        drawn.append(env.drawn[:6])
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) == 6


class Clock:
    """The time of a client, which passes only while it waits for the next attempt."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(surreal_client, "time", made)
    return made


class Held(Count):
    """Does its first step when the test allows it."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.allowed = threading.Event(), threading.Event()

    def step(self, action: int) -> Any:
        self.reached.set()
        assert self.allowed.wait(20.0)
        return super().step(action)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    made = Held()
    monkeypatch.setattr(driving, "make_env", lambda env_config: made)
    return made


def play(address: str) -> int:
    return main(["client", address, "--env", ENV])


def assert_gave_up(said: str, clock: Clock, address: str) -> None:
    error = f"surreal-like: error: {address} cannot be reached: [Errno "
    assert said.startswith(error)
    assert said.count(address) == said.count("\n") == 1
    # Its patience is 60 seconds; the last wait, of at most 10, would not have fitted.
    assert 50.0 <= clock.now <= 60.0


def test_a_client_that_comes_too_late_gives_up(
    clock: Clock, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert play("127.0.0.1:1") == 1
    assert_gave_up(capsys.readouterr().err, clock, "127.0.0.1:1")
    # Said at once, and once: a minute without a word would look like a program that hangs.
    assert re.fullmatch(
        r"127\.0\.0\.1:1: \[Errno \d+\] Connection refused; trying again for 60 s",
        "\n".join(caplog.messages),
    )


def test_a_gateway_that_is_gone_without_goodbye_is_given_up(
    stage: Stage, held: Held, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"127.0.0.1:{stage.port}"
    playing = Playing(stage, play)
    stage.rig.until(held.reached.is_set)
    stage.listener.close()
    held.allowed.set()
    playing.join(20.0)
    assert playing.result() == 1
    assert_gave_up(capsys.readouterr().err, clock, address)


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("closed", [False, True])
def test_a_goodbye_that_crosses_a_step_is_a_good_end(
    stage: Stage, held: Held, capsys: pytest.CaptureFixture[str], *, closed: bool
) -> None:
    playing = Playing(stage, play)
    stage.rig.until(held.reached.is_set)
    stage.finish()
    if closed:
        # As at the end of the process: the step arrives where nothing listens.
        stage.listener.close()
    held.allowed.set()
    playing.join(20.0)
    assert playing.result() == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == ("0 episodes played\n", "")


def test_errors_of_driving_are_those_of_a_command(stage: Stage) -> None:
    for address, wanted, words in (
        ("nowhere", UsageError, "expected host:port"),
        ("127.0.0.1:1", SurrealError, "cannot be reached"),
    ):
        with pytest.raises(wanted, match=words):
            drive(address, ENV, patience_seconds=0.1)
    with pytest.raises(ConfigError, match="no environment"):
        drive("127.0.0.1:1", "nothing")
    with pytest.raises(UsageError, match="bad_hello"):
        Playing(stage, lambda address: drive(address, ENV, name="a b")).result()
    with pytest.raises(UsageError, match="bad_observation"):
        Playing(stage, lambda address: drive(address, "toy:bandit")).result()


def test_a_tuple_has_the_keys_of_the_protocol() -> None:
    one = np.zeros(2)
    assert encode_obs(one) is one
    assert encode_obs((one, {"a": (one,)})) == {"0": one, "1": {"a": {"0": one}}}


@pytest.mark.parametrize("words", [["--num", "0"], ["--episodes", "-1"], []])
def test_wrong_numbers_of_processes_and_episodes_are_refused(words: list[str]) -> None:
    env = ["--env", ENV] if words else []
    with pytest.raises(UsageError):
        client.run(["127.0.0.1:1", *env, *words])


@pytest.mark.slow
def test_several_processes_play_their_episodes(stage: Stage) -> None:
    words = [f"127.0.0.1:{stage.port}", "--env", ENV, "--num", "2", "--episodes", "2"]
    child = subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
    stage.rig.until(lambda: child.poll() is not None, seconds=60.0)
    said = child.communicate()[0]
    assert child.returncode == 0
    assert said.count("2 episodes played") == 2
    assert stage.finish()["episodes"] == 4


@pytest.mark.slow
def test_ctrl_c_says_goodbye(stage: Stage) -> None:
    words = [f"127.0.0.1:{stage.port}", "--env", ENV, "--num", "2"]
    child = subprocess.Popen(
        [*COMMAND, *words], stderr=subprocess.PIPE, start_new_session=True, env=ENVIRONMENT
    )
    # A client that has not read its welcome yet has no session to say goodbye to.
    stage.rig.until(lambda: sum(each.steps > 0 for each in stage.sessions) == 2, seconds=60.0)
    os.killpg(child.pid, signal.SIGINT)
    stage.rig.until(lambda: child.poll() is not None, seconds=60.0)
    assert child.returncode == 130
    assert child.communicate()[1] == b""
    stage.rig.until(lambda: len(stage.rig.events("client_left")) == 2)
    assert all(": bye," in each for each in stage.rig.events("client_left"))


def test_the_processes_get_all_options(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(driving, "drive_in_processes", lambda *given: seen.append(given))
    words = ["a:1", "--env", "x", "--num", "3", "--episodes", "2", "--mode", "act"]
    client.run([*words, "--token", "t", "--fingerprint", "f", "--render"])
    given = ["--env", "x", "--episodes", "2", "--mode", "act", "--name", ""]
    given += ["--fingerprint", "f", "--render"]
    # Everybody can see the arguments of a process, and only its user the environment.
    assert seen == [(3, ["a:1", *given], {"SURREAL_LIKE_TOKEN": "t"})]


def test_a_token_comes_from_an_option_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(driving, "drive", lambda *_, token, **more: seen.append(token))
    words = ["a:1", "--env", "x"]
    file = tmp_path / "token"
    file.write_text("of the file\n")
    file.chmod(0o600)
    monkeypatch.setenv("SURREAL_LIKE_TOKEN", "of the environment")
    for more in (["--token", "given"], ["--token-file", str(file)], []):
        client.run([*words, *more])
    monkeypatch.delenv("SURREAL_LIKE_TOKEN")
    client.run(words)
    assert seen == ["given", "of the file", "of the environment", ""]


@pytest.mark.parametrize("command", [client.run, join.run])
def test_a_file_of_a_token_that_cannot_be_meant_is_refused(
    command: Callable[[list[str]], int], tmp_path: Path
) -> None:
    file = tmp_path / "token"
    words = ["127.0.0.1:1", *(["--env", "x"] if command is client.run else [])]

    def refusal() -> str:
        with pytest.raises(UsageError) as caught:
            command([*words, "--token-file", str(file)])
        return str(caught.value)

    assert refusal() == f"--token-file {file}: No such file or directory"
    file.write_text("")
    file.chmod(0o600)
    assert refusal() == f"--token-file {file} is empty, expected a token"
    file.write_bytes(b"\xff\xfe")
    assert refusal() == f"--token-file {file}: it is no text"
    file.chmod(0o640)
    assert refusal() == f"--token-file {file}: others can read it: chmod 600 {file}"
    with pytest.raises(UsageError, match="not allowed with argument --token"):
        command([*words, "--token", "t", "--token-file", str(file)])


@pytest.mark.parametrize("language", ["python", "javascript", "cpp"])
def test_a_client_is_copied(
    language: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a" / "b"
    assert client.run(["--copy", language, str(folder)]) == 0
    copied = capsys.readouterr().out.split()
    assert sorted(copied) == sorted(str(each) for each in folder.iterdir())
    assert copied[0].startswith(str(folder / "surreal_client."))
    for each in folder.iterdir():
        assert each.read_text() == (FILES / each.name).read_text()
    with pytest.raises(UsageError, match="is there already"):
        client.run(["--copy", language, str(folder)])


def test_every_file_of_a_client_is_copied_by_some_language() -> None:
    named = {name for names in client._FILES.values() for name in names}
    there = {each.name for each in FILES.iterdir() if each.is_file()}
    assert named == there - {"__init__.py"}


def test_a_client_is_copied_to_no_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot copy to"):
        client.run(["--copy", "python", str(tmp_path / "file")])


def test_an_environment_has_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def connect(address: str, **options: Any) -> Any:
        raise surreal_client.Finished("finished")

    monkeypatch.setattr(driving, "connect", connect)

    def make(env_config: Any) -> Any:
        made.append(make_env(env_config))
        return made[-1]

    monkeypatch.setattr(driving, "make_env", make)
    assert drive("a:1", "gym:CartPole-v1", render=True) == 0
    assert [each.gym_env.render_mode for each in made] == [None, "human"]
    with pytest.raises(UsageError, match="toy:bandit has no window: its render modes are none"):
        drive("a:1", "toy:bandit", render=True)
