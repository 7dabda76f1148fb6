"""Builds the objects of a run's components, before any component is started.

Settings that an agent, a learner or a replay rejects are then reported at once, in one line, and no
run folder is made. An error in their code is left to the run, which reports it with its traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

import torch

from session.addons import hooks
from session.config import Config
from session.config.sections import sections_of
from session.errors import ConfigError, SurrealError
from session.process.script import outside_a_run
from surreal_like.agent.base import AgentMode
from surreal_like.agent.fetcher import parse_mode
from surreal_like.algorithm.base import Algorithm
from surreal_like.algorithm.on_policy import check_synchronous
from surreal_like.algorithm.registry import find_algorithm
from surreal_like.dataflow.flow import Flow
from surreal_like.experience.writer import check_sender
from surreal_like.experiment.checkpoints import checkpoint_of
from surreal_like.experiment.machine import replay_need
from surreal_like.experiment.plan_check import check_plan
from surreal_like.learner.base import Learner
from surreal_like.learner.saver import PARAMETERS
from surreal_like.network.files import read_parameters
from surreal_like.replay.base import load_replay_class

_Built = TypeVar("_Built")


def rehearse(config: Config, algorithm: type[Algorithm], *, starts_here: bool) -> None:
    """Builds one agent, the learner and one replay, all on the CPU, and discards them.

    Args:
        config: the resolved experiment; gets `learner_config.gradient_columns`.
        algorithm: named in the config.
        starts_here: True if the learner will run on this machine, so its device must exist here.

    Raises:
        ConfigError: one of them rejects a setting.
        MissingExtra: one of them needs a package that is not installed here.
    """
    check_device(config.learner_config.device, must_be_here=starts_here)
    parse_mode(config.session_config.agent.fetch_parameter_mode)
    given, config = config, config.copy()
    config.learner_config.device = "cpu"
    configs = sections_of(config)
    replay = load_replay_class(config.learner_config)
    # Networks use the global generator: later code must find its state unchanged.
    with torch.random.fork_rng(devices=[]), outside_a_run():
        agent = _try(lambda: algorithm.agent(**configs, agent_id=0, agent_mode=AgentMode.training))
        synchronous = agent is not None and agent.synchronous
        for check in hooks("check"):
            check(config, replay, synchronous=synchronous, here=starts_here)
        if synchronous:
            check_synchronous(**configs, gives=replay.gives())
        learner = _try(lambda: algorithm.learner(**configs))
        start_from = config.session_config.checkpoint.start_from
        if start_from and learner is not None:
            _check_start(learner, start_from)
        if learner is not None:
            columns = check_plan(learner, agent, replay, config)
            config.learner_config.gradient_columns = columns
            given.learner_config.gradient_columns = columns
        sender, streams = config.session_config.sender, config.env_config.num_envs
        _try(lambda: check_sender(sender, streams, replay.overlap))
        _try(lambda: replay(**configs).check_start(replay_need(config).row_bytes))


def flow_of(config: Config) -> Flow | None:
    """Returns the execution plan of a resolved experiment, to be shown; None if a bug prevents it.

    Builds the learner on the CPU.

    Raises:
        ConfigError: the learner or the plan rejects a setting.
    """
    paths = config.session_config.import_path
    sys.path.extend(path for path in paths if path not in sys.path)
    config = config.copy()
    config.learner_config.device = "cpu"
    with torch.random.fork_rng(devices=[]), outside_a_run():
        return _try(lambda: find_algorithm(config.algorithm).learner(**sections_of(config)).flow)


def _check_start(learner: Learner, start_from: str) -> None:
    path = checkpoint_of(start_from)
    try:
        read_parameters(learner.module_dict(), path / PARAMETERS)
    except SurrealError as error:
        raise ConfigError(f"cannot start from {path}: {error}") from None


def _try(build: Callable[[], _Built]) -> _Built | None:
    try:
        return build()
    except SurrealError as error:
        raise ConfigError(str(error)) from None
    except Exception:  # noqa: BLE001 - the run reports a bug or a lack of memory better
        return None


def check_device(name: str, *, must_be_here: bool) -> None:
    """Raises ConfigError for a device unknown to torch or, if required, missing on this machine."""
    if name == "auto":
        return
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(
            f"learner_config.device is '{name}', expected auto, cpu, cuda or cuda:1"
        ) from None
    if not must_be_here or device.type != "cuda":
        return
    count = torch.cuda.device_count()
    if (device.index or 0) >= count:
        raise ConfigError(
            f"learner_config.device is '{name}', but torch finds {count} CUDA devices here: set it "
            "to auto, or to cpu"
        )
