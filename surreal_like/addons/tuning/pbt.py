"""Population based training: trials with low scores take over those with high scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from surreal_like.addons.tuning.scheduler import (
    PAUSE,
    Decision,
    Decisions,
    Load,
    Scheduler,
    check_mode,
    valid_score,
)
from surreal_like.addons.tuning.space_and_mutation import Settings, Space, settings_text, uniforms

EVERY_REPORT, UPPER = "every_report", "upper"

# A user's function: explored settings -> settings; None: no exploit.
Explore = Callable[[Settings], Settings | None]


@dataclass(slots=True)
class Member:
    """One trial of the population.

    Args:
        settings: present settings.
        score: newest noted one, more is better; None before the first.
        time: progress of its weights.
        last: time of its newest noted report.
        exploits: number of its exploits.
        refused: number of explorations whose settings cannot run.
        noted_at: wall clock of its newest noted report [s].
        interval: seconds between its two newest noted reports; 0 before the first.
        saved: time of the weights of its checkpoint; None: it has none.
        saved_at: wall clock of its checkpoint [s].
        finished: it has ended.
        held: it waits for the others.
    """

    settings: Settings
    score: float | None = None
    time: float = 0.0
    last: float = 0.0
    exploits: int = 0
    refused: int = 0
    noted_at: float = 0.0
    interval: float = 0.0
    saved: float | None = None
    saved_at: float = 0.0
    finished: bool = False
    held: bool = False


class PopulationBased(Scheduler):
    """Population based training (Jaderberg et al. 2017, arXiv 1711.09846).

    Args:
        space: space of the settings.
        settings: settings of each trial at its start.
        seed: seed of all draws.
        perturbation_interval: time between two comparisons of a trial, above 0.
        burn_in_period: time before the first comparison.
        quantile_fraction: share of the population that is replaced, 0 to 0.5.
        resample_probability: probability of a new value instead of a changed one, 0 to 1.
        perturbation_factors: one of them multiplies a number.
        synch: compares all trials at the same time, and holds those that come first.
        explore: changes the explored settings last; None: no change.
        check: returns the reason for which no trial can run with settings, or an empty text; None:
            all can.
        checkpoint: ``every_report``: each trial saves at each comparison; ``upper``: only those in
            the upper quantile.
        max_age: oldest checkpoint that is taken over, in intervals of the donor; 0: any.
        mode: ``max`` or ``min`` of the score is best.

    Attributes:
        members: the trials.
        next_sync: time of the next comparison of all, with ``synch``.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(  # noqa: PLR0913 - the settings of a section
        self,
        space: Space,
        settings: Sequence[Mapping[str, Any]],
        *,
        seed: int = 0,
        perturbation_interval: float,
        burn_in_period: float = 0.0,
        quantile_fraction: float = 0.25,
        resample_probability: float = 0.25,
        perturbation_factors: Sequence[float] = (1.2, 0.8),
        synch: bool = False,
        explore: Explore | None = None,
        check: Callable[[Settings], str] | None = None,
        checkpoint: str = EVERY_REPORT,
        max_age: float = 2.0,
        mode: str = "max",
    ) -> None:
        for name, value, most in (
            ("perturbation_interval", perturbation_interval, math.inf),
            ("quantile_fraction", quantile_fraction, 0.5),
            ("resample_probability", resample_probability, 1.0),
            ("burn_in_period", burn_in_period, math.inf),
            ("max_age", max_age, math.inf),
        ):
            if not 0 <= value <= most or (name == "perturbation_interval" and value == 0):
                limits = f"0 to {most:g}" if most < math.inf else "a number above 0"
                raise ValueError(f"{name} is {value:g}, expected {limits}")
        if checkpoint not in (EVERY_REPORT, UPPER):
            raise ValueError(f"checkpoint is {checkpoint!r}, expected {EVERY_REPORT} or {UPPER}")
        if not perturbation_factors:
            raise ValueError("perturbation_factors is empty, expected at least one number")
        self._space, self._seed, self._sign = space, seed, check_mode(mode)
        self._interval, self._burn_in = perturbation_interval, burn_in_period
        self._quantile, self._resample = quantile_fraction, resample_probability
        self._factors, self._synch = perturbation_factors, synch
        self._explore, self._check = explore, check
        self._every_report, self._max_age = checkpoint == EVERY_REPORT, max_age
        self.members = [Member(dict(each)) for each in settings]
        self.next_sync = max(perturbation_interval, burn_in_period)
        # Trial -> its member before an exploit that is not carried out yet.
        self._before: dict[int, Member] = {}

    def report(
        self,
        trial: int,
        time: float,
        score: float | None,
        *,
        now: float | None = None,
        others_wait: bool = False,
    ) -> Decisions:
        """Returns decisions that follow from a report; empty while the trial is held."""
        member = self.members[trial]
        member.time = time
        if self._synch:
            return self._hold(trial, score, now)
        if score is None or not valid_score(score):
            return {trial: Decision()}
        if time < self._burn_in or time - member.last < self._interval:
            return {trial: Decision()}
        self._note(member, score, now)
        lower, upper = self.quantiles()
        then = PAUSE if others_wait else "continue"
        decision = self._exploit(trial, upper, now, then) if trial in lower else None
        if decision is not None and decision.load is not None:
            return {trial: decision}
        skipped = decision.skipped if decision is not None else ""
        saves = self._every_report or trial in upper
        self._save(member, now, saves=saves)
        return {trial: Decision(save=saves, then=then, skipped=skipped)}

    def on_end(self, trial: int) -> Decisions:
        """Returns the decisions of the trials that have waited for this one."""
        self.members[trial].finished, self.members[trial].held = True, False
        return self._sync(None)

    def quantiles(self) -> tuple[list[int], list[int]]:
        """Returns the trials of the lower and of the upper quantile, ascending by score."""
        scored = [
            (member.score, trial)
            for trial, member in enumerate(self.members)
            if member.score is not None and not member.finished
        ]
        num = len(scored)
        if num <= 1 or self._quantile == 0:
            return [], []
        # Without the tolerance 30 trials times 0.1 would be more than 3.
        size = math.ceil(num * self._quantile - 1e-9)
        size = size if size <= num / 2 else num // 2
        ranked = [trial for _, trial in sorted(scored)]
        return ranked[:size], ranked[num - size :]

    def _note(self, member: Member, score: float, now: float | None) -> None:
        member.score, member.last = self._sign * score, member.time
        if now is not None:
            member.interval, member.noted_at = now - member.noted_at, now

    def _save(self, member: Member, now: float | None, *, saves: bool) -> None:
        member.saved = member.time if saves else None
        member.saved_at = now if now is not None else 0.0

    def _exploit(
        self, trial: int, upper: Sequence[int], now: float | None, then: str
    ) -> Decision | None:
        """Lets a trial take over a better one; None: there is no better one."""
        member = self.members[trial]
        better = [other for other in upper if self._score(other) > self._score(trial)]
        if not better:
            return None
        # Settings that cannot run would be drawn again; an exploit without a checkpoint is put off.
        draws = uniforms(self._seed, 1, trial, member.exploits + member.refused + 1)
        number = better[math.floor(next(draws) * len(better))]
        donor = self.members[number]
        if donor.saved is None:
            return Decision(then=then, skipped=f"trial {number} has no checkpoint")
        age = now - donor.saved_at if now is not None else 0.0
        if self._max_age and now is not None and age > self._max_age * donor.interval:
            limit = self._max_age * donor.interval
            old = f"the checkpoint of trial {number} is {age:g} s old, more than {limit:g} s"
            return Decision(then=then, skipped=old)
        try:
            settings = self._explore_settings(member, donor, draws)
        except Exception as error:  # noqa: BLE001 - the function of a user must not end a tuning
            member.refused += 1
            return Decision(then=then, skipped=f"explore failed: {error!r}")
        if error_text := self._wrong(settings):
            member.refused += 1
            return Decision(then=then, skipped=error_text)
        self._before[trial] = replace(member)
        member.settings, member.exploits = settings, member.exploits + 1
        member.last, member.time = donor.last, donor.saved
        # The first checkpoint of a generation is saved at once.
        member.saved = donor.saved if self._every_report else None
        member.saved_at = donor.saved_at
        return Decision(load=Load(number, dict(settings)), then=then)

    def _wrong(self, settings: Settings) -> str:
        """Returns the reason for which no trial can run with explored settings; empty: it can."""
        if self._check is None or any(settings == each.settings for each in self.members):
            return ""
        reason = self._check(settings)
        return reason and f"{settings_text(settings)} cannot run: {reason}"

    def _score(self, trial: int) -> float:
        score = self.members[trial].score
        return -math.inf if score is None else score

    def _explore_settings(self, member: Member, donor: Member, draws: Iterator[float]) -> Settings:
        explored = self._space.explore(
            donor.settings,
            draws,
            resample_probability=self._resample,
            perturbation_factors=self._factors,
        )
        for key, value in member.settings.items():
            if key.startswith("session_config."):
                explored[key] = value
        if self._explore is None:
            return explored
        changed = self._explore(dict(explored))
        if not isinstance(changed, dict) or changed.keys() != explored.keys():
            raise ValueError(f"it returned {changed!r}, expected the keys {sorted(explored)}")
        return changed

    def _hold(self, trial: int, score: float | None, now: float | None) -> Decisions:
        member = self.members[trial]
        if member.time < self.next_sync:
            return {trial: Decision()}
        member.held = True
        if score is not None and valid_score(score):
            self._note(member, score, now)
        return self._sync(now)

    def _sync(self, now: float | None) -> Decisions:
        """Compares all trials once the last one has come."""
        live = [trial for trial, each in enumerate(self.members) if not each.finished]
        if not self._synch or not live or not all(self.members[trial].held for trial in live):
            return {}
        lower, upper = self.quantiles()
        decisions = dict.fromkeys(live, Decision(save=True))
        for trial in live:
            if trial not in lower:
                self._save(self.members[trial], now, saves=True)
        for trial in lower:
            decision = self._exploit(trial, upper, now, "continue")
            if decision is None or decision.load is None:
                self._save(self.members[trial], now, saves=True)
                skipped = decision.skipped if decision is not None else ""
                decision = Decision(save=True, skipped=skipped)
            decisions[trial] = decision
        for trial in live:
            member = self.members[trial]
            member.held, member.last = False, member.time
        # Not the latest: a machine may report any time of its own trial.
        earliest = min(self.members[trial].time for trial in live)
        self.next_sync = max(self.next_sync + self._interval, earliest)
        return decisions

    def on_load(self, trial: int, settings: Mapping[str, Any] | None) -> None:
        """Records whether the newest exploit of a trial was carried out; else takes it back."""
        before, member = self._before.pop(trial, None), self.members[trial]
        if settings is None:
            self.members[trial] = self._without_exploit(trial, before or member)
        elif before is None:
            # Carried out by a tuner that was killed before it saved its state.
            member.settings, member.exploits = dict(settings), member.exploits + 1

    def _without_exploit(self, trial: int, before: Member) -> Member:
        """Returns the member as if there had been no exploit at its newest report."""
        finished = self.members[trial].finished
        return replace(before, last=before.time, finished=finished, held=False)

    def state(self) -> dict[str, Any]:
        """Returns all members, without exploits that are not carried out yet."""
        members = [
            asdict(self._without_exploit(trial, self._before[trial]))
            if trial in self._before
            else asdict(member)
            for trial, member in enumerate(self.members)
        ]
        return {"members": members, "next_sync": self.next_sync}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores the members of the state; a held one reports again, further ones are new."""
        restored = [Member(**{**each, "held": False}) for each in state["members"]]
        self.members[: len(restored)] = restored
        self.next_sync = state["next_sync"]
