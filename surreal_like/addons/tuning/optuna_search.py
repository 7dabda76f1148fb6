"""Search by Optuna's tree-structured Parzen estimator: proposes settings from earlier scores."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from session.errors import MissingExtra
from surreal_like.addons.tuning.scheduler import REPORTS_LIMIT, valid_score
from surreal_like.addons.tuning.space_and_mutation import (
    Dimension,
    Options,
    Settings,
    Space,
    uniforms,
)
from surreal_like.addons.tuning.state import OVER, Trial, TrialState

JOURNAL = "optuna.journal"
_STUDY = "tuning"
_SEEDS = 2**31
# A full disk, or lines that were cut short; Optuna's lock raises RuntimeError.
_NO_FILE = (OSError, RuntimeError, ValueError)
_Found = TypeVar("_Found")


def check_installed() -> None:
    """Raises MissingExtra if Optuna is not installed."""
    try:
        import optuna  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtra.named("tune.search: tpe", "tune") from error


class OptunaSearch:
    """Proposes the settings of each trial when it is started for the first time.

    Trials of the study have the numbers of the trials of the tuning. The sampler of a proposal
    depends on the seed and the number of its trial alone, so a tuning with one slot is repeatable.

    Args:
        folder: folder of the tuning; its study is in the file ``optuna.journal``.
        space: space without a grid.
        trials: the trials, which change later; a study without its file is built from them.
        seed: seed of all proposals.
        mode: ``max`` or ``min`` of the score is best.
        startup_trials: number of random proposals before the first that follows scores.
        several: True if trials work at the same time: proposals keep away from those.
        note: called with a message if the file cannot be written; the search goes on in memory.

    Raises:
        MissingExtra: Optuna is not installed.
    """

    def __init__(
        self,
        folder: Path,
        space: Space,
        trials: Sequence[Trial],
        *,
        seed: int,
        mode: str,
        startup_trials: int,
        several: bool,
        note: Callable[[str], None],
    ) -> None:
        check_installed()
        import optuna

        self._seed, self._startup, self._several = seed, startup_trials, several
        self._space, self._trials, self._mode, self._note = space, trials, mode, note
        self._file = folder / JOURNAL
        optuna.logging.disable_default_handler()
        self._distributions = {key: _distribution(each) for key, each in space.dimensions.items()}
        # Of a process that was killed: the folder is locked, and Optuna would wait for it forever.
        self._file.with_name(f"{JOURNAL}.lock").unlink(missing_ok=True)
        try:
            self._study = self._open()
        except Exception as error:  # noqa: BLE001 - Optuna does not check the lines that it reads
            self._study = self._without_file(error)

    def _open(self) -> Any:
        """Returns the study in its file; a file that was cut short is made again."""
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        if self._file.is_file() and not self._file.read_bytes().endswith(b"\n"):
            self._file.unlink()
        return self._make_study(JournalStorage(JournalFileBackend(str(self._file))))

    def _without_file(self, error: Exception) -> Any:
        """Returns the study in memory; without the file, a resumed tuning makes it again."""
        from optuna.storages import InMemoryStorage

        with suppress(OSError):
            self._file.unlink()
        done = "written" if isinstance(error, OSError | RuntimeError) else "read"
        self._note(f"{JOURNAL} cannot be {done}, the search goes on without it: {error}")
        return self._make_study(InMemoryStorage())

    def _make_study(self, storage: Any) -> Any:
        """Returns the study in a storage, with all trials that have settings."""
        import optuna

        with _quiet():
            study = optuna.create_study(
                storage=storage,
                study_name=_STUDY,
                load_if_exists=True,
                direction="maximize" if self._mode == "max" else "minimize",
            )
            self._add_missing(study)
        return study

    def _write(self, change: Callable[[], _Found]) -> _Found:
        """Changes the study; if the file cannot be written, the one in memory."""
        try:
            with _quiet():
                return change()
        except _NO_FILE as error:
            self._study = self._without_file(error)
        with _quiet():
            return change()

    def ask(self, number: int) -> Settings:
        """Returns the settings of a trial, the same ones if it is asked again.

        Args:
            number: number of the trial; all before it have been asked.
        """
        return self._write(lambda: self._ask(number))

    def _ask(self, number: int) -> Settings:
        import optuna

        asked = self._study.get_trials(deepcopy=False)
        if number < len(asked):
            return self._settings(asked[number].params)
        seed = int(next(uniforms(self._seed, 2, number)) * _SEEDS)
        self._study.sampler = optuna.samplers.TPESampler(
            seed=seed, n_startup_trials=self._startup, constant_liar=self._several
        )
        return self._settings(self._study.ask(self._distributions).params)

    def report(self, number: int, time: float, score: float | None) -> None:
        """Records an intermediate score; None, and values that are not finite, are left out."""
        if score is not None and valid_score(score):
            self._write(lambda: self._report(number, time, score))

    def _report(self, number: int, time: float, score: float) -> None:
        import optuna

        known = self._study.get_trials(deepcopy=False)[number]
        if not known.state.is_finished() and len(known.intermediate_values) < REPORTS_LIMIT:
            optuna.trial.Trial(self._study, known._trial_id).report(score, int(time))

    def finish(self, number: int, trial: Trial) -> None:
        """Records the end of a trial; without a score, or given up, it counts as failed."""
        self._write(lambda: self._finish(self._study, number, trial))

    def _finish(self, study: Any, number: int, trial: Trial) -> None:
        import optuna

        known = study.get_trials(deepcopy=False)
        if number >= len(known) or known[number].state.is_finished():
            return
        if trial.state is TrialState.error or trial.score is None:
            study.tell(number, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(number, trial.score)

    def _add_missing(self, study: Any) -> None:
        """Adds trials that a study lacks because its file was removed."""
        import optuna

        known = len(study.get_trials(deepcopy=False))
        for number, trial in enumerate(self._trials):
            if number < known or not trial.settings:
                continue
            params = {
                key: _to_study(each, self._space.dimensions[key])
                for key, each in trial.settings.items()
            }
            study.add_trial(
                optuna.trial.create_trial(
                    params=params,
                    distributions=self._distributions,
                    state=optuna.trial.TrialState.RUNNING,
                )
            )
            if trial.state in OVER:
                self._finish(study, number, trial)

    def _settings(self, params: Mapping[str, Any]) -> Settings:
        return {
            key: _from_study(value, self._space.dimensions[key])
            for key, value in sorted(params.items())
        }


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences warnings of Optuna: of its experimental parts, and of a report that comes again."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _distribution(dimension: Dimension) -> Any:
    from optuna import distributions

    if isinstance(dimension, Options):
        return distributions.CategoricalDistribution(
            [_to_study(value, dimension) for value in dimension.values]
        )
    low, high, log = dimension.low, dimension.high, dimension.kind.startswith("log")
    if dimension.kind.endswith("randint"):
        whole_step = int(dimension.step or 1)
        last = int(low) + (int(high) - int(low)) // whole_step * whole_step
        return distributions.IntDistribution(int(low), last, log=log, step=whole_step)
    if dimension.step:
        # Optuna wants a whole number of steps; the tolerance is that of the space.
        steps = int((high - low) / dimension.step + 1e-9)
        high = float(f"{low + steps * dimension.step:.12g}")
        return distributions.FloatDistribution(low, high, step=dimension.step)
    return distributions.FloatDistribution(low, high, log=log)


def _to_study(value: Any, dimension: Dimension) -> Any:
    """Returns a value of the space as one of the study, whose categories are plain."""
    if isinstance(dimension, Options) and not isinstance(value, bool | int | float | str):
        return json.dumps(value)
    return value


def _from_study(value: Any, dimension: Dimension) -> Any:
    if isinstance(dimension, Options):
        return next(each for each in dimension.values if _to_study(each, dimension) == value)
    return value
