"""Environments of EnvPool."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from session.errors import ConfigError, SurrealError
from surreal_like.env.vector import make_vector_env


@pytest.mark.parametrize("name", ["envpool:CartPole-v1", "envpool:CartPol-v1"])
def test_envpool(name: str) -> None:
    pytest.importorskip("envpool")
    if name.endswith("CartPol-v1"):
        with pytest.raises(ConfigError, match="no envpool:CartPol-v1; did you mean envpool:Cart"):
            make_vector_env({"env_name": name}, num_envs=2, seed=0)
        return
    config = {"env_name": name, "limit_episode_length": 5}
    with contextlib.closing(make_vector_env(config, num_envs=2, seed=0)) as env:
        first, _ = env.reset()
        rows = [env.step(np.array([0, 1])) for _ in range(6)]
    assert [bool(row[3].all()) for row in rows] == [False] * 4 + [True, False]
    assert rows[5][1].tolist() == [0.0, 0.0]
    with contextlib.closing(make_vector_env(config, num_envs=2, seed=0)) as env:
        np.testing.assert_array_equal(env.reset()[0], first)


def test_without_envpool_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "envpool", None)
    with pytest.raises(SurrealError, match=r"envpool:Pong-v5.*\[envpool\]"):
        make_vector_env({"env_name": "envpool:Pong-v5"}, num_envs=2, seed=0)
