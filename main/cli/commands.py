"""Which commands there are, and the page that ``surreal-like --help`` shows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    Args:
        name: the word on the command line.
        group: under which heading it stands.
        usage: what follows the name, in short.
        summary: what it does, in one line.
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
        "CONFIG.yaml [section.key=value ...]",
        "train until the goal is met or a budget is used",
        "main.cli.train",
    ),
    Command(
        "launch",
        "run",
        "CONFIG.yaml --on local|tmux|kubernetes",
        "the same, detached: it goes on when this shell has ended",
        "main.cli.launch",
    ),
    Command(
        "plan",
        "run",
        "CONFIG.yaml [section.key=value ...]",
        "show what would run; start nothing",
        "main.cli.plan",
    ),
    Command(
        "join",
        "run",
        "ADDRESS:PORT --token TOKEN",
        "run agents here for a run on another machine",
        "main.cli.join",
    ),
    Command(
        "status", "watch", "RUN", "where a run stands, and each of its parts", "main.cli.status"
    ),
    Command("logs", "watch", "RUN", "what the parts of a run have logged", "main.cli.logs"),
    Command("attach", "watch", "RUN", "show a detached run in this terminal", "main.cli.attach"),
    Command("evaluate", "use", "RUN", "play episodes with a trained policy", "main.cli.evaluate"),
    Command("play", "use", "RUN", "show episodes in a window or as a video", "main.cli.play"),
    Command("plot", "use", "RUN...", "learning curves of runs in one picture", "main.cli.plot"),
    Command(
        "list",
        "use",
        "algorithms|environments|runs",
        "what there is to train, and what was trained",
        "main.cli.listing",
    ),
    Command(
        "scale",
        "operate",
        "RUN agent=N eval=N",
        "add agents or evaluators while it runs, or end some",
        "main.cli.scale",
    ),
    Command(
        "restart",
        "operate",
        "RUN COMPONENT",
        "end one part, and start it again",
        "main.cli.restart",
    ),
    Command(
        "stop", "operate", "RUN", "end a run cleanly: saved, and nothing lost", "main.cli.stop"
    ),
    Command(
        "probe", "operate", "RUN COMPONENT", "exit code 0 if a component is alive", "main.cli.probe"
    ),
    Command("keys", "operate", "OVERLAY", "make the keys of a run on Kubernetes", "main.cli.keys"),
)
_GROUPS = {
    "run": "Run an experiment",
    "watch": "Watch it",
    "use": "Use what came of it",
    "operate": "Operate it",
}


def overview() -> str:
    """The commands in groups."""
    words = {command: f"{command.name} {command.usage}" for command in COMMANDS}
    width = max(map(len, words.values()))
    lines = ["usage: surreal-like COMMAND ...", ""]
    for group, title in _GROUPS.items():
        lines.append(f"{title}:")
        for command in COMMANDS:
            if command.group == group:
                lines.append(f"  {words[command]:<{width}}  {command.summary}")
        lines.append("")
    lines += [
        "RUN is a folder, a name below runs/, or 'latest'.",
        "surreal-like COMMAND --help tells the options of a command.",
        "",
        "For a start: surreal-like train configs/cartpole_dqn.yaml",
    ]
    return "\n".join(lines)
