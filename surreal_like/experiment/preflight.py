"""Builds the objects of a run's components, before any component is started.

Settings that an agent, a learner or a replay rejects are then reported at once, in one line, and no
run folder is made. An error in their code is left to the run, which reports it with its traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import torch

from session import nest
from session.addons.hooks import CHECK
from session.config import Config
from session.config.sections import sections_of
from session.errors import ConfigError, SurrealError
from session.process.script import outside_a_run
from surreal_like.agent.acting import Acting
from surreal_like.agent.agent import Agent, AgentMode
from surreal_like.agent.fetcher import parse_mode
from surreal_like.algorithm.algorithm import Algorithm
from surreal_like.algorithm.on_policy import check_synchronous
from surreal_like.algorithm.registry import find_algorithm
from surreal_like.data.batch import Batch, make_batch
from surreal_like.data.columns import manifest_of, plain_columns
from surreal_like.data.frames import frame_spec, stack_size
from surreal_like.data.masks import MASK, has_mask
from surreal_like.data.policy_names import named_policies
from surreal_like.data.spec import parse_action_spec, parse_obs_spec
from surreal_like.dataflow.flow import Flow
from surreal_like.experience.chunk import Chunk, postprocess_chunk
from surreal_like.experience.row_writer import RowWriter
from surreal_like.experience.settings import check_sender
from surreal_like.experiment.checkpoints import checkpoint_of
from surreal_like.experiment.machine import replay_need
from surreal_like.learner.group_leader import check_group
from surreal_like.learner.joint import KEY, for_policies, share_plan
from surreal_like.learner.joint import rehearse as rehearse_zeros
from surreal_like.learner.learner import Learner
from surreal_like.learner.saver import PARAMETERS, Content
from surreal_like.network.files import read_parameters
from surreal_like.network.flat import to_tensor
from surreal_like.policies.config import policy_configs
from surreal_like.replay.replay import Replay, load_replay_class

# Steps and streams of the unroll, or rows; a sequence has its own number of steps.
_STEPS, _STREAMS = 3, 2
NO_INFO: Mapping[str, nest.Array] = MappingProxyType({})


def check_plan(
    learner: Learner,
    agent: Agent | None,
    replay: type[Replay],
    config: Config,
    info: Mapping[str, nest.Array] = NO_INFO,
) -> dict[str, Any]:
    """Checks that a plan can be built and can work; returns the columns of gradients of agents.

    Errors of other kinds in an author's code are left to the run, which shows their traceback.

    Args:
        learner: learner to be thrown away; it is changed.
        agent: gives the actions and extras of the zeros; None if it cannot be built.
        replay: the kind of replay.
        config: the resolved experiment.
        info: one row of each key of ``env_config.info_keys``, as far as known.

    Returns:
        name -> `{type, dim}` of the columns of one row, as agents send it in place of an unroll;
        empty if they send unrolls.

    Raises:
        ConfigError: the plan cannot work.
    """
    columns: dict[str, Any] = {}
    try:
        flow = learner.flow
        learner.checkpointed()
    except ValueError as error:
        raise ConfigError(f"the execution plan cannot be built: {error}") from None
    except SurrealError:
        raise
    except Exception:  # noqa: BLE001 - the run reports a bug better
        return columns
    # Only a plan can be checked, and only with the columns of a replay of this library.
    if agent is not None and replay.__module__.startswith("surreal_like.") and _is_planned(learner):
        columns = _pull_zeros(learner, flow, _zeros(agent, replay, config, info))
    if not any(each.trains for each in flow.operators()) and not learner.updates:
        raise ConfigError(
            "the execution plan trains nothing: it needs train_one_step or apply_gradients"
        )
    _check_priorities(learner, replay, config)
    return columns


def _check_priorities(learner: Learner, replay: type[Replay], config: Config) -> None:
    given = any(update.priorities is not None for update in learner.updates)
    acting = config.learner_config.replay.priority.initial == "acting"
    if given and replay.takes_priorities and not learner.sends_priorities and not acting:
        raise ConfigError(
            f"{replay.__name__} would draw all rows alike: the loss gives priorities, but the "
            "execution plan does not send them; add .for_each(update_priorities(learner))"
        )


def _is_planned(learner: Learner) -> bool:
    return type(learner).learn is Learner.learn


def _pull_zeros(learner: Learner, flow: Flow, batch: Batch | None) -> dict[str, Any]:
    if batch is None:
        return {}
    learner.rehearses = True
    try:
        with _one_thread():
            if not learner.feed(batch, flow):
                raise flow.standstill()
        columns = (part.sent_columns(batch) for part in flow.parts())
        return next(filter(None, columns), {})
    except (SurrealError, NotImplementedError) as error:
        place = ", ".join(getattr(error, "__notes__", []))
        raise ConfigError(f"{error}; {place}" if place else str(error)) from None
    except Exception:  # noqa: BLE001 - the run reports a bug better
        return {}


@contextmanager
def _one_thread() -> Iterator[None]:
    """More threads than free cores slow small networks down by an order of magnitude."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _zeros(
    agent: Agent, replay: type[Replay], config: Config, info: Mapping[str, nest.Array]
) -> Batch | None:
    """Returns a batch as replay gives it, all observations and rewards 0; None without actions."""
    env, gives = config.env_config, replay.gives()
    unrolls, burn_in, count = gives != "rows", 0, _STEPS
    if gives == "sequences":
        burn_in, learned = replay.steps_of_sample(config.learner_config)
        count = burn_in + learned
        # The replay refuses longer ones later, with all numbers.
        if count > config.learner_config.replay.capacity:
            return None
    chunk = write_chunk(agent, config, info, count)
    if chunk is None:
        return None
    obs = to_tensor(_zero_obs(env.obs_spec))
    actions = to_tensor(parse_action_spec(env.action_spec).array.zeros(_STREAMS))
    steps = slice(count) if unrolls else 0
    lead = (count, _STREAMS) if unrolls else (_STREAMS,)
    columns = {name: torch.from_numpy(column)[steps] for name, column in chunk.columns.items()}
    batch = make_batch(
        {
            **{name: each for name, each in columns.items() if name.startswith("extras/")},
            **nest.flatten(actions if not unrolls else _spread(actions, count), "actions"),
            **nest.flatten(obs if not unrolls else _spread(obs, count + 1), "obs"),
            "rewards": columns["reward"],
            "discounts": torch.ones(lead),
            "dones": torch.zeros(lead),
            "version": torch.zeros(lead, dtype=torch.int64),
        }
    )
    if unrolls:
        first = torch.zeros(count + 1, _STREAMS, dtype=torch.bool)
        if (config.learner_config.get("model") or {}).get("memory_inputs"):
            batch["prev_rewards"] = torch.zeros(count + 1, _STREAMS)
        mask = (torch.arange(count) >= burn_in).float().unsqueeze(1).expand(lead)
        batch = Batch(batch, first=first, mask=mask.clone())
    rows = {"weights": torch.ones(_STREAMS), "indices": torch.arange(_STREAMS)}
    if unrolls:
        replayed = {"replayed": torch.zeros(_STREAMS, dtype=torch.bool)}
        return Batch(batch, **(rows if gives == "sequences" else replayed))
    return Batch(batch, obs_next=nest.map(torch.clone, obs), **rows)


def _spread(tensors: Any, rows: int) -> Any:
    return nest.map(lambda x: x.expand(rows, *x.shape).clone(), tensors)


def _zero_obs(spec: Mapping[str, Any]) -> Any:
    """Returns observations of zeros in which all actions are legal."""
    zeros = nest.map(lambda leaf: leaf.zeros(_STREAMS), parse_obs_spec(spec))
    return {**zeros, MASK: np.ones_like(zeros[MASK])} if has_mask(spec) else zeros


def write_chunk(
    agent: Agent, config: Config, info: Mapping[str, nest.Array], steps: int = _STEPS
) -> Chunk | None:
    """Returns rows of zeros as the agent sends them; None if its code raises an error.

    Args:
        agent: acts once.
        config: the resolved experiment.
        info: one row of each key of ``env_config.info_keys``.
        steps: rows, without the one that follows.
    """
    env, acting, chunks = config.env_config, Acting(agent), list[Chunk]()
    # Of a stack agents send the newest frame.
    frames = frame_spec(env.obs_spec, stack_size(env))
    obs, actions = _zero_obs(frames), parse_action_spec(env.action_spec).array.zeros(_STREAMS)
    rewards, ends = np.zeros(_STREAMS, np.float32), np.zeros(_STREAMS, np.bool_)
    infos = {key: np.stack([each] * _STREAMS) for key, each in info.items()}
    try:
        _, extras = acting.act(_zero_obs(env.obs_spec), np.ones(_STREAMS, np.bool_))
        acting.end_step()
        writer = RowWriter(
            _STREAMS,
            obs_spec=frames,
            action_spec=env.action_spec,
            settings=Config({"flush_iteration": steps, "flush_time": None, "cut": "steps"}),
            overlap=1,
            send=chunks.append,
        )
        writer.begin(obs, infos)
        for _ in range(steps):
            writer.act(actions, extras, version=0, now=0.0, metrics={})
            writer.observe(obs, rewards, ends, ends, infos)
    except Exception:  # noqa: BLE001 - the run reports a bug better
        return None
    try:
        return postprocess_chunk(chunks[0], agent.postprocess)
    except SurrealError as error:
        raise ConfigError(str(error)) from None
    except Exception:  # noqa: BLE001 - the run reports a bug better
        return None


def _columns_of_rows(
    agent: Agent | None, gives: str, config: Config, info: Mapping[str, nest.Array]
) -> dict[str, Any]:
    """Returns the columns of the rows that agents send; empty if they are not known, or none."""
    if agent is None or gives == "gradients" or info.keys() != {*config.env_config.info_keys}:
        return {}
    chunk = write_chunk(agent, config, info)
    return plain_columns(manifest_of(chunk.columns, axes=2)) if chunk is not None else {}


_Built = TypeVar("_Built")


def rehearse(
    config: Config,
    algorithm: type[Algorithm],
    *,
    starts_here: bool,
    info: Mapping[str, nest.Array] = NO_INFO,
) -> None:
    """Builds one agent, the learner and one replay, all on the CPU, and discards them.

    Args:
        config: the resolved experiment; gets the columns that agents send, as
            `learner_config.replay.columns` and `learner_config.gradient_columns`: else those of the
            first sender, which may be a joined machine, would decide about all.
        algorithm: named in the config.
        starts_here: True if the learner will run on this machine, so its device must exist here.
        info: one row of each key of ``env_config.info_keys``, as far as known.

    Raises:
        ConfigError: one of them rejects a setting.
        MissingExtra: one of them needs a package that is not installed here.
    """
    ranks = config.session_config.learner.num
    check_device(config.learner_config.device, must_be_here=starts_here, ranks=ranks)
    parse_mode(config.session_config.agent.fetch_parameter_mode)
    given, config = config, config.copy()
    config.learner_config.device = "cpu"
    configs = sections_of(config)
    replay = load_replay_class(config.learner_config)
    # Networks use the global generator: later code must find its state unchanged.
    with torch.random.fork_rng(devices=[]), outside_a_run():
        agent = _try(lambda: algorithm.agent(**configs, agent_id=0, agent_mode=AgentMode.training))
        synchronous = agent is not None and agent.synchronous
        for check in CHECK:
            check(config, replay, synchronous=synchronous, here=starts_here)
        if synchronous:
            check_synchronous(**configs, kind=replay)
        check_group(algorithm.learner, config.learner_config, replay, ranks)
        learner = _try(lambda: algorithm.learner(**configs))
        checkpoint = config.session_config.checkpoint
        if checkpoint.start_from and learner is not None:
            _check_start(learner, checkpoint.start_from, checkpoint.parts)
        if learner is not None:
            columns = check_plan(learner, agent, replay, config, info)
            config.learner_config.gradient_columns = columns
            given.learner_config.gradient_columns = columns
        rows = _columns_of_rows(agent, replay.gives(), config, info)
        config.learner_config.replay.columns = given.learner_config.replay.columns = rows
        sender, streams = config.session_config.sender, config.env_config.num_envs
        _try(lambda: check_sender(sender, streams, replay.overlap))
        _try(lambda: replay(**configs).check_start(replay_need(config).row_bytes))


def flow_of(config: Config) -> Flow | None:
    """Returns the plan of all policies of a resolved experiment; None if a bug prevents it.

    Builds the learners on the CPU.

    Raises:
        ConfigError: a learner or the plan rejects a setting.
    """
    paths = config.session_config.import_path
    sys.path.extend(path for path in paths if path not in sys.path)
    with torch.random.fork_rng(devices=[]), outside_a_run():
        return _try(lambda: for_policies(_learners_of(policy_configs(config), config)))


def rehearse_together(config: Config) -> None:
    """Builds the plan over several policies, if there is one, and gives it zeros.

    Args:
        config: the resolved experiment, whose policies have been rehearsed.

    Raises:
        ConfigError: the plan cannot work.
    """
    if config.policies_plan is None:
        return
    if not named_policies(config):
        raise ConfigError(f"{KEY} is {config.policies_plan!r}, but policies is empty: remove it")
    configs = policy_configs(config)
    with torch.random.fork_rng(devices=[]), outside_a_run(), _one_thread():
        learners = _try(lambda: _learners_of(configs, config))
        zeros = {name: _zeros_of(own) for name, own in configs.items()}
        given = {name: batch for name, batch in zeros.items() if batch is not None}
        if learners is not None and len(given) == len(zeros):
            _try(lambda: rehearse_zeros(for_policies(learners), learners, given))


def _learners_of(configs: Mapping[str, Config], config: Config) -> dict[str, Learner]:
    """Returns the learner of each policy, on the CPU, with the plan over several policies."""
    learners: dict[str, Learner] = {}
    for name, own in configs.items():
        here = own.copy()
        here.learner_config.device = "cpu"
        learners[name] = find_algorithm(here.algorithm).learner(**sections_of(here))
        learners[name].policy_name = name
    try:
        share_plan(learners, config.get(KEY))
    except ValueError as error:
        raise ConfigError(f"the plan of {KEY} cannot be built: {error}") from None
    return learners


def _zeros_of(config: Config) -> Batch | None:
    """Returns a batch of zeros of a policy; None if its agent cannot be built here."""
    config = config.copy()
    config.learner_config.device = "cpu"
    kind, replay = find_algorithm(config.algorithm), load_replay_class(config.learner_config)
    agent = _try(
        lambda: kind.agent(**sections_of(config), agent_id=0, agent_mode=AgentMode.training)
    )
    return None if agent is None else _zeros(agent, replay, config, NO_INFO)


def _check_start(learner: Learner, start_from: str, parts: Sequence[str]) -> None:
    path = checkpoint_of(start_from)
    try:
        if parts:
            Content.read_parts(learner, path, parts)
        else:
            read_parameters(learner.module_dict(), path / PARAMETERS)
    except SurrealError as error:
        raise ConfigError(f"cannot start from {path}: {error}") from None


def _try(build: Callable[[], _Built]) -> _Built | None:
    try:
        return build()
    except SurrealError as error:
        raise ConfigError("; ".join([str(error), *getattr(error, "__notes__", [])])) from None
    except Exception:  # noqa: BLE001 - the run reports a bug or a lack of memory better
        return None


def check_device(name: str, *, must_be_here: bool, ranks: int = 1) -> None:
    """Raises ConfigError for a device unknown to torch or, if required, missing on this machine.

    Each of several `ranks` that learn together has a CUDA device of its own.
    """
    if name == "auto":
        if ranks > 1 and must_be_here and torch.cuda.is_available():
            check_device("cuda", must_be_here=True, ranks=ranks)
        return
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(
            f"learner_config.device is '{name}', expected auto, cpu, cuda or cuda:1"
        ) from None
    if device.type == "cuda" and device.index is not None and ranks > 1:
        raise ConfigError(
            f"learner_config.device is '{name}', but session_config.learner.num is {ranks}: two "
            "learners on one device wait for each other; set device to cuda, or num to 1"
        )
    if not must_be_here or device.type != "cuda":
        return
    count = torch.cuda.device_count()
    if count < ranks > 1:
        raise ConfigError(
            f"session_config.learner.num is {ranks}, but torch finds {count} CUDA devices here, "
            "and each learner needs its own: set num to 1, or learner_config.device to cpu"
        )
    if (device.index or 0) >= count:
        raise ConfigError(
            f"learner_config.device is '{name}', but torch finds {count} CUDA devices here: set it "
            "to auto, or to cpu"
        )
