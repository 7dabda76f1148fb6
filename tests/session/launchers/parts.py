"""Components for the tests of launchers: small, real, and able to misbehave.

What each does stands in ``env_config.env_args``: component name -> act, such as
``{"learner": "learn", "agent-0": "work", "replay-0": "crash"}``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from session.atomic_file import write_atomically
from session.config import Config
from session.config.defaults import BASE_CONFIG
from session.errors import START_AGAIN, ConfigError
from session.folder import RunFolder
from session.loggerplex.log_server import Loggerplex
from session.process.component import Component, Restart, Topology
from session.process.context import Context
from session.process.entry import run_service
from session.process.service import Service
from tests.drawing import draw

MODULE = "tests.session.launchers.parts"
# Forked like components that need torch; the others are started by their command line.
FORKED = ("learner", "agent", "eval")


def make_config(acts: Mapping[str, str], **launcher: object) -> Config:
    """A resolved experiment with short deadlines."""
    settings = {"grace_seconds": 5.0, "max_restarts": 2, **launcher}
    heartbeat = {"timeout": settings.pop("timeout", 30.0)}
    return Config(
        {
            "algorithm": "parts",
            "env_config": {"env_name": "parts", "env_args": dict(acts)},
            "session_config": {"launcher": settings, "heartbeat": heartbeat},
        }
    ).extend(BASE_CONFIG)


def make_topology(config: Config) -> Topology:
    """The components that the config names."""
    limits = config.session_config.launcher
    restart = Restart(limits.max_restarts)
    return Topology(_component(name, restart) for name in config.env_config.env_args)


def _component(name: str, restart: Restart) -> Component:
    stem, _, index = name.partition("-")
    kind = "evaluator" if stem == "eval" else stem
    binds = {"learner": ("learner.control",), "loggerplex": ("loggerplex.records",)}.get(kind, ())
    connects = () if binds else ("learner.control",) if kind == "evaluator" else ()
    forked = stem in FORKED
    return Component(
        name, kind, MODULE, int(index or 0), binds, connects, needs_torch=forked, restart=restart
    )


def make_run(path: Path, config: Config) -> RunFolder:
    """A run folder with its config."""
    folder = RunFolder(path)
    folder.create()
    config.dump_file(folder.config)
    return folder


def starts(context: Context) -> int:
    """How often this component has been started in its run, this start included."""
    if context.folder is None:
        return 1
    marks = context.folder.path / f"{context.name}.starts"
    with marks.open("a") as file:
        file.write("x")
    return len(marks.read_text())


def drawn(folder: Path, name: str) -> list[float]:
    """The numbers of the global generators that a component with the act `draw` got."""
    numbers: list[float] = json.loads((folder / f"{name}.drawn").read_text())
    return numbers


class Worker(Service):
    """Works until it is asked to end, or until the run is over."""

    def __init__(self, context: Context, act: str) -> None:
        self.context = context
        self.act = act
        self._done = False
        if act == "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if act == "parent":
            sleeper = [sys.executable, "-c", "import time; time.sleep(600)", str(context.folder)]
            subprocess.Popen(sleeper).returncode = 0
        if act == "fail later":
            self.act = f"fail at start {starts(context)}"

    def tick(self) -> bool:
        if self.act.startswith("fail at start"):
            raise ValueError(self.act)
        folder = self.context.folder
        client = self.context.component.kind in ("agent", "evaluator")
        if client and folder is not None and folder.over:
            self._done = True
        return False

    def drain(self) -> None:
        self._done = self.act != "stubborn"

    @property
    def done(self) -> bool:
        return self._done


class Learner(Service):
    """Ends the run when it is asked to."""

    def __init__(self, context: Context, act: str) -> None:
        self.context = context
        self._act = act
        self._control = context.wire.router("learner.control")
        self._verdict = "solved" if act == "solve" else ""
        self._end_at = context.clock.now() + 0.1

    def tick(self) -> bool:
        while (request := self._control.receive()) is not None:
            kind, fields = request.message.kind, request.message.fields
            if kind == "stop" and self._act == "deaf" and self.context.folder is not None:
                (self.context.folder.path / "asked").touch()
            elif kind == "stop":
                self._verdict = "interrupted" if fields["interrupted"] else fields["reason"]
                self._control.reply(request, "stopping")
            elif kind == "status":
                if self._act == "break":
                    raise ValueError("broken by a question")
                self._control.reply(request, "status", {"at": self.context.clock.now()})
        return False

    def drain(self) -> None:
        if self.context.leaves and self.context.folder is not None:
            (self.context.folder.checkpoints / "saved").touch()
        else:
            self._verdict = self._verdict or "interrupted"

    @property
    def exit_code(self) -> int:
        return 0 if self._verdict else START_AGAIN

    @property
    def done(self) -> bool:
        if self.context.leaves and not self._verdict:
            return True
        if not self._verdict or self.context.clock.now() < self._end_at:
            return False
        if self.context.folder is not None:
            status = "interrupted" if self._verdict == "interrupted" else "stopped"
            result = {"status": status, "reason": self._verdict, "goal_met": True, "iterations": 7}
            write_atomically(self.context.folder.result, json.dumps(result))
        return True


class Asker(Worker):
    """Asks the learner in each of its turns and waits for the answer."""

    def __init__(self, context: Context, act: str) -> None:
        super().__init__(context, act)
        self._learner = context.wire.dealer("learner.control")
        self.answers: list[float] = []

    def tick(self) -> bool:
        if self.act == "ask and break" and len(self.answers) == 3:
            raise ValueError("broken in a turn")
        if self.act == "ask and exit" and len(self.answers) == 3:
            raise SystemExit
        self.answers.append(self._learner.request("status").fields["at"])
        if self.context.folder is not None:
            notes = self.context.folder.path / f"{self.context.name}.answers"
            notes.write_text(json.dumps(self.answers))
        return super().tick()


class Listener(Worker):
    """Writes the records that come to loggerplex into ``events.jsonl``."""

    def __init__(self, context: Context, act: str) -> None:
        super().__init__(context, act)
        self._records = context.wire.pull("loggerplex.records")

    def tick(self) -> bool:
        if (message := self._records.receive()) is None or self.context.folder is None:
            return False
        with self.context.folder.events.open("a") as file:
            for record in message.fields["records"]:
                file.write(json.dumps(record) + "\n")
        return True

    @property
    def done(self) -> bool:
        return self._done and not self._records.readable()


def build(context: Context) -> Service:
    """The service that the config wants."""
    act = context.config.env_config.env_args.get(context.name, "work")
    if act == "crash":
        raise ValueError("the environment is broken")
    if act == "misconfigured":
        raise ConfigError("env_config.env_name is 'parts', which nobody knows")
    if act == "say":
        sys.stderr.write(f"said by {context.name}\n")
        sys.stderr.flush()
        context.log.info(f"logged by {context.name}")
    if act == "environment" and context.folder is not None:
        path = context.folder.path / f"{context.name}.environment"
        write_atomically(path, json.dumps({**os.environ, "pid": str(os.getpid())}))
    if act == "draw" and context.folder is not None:
        path = context.folder.path / f"{context.name}.drawn"
        write_atomically(path, json.dumps(draw()))
    if act.startswith("vanish"):
        os._exit(0 if act == "vanish with 0" else 7)
    if act == "abort" and starts(context) == 1:
        os.write(2, b"Assertion failed: !_more (src/fq.cpp:80)\n")
        os.abort()
    if act == "hang" or (act == "hang later" and starts(context) > 1):
        time.sleep(600)
    if context.component.kind == "learner":
        return Learner(context, act)
    if context.component.kind == "loggerplex":
        return Loggerplex(context) if act == "collect" else Listener(context, act)
    if act.startswith("ask"):
        return Asker(context, act)
    return Worker(context, act)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the process of one component."""
    argv = list(sys.argv[1:] if argv is None else argv)
    name = argv[argv.index("--name") + 1]
    stem = name.partition("-")[0]
    return run_service("evaluator" if stem == "eval" else stem, build, argv)


if __name__ == "__main__":
    raise SystemExit(main())
