"""An algorithm is found by name, by dotted path, or in a file of one's own."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from session.config import named_code
from session.errors import ConfigError
from surreal_like.algorithm.catalog import describe_algorithms, list_algorithms
from surreal_like.algorithm.registry import find_algorithm
from surreal_like.replay.replay import load_replay_class
from tests.surreal_like.algorithm.unrolls import configs

OWN_FILE = """
from surreal_like import Agent, Algorithm, Learner

class Mine(Algorithm):
    agent = Agent
    learner = Learner
    replay = "my_replay:MyReplay"
"""


@pytest.fixture(autouse=True)
def forgets_files() -> Iterator[None]:
    """Forgets loaded files: pytest may give the folder of a test to the next one."""
    yield
    for name in [each for each in sys.modules if each.startswith(named_code.OWN_FILE)]:
        del sys.modules[name]


def write(folder: Path, text: str, name: str = "mine.py") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_every_registered_algorithm_is_found() -> None:
    for name, dotted in list_algorithms().items():
        assert find_algorithm(name) is find_algorithm(dotted)
    assert find_algorithm("dqn").__name__ == "DQN"


def test_the_description_of_an_algorithm_is_true() -> None:
    for name, entry in describe_algorithms().items():
        algorithm = find_algorithm(name)
        assert entry.actions == algorithm.actions
        kind = load_replay_class({"replay": {"type": algorithm.replay}})
        assert entry.learns_from == kind.gives()
        assert entry.bounded == algorithm.bounded
        assert bool(entry.memory) == ("memory" in algorithm.default_config().model)
        for replay in entry.replay:
            found = load_replay_class({"replay": {"type": replay}})
            algorithm.check_replay({"replay": {"type": f"{found.__module__}:{replay}"}})


@pytest.mark.parametrize("name", [n for n, each in describe_algorithms().items() if each.memory])
def test_memories_that_are_described_are_there(name: str) -> None:
    algorithm = find_algorithm(name)
    for kind in describe_algorithms()[name].memory:
        learner = {"model": {"hidden_sizes": [4], "memory": kind}}
        options = configs(algorithm, learner=learner)
        agent = algorithm.agent(**options, agent_id=0, agent_mode="training")
        assert agent.initial_state(2) is not None


def test_a_file_is_found_by_its_path_and_loaded_once(tmp_path: Path) -> None:
    path = write(tmp_path, OWN_FILE)
    mine = find_algorithm(path)
    assert mine.replay == "my_replay:MyReplay"
    assert find_algorithm(path) is mine
    assert find_algorithm(f"{path}:Mine") is mine


def test_equal_file_names_in_two_folders_are_two_modules(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    one = find_algorithm(write(tmp_path, OWN_FILE))
    two = find_algorithm(write(tmp_path / "other", OWN_FILE))
    assert one is not two


def test_what_a_file_imports_is_not_taken_for_its_own(tmp_path: Path) -> None:
    text = "from surreal_like.algorithm.algorithm import Algorithm\n"
    text += "class Base(Algorithm): agent = learner = 1\n"
    text += "from surreal_like.algorithm.registry import find_algorithm\n"
    text += f"Other = find_algorithm({write(tmp_path, OWN_FILE, 'other.py')!r})\n"
    assert find_algorithm(write(tmp_path, text)).__name__ == "Base"


@pytest.mark.parametrize("made", ["DQN.with_updates('A')", "build_algorithm('A', base=DQN)"])
def test_an_algorithm_without_a_function_is_of_the_file_that_makes_it(
    tmp_path: Path, made: str
) -> None:
    text = "from surreal_like import build_algorithm\n"
    text += f"from surreal_like.algorithm.dqn import DQN\nA = {made}\n"
    assert find_algorithm(write(tmp_path, text)).__name__ == "A"
    with pytest.raises(ConfigError, match=r"found \S*two\.py:A, \S*two\.py:B"):
        find_algorithm(write(tmp_path, text + "B = DQN.with_updates('B')\n", "two.py"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("dqm", r"unknown algorithm 'dqm': did you mean dqn\? There are .*ddpg, dqn"),
        ("sarsa", r"unknown algorithm 'sarsa': There are .* package\.module:Class .* \.py file"),
        ("no_such_package.module:Mine", r"cannot be imported: No module named .no_such"),
        ("surreal_like.algorithm.registry:DQN", r"has no Algorithm 'DQN'"),
        ("nowhere/mine.py", r"'nowhere/mine.py': there is no such file \(/"),
    ],
)
def test_an_algorithm_that_is_not_there_is_refused(name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        find_algorithm(name)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1", "expected one class that extends Algorithm, found none"),
        (OWN_FILE + "class Second(Algorithm): pass", r"found \S*mine\.py:Mine, \S*mine\.py:Second"),
        (OWN_FILE.replace("learner = L", "x = L"), r"mine\.py': Mine names no learner"),
        ("def f(:\n", r"cannot be loaded: SyntaxError: .*mine\.py, line 1"),
        ("\nx = undefined\n", r"NameError: name 'undefined' is not defined \(.*mine\.py, line 2\)"),
        ("from surreal_like import ConfigError\nraise ConfigError('mine')", r"^mine$"),
    ],
)
def test_a_file_that_is_no_algorithm_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = write(tmp_path, text)
    before = set(sys.modules)
    with pytest.raises(ConfigError, match=words):
        find_algorithm(path)
    if "Error" in words:
        assert not [name for name in set(sys.modules) - before if "mine" in name]


def test_a_misspelt_class_of_a_file_is_refused_with_the_nearest(tmp_path: Path) -> None:
    path = write(tmp_path, OWN_FILE)
    with pytest.raises(ConfigError, match=r"has no Algorithm 'Mane'; did you mean Mine\?"):
        find_algorithm(f"{path}:Mane")
