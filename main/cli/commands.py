"""The list of commands, and the page that ``surreal-like --help`` shows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    Args:
        name: the word on the command line.
        group: heading in the help page.
        usage: its main arguments.
        summary: its purpose, in one line.
        module: has ``run(argv) -> exit code``; imported when the command is used.
    """

    name: str
    group: str
    usage: str
    summary: str
    module: str


COMMANDS = (
    Command(
        "train",
        "run",
        "CONFIG.yaml [key=value]",
        "train until the goal is met or a budget is used",
        "main.cli.train",
    ),
    Command(
        "launch",
        "run",
        "CONFIG.yaml --on WHERE",
        "train on local, tmux or kubernetes, detached",
        "main.cli.launch",
    ),
    Command(
        "tune",
        "run",
        "FILE.yaml [key=value]",
        "run many trials of one experiment",
        "main.cli.tune",
    ),
    Command(
        "plan",
        "run",
        "CONFIG.yaml [key=value]",
        "show what would run, without starting it",
        "main.cli.plan",
    ),
    Command(
        "check",
        "run",
        "ENV|CONFIG.yaml",
        "list what an environment does wrong",
        "main.cli.check",
    ),
    Command(
        "join",
        "run",
        "HOST:PORT --token TOKEN",
        "run agents here for a run on another machine",
        "main.cli.join",
    ),
    Command(
        "client",
        "run",
        "HOST:PORT --env NAME",
        "play an environment for the gateway of a run",
        "main.cli.client",
    ),
    Command(
        "status", "watch", "RUN", "progress of a run and state of its components", "main.cli.status"
    ),
    Command("logs", "watch", "RUN", "log lines of all components of a run", "main.cli.logs"),
    Command("attach", "watch", "RUN", "show a background run in this terminal", "main.cli.attach"),
    Command("evaluate", "use", "RUN", "play episodes with a trained policy", "main.cli.evaluate"),
    Command("play", "use", "RUN", "show episodes in a window or write a video", "main.cli.play"),
    Command("plot", "use", "RUN...", "draw learning curves of runs", "main.cli.plot"),
    Command(
        "serve",
        "use",
        "RUN",
        "let clients act with a policy over a socket",
        "main.cli.serve",
    ),
    Command("export", "use", "RUN", "write the policy as ONNX or for PyTorch", "main.cli.export"),
    Command(
        "compare",
        "use",
        "RUN...",
        "means of methods, with intervals over seeds",
        "main.cli.compare",
    ),
    Command(
        "list",
        "use",
        "WHAT",
        "show algorithms, environments or runs",
        "main.cli.listing",
    ),
    Command(
        "scale",
        "operate",
        "RUN agent=N eval=N",
        "change the number of agents or evaluators",
        "main.cli.scale",
    ),
    Command(
        "restart",
        "operate",
        "RUN COMPONENT",
        "end one component and start it again",
        "main.cli.restart",
    ),
    Command("stop", "operate", "RUN", "end a run cleanly, with a checkpoint", "main.cli.stop"),
    Command(
        "probe", "operate", "RUN COMPONENT", "exit code 0 if a component is alive", "main.cli.probe"
    ),
    Command(
        "clients",
        "operate",
        "RUN [--token NAME]",
        "sessions of a run's gateways, and tokens",
        "main.cli.clients",
    ),
    Command(
        "keys",
        "operate",
        "OVERLAY",
        "create the encryption keys of a Kubernetes run",
        "main.cli.keys",
    ),
)
_GROUPS = {
    "run": "Run an experiment",
    "watch": "Watch it",
    "use": "Use the result",
    "operate": "Operate it",
}


def overview() -> str:
    """Returns the help page: the commands in groups."""
    words = {command: f"{command.name} {command.usage}" for command in COMMANDS}
    width = max(map(len, words.values()))
    lines = ["usage: surreal-like COMMAND ...   or: surreal-like --help | --version", ""]
    for group, title in _GROUPS.items():
        lines.append(f"{title}:")
        for command in COMMANDS:
            if command.group == group:
                lines.append(f"  {words[command]:<{width}}  {command.summary}")
        lines.append("")
    lines += [
        "RUN is a folder, a name below runs/, or 'latest'.",
        "surreal-like COMMAND --help shows the options of a command.",
        "",
        "For a start: surreal-like train configs/cartpole_dqn.yaml",
    ]
    return "\n".join(lines)
