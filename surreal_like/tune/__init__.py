"""Runs many trials of one experiment, on this machine. The package can be called:

from surreal_like import tune
found = tune("configs/cartpole_asha.yaml", overrides={"tune.trials": 4})
found.best["settings"]
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from surreal_like.run.request import Overrides
    from surreal_like.tune.result import TuningResult
    from surreal_like.tune.watch import TuneWatch


class _Package(ModuleType):
    def __call__(
        self,
        file: str | Path | None = None,
        *,
        overrides: Overrides = (),
        folder: str | Path | None = None,
        resume: bool = False,
        retry_errors: bool = False,
        allow_change: Iterable[str] = (),
        watch: TuneWatch | None = None,
    ) -> TuningResult:
        """Runs a tuning until all trials have ended, and returns it.

        Args:
            file: tune file; None: with ``resume``, as the tuning has it.
            overrides: ``{"section.key": value}`` or ``["section.key=value"]``.
            folder: of the tuning; None: ``runs/<name>-<date>-<time>``.
            resume: go on with the tuning in the folder, or the newest one of this file.
            retry_errors: with ``resume``, also with the trials that were given up.
            allow_change: keys of the file in which a resumed tuning may differ.
            watch: receives reports.

        Raises:
            ConfigError: a setting is wrong; nothing was started.
            UsageError: the folder is in use, not empty, or no tuning to resume; or that has other
                settings.
        """
        # Not at the top: space and schedulers are usable without the rest.
        from surreal_like.run.request import as_overrides
        from surreal_like.tune.start import read_given, run_tuning

        given, path = read_given(
            file,
            as_overrides(overrides),
            None if folder is None else Path(folder),
            resume=resume,
            retry_errors=retry_errors,
            allow_change=allow_change,
        )
        return run_tuning(given, folder=path, resume=resume, retry_errors=retry_errors, watch=watch)


# `surreal_like.tune` is this package once a module of it is imported: so it can be called, too.
sys.modules[__name__].__class__ = _Package
tune = cast(_Package, sys.modules[__name__])
