"""Algorithms as objects that train, act and save: each public class is made of the registered one.

`PPO("CartPole-v1").learn(50_000)` is :func:`surreal_like.train` in other words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from inspect import cleandoc
from pathlib import Path
from typing import Any, ClassVar, Self

from session.addons import count_acting
from session.addons.copies.run_files import open_files
from session.atomic_file import write_atomically
from session.config import Config
from session.config.defaults import BASE_LEARNER_CONFIG, BASE_SESSION_CONFIG
from session.config.named_code import Overrides, as_overrides, place_of
from session.did_you_mean import did_you_mean
from session.errors import RunError, UsageError
from session.folder import RunFolder
from surreal_like.addons.scripts.policy import Policy, load_policy, make_policy
from surreal_like.algorithm.algorithm import Algorithm
from surreal_like.algorithm.catalog import list_algorithms, name_of
from surreal_like.algorithm.registry import find_algorithm
from surreal_like.experiment.find import find_run
from surreal_like.experiment.read import read_experiment
from surreal_like.other_libraries import KEYWORDS_ELSEWHERE
from surreal_like.run.train import train

# Keywords that are arguments of `train`.
ARGUMENTS = ("folder", "seed", "agents", "evals", "launcher", "start_from", "parts", "watch")


class Trainable(Algorithm):
    """An algorithm with an environment and, once it has learned, a run.

    Args:
        env: environment as of :func:`surreal_like.train`; a name without a colon, such as
            ``CartPole-v1``, is one of Gymnasium.
        overrides: settings, ``{"section.key": value}`` or ``["section.key=value"]``.
        settings: keys of ``learner_config.algo``, such as ``learning_rate``, and the arguments
            ``folder``, ``seed``, ``agents``, ``evals``, ``launcher``, ``start_from``, ``parts`` and
            ``watch`` of :func:`surreal_like.train`.

    Attributes:
        folder: the run folder; None before the first :meth:`learn`.

    Raises:
        UsageError: a keyword is unknown; the message has the name of the setting here. Or other
            processes cannot import the environment, such as an object in place of its class.
    """

    # Name of the algorithm in configs; a class that is derived from it has a place of its own.
    registered: ClassVar[str] = ""

    def __init__(
        self,
        env: str | Callable[..., Any],
        *more: object,
        overrides: Overrides = (),
        **settings: Any,
    ) -> None:
        name = type(self).__name__
        if more or (isinstance(env, str) and env.endswith("Policy")):
            raise UsageError(
                f"{name} takes one argument without a name, the environment: {name}('CartPole-v1')"
                "; learner_config.model describes the network"
            )
        algo = {**BASE_LEARNER_CONFIG.algo, **self.default_config().get("algo", {})}
        for key in settings:
            if key not in algo and key not in ARGUMENTS:
                raise UsageError(f"{name} has no setting {key!r}; {_remedy(key, algo)}")
        if not isinstance(env, str):
            place_of(env, "env")
        self.folder: Path | None = None
        self._env = f"gym:{env}" if isinstance(env, str) and _is_bare(env) else env
        self._options = {key: each for key, each in settings.items() if key in ARGUMENTS}
        own = {f"learner_config.algo.{k}": x for k, x in settings.items() if k in algo}
        self._overrides = [*as_overrides(overrides), *as_overrides(own)]
        self._policy: Policy | None = None

    @property
    def num_timesteps(self) -> int:
        """Steps or updates, as :meth:`learn` counts them, of all of its calls so far."""
        result = {} if self.folder is None else RunFolder(self.folder).read_result() or {}
        return int(result.get(self._counted) or 0)

    @property
    def _counted(self) -> str:
        """``env_steps``, or ``iterations`` where no process of the run steps an environment."""
        if self.folder is None:
            user = read_experiment(None, self._overrides, algorithm=type(self), env_name=self._env)
            session = user.get("session_config", Config({})).extend(
                Config(self.session_config).extend(BASE_SESSION_CONFIG)
            )
        else:
            session = find_run(self.folder).read_config().session_config
        return "env_steps" if count_acting(session) else "iterations"

    @property
    def policy(self) -> Policy:
        """The policy that acts: that of the best evaluation; before :meth:`learn` a new one."""
        if self._policy is None and self.folder is None:
            seed = self._options.get("seed")
            given = [] if seed is None else [f"session_config.seed={seed}"]
            self._policy = make_policy(
                type(self), env=self._env, overrides=[*self._overrides, *given]
            )
        elif self._policy is None:
            self._policy = load_policy(self.folder or "")
        return self._policy

    def learn(self, total_timesteps: int) -> Self:
        """Trains for at least so many environment steps, after those before; returns itself.

        Where no agents act, as `BC` and `IQL` learn from recorded rows, they are updates.

        Raises:
            ConfigError: a setting is wrong; nothing was started.
            RunError: the run has failed; gives the reason.
            KeyboardInterrupt: Ctrl-C has ended the run, which has saved its state.
        """
        steps = self.num_timesteps + total_timesteps
        stop = as_overrides({f"session_config.stop.{self._counted}": steps})
        if self.folder is None:
            overrides = [*self._overrides, *stop]
            run = train(algorithm=type(self), env=self._env, overrides=overrides, **self._options)
        else:
            kept = {
                key: self._options[key] for key in ("launcher", "watch") if key in self._options
            }
            run = train(resume=True, folder=self.folder, overrides=stop, **kept)
        self.folder, self._policy = run.folder, None
        if run.result.get("status") == "interrupted":
            raise KeyboardInterrupt
        if run.exit_code == 1:
            raise RunError(f"run {run.folder} has failed: {run.result.get('reason')}")
        return self

    def predict(
        self, observation: Any, state: Any = None, *, deterministic: bool = True
    ) -> tuple[Any, Any]:
        """Returns the actions, and the state of a memory, of one observation or of a batch."""
        return self.policy(observation, state, deterministic=deterministic)

    def save(self, path: str | Path) -> Path:
        """Copies the run into a new folder, from which :meth:`load` and ``load_policy`` read.

        Raises:
            UsageError: it has not learned yet, or the folder is not empty.
        """
        run = RunFolder(begun(self))
        target = Path(path)
        if target.exists() and any(target.iterdir()):
            raise UsageError(f"{target} is not empty: save to another folder, or use {run}")
        for file in open_files(run):
            copy = target / file.name
            copy.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(copy, file.read_blocks())
        return target

    @classmethod
    def load(cls, folder: str | Path, **options: Any) -> Self:
        """Returns the object of a run: it acts, and :meth:`learn` goes on in that folder.

        Args:
            folder: folder of a run, or of :meth:`save`.
            options: ``launcher`` and ``watch`` of :func:`surreal_like.train`.

        Raises:
            UsageError: the folder is no run folder, or has the run of another algorithm.
        """
        config = find_run(folder).read_config()
        if config.algorithm != name_of(cls):
            names = {key: path.rpartition(":")[2] for key, path in list_algorithms().items()}
            other = names.get(config.algorithm, config.algorithm)
            raise UsageError(f"{folder} is a run of {config.algorithm}: load it by {other}.load")
        made = cls(config.env_config.env_name, **options)
        made.folder = Path(folder)
        return made


def begun(model: Trainable) -> Path:
    """Returns the run folder.

    Raises:
        UsageError: it has not learned yet.
    """
    if model.folder is None:
        name = type(model).__name__
        raise UsageError(f"this {name} has not learned yet: call learn(total_timesteps) first")
    return model.folder


def _is_bare(env: str) -> bool:
    return ":" not in env and not env.endswith(".py")


def _remedy(key: str, algo: Mapping[str, Any]) -> str:
    """Returns the setting to write in place of an unknown keyword."""
    known = KEYWORDS_ELSEWHERE.get(key)
    if known is not None and known.partition(",")[0] in ARGUMENTS:
        return f"it is {known} here"
    if known is not None:
        return f"it is {known} here: overrides={{'{known}': ...}}"
    near = did_you_mean(key, [*algo, *ARGUMENTS], lead=" ")
    return f"it takes keys of learner_config.algo;{near} others go into overrides={{'KEY': ...}}"


def __getattr__(name: str) -> type[Trainable]:
    """Returns the class of a registered algorithm, such as ``PPO``, made at its first use."""
    names = {path.rpartition(":")[2]: key for key, path in list_algorithms().items()}
    if name not in names:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _make(name, names[name])


@cache
def _make(name: str, registered: str) -> type[Trainable]:
    found = find_algorithm(registered)
    about = "\n\n".join(cleandoc(each.__doc__ or "") for each in (found, Trainable))
    namespace = {"__module__": __name__, "__doc__": about, "registered": registered}
    return type(name, (Trainable, found), namespace)
