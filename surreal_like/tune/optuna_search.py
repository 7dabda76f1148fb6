"""Search by Optuna's tree-structured Parzen estimator: proposes settings from earlier scores."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from session.errors import MissingExtra
from surreal_like.tune.dimension import Dimension, Options
from surreal_like.tune.scheduler import valid_score
from surreal_like.tune.space import Settings, Space, uniforms
from surreal_like.tune.state import OVER, Trial, TrialState

JOURNAL = "optuna.journal"
_STUDY = "tuning"
_SEEDS = 2**31


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
        folder: of the tuning; its study is in the file ``optuna.journal``.
        space: without a grid.
        trials: of the tuning; a study without its file is built from them.
        seed: of all proposals.
        mode: ``max`` or ``min`` of the score is best.
        startup_trials: number of random proposals before the first that follows scores.
        several: True if trials work at the same time: proposals keep away from those.

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
    ) -> None:
        check_installed()
        import optuna
        from optuna.storages.journal import JournalFileBackend

        self._seed, self._startup, self._several = seed, startup_trials, several
        self._space = space
        optuna.logging.disable_default_handler()
        self._distributions = {key: _distribution(each) for key, each in space.dimensions.items()}
        file = JournalFileBackend(str(folder / JOURNAL))
        with _quiet():
            self._study = optuna.create_study(
                storage=optuna.storages.JournalStorage(file),
                study_name=_STUDY,
                load_if_exists=True,
                direction="maximize" if mode == "max" else "minimize",
            )
            self._add_missing(trials)

    def ask(self, number: int) -> Settings:
        """Returns the settings of a trial, the same ones if it is asked again.

        Args:
            number: of the trial; all before it have been asked.
        """
        import optuna

        asked = self._study.get_trials(deepcopy=False)
        if number < len(asked):
            return self._settings(asked[number].params)
        seed = int(next(uniforms(self._seed, 2, number)) * _SEEDS)
        with _quiet():
            self._study.sampler = optuna.samplers.TPESampler(
                seed=seed, n_startup_trials=self._startup, constant_liar=self._several
            )
            return self._settings(self._study.ask(self._distributions).params)

    def report(self, number: int, time: float, score: float | None) -> None:
        """Records an intermediate score; None, and values that are not finite, are left out."""
        import optuna

        known = self._study.get_trials(deepcopy=False)
        if score is None or not valid_score(score) or known[number].state.is_finished():
            return
        with _quiet():
            optuna.trial.Trial(self._study, known[number]._trial_id).report(score, int(time))

    def finish(self, number: int, trial: Trial) -> None:
        """Records the end of a trial; without a score, or given up, it counts as failed."""
        import optuna

        known = self._study.get_trials(deepcopy=False)
        if number >= len(known) or known[number].state.is_finished():
            return
        if trial.state is TrialState.error or trial.score is None:
            self._study.tell(number, state=optuna.trial.TrialState.FAIL)
        else:
            self._study.tell(number, trial.score)

    def _add_missing(self, trials: Sequence[Trial]) -> None:
        """Adds trials that the study lacks because its file was removed."""
        import optuna

        known = len(self._study.get_trials(deepcopy=False))
        for number, trial in enumerate(trials):
            if number < known or not trial.settings:
                continue
            params = {
                key: _to_study(each, self._space.dimensions[key])
                for key, each in trial.settings.items()
            }
            self._study.add_trial(
                optuna.trial.create_trial(
                    params=params,
                    distributions=self._distributions,
                    state=optuna.trial.TrialState.RUNNING,
                )
            )
            if trial.state in OVER:
                self.finish(number, trial)

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
