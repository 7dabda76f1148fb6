"""The list of commands, and the page that ``surreal-like --help`` shows."""

from __future__ import annotations

from session.addons import Command, add_ons

_CORE = (
    Command(
        "train",
        "run",
        "CONFIG.yaml [key=value]",
        "train until the goal is met or a budget is used",
        "main.cli.train:run",
    ),
    Command(
        "launch",
        "run",
        "CONFIG.yaml --on WHERE",
        "train on local, tmux or a cluster, detached",
        "main.cli.launch:run",
    ),
    Command(
        "plan",
        "run",
        "CONFIG.yaml [key=value]",
        "show what would run, without starting it",
        "main.cli.plan:run",
    ),
    Command(
        "check",
        "run",
        "ENV|CONFIG.yaml",
        "list what an environment does wrong",
        "main.cli.own_environment:check",
    ),
    Command(
        "init",
        "run",
        "FOLDER",
        "write a small project to begin with",
        "main.cli.own_environment:init",
    ),
    Command(
        "status",
        "watch",
        "RUN",
        "progress of a run and state of its components",
        "main.cli.watch:show_status",
    ),
    Command(
        "logs", "watch", "RUN", "log lines of all components of a run", "main.cli.watch:show_logs"
    ),
    Command(
        "attach", "watch", "RUN", "show a background run in this terminal", "main.cli.watch:attach"
    ),
    Command(
        "list",
        "use",
        "WHAT",
        "show what there is to train, and runs",
        "main.cli.listing:run",
    ),
    Command(
        "scale",
        "operate",
        "RUN agent=N eval=N",
        "change the number of agents or evaluators",
        "main.cli.operate:scale",
    ),
    Command(
        "restart",
        "operate",
        "RUN COMPONENT",
        "end one component and start it again",
        "main.cli.operate:restart",
    ),
    Command(
        "stop", "operate", "RUN", "end a run cleanly, with a checkpoint", "main.cli.operate:stop"
    ),
)
_GROUPS = {
    "run": "Run an experiment",
    "watch": "Watch it",
    "use": "Use the result",
    "operate": "Operate it",
}


def all_commands() -> tuple[Command, ...]:
    """Returns the commands of the core and of the add-ons."""
    return (*_CORE, *(command for each in add_ons().values() for command in each.commands))


def overview() -> str:
    """Returns the help page: the commands in groups."""
    words = {command: f"{command.name} {command.usage}" for command in all_commands()}
    width = max(map(len, words.values()))
    lines = ["usage: surreal-like COMMAND ...   or: surreal-like --help | --version", ""]
    for group, title in _GROUPS.items():
        lines.append(f"{title}:")
        for command in words:
            if command.group == group:
                lines.append(f"  {words[command]:<{width}}  {command.summary}")
        lines.append("")
    lines += [
        "RUN is a folder, a name below runs/, or 'latest'.",
        "surreal-like COMMAND --help shows the options of a command.",
        "",
        "For a start: surreal-like train cartpole_dqn",
    ]
    return "\n".join(lines)
