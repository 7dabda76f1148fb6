"""The trained policies that come with the library: small run folders, named ``trained:NAME``.

They are in ``configs/trained/``, one folder each: the config of a run, its best parameters, and a
card (``card.yaml``) that tells how they were learned and what they reach.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from session.did_you_mean import did_you_mean
from session.errors import UsageError
from surreal_like.experiment.shipped import shipped_folder

PREFIX = "trained:"
_CARD = "card.yaml"


@dataclass(frozen=True, slots=True)
class Card:
    """Facts about a trained policy: its training, and its returns.

    Args:
        environment: ``env_config.env_name``.
        algorithm: algorithm, or those of its policies.
        extra: extra that must be installed to play it; empty: none.
        fingerprint: fingerprint of the experiment.
        seed: seed of the run, that of the median score of ``seeds``.
        seeds: seed -> mean return of each run at its end.
        env_steps: environment steps of the parameters.
        score: ``mean_return``, ``standard_error``, ``min_return``, ``max_return``, ``episodes`` and
            ``seed`` of fresh episodes; of several policies also ``policies``, the mean return of
            each that has learned.
        sample: the same of a few episodes, which a test plays again.
        precision: type of the stored parameters, float32 or float16.
        date, machine, versions, command: when, where, with what and how it was made.
    """

    environment: str
    algorithm: str
    extra: str
    fingerprint: str
    seed: int
    seeds: dict[int, float]
    env_steps: int
    score: dict[str, Any]
    sample: dict[str, Any]
    precision: str
    date: str
    machine: str
    versions: dict[str, str]
    command: str

    @property
    def reached(self) -> str:
        """Mean return with its standard error; of several policies the mean of each."""
        means = self.score.get("policies", {})
        found = ", ".join(f"{name} {mean:,.6g}" for name, mean in means.items())
        whole = f"{self.score['mean_return']:,.6g} +- {self.score['standard_error']:.2g}"
        return found or whole


def trained_folder(name: str | Path) -> Path | None:
    """Returns the folder of ``trained:NAME``; None for a name of another form.

    Raises:
        UsageError: no policy of that name comes with the library; names the nearest one.
    """
    prefix, found, experiment = str(name).partition(PREFIX)
    if prefix or not found:
        return None
    known = _folders()
    if experiment in known:
        return known[experiment]
    hint = did_you_mean(experiment, known, otherwise="surreal-like list trained shows all")
    raise UsageError(f"no trained policy '{experiment}' comes with the library; {hint}")


def how_to_replace(folder: Path) -> str:
    """Returns the end of an error about a policy that does not fit; empty for another folder."""
    own = _folders().get(folder.name)
    if own is None or own != folder.resolve():
        return ""
    return f"; it was trained with another version: in the repository, make trained NAME={own.name}"


def list_trained() -> dict[str, Card]:
    """Returns the card of each policy by its name, sorted."""
    return {name: read_card(folder) for name, folder in _folders().items()}


def read_card(folder: Path) -> Card:
    """Returns the card in the folder of a trained policy."""
    return Card(**yaml.safe_load((folder / _CARD).read_text(encoding="utf-8")))


def _folders() -> dict[str, Path]:
    folder = shipped_folder() / "trained"
    if not os.path.isdir(folder):
        return {}
    return {path.name: path for path in sorted(folder.iterdir()) if (path / _CARD).is_file()}
