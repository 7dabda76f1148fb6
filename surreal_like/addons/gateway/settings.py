"""Settings of gateways that are refused before a run is started."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from session.addons.gateway.client_tokens import check_address
from session.config import Config
from session.errors import ConfigError, MissingExtra
from surreal_like.data.frames import frame_spec, stack_size
from surreal_like.data.spec import parse_action_spec, parse_obs_spec

# Name of an environment that nothing here can build.
REMOTE = "remote"


def check_gateway(config: Config, replay: Any, *, synchronous: bool, here: bool) -> None:
    """Rejects settings that contradict each other where there are gateways.

    Args:
        config: resolved experiment.
        replay: class of the replay; its ``overlap`` is 1 if it takes whole unrolls.
        synchronous: True if agents wait for a version after each unroll.
        here: True if gateways start on this machine.

    Raises:
        ConfigError: names both settings.
        MissingExtra: a page needs a package that is not installed here.
    """
    gateway, env = config.session_config.gateway, config.env_config
    if not gateway.num:
        return
    if synchronous:
        raise ConfigError(
            f"session_config.gateway.num is {gateway.num}, but learner_config.algo.synchronous is "
            "true: clients come and go, so a batch might never fill; set synchronous to false"
        )
    if replay.overlap and gateway.num_envs != env.num_envs:
        raise ConfigError(
            f"session_config.gateway.num_envs is {gateway.num_envs}, but env_config.num_envs is "
            f"{env.num_envs}: this replay takes unrolls of one width; set both to the same number"
        )
    if env.info_keys:
        raise ConfigError(
            f"env_config.info_keys is {list(env.info_keys)}, but clients of a gateway send no "
            "info: leave it empty"
        )
    if here and gateway.page and find_spec("websockets") is None:
        raise MissingExtra.named("session_config.gateway.page", "gateway")
    check_address(gateway, insecure=config.session_config.security.insecure)


def remote_specs(
    user: Config, config: Config
) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """Returns observation and action spec of an experiment whose environments are all clients.

    Args:
        user: settings of the user; without ``num_envs`` there are those of a gateway.
        config: resolved experiment; with ``env_name: remote`` its ``env_config`` has both specs.

    Returns:
        The specs; None if something else is the environment.

    Raises:
        ConfigError: something of the run would have to build the environment.
        SpecError: a spec is missing or wrong.
    """
    env, session = config.env_config, config.session_config
    if env.env_name != REMOTE:
        return None
    if "num_envs" not in user.env_config:
        # Sessions of clients are the only streams that there are.
        env.num_envs = session.gateway.num_envs
    for key in ("obs_spec", "action_spec"):
        if not env[key]:
            raise ConfigError(
                f"env_config.{key} is empty, but env_name remote builds no environment that has "
                "one: write it; surreal-like list environments --specs NAME prints that of a "
                "similar environment"
            )
    for key in ("agent", "evaluator"):
        if session[key].num:
            raise ConfigError(
                f"session_config.{key}.num is {session[key].num}, but with env_name remote only "
                "clients have the environment: set it to 0"
            )
    if not session.gateway.num:
        raise ConfigError(
            "session_config.gateway.num is 0, but with env_name remote clients step the "
            "environment: set it to 1 or more"
        )
    parse_obs_spec(env.obs_spec)
    frame_spec(env.obs_spec, stack_size(env))
    parse_action_spec(env.action_spec)
    return env.obs_spec, env.action_spec
