"""A run as an object of a script or a notebook, which trains it, saves it and stops it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from session.config.named_code import Overrides
from session.errors import RunError
from surreal_like.experiment.checkpoints import whole_checkpoint
from surreal_like.experiment.user_code import keep_package_list
from surreal_like.run.observer import RunObserver
from surreal_like.run.request import RunRequest
from surreal_like.run.train import result_of, start_here

_POLL_SECONDS = 0.05
_COUNTED = ("env_steps", "iterations")


class Trainer:
    """Starts a run; use it in a ``with`` statement, which ends the run.

    The run goes on between two calls, except with ``serial``, where it advances only in them. The
    arguments are those of :func:`surreal_like.train`.

    Raises:
        ConfigError: a setting is wrong; nothing was started.
        UsageError: the folder or the launcher is wrong; nothing was started.
    """

    def __init__(
        self,
        experiment: str | Path | None = None,
        *,
        algorithm: str | type[Any] | None = None,
        env: str | Callable[..., Any] | None = None,
        overrides: Overrides = (),
        launcher: str = "local",
        folder: str | Path | None = None,
        seed: int | None = None,
        resume: bool = False,
    ) -> None:
        request = RunRequest(
            experiment,
            launcher,
            overrides,
            folder,
            seed=seed,
            algorithm=algorithm,
            env=env,
            resume=resume,
        )
        self._line: dict[str, Any] = {}
        self._stack = ExitStack()
        try:
            self._launched, self._folder = start_here(request, self._stack, RunObserver())
        except BaseException:
            self._stack.close()
            raise
        if resume:
            self._line = self._folder.last_progress()

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self._folder.path

    @property
    def running(self) -> bool:
        """True until the run is over."""
        return self._launched.outcome is None

    def train(self) -> dict[str, Any]:
        """Waits for the next line of progress, with at least one step and one update, and returns
        it; when the run ends meanwhile, its last line.

        Raises:
            RunError: the run has failed, or is over since the last call; gives the reason.
        """
        if not self.running:
            raise self._over()
        while True:
            self._launched.poll(_POLL_SECONDS)
            line = self._folder.last_progress()
            outcome = self._launched.outcome
            if outcome is not None and outcome.status == "failed":
                raise self._over()
            moved = all(line.get(name, 0) > self._line.get(name, 0) for name in _COUNTED)
            if moved or outcome is not None:
                self._line = line
                return line

    def _over(self) -> RunError:
        outcome = self._launched.outcome
        assert outcome is not None  # it does not run
        result = result_of(self._folder, outcome)
        return RunError(f"the run is over ({result['status']}): {result['reason']}")

    def save(self) -> Path:
        """Saves a checkpoint; returns its folder.

        Raises:
            RunError: the run is over.
            RefusedError: the disk is full.
        """
        if not self.running:
            raise RunError(f"the run {self.folder} is over: its checkpoints are complete")
        self._launched.save()
        return whole_checkpoint(self._folder, "latest")

    def stop(self) -> dict[str, Any]:
        """Ends the run cleanly and returns the content of ``result.json``."""
        if self.running:
            self._launched.stop(reason="stopped by the script")
        while self.running:
            self._launched.poll(_POLL_SECONDS)
        outcome = self._launched.outcome
        assert outcome is not None  # it does not run
        result = result_of(self._folder, outcome)
        keep_package_list(self._folder)
        self._stack.close()
        return result

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """Ends the run; at once after an error."""
        if kind is None:
            self.stop()
        self._stack.close()
