"""``surreal-like plan``: shows the processes that ``train`` would run; starts nothing."""

from __future__ import annotations

import json
import os
import shlex
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from main.cli.arguments import EXPERIMENT, Option, Parser, request_of
from main.cli.output import terminal_width
from session.addons import add_ons, list_feeds, load
from session.addons.hooks import PLAN
from session.config import Config
from session.config.config import keys_of
from session.config.defaults import BASE_CONFIG
from session.config.key import is_idle
from session.config.merge import within
from session.errors import UsageError
from session.launchers.registry import launcher_of, list_detached
from session.process.component import Component, Topology
from session.program import interpreter, shell_line
from session.show.text import GAP, columns, count, size
from surreal_like.data.policy_names import PolicyId, learns, opponent_of, policies_of
from surreal_like.data.task import tasks_of
from surreal_like.experiment.machine import replay_need
from surreal_like.experiment.resolve import defaults
from surreal_like.policies.config import policy_configs
from surreal_like.replay.replay import load_replay_class
from surreal_like.run.folder import new_path
from surreal_like.run.request import DEFAULT, Plan, RunRequest

if TYPE_CHECKING:
    from surreal_like.dataflow.flow import Flow

_OFF = "off"
# Transformation of rewards -> the value that leaves them as they are.
_NEUTRAL = {"clip": 0.0, "scale": 1.0}
_EXAMPLES = """examples:
  surreal-like plan configs/cartpole_dqn.yaml
  surreal-like plan configs/cartpole_dqn.yaml --explain learner_config.algo.n_step=1
  surreal-like plan configs/cartpole_dqn.yaml --format shell --folder runs/by_hand
  surreal-like plan configs/cartpole_pbt.yaml tune.trials=4
  surreal-like plan configs/cartpole_dqn.yaml --on kubernetes
  surreal-like plan configs/cartpole_dqn.yaml --on kubernetes --folder k8s/overlays/mine

shell and procfile write the run folder that their lines need; each line is one process, for a
terminal of its own. yaml is what Kubernetes takes; with --folder it is written for kubectl apply:
an overlay into the folder, and all in one file, k8s/mine.yaml.
"""
_HERE_ONLY = ("shell", "procfile")
# Width of the --explain table in a file or a pipe, in characters.
_WIDTH = 120
# Agents of a policy whose names are shown.
_FEW = 6
_LEAST_WIDTH = 20

# All components connect to these: one separate box, as its arrows would hide the others.
_TELEMETRY = ("tensorplex", "loggerplex")
# In the order of the data flow; other kinds follow.
_ORDER = ("agent", "replay", "learner", "ps", "evaluator")
# Endpoint -> label of its arrow, and True if the arrow points to the component that binds it.
_ENDS = {
    "experience": ("experience: chunks", True),
    "acks": ("acks", False),
    "batches": ("batches", False),
    "priorities": ("priorities", True),
    "parameters": ("parameters: published", False),
    "requests": ("requests: parameters, polled", False),
    "control": ("control: scores", True),
}


# What a step of an optimizer costs more with one other learner: by benchmarks/results/group.json.
EXCHANGE_MS, EXCHANGE_MS_PER_MB = 2.0, 3.0


def mermaid(topology: Topology) -> str:
    """Returns the diagram as Mermaid text, which GitHub and many editors draw.

    Components of one kind are one box. Arrows show the direction of the data.

    Args:
        topology: topology of the run.
    """
    groups = [list(members) for _, members in groupby(topology, key=lambda each: each.kind)]
    drawn = [group for group in groups if group[0].kind not in _TELEMETRY]
    drawn.sort(key=lambda group: _ORDER.index(group[0].kind) if group[0].kind in _ORDER else 99)
    lines = ["flowchart LR"]
    lines += [f'    {group[0].kind}["{_names(group)}"]' for group in drawn]
    lines += _arrows(drawn)
    telemetry = [group[0].name for group in groups if group[0].kind in _TELEMETRY]
    lines.append(f'    all(["all components"]) -. "metrics, logs" .-> {_box(telemetry)}')
    return "\n".join(lines)


def dataflow(flow: Flow) -> Iterator[str]:
    """Yields the lines of a box for the plan of a learner, with one node per operator."""
    numbers = {id(part): number for number, part in enumerate(flow.parts(), 1)}
    yield '    subgraph dataflow["dataflow of the learner"]'
    for part in flow.parts():
        name = part.name.replace('"', "'")
        yield f'        operator{numbers[id(part)]}["{name}"]'
    for part in flow.parts():
        for source in part.inputs:
            yield f"        operator{numbers[id(source)]} --> operator{numbers[id(part)]}"
    yield "    end"


def _names(group: Sequence[Component]) -> str:
    first, last = group[0].name, group[-1].name
    return first if first == last else f"{first} … {last}" if len(group) > 2 else f"{first}, {last}"


def _arrows(groups: Sequence[Sequence[Component]]) -> Iterator[str]:
    """Yields one arrow per pair of boxes and direction; labels of the same arrow are joined."""
    owners = {end: group[0].kind for group in groups for one in group for end in one.binds}
    arrows: dict[tuple[str, str], list[str]] = {}
    for group in groups:
        for end in group[0].connects:
            owner = owners.get(end)
            if owner is None or _is_hello(group[0].kind, end):
                continue
            label, towards_owner = _ENDS[end.rpartition(".")[2]]
            way = (group[0].kind, owner) if towards_owner else (owner, group[0].kind)
            texts = arrows.setdefault(way, [])
            if label not in texts:
                texts.append(label)
    for (source, target), texts in arrows.items():
        yield f'    {source} -- "{", ".join(texts)}" --> {target}'


def _is_hello(kind: str, end: str) -> bool:
    """Returns True for a mere handshake: only agents and evaluators fetch parameters there."""
    return end == "ps.requests" and kind not in ("agent", "evaluator")


def _box(names: Sequence[str]) -> str:
    return f'telemetry["{", ".join(names)}"]'


def pipeline(settings: Mapping[str, Any]) -> list[list[str]]:
    """Returns for each stage its name, its value or ``off``, and where it runs.

    Args:
        settings: settings of an experiment, by their dotted keys.
    """
    algo, model = "learner_config.algo", "learner_config.model"
    replay = {"type": settings["learner_config.replay.type"]}
    place = settings.get("learner_config.gradients_at")
    gives = load_replay_class({"replay": replay, "gradients_at": place}).gives()
    at = "agent, in its unroll" if gives == "gradients" else "replay, at sampling"
    proportion = settings.get("learner_config.replay.hindsight.proportion", 0.0)
    stack, steps = settings["env_config.frame_stack"] or 0, settings[f"{algo}.n_step"]
    changes = {name: settings[f"{algo}.reward_{name}"] for name in _NEUTRAL}
    rewards = [
        f"{name} {changes[name]:g}" for name, kept in _NEUTRAL.items() if changes[name] != kept
    ]
    function = settings[f"{algo}.reward_function"]
    rewards += [str(function)] if function else []
    seen = [f"torso {settings[f'{model}.torso']}"] if settings.get(f"{model}.torso") else []
    seen += ["normalize_obs"] if settings.get(f"{model}.normalize_obs") else []
    parts = [str(part["part"]) for part in settings["learner_config.parts"]]
    summed = steps > 1 and gives in ("rows", "sequences")
    return [
        ["relabel goals", f"proportion {proportion:g}" if proportion else _OFF, at],
        ["stack frames", f"{stack} frames" if stack > 1 else _OFF, f"agent; {at}"],
        ["each reward", ", ".join(rewards) or _OFF, at],
        [
            "sum of n steps",
            f"{steps} steps" if summed else _OFF,
            "learner, in the loss" if gives == "sequences" else at,
        ],
        [
            "scale of rewards",
            "normalize_rewards" if settings[f"{algo}.normalize_rewards"] else _OFF,
            "replay counts, learner divides",
        ],
        [
            "observations",
            ", ".join(seen) or "bytes and one-hot codes",
            "network: agent and learner",
        ],
        ["bonus of parts", ", ".join(parts) or _OFF, "learner, before the update"],
    ]


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    given = _parser().parse_args(argv)
    for plan_other in PLAN:
        if (code := plan_other(given)) is not None:
            return code
    request = request_of(given)
    if given.explain and given.format:
        raise UsageError(f"--explain is a table of its own: leave --format {given.format} out")
    if given.explain:
        print(_explain(request))
        return 0
    own = launcher_of(given.on).format
    shape = given.format or own or "table"
    if (own and shape in _HERE_ONLY) or shape not in (*FORMATS, own):
        fitting = f"{own}, and mermaid" if own else "table, shell, procfile and mermaid"
        raise UsageError(f"--format {shape} does not go with --on {given.on}: there are {fitting}")
    if given.folder and shape not in (*_HERE_ONLY, own):
        raise UsageError(
            "--folder belongs to --format shell, procfile, yaml, sbatch and job: the others write "
            "nothing"
        )
    plan = request.resolve()
    if show := launcher_of(given.on).plan:
        print(load(show)(plan, shape, request))
    else:
        text = FORMATS[shape](plan, Path(request.folder or new_path(request.name)))
        if shape != "table":
            note(f"the run requests {requests(plan.topology)}")
        print(text)
    return 0


def _parser() -> Parser:
    return Parser(
        "plan",
        "Shows what train would run; starts nothing.",
        EXPERIMENT,
        Option(
            "--on",
            choices=list_detached(),
            default="local",
            help="where it would run; default: local",
        ),
        Option(
            "--format",
            choices=(
                *FORMATS,
                *(each.format for each in map(launcher_of, list_detached()) if each.format),
            ),
            help="default: table; with --on kubernetes: yaml; slurm: sbatch; ray: job",
        ),
        Option(
            "--folder",
            help="folder to write: the run, or with yaml an overlay such as k8s/overlays/my",
        ),
        Option(
            "--explain",
            action="store_true",
            help="the settings, their values, and where each comes from; then the stages of data",
        ),
        examples=_EXAMPLES,
    )


def note(line: str) -> None:
    """Prints a note for the user on standard error."""
    print(f"surreal-like: note: {line}", file=sys.stderr)


def requests(topology: Topology) -> str:
    """Returns the sum of ``session_config.resources`` over all processes, in words."""
    total = topology.requests()
    gpus = f", {total.gpu} GPU{'s' if total.gpu > 1 else ''}" if total.gpu else ""
    return (
        f"{total.cpu:g} cores, {size(total.memory_bytes)} of memory{gpus} "
        f"for {len(topology.components)} processes"
    )


def _explain(request: RunRequest) -> str:
    found = request.explain()
    sections = _find_unnamed(found)
    unnamed = {path for path in found if any(within(path, each) for each in sections)}
    idle = _find_idle(found)
    without_effect = [p for p in idle if p not in unnamed and not _is_given(found[p][1])]
    rows = [
        [path, json.dumps(value), f"{origin}, no effect" if path in idle else origin]
        for path, (value, origin) in found.items()
        if path not in unnamed and path not in without_effect
    ]
    width = terminal_width() or _WIDTH
    beside = sum(max(len(row[column]) for row in rows) for column in (0, 2)) + 2 * len(GAP)
    stages = pipeline({path: value for path, (value, _) in found.items()})
    parts = [
        columns(["setting", "value", "from"], _wrap(rows, width - beside)),
        columns(["pipeline", "value", "where"], stages),
    ]
    around = dict.fromkeys(path.rpartition(".")[0] for path in without_effect)
    for why, left_out, owners in (
        ("not named", unnamed, sections),
        ("no effect here", without_effect, around),
    ):
        if left_out:
            of = ", ".join(each.rpartition(".")[2] for each in owners)
            said = f"{why}, so not shown: {len(left_out)} defaults of {of} (docs/configuration.md)"
            parts.append(textwrap.fill(said, width, break_on_hyphens=False))
    return "\n\n".join(parts)


def _is_given(origin: str) -> bool:
    """Returns True for a setting of the file or the command line."""
    return origin != DEFAULT and not origin.startswith("algorithm ")


def _find_idle(found: Mapping[str, tuple[Any, str]]) -> list[str]:
    """Returns the settings that have no effect, because of the values of others."""
    values = {path: value for path, (value, _) in found.items()}
    keys = keys_of(defaults(values["algorithm"]).extend(BASE_CONFIG, abstract=True))
    return [path for path in found if is_idle(path, keys, values)]


def _find_unnamed(found: Mapping[str, tuple[Any, str]]) -> list[str]:
    """Returns the settings and sections of add-ons of which nothing but defaults is known."""
    named = [path for path, (_, origin) in found.items() if origin != DEFAULT]
    sections = (path for each in add_ons().values() for path in each.keys)
    return [each for each in sections if not any(within(path, each) for path in named)]


def _wrap(rows: Sequence[Sequence[str]], room: int) -> list[list[str]]:
    """Wraps values that are too long into further rows below."""
    wrapped = []
    for path, value, origin in rows:
        first, *others = textwrap.wrap(value, max(room, _LEAST_WIDTH), break_on_hyphens=False)
        wrapped += [[path, first, origin], *(["", other, ""] for other in others)]
    return wrapped


def _table(plan: Plan, folder: Path) -> str:
    config = plan.config
    rows = [
        [
            component.name,
            component.module,
            ", ".join(end.removeprefix(f"{component.name}.") for end in component.binds),
            ", ".join(_connects(component)),
        ]
        for component in plan.topology
    ]
    head = ["component", "started as", "binds", "connects to"]
    flow = _flow(config)
    facts = [*_facts(config, plan.topology), *_ranks(config, flow)]
    parts = [columns([], facts), columns(head, rows)]
    operators = [f"  {line}" for line in (flow.outline() if flow is not None else ())]
    return "\n\n".join([*parts, "\n".join(["dataflow of the learner", *operators])])


def _ranks(config: Config, flow: Flow | None) -> list[list[str]]:
    """Returns a row on learners that make each update together; none with one."""
    ranks = config.session_config.learner.num
    if ranks == 1 or flow is None:
        return []
    outside = (part.outside for part in flow.parts())
    learners: dict[int, Any] = {id(each): each for each in outside if each is not None}
    texts = []
    for each in learners.values():
        sizes = [optimizer.size for optimizer in each.optimizers.values()]
        added, least = 4 * sum(sizes), worthwhile_ms(sizes, ranks)
        name = PolicyId(each.policy_name).add("{} ")
        texts.append(f"{name}{size(added)} a step, faster than one where that takes {least:.1f} ms")
    return [["learners", f"{ranks} that add up gradients: {'; '.join(texts)}"]]


def worthwhile_ms(sizes: Sequence[int], ranks: int) -> float:
    """Returns the time of a step [ms] above which several learners are faster than one.

    The source of the formula is docs/sizes.md.

    Args:
        sizes: numbers of parameters of each optimizer that makes the step.
        ranks: number of learners.
    """
    exchange = sum(EXCHANGE_MS + EXCHANGE_MS_PER_MB * 4 * each / 1e6 for each in sizes)
    return exchange * ranks


def _flow(config: Config) -> Flow | None:
    """Returns the plan of the learner; None if a bug prevents one."""
    # Not at the top: it imports torch, which the other formats do not need.
    from surreal_like.experiment.preflight import flow_of

    return flow_of(config)


def _mermaid(plan: Plan, folder: Path) -> str:
    flow = _flow(plan.config)
    return "\n".join([mermaid(plan.topology), *(dataflow(flow) if flow is not None else ())])


def _connects(component: Component) -> list[str]:
    """Returns the endpoints to which it connects, without telemetry, to which all connect."""
    return [end for end in component.connects if not end.endswith("plex.records")]


def _opponents(config: Config) -> list[list[str]]:
    """Returns a row with the policies that do not learn; none without them."""
    texts = [
        f"{name} ({kind.title.format(each[kind.key]) if kind else f'fixed: {each.fixed}'})"
        for name, each in policies_of(config).items()
        if (kind := opponent_of(each)) or not learns(each)
    ]
    return [["opponents", ", ".join(texts)]] if texts else []


def _agents(config: Config) -> list[list[str]]:
    """Returns a row with the agents that each policy may play; none with one policy only."""
    texts = []
    for name, each in policies_of(config).items():
        every = each.get("agents", [])
        agents = f"{len(every)} agents" if len(every) > _FEW else " or ".join(every)
        texts.append(f"{name} {agents or 'only evaluations'}")
    return [["plays", ", ".join(texts)]] if len(texts) > 1 else []


def _facts(config: Config, topology: Topology) -> list[list[str]]:
    env, stop = config.env_config, config.session_config.stop
    return [
        ["algorithm", _by_policy(config, lambda own: str(own.algorithm))],
        *_opponents(config),
        *_agents(config),
        ["environment", f"{env.env_name}, {env.num_envs} in each agent"],
        ["observations", _by_policy(config, lambda own: _spec(own.env_config.obs_spec))],
        ["actions", _by_policy(config, lambda own: _spec(own.env_config.action_spec))],
        *([[tasks.key, tasks.name]] if (tasks := tasks_of(env)) is not None else []),
        ["torso", _by_policy(config, _torso)],
        ["replay", _by_policy(config, _replay)],
        *(["rows from", _feed(path)] for path in list_feeds(config.session_config)),
        ["requests", requests(topology)],
        [
            "stop",
            ", ".join(
                f"{key} {_words(value)}" for key, value in stop.items() if value not in (None, {})
            ),
        ],
        ["seed", str(config.session_config.seed)],
        ["fingerprint", config.fingerprint()[:16]],
    ]


def _feed(path: str) -> str:
    return path if os.path.exists(path) else f"{path}, which is not there on this machine"


def _by_policy(config: Config, text: Callable[[Config], str]) -> str:
    """Returns a text of each policy's config behind its name; with one policy the text alone."""
    texts = {name: text(own) for name, own in policy_configs(config).items()}
    return _words(texts) if len(texts) > 1 else next(iter(texts.values()))


def _words(value: object) -> str:
    """Formats a setting: the entries of a mapping as ``left 150, right 150``."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {each}" for key, each in value.items())
    return str(value)


def _torso(config: Config) -> str:
    """Describes the network before the heads: a user's own, or its layers."""
    model = config.learner_config.get("model") or {}
    if model.get("torso"):
        arguments = model.get("torso_args")
        return f"{model['torso']} {_spec(arguments)}" if arguments else str(model["torso"])
    if "hidden_sizes" not in model:
        return "the algorithm's own"
    return f"hidden_sizes {model['hidden_sizes']}, {model['activation']}"


def _replay(config: Config) -> str:
    need = replay_need(config)
    state = need.parts.get("state", 0)
    part = f", {size(state)} of each the state" if state else ""
    return f"{count(need.rows)} rows of {size(need.row_bytes)}: {size(need.total_bytes)}{part}"


def _spec(spec: Mapping[str, object]) -> str:
    return json.dumps(spec).replace('"', "")


def _shell(plan: Plan, folder: Path) -> str:
    plan.write(folder)
    before = plan.config.session_config.launcher.preamble_cmd
    commands = _commands(plan.topology, folder)
    lines = [shell_line(shlex.join(command), before) for _, command in commands]
    return "\n".join([f"# one line for each terminal, all in {Path.cwd()}", *lines])


def _procfile(plan: Plan, folder: Path) -> str:
    plan.write(folder)
    commands = _commands(plan.topology, folder)
    return "\n".join(f"{name}: {shlex.join(command)}" for name, command in commands)


def _commands(topology: Topology, folder: Path) -> list[tuple[str, list[str]]]:
    return [(each.name, [interpreter(), *each.command(str(folder))[1:]]) for each in topology]


FORMATS: Mapping[str, Callable[[Plan, Path], str]] = {
    "table": _table,
    "shell": _shell,
    "procfile": _procfile,
    "mermaid": _mermaid,
}
