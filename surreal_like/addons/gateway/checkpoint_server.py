"""A gateway without a run: clients act with the parameters of a checkpoint; no ZeroMQ."""

from __future__ import annotations

import secrets
import select
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from session.addons.gateway.client_tokens import check_address
from session.checkpoint import read_state
from session.config import Config
from session.config.config import apply_overrides, keys_of
from session.config.constraints import check_values
from session.config.defaults import BASE_CONFIG
from session.errors import ConfigError, SurrealError
from session.folder import RunFolder
from session.process.clock import Clock, WallClock
from session.process.periodic import Every
from session.process.script import outside_a_run
from surreal_like.addons.gateway.frontend import Frontend
from surreal_like.addons.gateway.gateway import Gateway
from surreal_like.addons.gateway.policies import Policies
from surreal_like.addons.gateway.slots import Rows
from surreal_like.agent.agent import Agent, AgentMode
from surreal_like.data.parameters import Parameters
from surreal_like.experience.chunk_sender import ActorState
from surreal_like.experiment.checkpoints import (
    checkpoints_named,
    name_of,
    only_policy,
    whole_checkpoint,
)
from surreal_like.experiment.find import algorithm_of
from surreal_like.learner.saver import PARAMETERS
from surreal_like.network.files import load_parameters
from surreal_like.network.flat import Modules, manifest_of, named_tensors, read_flat
from surreal_like.policies.config import policy_config

# Name and time of change [ns] of a checkpoint; another one means that there is something new.
_Mark = tuple[str, int]


class ServedCheckpoint:
    """Reads the parameters of a run's checkpoint.

    Args:
        run: Folder of the run.
        kind: Kind of the checkpoint: ``best``, ``latest`` or the iteration of a checkpoint.
        modules: Modules of the run's agent, as a place to read into.
        policy: Name of the policy.

    Attributes:
        path: Folder of the checkpoint that was read last.
    """

    def __init__(self, run: RunFolder, kind: str, modules: Modules, policy: str) -> None:
        self._run, self._kind, self._modules, self._policy = run, kind, modules, policy
        self._seen: _Mark | None = None
        self.path = whole_checkpoint(run, kind, policy)

    @property
    def name(self) -> str:
        """Name of the checkpoint that was read last."""
        return name_of(self.path, self._policy)

    def read(self) -> Parameters:
        """Returns the parameters of the newest intact checkpoint.

        Raises:
            UsageError: the run has no such checkpoint.
            CheckpointError: it is damaged, or is not of this run's network.
        """
        self.path = whole_checkpoint(self._run, self._kind, self._policy)
        self._seen = self._mark()
        return self._read(self.path)

    def read_newer(self, warn: Callable[[str], object]) -> Parameters | None:
        """Returns the parameters of a newer checkpoint; None if there is none.

        Args:
            warn: Function called once for each checkpoint that is damaged, and left out.
        """
        try:
            mark = self._mark()
            if mark is None or mark == self._seen:
                return None
            self._seen = mark
            path = checkpoints_named(self._run, self._kind, self._policy)[0]
            found = self._read(path)
        except (SurrealError, OSError) as error:
            warn(f"a newer checkpoint is left out: {error}")
            return None
        self.path = path
        return found

    def _mark(self) -> _Mark | None:
        """Returns what identifies the newest candidate, without reading it."""
        for path in checkpoints_named(self._run, self._kind, self._policy)[:1]:
            try:
                return path.name, (path / "state.json").stat().st_mtime_ns
            except FileNotFoundError:
                # It is being replaced.
                return None
        return None

    def _read(self, path: Path) -> Parameters:
        state = read_state(path)
        load_parameters(self._modules, path / PARAMETERS)
        return Parameters(
            read_flat(self._modules),
            manifest_of(named_tensors(self._modules)),
            int(state["version"]),
            0,
            int(state["iteration"]),
            {"env_steps": int(state["env_steps"])},
        )


_CHORES_SECONDS = 0.05
_FOLLOW_SECONDS = 1.0
_GATEWAY = "session_config.gateway"

Say = Callable[[str], object]


class ServeLog:
    """Shows warnings and refused clients; other events of sessions are not shown."""

    def __init__(self, say: Say) -> None:
        self._say = say

    def event(self, kind: str, detail: str = "") -> None:
        """Shows that a client was refused."""
        if kind == "client_refused":
            self._say(f"refused: {detail}")

    def warning(self, text: object) -> None:
        """Shows a warning."""
        self._say(f"warning: {text}")


@dataclass(frozen=True)
class ServeHost:
    """Process of ``serve``, see :class:`~surreal_like.addons.gateway.gateway.Host`."""

    config: Config
    folder: RunFolder
    clock: Clock
    log: ServeLog
    seed: int


class Server:
    """Serves the policy of a run to clients, in mode ``act``.

    Args:
        run: Folder of the run.
        checkpoint: Kind of the checkpoint: ``best``, ``latest`` or the iteration of a checkpoint.
        follow: True loads newer checkpoints of the same kind.
        stochastic: True draws actions from the policy.
        settings: Settings ``session_config.gateway.key=value``, instead of the run's.
        import_path: Further folders with modules that the run needs.
        say: Function called with lines for the user.
        clock: Clock for all times; None: that of the machine.

    Raises:
        UsageError: there is no such checkpoint, or several policies learned in the run.
        CheckpointError: it is damaged.
        ConfigError: a setting is wrong, or the port is taken.
    """

    def __init__(
        self,
        run: RunFolder,
        checkpoint: str = "best",
        *,
        follow: bool = False,
        stochastic: bool = False,
        settings: Sequence[str] = (),
        import_path: Sequence[str | Path] = (),
        say: Say = print,
        clock: Clock | None = None,
    ) -> None:
        self._say, self._follows = say, follow
        config = _override(run.read_config(), settings)
        name = only_policy(config, f"run {run.copy_of or run}", "serve")
        config = policy_config(config, name)
        run.find_modules([*import_path, *config.session_config.import_path])
        clock = clock or WallClock()
        gateway = config.session_config.gateway
        algorithm = algorithm_of(config, run)

        def make(mode: AgentMode) -> Agent:
            names = ("learner_config", "env_config", "session_config")
            configs = {name: config[name] for name in names}
            with outside_a_run():
                return algorithm.agent(**configs, agent_id=0, agent_mode=mode)

        mode = AgentMode.eval_stochastic if stochastic else AgentMode.eval_deterministic
        self._policies = Policies(
            make, config.env_config, gateway.max_clients * gateway.num_envs, {"act": mode}
        )
        self._checkpoint = ServedCheckpoint(run, checkpoint, make(mode).module_dict(), name)
        self._policies.load(self._checkpoint.read())
        host = ServeHost(config, run, clock, ServeLog(say), secrets.randbits(31))
        rows = Rows(config, ActorState(), clock.now)
        self._gateway = Gateway(host, rows, self._policies)
        self.frontend = Frontend(self._gateway, gateway.port)
        self._poll = select.poll()
        self._poll.register(self.frontend.listener.descriptor, select.POLLIN)
        self._chores_due = Every(seconds=_CHORES_SECONDS, clock=clock.now)
        self._follow_due = Every(seconds=_FOLLOW_SECONDS, clock=clock.now)
        say(f"checkpoint {self._checkpoint.name} of {run.copy_of or run}")
        say(f"clients connect to {gateway.host}:{self.frontend.listener.port}")

    def tick(self) -> None:
        """Handles what has arrived, or waits for it for a moment."""
        received, answered = self.frontend.receive(), self._gateway.answer()
        if self._chores_due():
            self.frontend.do_chores()
        if self._follows and self._follow_due():
            self._follow()
        if not received and not answered:
            self._poll.poll(1000.0 * _CHORES_SECONDS)

    def _follow(self) -> None:
        newer = self._checkpoint.read_newer(lambda text: self._say(f"warning: {text}"))
        if newer is not None:
            self._policies.load(newer)
            name = self._checkpoint.name
            self._say(f"checkpoint {name}: version {newer.version}, {newer.iteration} iterations")

    def close(self) -> None:
        """Sends all clients away, and closes the port."""
        self._gateway.leave_all("stopped", reconnect=False)
        self.frontend.receive()
        self.frontend.close()


def _override(config: Config, settings: Sequence[str]) -> Config:
    """Returns the config of a run with other settings of its gateway."""
    given = apply_overrides(Config({"session_config": {"gateway": {}}}), settings)
    for word in settings:
        if not word.startswith(f"{_GATEWAY}."):
            raise ConfigError(f"{word}: serve has settings of {_GATEWAY} only")
    config = config.copy()
    session = config.session_config
    session.gateway = given.session_config.gateway.extend(session.gateway, strict=True)
    check_values(config, keys_of(BASE_CONFIG))
    check_address(session.gateway, insecure=session.security.insecure)
    return config
