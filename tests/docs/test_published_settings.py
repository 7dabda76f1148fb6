"""Settings that are called those of a paper or of another project are, or the config says so.

`tests/golden/published_settings.json` is the table of what those sources say.
"""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from session.config import Config
from session.config.defaults import BASE_CONFIG
from surreal_like.experiment.read import read_experiment
from surreal_like.experiment.resolve import defaults, extend_user

ROOT = Path(__file__).resolve().parents[2]
TABLE = json.loads((ROOT / "tests" / "golden" / "published_settings.json").read_text())
CONFIGS = TABLE["configs"]
# Words of a comment that claim settings of somebody else.
CLAIM = re.compile(
    r"paper(?!, scissors)|zoo\b|cleanrl|rl_games|stable-baselines|published|publishes|et al\.", re.I
)
# Words of a claim that the config itself takes back.
OURS = "The settings are ours"


def config_file(name: str) -> Path:
    return next((ROOT / "configs").rglob(f"{name}.yaml"))


def comments(name: str) -> str:
    """Return all comments of a config, as one line."""
    lines = config_file(name).read_text().splitlines()
    found = [line.partition("#")[2].strip() for line in lines if "#" in line]
    return " ".join(found)


def complete(name: str) -> Config:
    user = read_experiment(config_file(name))
    return extend_user(user, defaults(user.algorithm).extend(BASE_CONFIG, abstract=True))


def ours(config: Config, key: str) -> Any:
    """Return the value of a dotted key, or of a word for a number that no key has."""
    algo, rows = config.learner_config.algo, config.learner_config.replay.batch_size
    batch = rows * config.session_config.sender.flush_iteration
    if key == "rows of a batch":
        return batch
    if key == "rows of a minibatch":
        return batch // algo.minibatches
    if key == "rewards normalized":
        return algo.normalize_rewards
    value: Any = config
    for part in key.split("."):
        value = value[part]
    return value


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_has_what_it_claims(name: str) -> None:
    config, claim = complete(name), CONFIGS[name]
    wrong = [
        f"{key} is {ours(config, key)}, {claim['source']} has {published}"
        for key, published in claim["values"].items()
        if (ours(config, key) == published) == (key in claim["differs"])
    ]
    assert not wrong, "\n".join(wrong)
    said = comments(name)
    assert [words for words in claim["differs"].values() if words not in said] == []
    assert claim["differs"].keys() <= claim["values"].keys()


def test_every_config_that_claims_something_is_in_the_table() -> None:
    claiming = {
        path.stem
        for path in (ROOT / "configs").rglob("*.yaml")
        if CLAIM.search(comments(path.stem)) and OURS not in comments(path.stem)
    }
    assert claiming == CONFIGS.keys()


def test_the_peer_has_what_the_zoo_publishes() -> None:
    path = ROOT / "benchmarks" / "peers" / "sb3.py"
    [settings] = [
        node.value
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "SETTINGS"
    ]
    assert isinstance(settings, ast.Dict)
    assert [ast.literal_eval(key) for key in settings.keys if key] == list(TABLE["peers"])
    for given, claim in zip(settings.values, TABLE["peers"].values(), strict=True):
        assert isinstance(given, ast.Dict)
        found = {ast.literal_eval(key): value(each) for key, each in pairs(given)}
        assert found == claim["values"], claim["source"]


def pairs(given: ast.Dict) -> list[tuple[ast.expr, ast.expr]]:
    return [(key, each) for key, each in zip(given.keys, given.values, strict=True) if key]


def value(node: ast.expr) -> Any:
    """Return a literal; schedules and noise as rl-baselines3-zoo writes them."""
    text = ast.unparse(node)
    if line := re.fullmatch(r"lambda left: ([0-9.e-]+) \* left", text):
        return f"lin_{float(line[1])}"
    if noise := re.fullmatch(
        r"NormalActionNoise\(np\.zeros\(1\), ([0-9.]+) \* np\.ones\(1\)\)", text
    ):
        return f"normal {noise[1]}"
    found = ast.literal_eval(node)
    return list(found) if isinstance(found, tuple) else found


def test_every_shipped_experiment_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    names = [path.name for path in (ROOT / "configs").glob("*.yaml")]
    assert [name for name in names if f"`{name}`" not in index] == []
