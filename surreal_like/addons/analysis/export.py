"""Writes the greedy policy of a run as one graph, from observation to the environment's action."""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.overrides import TorchFunctionMode

from session import nest
from session.checkpoint import read_state
from session.config import Config
from session.errors import MissingExtra, SurrealError, UsageError
from session.folder import RunFolder
from session.version import VERSION
from surreal_like.addons.scripts.policy import Policy, load_policy
from surreal_like.agent.agent import Agent
from surreal_like.data.added_parts import policy_spec
from surreal_like.data.masks import MASK, has_mask
from surreal_like.data.policy_names import DEFAULT_POLICY
from surreal_like.data.spec import ArraySpec, parse_action_spec, parse_obs_spec, plain
from surreal_like.experiment.checkpoints import whole_checkpoint
from surreal_like.experiment.find import find_run
from surreal_like.network.recurrent import reads_rewards

Array = npt.NDArray[Any]
Run = Callable[[Mapping[str, Array]], list[Array]]

FORMATS = ("onnx", "pt2")
_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
_COMPARED = 256
_TOLERANCE = 1e-5
_METADATA = "surreal_like.json"
# Packages whose classes are not a user's.
_LIBRARIES = ("torch", "session", "surreal_like")


@dataclass(frozen=True, slots=True)
class Exported:
    """A policy that was written.

    Args:
        path: the file.
        inputs, outputs: names of tensors; those of an observation are ``obs``, or ``obs/PART``.
        checkpoint: name of the exported one.
        difference: largest difference from :func:`surreal_like.load_policy`.
        compared: number of random observations that were compared.
    """

    path: Path
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    checkpoint: str
    difference: float
    compared: int = _COMPARED


def export(
    folder: str | Path,
    out: str | Path | None = None,
    *,
    format: str = "onnx",
    checkpoint: str | int = "best",
    policy: str | None = None,
    import_path: Sequence[str | Path] = (),
) -> Exported:
    """Writes the policy of a run for programs without this package, and compares it.

    The file appears under its name only if its actions are those of :func:`load_policy`: equal ones
    for discrete actions, within 1e-5 for continuous ones.

    Args:
        folder: the run folder.
        out: the file; None: ``policy.onnx`` or ``policy.pt2`` in the current folder.
        format: ``onnx``, or ``pt2`` for ``torch.export.load``.
        checkpoint: ``best``, ``latest``, or the iteration of a checkpoint.
        policy: name of the policy, where a run has several.
        import_path: further folders with modules that the run needs.

    Raises:
        UsageError: the format, the run, the checkpoint or the place of the file is wrong, or the
            agent cannot be traced.
        MissingExtra: a package of the extra ``export`` is not installed.
        SurrealError: the actions of the graph differ from those of the policy.
    """
    if format not in FORMATS:
        raise UsageError(f"--format is {format!r}, expected {' or '.join(FORMATS)}")
    if format == "onnx" and not all(map(find_spec, _PACKAGES)):
        raise MissingExtra.named("surreal-like export", "export")
    path = Path(out or f"policy.{format}")
    if not os.path.isdir(path.parent):
        raise UsageError(f"cannot write {path}: there is no folder {path.parent}")
    loaded = load_policy(folder, checkpoint, policy=policy, import_path=import_path)
    return write_policy(loaded, path, format=format, metadata=_metadata(loaded, find_run(folder)))


def write_policy(
    policy: Policy, path: Path, *, format: str, metadata: Mapping[str, str]
) -> Exported:
    """Writes the greedy policy of a policy in memory, and compares it; as :func:`export`.

    Args:
        policy: the parameters are written.
        path: the file, in a folder that exists.
        format: ``onnx`` or ``pt2``.
        metadata: texts that are kept in the file.

    Raises:
        UsageError: the agent cannot be traced, or the file cannot be written.
        SurrealError: the actions of the graph differ from those of the policy.
    """
    probe = _probe(policy)
    graph = _Graph(policy, tuple(probe))
    beside = path.with_name(f".{path.name}.part")
    try:
        program = _trace(graph, probe)
        write, read = (_write_onnx, _read_onnx) if format == "onnx" else (_write_pt2, _read_pt2)
        write(program, graph, metadata, beside)
        difference = _compare(policy, read(beside), probe)
        beside.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        beside.unlink(missing_ok=True)
    return Exported(path, graph.inputs, graph.outputs, policy.checkpoint, difference)


class _StaysTensor(TorchFunctionMode):
    """Makes `tensor.numpy()` return the tensor, so that `Agent.act` can be traced to its end."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0] if func is torch.Tensor.numpy else func(*args, **(kwargs or {}))


class _Graph(torch.nn.Module):
    """Calls the greedy agent of a policy with tensors as separate arguments."""

    def __init__(self, policy: Policy, inputs: tuple[str, ...]) -> None:
        super().__init__()
        self.agent: Agent = policy.greedy
        self.inputs = inputs
        self.recurrent = "state" in inputs
        self.outputs = ("action", "next_state") if self.recurrent else ("action",)
        self.parts = torch.nn.ModuleList(self.agent.module_dict().values())
        env = policy.config.env_config
        spec = parse_action_spec(env.action_spec)
        self.bounds = [
            None if each is None or not env.clip_action else torch.from_numpy(each)
            for each in spec.inner_bounds
        ]

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Returns the actions, and with a memory the next state."""
        given = dict(zip(self.inputs, tensors, strict=True))
        self.agent.state = given.pop("state", None)
        first: Any = given.pop("first", None)
        # An agent without a memory does not read it.
        self.agent.first = np.ones(1, np.bool_) if first is None else first
        if (reward := given.pop("reward", None)) is not None:
            self.agent.prev_reward = _change_reward(reward, self.agent.learner_config.algo)
        with _StaysTensor():
            answer = self.agent.act(nest.unflatten(given, "obs"))
        actions = answer[0] if isinstance(answer, tuple) else answer
        if not isinstance(actions, torch.Tensor):
            raise TypeError(f"act() returns a {type(actions).__name__}, computed outside of torch")
        if self.bounds != [None, None]:
            actions = actions.clamp(*self.bounds)
        return (actions, self.agent.state) if self.recurrent else actions


def _probe(policy: Policy) -> dict[str, Array]:
    """Returns name of each input -> random values `[256, ...]` within its spec."""
    rng = np.random.default_rng(0)
    env = policy.config.env_config
    specs = nest.flatten(parse_obs_spec(policy_spec(env.obs_spec)), "obs")
    values = {name: _random(spec, rng) for name, spec in specs.items()}
    if has_mask(env.obs_spec):
        name = f"obs/{MASK}"
        values[name] = _random_mask(specs[name], parse_action_spec(env.action_spec).dim, rng)
    state = policy.greedy.initial_state(_COMPARED)
    if state is not None:
        values["state"] = rng.normal(0.0, 0.5, tuple(state.shape)).astype(np.float32)
        values["first"] = rng.random(_COMPARED) < 0.25
    if reads_rewards(policy.config.learner_config):
        if policy.config.learner_config.algo.get("reward_function") is not None:
            raise UsageError(
                "the policy reads rewards that learner_config.algo.reward_function has changed, "
                "which cannot be written: train it without"
            )
        values["reward"] = rng.normal(size=_COMPARED).astype(np.float32)
    return values


def _change_reward(reward: torch.Tensor, algo: Mapping[str, Any]) -> torch.Tensor:
    """Returns rewards as a `RewardTransform` leaves them, with operations of torch."""
    clip: float = algo["reward_clip"]
    scale: float = algo["reward_scale"]
    return (reward.clamp(-clip, clip) if clip else reward) * scale


def _random(spec: ArraySpec, rng: np.random.Generator) -> Array:
    shape = (_COMPARED, *spec.dim)
    values: Array
    if spec.dtype.kind == "f":
        values = rng.normal(size=shape)
        if spec.low is not None or spec.high is not None:
            values = np.clip(values, spec.low, spec.high)
        return values.astype(spec.dtype)
    if spec.num is not None:
        return (rng.random(shape) * spec.num).astype(spec.dtype)
    low = 0 if spec.low is None else spec.low
    high = (1 if spec.dtype.kind == "b" else 100) if spec.high is None else spec.high
    values = low + rng.random(shape) * (np.asarray(high, np.float64) - low + 1)
    return np.floor(values).astype(spec.dtype)


def _random_mask(spec: ArraySpec, nums: Sequence[int], rng: np.random.Generator) -> Array:
    """Returns masks that leave at least one action of each choice."""
    parts = [rng.random((_COMPARED, num)) < 0.5 for num in nums]
    for part, num in zip(parts, nums, strict=True):
        part[np.arange(_COMPARED), rng.integers(num, size=_COMPARED)] = True
    legal = np.concatenate(parts, 1).reshape(_COMPARED, *(1 for _ in spec.dim[1:]), -1)
    return np.broadcast_to(legal, (_COMPARED, *spec.dim)).astype(spec.dtype)


def _trace(graph: _Graph, probe: Mapping[str, Array]) -> torch.export.ExportedProgram:
    """Returns the graph with a free batch axis.

    Raises:
        UsageError: the agent cannot be traced; names the operation.
    """
    given = tuple(torch.from_numpy(value) for value in probe.values())
    batch = torch.export.Dim("batch")
    try:
        with torch.no_grad():
            return torch.export.export(
                graph, given, dynamic_shapes=(tuple({0: batch} for _ in given),), strict=False
            )
    except Exception as error:
        name = type(graph.agent).__name__
        words = (str(error).strip().splitlines() or [type(error).__name__])[0]
        place, foreign = _place(error)
        own = _own_classes(graph)
        if own or foreign:
            within = f" in {', '.join(own)}" if own else ""
            advice = (
                f"compute actions{within} with operations of torch only, without branches on "
                "values of tensors and without len() of a batch, which makes its size constant: "
                "x.shape[0] does not"
            )
        else:
            advice = (
                "no class of your own takes part, so this is a fault of surreal_like: report it "
                "with the config.yaml of the run"
            )
        raise UsageError(f"{name}.act cannot be traced: {words}{place}; {advice}") from error


def _own_classes(graph: _Graph) -> list[str]:
    """Returns the names of those classes of the agent and its networks that a user wrote."""
    classes = {type(each) for each in (graph.agent, *graph.parts.modules())}
    return sorted(each.__qualname__ for each in classes if _top(each.__module__) not in _LIBRARIES)


def _place(error: Exception) -> tuple[str, bool]:
    """Returns the line that failed, in brackets, and if it is foreign to this package and torch."""
    place, foreign, trace = "", False, error.__traceback__
    while trace is not None:
        code, module = trace.tb_frame.f_code, str(trace.tb_frame.f_globals.get("__name__"))
        inside = _top(module) == "torch" or _top(module) in sys.stdlib_module_names
        if not inside and module != __name__:
            place = f" ({code.co_filename}, line {trace.tb_lineno})"
            foreign = _top(module) not in _LIBRARIES
        trace = trace.tb_next
    return place, foreign


def _top(module: str) -> str:
    return module.partition(".")[0]


def _write_onnx(
    program: torch.export.ExportedProgram, graph: _Graph, metadata: Mapping[str, str], path: Path
) -> None:
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        written = torch.onnx.export(
            program,
            input_names=graph.inputs,
            output_names=graph.outputs,
            dynamo=True,
            verbose=False,
        )
    assert written is not None  # without a path
    written.model.metadata_props.update(metadata)
    written.save(str(path), external_data=False)


def _read_onnx(path: Path) -> Run:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda given: list(session.run(None, dict(given)))


def _write_pt2(
    program: torch.export.ExportedProgram, graph: _Graph, metadata: Mapping[str, str], path: Path
) -> None:
    content = {**metadata, "inputs": graph.inputs, "outputs": graph.outputs}
    with path.open("wb") as file:
        torch.export.save(program, file, extra_files={_METADATA: json.dumps(content)})


def _read_pt2(path: Path) -> Run:
    with path.open("rb") as file:
        module = torch.export.load(file).module()

    def run(given: Mapping[str, Array]) -> list[Array]:
        found = module(*map(torch.from_numpy, given.values()))
        return [each.numpy() for each in (found if isinstance(found, tuple) else (found,))]

    return run


def _metadata(policy: Policy, run: RunFolder) -> dict[str, str]:
    """Returns what describes the policy, as texts; specs in JSON."""
    config: Config = policy.config
    name = config.get("policy", DEFAULT_POLICY)
    state = read_state(whole_checkpoint(run, policy.checkpoint, name))
    return {
        "obs_spec": json.dumps(plain(policy_spec(config.env_config.obs_spec))),
        "action_spec": json.dumps(plain(config.env_config.action_spec)),
        "algorithm": str(config.algorithm),
        "environment": str(config.env_config.env_name),
        "iteration": str(state.get("iteration", "")),
        "return": str(state.get("mean_return", "")),
        "surreal_like": VERSION,
    }


def _compare(policy: Policy, run: Run, probe: Mapping[str, Array]) -> float:
    """Returns the largest difference between the written graph and the policy.

    The first row is compared alone, too: most programs act for one environment.

    Raises:
        SurrealError: it is too large; integers of discrete actions must be equal.
    """
    one = {name: each[:1] for name, each in probe.items()}
    return max(_difference(policy, run, each) for each in (probe, one))


def _difference(policy: Policy, run: Run, probe: Mapping[str, Array]) -> float:
    obs = nest.unflatten({name: each for name, each in probe.items() if name[:3] == "obs"}, "obs")
    state = probe.get("state")
    wanted, after = policy(
        obs,
        None if state is None else torch.from_numpy(state),
        first=probe.get("first"),
        reward=probe.get("reward"),
    )
    actions, *rest = run(probe)
    differences = [np.abs(actions - wanted)]
    if rest:
        differences.append(np.abs(rest[0] - np.asarray(after)))
    # NumPy's maximum is NaN if a difference is; so is then the comparison False.
    largest = float(np.max([each.max() for each in differences]))
    if actions.dtype != wanted.dtype or not largest <= _TOLERANCE:
        raise SurrealError(
            f"the written policy differs from load_policy by {largest:g} over {len(wanted)} random "
            f"observations (allowed: {_TOLERANCE:g}); nothing was written"
        )
    return largest
