"""The package as a user meets it: names, version, help, and errors that say what to do."""

import re
import subprocess
import sys
from collections.abc import Callable
from inspect import getdoc
from typing import Any

import pytest

import surreal_like
from session.config import Config
from session.config.defaults import BASE_CONFIG
from session.config.merge import paths
from session.version import VERSION
from surreal_like import Agent, Learner, Replay, TupleReplay
from surreal_like.experiment.resolve import defaults
from surreal_like.other_libraries import NAMES_ELSEWHERE
from tests.add_ons import needs
from tests.test_layers import ROOT


def test_it_has_a_version() -> None:
    assert surreal_like.__version__ == VERSION


@pytest.mark.parametrize("name", surreal_like.__all__)
def test_every_public_name_loads_and_is_documented(name: str) -> None:
    value = getattr(surreal_like, name)
    assert isinstance(value, Config) or getdoc(value)
    assert name in dir(surreal_like)


@needs("tuning")
@needs("analysis")
def test_functions_are_not_hidden_by_modules() -> None:
    code = (
        "import surreal_like.addons.analysis.evaluate, surreal_like.addons.analysis.play\n"
        "import surreal_like.addons.analysis.plot, surreal_like.addons.tuning.space_and_mutation\n"
        "from surreal_like import *\n"
        "print(*(callable(each) for each in (evaluate, play, plot, train, launch, tune)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"] * 6


def test_default_configs_are_copies() -> None:
    config = surreal_like.BASE_LEARNER_CONFIG
    config.algo.gamma = 0.5
    assert surreal_like.BASE_LEARNER_CONFIG.algo.gamma == 0.99


def test_help_begins_with_one_page_that_has_what_to_call_first_and_every_name() -> None:
    text = getdoc(surreal_like) or ""
    assert text.index("run = train(") < text.index("Run an experiment")
    assert len(text.splitlines()) <= 50, "one page"
    words = re.findall(r"\w+", text.partition("Run an experiment")[2])
    assert [name for name in surreal_like.__all__ if name not in words] == []


@pytest.mark.parametrize(
    ("wrong", "meant"), [("trian", "train"), ("Learnr", "Learner"), ("FifoReplay", "FIFOReplay")]
)
def test_a_misspelt_name_suggests_the_nearest(wrong: str, meant: str) -> None:
    with pytest.raises(
        AttributeError, match=f"'{wrong}'; the nearest public name is {meant}$"
    ) as e:
        getattr(surreal_like, wrong)
    assert (e.value.name, e.value.obj) == (wrong, surreal_like)
    with pytest.raises(AttributeError, match=r"has no attribute 'zzzzzz'$"):
        getattr(surreal_like, "zzzzzz")  # noqa: B009  (a type checker finds it)


@pytest.mark.parametrize(
    ("package", "name", "words"),
    [
        ("surreal_like", "trian", "the nearest public name is train"),
        ("surreal_like", "IMPALA", "write Impala, or train(algorithm='impala', ...)"),
        ("surreal_like", "A2C", "use the algorithm a3c with learner_config.gradients_at=learner"),
        ("surreal_like", "ReplayBuffer", "use UniformReplay and learner_config.replay; docs/com"),
        ("surreal_like.network", "Torsos", "the nearest public name is Torso"),
    ],
)
def test_an_import_of_a_name_that_is_not_there_gets_the_hint(
    package: str, name: str, words: str
) -> None:
    # `from PACKAGE import NAME`
    with pytest.raises(ImportError) as refused:
        __import__(package, fromlist=[name])
    assert words in str(refused.value)
    assert __import__("surreal_like", fromlist=["replay"]).replay  # a package below


def test_a_terminal_shows_the_hint() -> None:
    code = "from surreal_like import SubprocVecEnv"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    [*_, line] = done.stderr.splitlines()
    assert line.startswith("ImportError: ")
    assert "use env_config.num_envs and session_config.agent.num; docs/coming_from.md" in line


@pytest.mark.parametrize(("name", "ours"), NAMES_ELSEWHERE.items())
def test_each_name_of_another_library_has_something_here(name: str, ours: str) -> None:
    assert name not in surreal_like.__all__
    known = {*surreal_like.__all__, *paths(BASE_CONFIG), *paths(defaults("ppo"))}
    for each in ours.split(" and "):
        assert each in known or (ROOT / each).is_file(), each


@pytest.mark.parametrize(
    ("owner", "call", "method"),
    [
        (Agent, lambda each: each.act(None), "act(obs)"),
        (Agent, lambda each: each.module_dict(), "module_dict()"),
        (Learner, lambda each: each.loss(None), "loss(batch) or learn(batch)"),
        (Learner, lambda each: each.module_dict(), "module_dict()"),
        (Replay, lambda each: each.insert(None), "insert(experience)"),
        (Replay, lambda each: each.sample(3), "sample(batch_size)"),
        (TupleReplay, lambda each: each.sample(3), "sample(batch_size)"),
    ],
)
def test_what_an_author_must_write_is_named(
    owner: type[Any], call: Callable[[Any], Any], method: str
) -> None:
    bare: Any = object.__new__(type("Mine", (owner,), {}))
    with pytest.raises(NotImplementedError) as refused:
        call(bare)
    page = "your_own_replay.md" if issubclass(owner, Replay) else "your_own_algorithm.md"
    assert str(refused.value) == f"Mine must implement {method}: see docs/{page}"
