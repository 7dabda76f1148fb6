"""Environments of this library as clients of a gateway."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

from session.config.defaults import BASE_ENV_CONFIG
from session.config.named_code import folders_of, named_places
from session.errors import SurrealError, UsageError
from session.process.seeding import seed_globals
from surreal_like.addons.gateway.clients.surreal_client import (
    Finished,
    InvalidAddress,
    Refused,
    Session,
    Unavailable,
    connect,
)
from surreal_like.env.environment import Env
from surreal_like.env.registry import make_env
from surreal_like.env.step_results import step_values

# Gymnasium's render mode in which an environment has a window of its own.
_WINDOW = "human"


def drive(
    address: str,
    env_name: str,
    *,
    episodes: int = 0,
    render: bool = False,
    say: Callable[[str], object] = lambda line: None,
    **options: Any,
) -> int:
    """Plays an environment for a gateway until its run is over.

    Args:
        address: Address ``host:port`` of the gateway.
        env_name: Environment, such as ``gym:CartPole-v1``.
        episodes: Number of episodes to play; 0: until the run is over.
        render: True shows the environment in a window.
        say: Function called with a line for each episode.
        options: Options of :func:`~surreal_like.addons.gateway.clients.surreal_client.connect`.

    Returns:
        The number of episodes that were played.

    Raises:
        ConfigError: there is no such environment.
        UsageError: the gateway refuses this client, or the environment has other specs, or no
            window.
        SurrealError: the gateway cannot be reached any more.
    """
    played = 0
    try:
        with closing(_make(env_name, render=render)) as env, connect(address, **options) as session:
            for episode in session.episodes():
                if 0 < episodes <= played:
                    break
                env.seed(episode.seed)
                seed_globals(episode.seed)
                total, length = _play(env, session)
                played += 1
                say(f"episode {played}: return {total:g} in {length} steps")
    except Finished:
        # Before the first episode.
        pass
    except InvalidAddress as error:
        raise UsageError(str(error)) from None
    except Refused as error:
        raise UsageError(f"{address}: {error}") from None
    except Unavailable as error:
        reason = str(error).removeprefix(f"{address}: ")
        raise SurrealError(f"{address} cannot be reached: {reason}") from None
    return played


def _make(env_name: str, *, render: bool) -> Env:
    env_config = BASE_ENV_CONFIG.copy()
    env_config.env_name = env_name
    sys.path.extend(folders_of(named_places({"env_config": env_config}), []))
    env = make_env(env_config)
    if not render:
        return env
    modes = list(env.metadata.get("render_modes") or ())
    env.close()
    if _WINDOW not in modes:
        there = ", ".join(map(str, modes)) or "none"
        raise UsageError(f"{env_name} has no window: its render modes are {there}; omit --render")
    env_config.env_args = {"render_mode": _WINDOW}
    return make_env(env_config)


def _play(env: Env, session: Session) -> tuple[float, int]:
    """Plays one episode; returns its return and its length."""
    obs, _ = env.reset()
    action = session.reset(encode_obs(obs))
    while True:
        obs, reward, terminated, truncated, info = step_values(env.step(action))
        metrics = info.get("metrics")
        if terminated or truncated:
            result = session.end(
                reward,
                encode_obs(obs),
                truncated=truncated and not terminated,
                metrics=metrics,
            )
            return result.total, result.length
        action = session.step(reward, encode_obs(obs), metrics=metrics)


def encode_obs(obs: Any) -> Any:
    """Returns a nest of arrays in the form of the protocol: a tuple has the keys "0", "1"."""
    if isinstance(obs, tuple):
        return {str(index): encode_obs(each) for index, each in enumerate(obs)}
    if isinstance(obs, dict):
        return {key: encode_obs(each) for key, each in obs.items()}
    return obs


def drive_in_processes(number: int, words: Sequence[str], secrets: Mapping[str, str]) -> int:
    """Runs ``surreal-like client`` in several processes; returns the largest exit code.

    Args:
        number: Number of processes.
        words: Arguments of the command, which other users of this machine can see.
        secrets: Variables of their environment.
    """
    command = [sys.executable, "-P", "-m", "main.cli", "client", *words]
    environment = {**os.environ, **secrets}
    processes = [subprocess.Popen(command, env=environment) for _ in range(number)]
    try:
        return max(process.wait() for process in processes)
    except KeyboardInterrupt:
        # They have got the signal, too, and say goodbye.
        for process in processes:
            process.wait()
        raise
