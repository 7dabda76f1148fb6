"""What people type wrong, for every command: one line with a remedy, exit code 2, nothing made.

What `train` refuses is in `test_bad_input.py`, too, with what goes wrong after a start.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from main.cli import main
from main.cli.commands import all_commands
from session.config import Config
from session.folder import RunFolder
from tests.add_ons import needs
from tests.main.conftest import CONFIG, Command, Said
from tests.main.test_bad_input import content, write

SERIAL = ("train", "small.yaml", "--on", "serial")
HELP = "see surreal-like {} --help"
LIST = "surreal-like list runs"
GO_ON = "to go on with it: surreal-like train --resume --folder runs/ended"
NO_SCREEN = {"DISPLAY": "", "WAYLAND_DISPLAY": "", "SDL_VIDEODRIVER": ""}
TYPE = "learner_config.replay.type=surreal_like.replay."
# What learns from unrolls has the queue of them by default.
FIFO = "algorithm=impala"
PRIORITIZED = f"{TYPE}prioritized_replay:PrioritizedReplay"
R2D2 = ("train", "--on", "serial", "--algorithm", "r2d2", "--env", "toy:recall")
ITERATING = f"{TYPE}uniform_replay:UniformReplay"
NO_ENVIRONMENT = "class Nothing:\n    pass\n"


@dataclass(frozen=True)
class Wrong:
    """A wrong input.

    said: what the line names; remedy: what it says to do; files: what lies in the folder before,
    by name; env: variables of the shell.
    """

    name: str
    argv: tuple[str, ...]
    said: str
    remedy: str
    files: dict[str, str | bytes] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)


def files(**named: str | bytes) -> dict[str, str | bytes]:
    """Return texts by file name, which has an underscore in the place of its dot."""
    return {name.replace("_", ".", 1): text for name, text in named.items()}


def setting(name: str, override: str, said: str, remedy: str, **given: str) -> Wrong:
    return Wrong(name, (*SERIAL, override), said, remedy, files(**given))


def replay(
    name: str, type_: str, changes: str, said: str, remedy: str, command: str = "train"
) -> Wrong:
    """Settings of learner_config.replay, with spaces between them."""
    words = (f"learner_config.replay.{change}" for change in changes.split())
    typed = SERIAL if command == "train" else (command, "small.yaml")
    return Wrong(name, (*typed, type_, *words), said, remedy)


# Found before anything slow begins.
WORDS = (
    Wrong("command misspelt", ("staus", "latest"), "no command 'staus'", "did you mean status?"),
    Wrong(
        "shipped experiment misspelt",
        ("train", "cartpole_dqm"),
        "cartpole_dqm: no such experiment",
        "did you mean cartpole_dqn?",
    ),
    Wrong(
        "shipped experiment as a file elsewhere",
        ("plan", "configs/cartpole_dqn.yaml"),
        "configs/cartpole_dqn.yaml: cannot be read",
        "did you mean cartpole_dqn?",
    ),
    Wrong(
        "experiment like no other",
        ("launch", "unheard"),
        "unheard: no such experiment",
        "surreal-like list experiments",
    ),
    Wrong(
        "shipped tuning misspelt",
        ("tune", "cartpole_ashs"),
        "cartpole_ashs: no such experiment",
        "did you mean cartpole_asha?",
    ),
    Wrong(
        "project over files",
        ("init", "mine"),
        "mine has experiment.yaml",
        "name another folder",
        {"mine/experiment.yaml": CONFIG},
    ),
    Wrong("project in a file", ("init", "small.yaml"), "small.yaml cannot be written", "File"),
    Wrong("command of its own", ("bake",), "no command 'bake'", "there are train, "),
    Wrong(
        "a run without its code",
        ("evaluate", "bare", "--snapshot"),
        "runs/bare has no snapshot of its code",
        "leave --snapshot out",
        {"runs/bare/config.yaml": CONFIG},
    ),
    Wrong(
        "a snapshot that was changed",
        ("play", "ended", "--snapshot"),
        "runs/ended/code/source.tar.gz is not the snapshot of the run's start",
        "put a copy of it back",
        {"runs/ended/code/source.tar.gz": b"changed"},
    ),
    Wrong(
        "a snapshot to begin with",
        (*SERIAL, "--snapshot"),
        "--snapshot belongs to --resume",
        "a new run has the installed code",
    ),
    Wrong(
        "a run in the place of an experiment",
        ("train", "--resume", "runs"),
        "runs is a folder, not an experiment",
        "--resume --folder RUN",
    ),
    Wrong("export as a picture", ("export", "ended", "--format", "png"), "'png'", "onnx or pt2"),
    Wrong(
        "export to nowhere",
        # ONNX is checked first, and needs the extra export.
        ("export", "ended", "--out", "no/policy.pt2", "--format", "pt2"),
        "cannot write no/policy.pt2",
        "there is no folder no",
    ),
    Wrong(
        "export what was never saved",
        ("export", "ended", "--checkpoint", "7", "--format", "pt2"),
        "no checkpoint '7'",
        "it has ",
    ),
    Wrong("no run named", ("status",), "required: RUN", HELP.format("status")),
    Wrong("one word too many", ("stop", "ended", "now"), "arguments: now", HELP.format("stop")),
    Wrong("option shortened", ("logs", "ended", "--foll"), "--foll", HELP.format("logs")),
    Wrong("seed with a point", (*SERIAL, "--seed", "1.5"), "'1.5'", HELP.format("train")),
    Wrong("seed below 0", (*SERIAL, "--seed", "-1"), "session_config.seed is -1", "0 or more"),
    Wrong("seeds of words", ("train", "small.yaml", "--seeds", "1..x"), "1..x", "as 1..5, or as"),
    Wrong(
        "launcher of no run", ("launch", "small.yaml", "--on", "locl"), "'locl'", "you mean local?"
    ),
    Wrong(
        "serial run that goes on by itself",
        ("launch", "small.yaml", "--on", "serial"),
        "no launcher 'serial'",
        "surreal-like train --on serial",
    ),
    Wrong("nothing to launch", ("launch",), "no experiment", "such as cartpole_dqn"),
    Wrong(
        "launch into a folder in use",
        ("launch", "small.yaml", "--folder", "runs/ended"),
        "runs/ended is not empty",
        "--resume",
    ),
    Wrong(
        "launch what was never begun",
        ("launch", "--resume", "--folder", "runs/nope"),
        "runs/nope is no run to resume",
        "without --resume",
    ),
    Wrong(
        "no tmux",
        ("launch", "small.yaml", "--on", "tmux"),
        "tmux",
        "install",
        env={"PATH": "."},
    ),
    Wrong("plan on another planet", ("plan", "small.yaml", "--on", "mars"), "'mars'", "local"),
    Wrong("plan as pdf", ("plan", "small.yaml", "--format", "pdf"), "'pdf'", "mermaid"),
    Wrong(
        "client without environment",
        ("client", "127.0.0.1:1"),
        "required: --env",
        HELP.format("client"),
    ),
    Wrong(
        "client in a language of its own",
        ("client", "--copy", "cobol"),
        "--copy is 'cobol .', expected one of python, javascript, cpp, then a folder",
        "",
    ),
    Wrong(
        "client of nothing", ("client", "--env", "x"), "required: HOST:PORT", HELP.format("client")
    ),
    Wrong(
        "client without processes",
        ("client", "127.0.0.1:1", "--env", "toy:chain", "--num", "0"),
        "--num is 0, expected 1 or more",
        "",
    ),
    Wrong("tune without a file", ("tune",), "give one tune file", "configs/cartpole_asha.yaml"),
    Wrong("tune no file", ("tune", "none.yaml"), "none.yaml: cannot be read", "No such file"),
    Wrong(
        "tune by an unknown kind",
        ("tune", "tune.yaml"),
        "unknown kind log_uniform",
        "did you mean loguniform",
        files(tune_yaml="space: {a.b: {log_uniform: [1, 2]}}"),
    ),
    Wrong(
        "tune an unknown key",
        ("tune", "tune.yaml", "tune.trails=3"),
        "unknown key tune.trails",
        "did you mean tune.trials",
        files(tune_yaml="tune: {}"),
    ),
    Wrong("resume no tuning", ("tune", "--resume", "--folder", "no"), "no tuning", "no tune.yaml"),
    Wrong(
        "resume without folder",
        ("tune", "--resume"),
        "no tuning to resume",
        "name one with --folder",
    ),
    Wrong(
        "retry without resume",
        ("tune", "tune.yaml", "--retry-errors"),
        "--retry-errors",
        "belongs to --resume",
    ),
    Wrong("clients of no run", ("clients", "nowhere"), "no run 'nowhere'", "list runs"),
    Wrong("serve no run", ("serve", "nowhere"), "no run 'nowhere'", "list runs"),
    Wrong("check of nothing", ("check",), "required: ENV|CONFIG.yaml", HELP.format("check")),
    Wrong("plan of nothing", ("plan", "smal.yaml"), "smal.yaml", "did you mean small.yaml?"),
    Wrong("status of nobody", ("status", "endd", "--watch"), "no run 'endd'", "you mean ended?"),
    Wrong("logs of nobody", ("logs", "nope", "--follow"), "no run 'nope'", LIST),
    Wrong("level of loudness", ("logs", "ended", "--level", "loud"), "'loud'", "warning"),
    Wrong("since a day", ("logs", "ended", "--since", "monday"), "'monday'", "30s, 5m, 2h"),
    Wrong(
        "log of no component",
        ("logs", "ended", "--component", "agent-9"),
        "no log of 'agent-9'",
        "there are agent-0",
    ),
    Wrong("attach to nobody", ("attach", "nope"), "no run 'nope'", LIST),
    Wrong("attach to the dead", ("attach", "ended"), "runs/ended is over", GO_ON),
    Wrong("scale nobody", ("scale", "nope", "agent=2"), "no run 'nope'", LIST),
    Wrong("scale the dead", ("scale", "ended", "agent=2"), "runs/ended is over", GO_ON),
    Wrong("scale without a number", ("scale", "ended", "agent"), "'agent'", "agent=8 or eval=2"),
    Wrong("scale below 0", ("scale", "ended", "agent=-1"), "'agent=-1'", "agent=8 or eval=2"),
    Wrong("scale to many", ("scale", "ended", "agent=many"), "agent=many", "agent=8 or eval=2"),
    Wrong("restart of nobody", ("restart", "nope", "learner"), "no run 'nope'", LIST),
    Wrong("restart of the dead", ("restart", "ended", "learner"), "runs/ended is over", GO_ON),
    Wrong("restart of nothing", ("restart", "ended"), "COMPONENT", HELP.format("restart")),
    Wrong("stop of nobody", ("stop", "nope"), "no run 'nope'", LIST),
    Wrong("stop of the dead", ("stop", "ended"), "runs/ended is over", GO_ON),
    Wrong("chaos of nobody", ("chaos", "nope", "--kill", "agent=1s"), "no run 'nope'", LIST),
    Wrong("chaos of the dead", ("chaos", "ended", "--kill", "ps=1s"), "runs/ended is over", GO_ON),
    Wrong("chaos of nothing", ("chaos", "ended"), "nothing to try", "--kill, --term, --stop"),
    Wrong(
        "chaos of a part that there is not",
        ("chaos", "--algorithm", "dqn", "--env", "gym:CartPole-v1", "--kill", "foo=3s"),
        "no component of kind 'foo'",
        "it has agent, evaluator",
    ),
    Wrong(
        "chaos without a mean",
        ("chaos", "ended", "--kill", "agent"),
        "'agent'",
        "write it as agent=30s",
    ),
    Wrong(
        "chaos without a unit",
        ("chaos", "ended", "--stop", "ps=30"),
        "'30' is no time",
        "30s, 5m, 2h",
    ),
    Wrong(
        "chaos at once",
        ("chaos", "ended", "--kill", "ps=0s"),
        "'0s' is no time",
        "30s, 5m, 2h",
    ),
    Wrong(
        "chaos for ever",
        ("chaos", "ended", "--for", "ever"),
        "'ever' is no time",
        "30s, 5m, 2h",
    ),
    Wrong("doctor of nobody", ("doctor", "nope"), "no run 'nope'", LIST),
    Wrong(
        "a job of Ray without its files", ("ray-run", "ended"), "not written for Ray", "--on ray"
    ),
    Wrong("probe of nobody", ("probe", "nope", "learner"), "no run 'nope'", LIST),
    Wrong(
        "probe of no component",
        ("probe", "ended", "x"),
        "'x' has no heartbeat",
        "heartbeats there:",
    ),
    Wrong("join without a place", ("join",), "ADDRESS:PORT is missing", "join --print RUN"),
    Wrong("join without a token", ("join", "127.0.0.1:1"), "--token TOKEN", "join --print RUN"),
    Wrong(
        "join with a wrong token",
        ("join", "127.0.0.1:1", "--token", "sl1-abc"),
        "the token (7 characters) is no token",
        "join --print RUN",
    ),
    Wrong(
        "join with nobody",
        ("join", "127.0.0.1:1", "--token", "x", "--agents", "0"),
        "--agents is 0",
        "expected 1 or more",
    ),
    Wrong("an invitation to the dead", ("join", "--print", "nope"), "no run 'nope'", LIST),
    Wrong("keys of nothing", ("keys", "nowhere"), "nowhere", "--on kubernetes"),
    Wrong("evaluate nobody", ("evaluate", "nope"), "no run 'nope'", LIST),
    Wrong("episodes of words", ("evaluate", "ended", "--episodes", "x"), "'x'", "evaluate --help"),
    Wrong("record nobody", ("record", "nope", "--out", "x"), "no run 'nope'", LIST),
    Wrong("a recording that goes nowhere", ("record", "ended"), "--out", HELP.format("record")),
    Wrong(
        "epsilon of words",
        ("record", "ended", "--out", "x", "--epsilon", "much"),
        "'much'",
        HELP.format("record"),
    ),
    Wrong("data of nothing", ("data",), "DIR", HELP.format("data")),
    Wrong("rerun nobody", ("rerun", "nope"), "no run 'nope'", LIST),
    Wrong("updates of words", ("rerun", "ended", "--until", "x"), "'x'", HELP.format("rerun")),
    Wrong("rerun of a run that kept nothing", ("rerun", "ended"), "no journal", "flight.keep=all"),
    Wrong(
        "data of nobody",
        ("data", "nope"),
        "nope: there is no such folder",
        "so it has no recording",
    ),
    Wrong(
        "data of a run that was not recorded",
        ("data", "runs/ended"),
        "runs/ended has no recording",
        "train with session_config.record.what=all",
    ),
    Wrong("play nobody", ("play", "nope"), "no run 'nope'", LIST),
    Wrong(
        "video of no kind",
        ("play", "ended", "--video", "out.xyz"),
        "out.xyz",
        "ends in .mp4 or .gif",
    ),
    Wrong(
        "video into no folder",
        ("play", "ended", "--video", "nowhere/out.mp4"),
        "nowhere/out.mp4",
        "there is no folder nowhere",
    ),
    Wrong("plot nobody", ("plot", "nope"), "no run 'nope'", LIST),
    Wrong(
        "plot into no folder", ("plot", "ended", "--out", "nowhere/x.png"), "nowhere/x", "folder"
    ),
    Wrong("plot of no kind", ("plot", "ended", "--out", "x.doc"), "x.doc", ".png"),
    Wrong("plot of no metric", ("plot", "ended", "--metric", "retrun"), "'retrun'", "did you mean"),
    Wrong(
        "interval of one seed",
        ("plot", "ended", "--band", "interval"),
        "has 1 seed, an interval needs 5 or more",
        "--seeds 1..5",
    ),
    Wrong("compare nobody", ("compare", "nope"), "no run 'nope'", LIST),
    Wrong("compare one seed", ("compare", "ended"), "has 1 seed, a comparison", "--seeds 1..5"),
    Wrong(
        "comparison of no kind", ("compare", "ended", "--json", "x.doc"), "x.doc", "end in .json"
    ),
    Wrong(
        "scales that are not there",
        ("compare", "ended", "--normalize", "no.yaml"),
        "no.yaml: cannot be read",
        "No such file",
    ),
    Wrong("list of robots", ("list", "robots"), "'robots'", "environments"),
    Wrong(
        "a list in the file",
        ("train", "b.yaml"),
        "b.yaml: holds list",
        "a mapping",
        files(b_yaml="- a"),
    ),
    Wrong(
        "a tab in the file", ("train", "b.yaml"), "b.yaml:2", "a tab", files(b_yaml="a: 1\n\tb: 2")
    ),
    Wrong("no text", ("train", "b.yaml"), "b.yaml", "UTF-8", files(b_yaml=b"\xff\xfe\x00bad")),
    Wrong("half a JSON", ("train", "b.json"), "b.json:1", "Expecting", files(b_json='{"a": ')),
    Wrong("empty file", ("train", "b.yaml"), "no algorithm", "'algorithm: dqn'", files(b_yaml="")),
    Wrong(
        "a setting without its value",
        ("train", "small.yaml", "learner_config.algo.gamma"),
        "learner_config.algo.gamma has no value",
        "write learner_config.algo.gamma=VALUE",
    ),
    Wrong("no environment", ("train", "--algorithm", "dqn"), "no environment", "give --env"),
    Wrong(
        "no agents", (*SERIAL, "--agents", "0"), "agent.num is 0", "session_config.launcher.host"
    ),
    Wrong(
        "deaf watchman",
        (*SERIAL, "session_config.heartbeat.timeout=0"),
        "heartbeat.timeout is 0",
        "expected more than 0",
    ),
    Wrong("no time", (*SERIAL, "session_config.stop.seconds=0"), "stop.seconds is 0", "or more"),
    Wrong(
        "a change that is none",
        (*SERIAL, "--allow-change", "foo.bar"),
        "--allow-change",
        "belongs to --resume",
    ),
    Wrong(
        "a table as a picture",
        ("plan", "small.yaml", "--explain", "--format", "mermaid"),
        "--explain is a table",
        "leave --format mermaid out",
    ),
    Wrong(
        "an emptied config",
        ("status", "ended"),
        "runs/ended/config.yaml is not the config of a run",
        "put a copy of it back",
        {"runs/ended/config.yaml": ""},
    ),
    Wrong(
        "a video where nothing can be written",
        ("play", "ended", "--video", "/proc/x.mp4"),
        "cannot write /proc/x.mp4",
        "a folder that you may write to",
    ),
    Wrong("half an override", (*SERIAL, "a.b={c: 1"), "'a.b={c: 1'", "expected ',' or '}'"),
    Wrong("a value for a section", (*SERIAL, "session_config=3"), "is 3", "expected a mapping"),
    Wrong(
        "another run's config that is broken",
        ("status", "ended"),
        "config.yaml",
        "expected",
        {"runs/ended/config.yaml": "session_config: {"},
    ),
)

# Only the algorithm, the environment or this machine can know.
RESOLVED = (
    setting("steps in words", "session_config.stop.env_steps=many", "'many'", "a number, or null"),
    setting("steps below 0", "session_config.stop.env_steps=-5", "is -5", "expected 1 or more"),
    setting("nowhere", "session_config.import_path=[nowhere]", "no folder nowhere", "your modules"),
    setting("many agents", "session_config.agent.num=1000", "agent.num 1000 x num_envs 4", "lower"),
    *(
        Wrong(
            f"agents with names of machines that join, on {place}",
            ("plan", "small.yaml", "--on", place, "--agents", "1001"),
            "session_config.agent.num is 1001",
            "expected 0 to 1000",
        )
        for place in ("local", "slurm", "ray", "kubernetes")
    ),
    Wrong(
        "a budget that is used",
        ("train", "--resume", "--folder", "runs/ended", "--on", "serial"),
        "session_config.stop.env_steps is 400",
        "raise it, as in session_config.stop.env_steps=800",
    ),
    Wrong(
        "a change of no key",
        (
            "train",
            "--resume",
            "--folder",
            "runs/ended",
            "--on",
            "serial",
            "--allow-change",
            "foo.b",
        ),
        "--allow-change foo.b",
        "there is no such key",
    ),
    Wrong(
        "an algorithm for other actions",
        ("train", "--on", "serial", "--algorithm", "dqn", "--env", "gym:Pendulum-v1"),
        "DQN needs discrete actions",
        "ppo, sac or td3",
    ),
    setting("no rows", "learner_config.replay.batch_size=0", "batch_size is 0", "1 or more"),
    setting(
        "small replay", "learner_config.replay.capacity=10", "min_size is 64", "lower min_size"
    ),
    setting(
        "few bytes",
        "learner_config.replay.max_bytes=1000",
        "min_size is 64, but 15 rows of capacity (1000 bytes of max_bytes / 65 bytes of a row)",
        "lower min_size",
    ),
    setting(
        "chunks beyond the replay",
        "session_config.sender.flush_iteration=501",
        "flush_iteration 501 x num_envs 4 = 2004 rows",
        "lower session_config.sender.flush_iteration",
    ),
    setting(
        "small messages",
        "session_config.max_message_bytes=7000",
        "one answer of 128 rows x 57 bytes of a row = 7296",
        "lower learner.batches_per_request",
    ),
    replay(
        "unrolls for a replay of rows",
        f"{TYPE}uniform_replay:UniformReplay",
        "replay_proportion=0.5",
        "replay_proportion is 0.5",
        "set it to 0",
    ),
    replay("parts of unrolls", FIFO, "batch_size=18", "18 streams, no multiple of", "num_envs 4"),
    replay(
        "short queue",
        FIFO,
        "capacity=100",
        "leaves 100 rows to a shard, but one batch takes 16 streams x 8 steps = 128 rows",
        "raise capacity",
    ),
    replay(
        "a queue of two that are short",
        FIFO,
        "capacity=200 replay_shards=2",
        "leaves 100 rows to a shard",
        "lower batch_size",
        command="plan",
    ),
    replay(
        "odd share of replayed unrolls",
        FIFO,
        "replay_proportion=0.4",
        "0.4 x 4 unrolls of a batch",
        "possible are 0, 0.25, 0.5, 0.75",
        command="launch",
    ),
    replay(
        "replayed altogether", FIFO, "replay_proportion=1.0", "number below 4", "possible are 0, "
    ),
    replay(
        "nothing to replay",
        FIFO,
        "replay_proportion=0.5 replay_capacity=50",
        "replay_capacity leaves 50 rows to a shard, but one batch takes 8 streams x 8 steps = 64",
        "raise replay_capacity",
    ),
    replay(
        "few bytes for unrolls",
        FIFO,
        "max_bytes=8000",
        "that is 3 unrolls in the queue",
        "raise max_bytes or lower batch_size",
    ),
    replay("samples for each unroll", FIFO, "samples_per_insert=2", "each row once", "set it to 0"),
    Wrong(
        "steps between sequences",
        (*R2D2, "learner_config.replay.sequence={length: 10, period: 11}"),
        "replay.sequence.period is 11, but length is 10",
        "lower the period",
    ),
    Wrong(
        "no step of a sequence",
        (*R2D2, "learner_config.replay.sequence.period=0"),
        "learner_config.replay.sequence.period is 0",
        "1 or more",
    ),
    Wrong(
        "a negative burn-in",
        (*R2D2, "learner_config.replay.sequence.burn_in=-1"),
        "learner_config.replay.sequence.burn_in is -1",
        "0 or more",
    ),
    Wrong(
        "few sequences",
        (*R2D2, "learner_config.replay={capacity: 1000, min_size: 100}"),
        "min_size is 100 sequences, but 1000 rows of capacity",
        "lower min_size",
    ),
    Wrong(
        "rows for R2D2",
        (*R2D2, f"{TYPE}uniform_replay:UniformReplay"),
        "R2D2 learns from sequences of episodes",
        "UniformReplay, which gives single rows",
    ),
    Wrong(
        "R2D2 without memory",
        (*R2D2, "learner_config.model.memory=''"),
        "learner_config.model.memory is empty",
        "set it to lstm or gru",
    ),
    Wrong(
        "first priorities of actions without values",
        (
            *("train", "--on", "serial", "--algorithm", "sac", "--env", "gym:Pendulum-v1"),
            PRIORITIZED,
            "learner_config.replay.priority.initial=acting",
        ),
        "agents of SAC send no values of actions",
        "use dqn with PrioritizedReplay",
    ),
    setting(
        "first priorities without any",
        "learner_config.replay.priority.initial=acting",
        "UniformReplay has no such priorities",
        "set it to highest",
    ),
    Wrong(
        "first priorities of divergences",
        (
            *(*SERIAL, PRIORITIZED, "learner_config.replay.priority.initial=acting"),
            "learner_config.algo.distribution.kind=categorical",
        ),
        "priorities are divergences",
        "set initial to highest",
    ),
    setting(
        "unknown first priorities",
        "learner_config.replay.priority.initial=actin",
        "'actin', expected one of highest, acting",
        "did you mean acting?",
    ),
    replay(
        "iterations of a queue",
        FIFO,
        "iteration.unroll_length=32",
        "FIFOReplay has no iterations",
        "set it to 0",
    ),
    replay(
        "iterations over shards",
        ITERATING,
        "iteration.unroll_length=40 replay_shards=2 samples_per_insert=0",
        "iterations need one shard",
        "set replay_shards to 1",
    ),
    replay(
        "iterations with a rate",
        ITERATING,
        "iteration.unroll_length=40 samples_per_insert=4",
        "samples_per_insert is 4: an iteration itself says how much is learned",
        "set samples_per_insert to 0",
    ),
    replay(
        "iterations of parts of chunks",
        ITERATING,
        "iteration.unroll_length=41 samples_per_insert=0",
        "unroll_length is 41, but session_config.sender.flush_iteration is",
        "set one to a multiple of the other",
    ),
    replay(
        "rows that go unlearned",
        ITERATING,
        "iteration.unroll_length=40 iteration.clear_replay_buffer=true samples_per_insert=0",
        "clear_replay_buffer is true, but whole_replay_buffer_training is false",
        "set both to true",
    ),
    replay(
        "iterations beyond the replay",
        ITERATING,
        "iteration.unroll_length=40000 samples_per_insert=0",
        "rows are more than replay.capacity",
        "raise the capacity",
    ),
    replay("age of no unrolls", FIFO, "age.max_versions=9", "proportion is 0", "max_version_lag"),
    replay("age of priorities", PRIORITIZED, "age.max_versions=9", "is for UniformReplay", "to 0"),
    replay("odd beta", PRIORITIZED, "priority.beta.kind=liner", "'liner'", "constant, linear"),
    replay("large beta", PRIORITIZED, "priority.beta.start=2", "start is 2", "expected 0 to 1"),
    setting("odd discount", "learner_config.algo.gamma=1.5", "gamma is 1.5", "expected 0 to 1"),
    setting("no GPU", "learner_config.device=cuda:63", "'cuda:63'", "auto, or to cpu"),
    setting("odd device", "learner_config.device=gpu", "'gpu'", "expected auto, cpu, cuda"),
    setting("odd target", "learner_config.algo.target.mode=sotf", "'sotf'", "one of hard, soft"),
    setting(
        "odd schedule", "learner_config.algo.epsilon.kind=liner", "'liner'", "constant, linear"
    ),
    setting(
        "unrolls for who wants rows",
        "learner_config.replay.type=FIFOReplay",
        "FIFOReplay, which gives whole unrolls",
        "DQN learns from single rows, as UniformReplay gives",
    ),
    setting(
        "a part that is none",
        "learner_config.parts=[{part: normalise_rewards}]",
        "no part 'normalise_rewards'",
        "did you mean normalize_rewards?",
    ),
    setting(
        "a part without its name",
        "learner_config.parts=[doubled]",
        "learner_config.parts has 'doubled'",
        "expected {part: NAME, args: {...}}",
    ),
    setting(
        "no range of values",
        "learner_config.algo.distribution={kind: categorical, v_min: 10}",
        "distribution has v_min 10",
        "below v_max 10.0",
    ),
    setting(
        "odd distribution",
        "learner_config.algo.distribution.kind=c51",
        "distribution.kind is 'c51'",
        "expected one of none, categorical, quantile",
    ),
    setting(
        "noise against itself", "learner_config.model.noisy=-1", "noisy is -1", "expected 0 or more"
    ),
    Wrong(
        "noise of a policy",
        (*SERIAL, "--algorithm=ppo", "learner_config.model.noisy=0.5"),
        "ppo has no learner_config.model.noisy",
        "option of dqn",
    ),
    Wrong(
        "a beta policy of choices",
        (*SERIAL, "--algorithm=ppo", "learner_config.model.policy=beta"),
        "learner_config.model.policy is 'beta', but discrete actions",
        "set it to gaussian",
    ),
    Wrong(
        "two rules of one step size",
        (
            *SERIAL,
            "--algorithm=ppo",
            "learner_config.algo.adaptive_learning_rate.kl=0.01",
            "learner_config.algo.learning_rate.kind=linear",
        ),
        "adaptive_learning_rate.kl is 0.01, but learner_config.algo.learning_rate is linear",
        "set its kind to constant, or kl to 0",
    ),
    setting("odd layers", "learner_config.model.hidden_sizes=[a]", "['a']", "widths of 1 or more"),
    setting("odd activation", "learner_config.model.activation=rleu", "'rleu'", "one of elu"),
    setting("no replay", "learner_config.replay.type=no.such:Replay", "no.such", "file.py:Name"),
    setting("odd replay", "learner_config.replay.type=os.path:join", "join", "surreal_like.Replay"),
    setting(
        "odd fetching", "session_config.agent.fetch_parameter_mode=often", "'often'", "episode:"
    ),
    setting("odd metric", "env_config.metric_keys=[3]", "metric_keys is [3]", "names in info"),
    Wrong(
        "an observation's part that is not there",
        (
            *("train", "--on", "serial", "--algorithm", "dqn", "--env", "toy:bitflip"),
            "env_config.obs_keys=[observatoin]",
        ),
        "env_config.obs_keys is ['observatoin']",
        "did you mean observation?",
    ),
    setting("no environments", "env_config.num_envs=0", "num_envs is 0", "1 or more"),
    setting("odd stack", "env_config.frame_stack=-1", "frame_stack is -1", "expected 0 or more"),
    Wrong(
        "a stack whose spec is that of a frame",
        (*SERIAL, "env_config.frame_stack=4", "env_config.obs_spec={type: float32, dim: [9]}"),
        "obs_spec.dim is [9]",
        "leave env_config.obs_spec out",
    ),
    setting("odd horizon", "env_config.limit_episode_length=abc", "'abc'", "whole number of steps"),
    setting(
        "no such wrapper", "env_config.wrappers=[my:Own]", "my:Own", "session_config.import_path"
    ),
    setting("no such module", "env_config.env_name=my:Own", "my:Own", "session_config.import_path"),
    setting("no prefix", "env_config.env_name=CartPole-v1", "'CartPole-v1'", "gym:CartPole-v1"),
    Wrong(
        "a class that is no environment",
        (*SERIAL, "--env", "nothing:Nothing", "session_config.import_path=[.]"),
        "gives a Nothing",
        "expected a surreal_like Env or VectorEnv, or one of Gymnasium",
        files(nothing_py=NO_ENVIRONMENT),
    ),
    Wrong(
        "an algorithm that is no Python",
        (*SERIAL, "--algorithm", "broken.py"),
        "SyntaxError",
        "(broken.py, line 1)",
        files(broken_py="def broken(:"),
    ),
    Wrong(
        "a file without an algorithm",
        (*SERIAL, "--algorithm", "nothing.py"),
        "found none",
        "expected one class that extends Algorithm",
        files(nothing_py=NO_ENVIRONMENT),
    ),
    Wrong(
        "a host that is not here",
        ("launch", "small.yaml", "--host", "203.0.113.77"),
        "203.0.113.77",
        "one of this machine's own addresses",
    ),
    Wrong(
        "no kubectl",
        ("launch", "small.yaml", "--on", "kubernetes"),
        "kubectl",
        "install",
        env={"PATH": "."},
    ),
    Wrong(
        "an unknown checkpoint",
        ("evaluate", "ended", "--checkpoint", "12345"),
        "no checkpoint '12345'",
        "it has ",
    ),
    Wrong("evaluate below 0", ("evaluate", "ended", "--seed", "-1"), "seed is -1", "0 or more"),
    Wrong("no episode", ("evaluate", "ended", "--episodes", "0"), "0 episodes", "at least one"),
    Wrong(
        "no episode to record",
        ("record", "ended", "--out", "x", "--episodes", "0"),
        "0 episodes",
        "at least one",
    ),
    Wrong(
        "more than always",
        ("record", "ended", "--out", "x", "--epsilon", "1.5"),
        "epsilon is 1.5",
        "expected 0 to 1",
    ),
    Wrong(
        "a video of nothing to see",
        ("play", "ended", "--video", "out.gif"),
        "toy:chain has no pictures",
        "surreal-like evaluate",
    ),
    Wrong("no screen", ("play", "ended"), "no screen", "--video out.mp4", env=NO_SCREEN),
    Wrong(
        "a setting for a launch",
        ("launch", "small.yaml", "session_config.agnet.num=1"),
        "session_config.agnet",
        "did you mean session_config.agent",
    ),
    Wrong(
        "an environment for a launch",
        ("launch", "small.yaml", "--env", "toy:chian"),
        "toy:chian",
        "did you mean toy:chain",
    ),
)


PLAN_FILE = """
from surreal_like.dataflow import concurrently, replay, rollouts, train_one_step

def listing(learner): return [replay(learner)]
def idle(learner): return replay(learner)
def unrolls(learner): return rollouts(learner).for_each(train_one_step(learner))
def rows(learner): return replay(learner).for_each(train_one_step(learner))
def waiting(learner): return rollouts(learner, "bulk_sync").for_each(train_one_step(learner))
def alone(learner): return concurrently([replay(learner)])
def two(learner, other): return replay(learner)
def reads(batch): return batch.gains
def lacking(learner): return replay(learner).for_each(reads).for_each(train_one_step(learner))
"""
BUILT_FILE = """
from surreal_like import Learner, build_algorithm
from surreal_like.algorithm.dqn import DQN, DQNAgent

def loss(learner, batch): return batch.extras["gains"].mean()
"""
BUILT = {
    "part": "Mine = build_algorithm('Mine', los_fn=loss)",
    "arguments": "Mine = build_algorithm('Mine', lambda batch: 0)",
    "column": "Mine = build_algorithm('Mine', loss)",
    "loss": "Mine = DQN.with_updates('Mine', learner=Bare)",
}
BARE = """
from torch import nn
class Bare(Learner):
    def module_dict(self): return {"layer": nn.Linear(1, 1)}
"""


def plan(name: str, said: str, remedy: str, *words: str) -> Wrong:
    override = f"learner_config.execution_plan=plans.py:{name}"
    argv = (*SERIAL, override, *words)
    return Wrong(f"plan {name}", argv, said, remedy, files(plans_py=PLAN_FILE))


def built(name: str, said: str, remedy: str) -> Wrong:
    text = f"{BUILT_FILE}{BARE}{BUILT[name]}\n"
    argv = ("train", "--algorithm", "mine.py", "--env", "toy:chain", "--on", "serial")
    return Wrong(f"built {name}", argv, said, remedy, files(mine_py=text))


# A plan, or an algorithm of functions, that cannot work.
PLANS = (
    plan("listing", "plan of DQNLearner is a list", "expected a Flow"),
    plan("idle", "trains nothing", "train_one_step or apply_gradients"),
    plan("unrolls", "UniformReplay, which gives single rows", "use replay(learner)"),
    plan("rows", "FIFOReplay, which gives whole unrolls", "use rollouts(learner)", FIFO),
    plan("waiting", "algo.synchronous is False", "change one of them", FIFO),
    plan("alone", "cannot be built: concurrently", "needs 2 flows or more, not 1"),
    plan("two", "takes other arguments", "expected a function of (learner)"),
    plan("lacking", "no 'gains'; it has", "in reads, operator 2 of the plan of DQN"),
    plan("lackin", "has no 'lackin'", "did you mean lacking"),
    setting("no such plan", "learner_config.execution_plan=no.py:plan", "no.py", "no such file"),
    built("part", "unknown part 'los_fn'", "did you mean loss_fn"),
    built("arguments", "loss_fn of Mine takes other", "expected a function of (learner, batch)"),
    built("column", "no 'extras/gains'", "in train_one_step, operator 2"),
    built("loss", "Bare must implement loss(batch) or learn(batch)", "see docs/your_own_"),
)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder with a small run that has ended: `runs/ended`."""
    folder = tmp_path_factory.mktemp("ended")
    (folder / "small.yaml").write_text(CONFIG)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main([*SERIAL, "--folder", "runs/ended", "--quiet"]) == 0
        yield folder


@pytest.fixture
def prepared(command: Command, ended: Path, tmp_path: Path) -> Command:
    """Return the command, in a folder with an experiment and a run that has ended."""
    shutil.copytree(ended / "runs", tmp_path / "runs")
    return command


def refuse(wrong: Wrong, prepared: Command, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Type it, and look at all that it leaves."""
    for name, text in wrong.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
    for name, value in wrong.env.items():
        patch.setenv(name, value)
    before = content(folder)
    said = prepared(*wrong.argv)
    assert_one_line(said)
    assert wrong.said in said.err, said.err
    assert wrong.remedy in said.err, said.err
    assert content(folder) == before


def assert_one_line(said: Said, *, advice: bool = False) -> None:
    assert said.code == 2, said.err
    assert said.err.startswith("surreal-like: error: "), said.err
    assert said.err.count("\n") == 1, said.err
    assert "Traceback" not in said.err
    assert bool(said.out) == advice


@pytest.mark.parametrize("wrong", WORDS, ids=lambda wrong: wrong.name)
def test_wrong_words(
    wrong: Wrong, prepared: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(wrong, prepared, tmp_path, monkeypatch)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("wrong", (*RESOLVED, *PLANS), ids=lambda wrong: wrong.name)
def test_wrong_settings(
    wrong: Wrong, prepared: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(wrong, prepared, tmp_path, monkeypatch)


def test_a_run_that_goes_on_is_not_entered(prepared: Command, tmp_path: Path) -> None:
    write(tmp_path, {})
    folder = RunFolder(tmp_path / "runs" / "ended")
    folder.lock()
    try:
        said = prepared("train", "--resume", "--folder", "runs/ended")
    finally:
        folder.unlock()
    assert_one_line(said)
    assert "runs/ended" in said.err
    assert "in use" in said.err


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("was", "words", "said"),
    [
        pytest.param(
            *("kubernetes", ("train",), "on a volume of the cluster"), marks=needs("kubernetes")
        ),
        pytest.param(
            *("kubernetes", ("launch", "--on", "tmux"), "--on kubernetes"),
            marks=needs("kubernetes"),
        ),
        ("local", ("launch", "--on", "kubernetes"), "in its folder"),
    ],
)
def test_a_run_goes_on_where_its_checkpoints_are(
    prepared: Command, tmp_path: Path, was: str, words: tuple[str, ...], said: str
) -> None:
    write(tmp_path, {})
    file = tmp_path / "runs" / "ended" / "config.yaml"
    config = Config.load_file(file)
    config["run"] = {**(config.get("run") or {}), "launcher": was}
    config.dump_file(file)
    answer = prepared(*words, "--resume", "--folder", "runs/ended")
    assert_one_line(answer)
    assert said in answer.err, answer.err
    assert "surreal-like launch --resume --folder runs/ended --on" in answer.err


def test_two_runs_of_one_name_are_distinguished(prepared: Command, tmp_path: Path) -> None:
    shutil.copytree(tmp_path / "runs" / "ended", tmp_path / "ended")
    said = prepared("status", "ended")
    assert_one_line(said)
    assert "write ./ended or runs/ended" in said.err


@pytest.mark.slow
def test_a_run_that_was_planned_and_not_started(
    prepared: Command, tmp_path: Path, quick: None
) -> None:
    assert prepared("plan", "small.yaml", "--format", "shell", "--folder", "runs/idle").code == 0
    for words in (("scale", "idle", "agent=3"), ("restart", "idle", "learner"), ("stop", "idle")):
        said = prepared(*words)
        assert_one_line(said)
        assert "runs/idle does not run" in said.err


@pytest.mark.kubectl
@pytest.mark.usefixtures("quick")
def test_no_cluster(prepared: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
    before = content(tmp_path)
    # That device is the cluster's affair.
    device = "learner_config.device=cuda:63"
    said = prepared("launch", "small.yaml", "--on", "kubernetes", device)
    assert_one_line(said, advice=True)
    assert "no cluster answers" in said.err
    assert "kubectl cluster-info" in said.err
    assert content(tmp_path) == before


def test_every_command_is_in_the_table() -> None:
    typed = {wrong.argv[0] for wrong in (*WORDS, *RESOLVED)}
    assert {command.name for command in all_commands()} <= typed
    assert len(WORDS) + len(RESOLVED) >= 90
    names = [wrong.name for wrong in (*WORDS, *RESOLVED, *PLANS)]
    assert len(names) == len(set(names))
