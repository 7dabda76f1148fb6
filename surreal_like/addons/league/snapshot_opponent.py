"""Opponents that play snapshots of a policy, and where the snapshots come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from session.config import Config
from session.errors import RefusedError
from session.newest_checkpoint import Checkpoints
from session.process.context import Context
from session.wire.one_way_sockets import Socket
from surreal_like.addons.league.snapshots import FOLDER
from surreal_like.agent.acting import Acting, ActingPolicy, Ended
from surreal_like.agent.agent import Agent
from surreal_like.data.episodes import EpisodeSummary
from surreal_like.data.parameters import Parameters
from surreal_like.data.policy_names import PolicyId
from surreal_like.data.rows import Rows
from surreal_like.learner.saver import PARAMETERS
from surreal_like.network.files import load_parameters, set_parameters
from surreal_like.network.flat import named_tensors
from surreal_like.policies.fixed_policies import Trained
from surreal_like.ps.parameter_client import ParameterClient
from surreal_like.ps.schemas import ANSWERS

_POLL_SECONDS = 0.1
# Parameters of snapshots that a process keeps.
_KEPT_BYTES = 1 << 26
# Episodes against a snapshot before which nothing is known about it.
_KNOWN = 10
# Weight of a snapshot that is always beaten.
_LEAST = 0.05


def outcome_of(summary: EpisodeSummary, policy: str, other: str) -> float | None:
    """Returns 1 if a policy has won an episode against another one, 0.5 after a draw, else 0.

    The mean returns of their agents are compared; None if one of them has not played.
    """
    metrics = summary["metrics"]
    mine, theirs = metrics.get(f"policy/{policy}"), metrics.get(f"policy/{other}")
    if mine is None or theirs is None:
        return None
    return 0.5 + 0.5 * float(np.sign(mine - theirs))


# Loads the parameters of a snapshot into an agent.
Load = Callable[[Agent], None]


class Snapshots(Protocol):
    """The snapshots of a policy."""

    def get(self, choose: Callable[[Sequence[int]], int | None]) -> tuple[str, Load] | None:
        """Returns name and parameters of one of them, or None if they have not come yet.

        Args:
            choose: returns the iteration of the chosen one of all; None: the newest parameters.
        """


class PublishedSnapshots:
    """The snapshots that the learner of a policy has published.

    Those that were played once are kept, so that a draw need not wait for them.

    Args:
        context: context of the process.
        policy: name of the policy.
    """

    def __init__(self, context: Context, policy: str) -> None:
        self.socket = context.wire.dealer("ps.requests", ANSWERS)
        self._clock, self._policy = context.clock, policy
        self._known = ParameterClient(self.socket, context.clock, policy=policy)
        # Name -> parameters, those that were drawn last at the end.
        self._kept: dict[str, Parameters] = {}
        self._asked: tuple[str, ParameterClient] | None = None
        self._asks_at = self._again_at = 0.0

    def get(self, choose: Callable[[Sequence[int]], int | None]) -> tuple[str, Load] | None:
        """See :class:`Snapshots`."""
        if self._asked is not None:
            name, client = self._asked
            try:
                parameters = client.receive()
            except RefusedError:
                # It was dropped meanwhile, or a parameter server that was started again has not
                # got it yet. One that is refused itself learns it from the newest parameters.
                parameters = None
                self._again_at = self._clock.now() + _POLL_SECONDS
            if parameters is not None:
                self._keep(name, parameters)
                self._asked = None
                return name, lambda agent: agent.load(parameters)
            if client.waiting:
                return None
            # It could not be had.
            self._asked = None
        self._look()
        if self._clock.now() < self._again_at:
            return None
        living: Sequence[int] = self._known.newest.info.get("snapshots", ())
        if not living:
            return None
        iteration = choose(living)
        name = self._policy if iteration is None else PolicyId(self._policy).snapshot(iteration)
        kept = self._kept.pop(name, None)
        if kept is None or (iteration is None and kept.order < self._known.newest.order):
            self._asked = name, ParameterClient(self.socket, self._clock, policy=name)
            self._asked[1].ask()
            return None
        self._kept[name] = kept
        return name, lambda agent: agent.load(kept)

    def _look(self) -> None:
        """Asks which snapshots live, at intervals, and reads the answer."""
        self._known.receive()
        now = self._clock.now()
        if now >= self._asks_at and self._known.ask_info():
            self._asks_at = now + _POLL_SECONDS

    def _keep(self, name: str, parameters: Parameters) -> None:
        """Keeps parameters; the ones that were not drawn for longest go."""
        self._kept[name] = parameters
        while sum(each.flat.nbytes for each in self._kept.values()) > _KEPT_BYTES:
            del self._kept[next(iter(self._kept))]


class StoredSnapshots:
    """The snapshots of a policy in its run folder.

    Args:
        trained: the policies of the run; the newest parameters are those that play.
        policy: name of the policy.
    """

    def __init__(self, trained: Trained, policy: str) -> None:
        newest = named_tensors(trained.agent(policy).module_dict())
        folder = trained.checkpoints / PolicyId(policy).checkpoints / FOLDER
        self._checkpoints, self._policy = Checkpoints(folder), policy
        self._newest: Load = lambda agent: set_parameters(agent.module_dict(), newest)

    def get(self, choose: Callable[[Sequence[int]], int | None]) -> tuple[str, Load] | None:
        """See :class:`Snapshots`."""
        living = {int(path.name): path for path in self._checkpoints.newest_first()}
        chosen = choose(sorted(living)) if living else None
        if chosen is None:
            return self._policy, self._newest
        path = living[chosen] / PARAMETERS
        return PolicyId(self._policy).snapshot(chosen), lambda agent: load_parameters(
            agent.module_dict(), path
        )


class _Draw:
    """A snapshot that plays: its name, and what lets it act."""

    def __init__(self, name: str, acting: Acting) -> None:
        self.name, self.acting = name, acting


class SnapshotOpponent(ActingPolicy):
    """Plays with snapshots of a policy that are drawn at random.

    A draw holds for a number of episodes of all environments; each takes the next one when its
    episode ends. With `draw: hard` a snapshot weighs ``(1 - w)^2 + 0.05``, where w is the share of
    the episodes against it that the policy has won here; a draw counts as half.

    Args:
        policy: name of the policy.
        settings: complete settings of the policy.
        make: builds an agent that draws by a seed.
        snapshots: the snapshots.
        num_envs: number of environments.
        seed: seed of the draws.
    """

    def __init__(
        self,
        policy: str,
        settings: Config,
        make: Callable[[int], Agent],
        snapshots: Snapshots,
        *,
        num_envs: int,
        seed: int,
    ) -> None:
        super().__init__(policy, Acting(make(seed)))
        self._settings, self._make, self._snapshots = settings, make, snapshots
        self._rng = np.random.default_rng(seed)
        self._newest: _Draw | None = None
        self._playing: list[_Draw | None] = [None] * num_envs
        self._left = 0
        # Snapshot -> episodes against it, and how many of them were won.
        self._won: dict[str, tuple[int, float]] = {}

    @property
    def ready(self) -> bool:
        return self._newest is not None

    def fetch(self) -> None:
        if self._newest is not None and self._left > 0:
            return
        got = self._snapshots.get(self._choose)
        if got is None:
            return
        name, load = got
        agent = self._make(int(self._rng.integers(2**31)))
        load(agent)
        acting = Acting(agent)
        acting.state = agent.initial_state(self._streams)
        self._newest = _Draw(name, acting)
        self._left = self._settings.episodes

    def _choose(self, living: Sequence[int]) -> int | None:
        if self._rng.random() < self._settings.latest_share:
            return None
        weights = np.ones(len(living))
        if self._settings.draw == "hard":
            weights = np.array([self._weight(each) for each in living])
        return int(self._rng.choice(living, p=weights / weights.sum()))

    def _weight(self, iteration: int) -> float:
        name = PolicyId(self._settings.snapshots_of).snapshot(iteration)
        episodes, won = self._won.get(name, (0, 0.0))
        share = won / episodes if episodes >= _KNOWN else 0.5
        return (1 - share) ** 2 + _LEAST

    def begin(self, streams: int) -> None:
        self._streams = streams
        self._playing = [None] * len(self._playing)
        if self._newest is not None:
            self._newest.acting.state = self._newest.acting.agent.initial_state(streams)

    def act(self, rows: Rows) -> npt.NDArray[Any]:
        per_env = self._streams // len(self._playing)
        draws = [self._draw_of(number) for number in (rows.streams // per_env).tolist()]
        first, parts = draws[0], dict.fromkeys(draws)
        if len(parts) == 1:
            whole: npt.NDArray[Any] = first.acting.act(
                rows.obs, rows.first, rows.streams, rows.reward
            )[0]
            return whole
        actions: npt.NDArray[Any] | None = None
        for draw in parts:
            chosen = np.array([each is draw for each in draws])
            some = rows.select(chosen)
            part = draw.acting.act(some.obs, some.first, some.streams, some.reward)[0]
            if actions is None:
                actions = np.zeros((len(draws), *part.shape[1:]), part.dtype)
            actions[chosen] = part
        assert actions is not None  # there are rows
        return actions

    def _draw_of(self, number: int) -> _Draw:
        draw = self._playing[number]
        if draw is None:
            draw = self._playing[number] = self._newest
        assert draw is not None  # ready before the first step
        return draw

    def end_step(self, episodes: Ended) -> None:
        for draw in dict.fromkeys(self._playing):
            if draw is not None and draw.acting.hooked:
                own = [each for number, each in episodes if self._playing[number] is draw]
                draw.acting.end_step(own)
        for number, summary in episodes:
            draw, self._playing[number] = self._playing[number], None
            self._left -= 1
            if draw is not None and draw.name != self._settings.snapshots_of:
                self._count(draw.name, summary)

    def _count(self, name: str, summary: EpisodeSummary) -> None:
        """Counts an episode against a snapshot, and adds its outcome to the metrics."""
        outcome = outcome_of(summary, self._settings.snapshots_of, self.policy)
        if outcome is None:
            return
        summary["metrics"][f"won/{name}"] = outcome
        episodes, won = self._won.get(name, (0, 0.0))
        self._won[name] = episodes + 1, won + outcome

    def sockets(self) -> list[Socket]:
        socket = getattr(self._snapshots, "socket", None)
        return [] if socket is None else [socket]


def make_snapshot_opponent(
    name: str,
    settings: Config,
    make: Callable[[int], Agent],
    source: Context | Trained,
    *,
    num_envs: int,
    seed: int,
) -> SnapshotOpponent:
    """Returns what plays snapshots in a process of a run, or from its folder.

    Args:
        name: name of the policy.
        settings: complete settings of the policy.
        make: builds an agent that draws by a seed.
        source: context of the process, or the trained policies of a run.
        num_envs: number of environments.
        seed: seed of the draws.
    """
    owner = settings.snapshots_of
    snapshots: Snapshots
    if isinstance(source, Trained):
        snapshots = StoredSnapshots(source, owner)
    else:
        snapshots = PublishedSnapshots(source, owner)
    return SnapshotOpponent(name, settings, make, snapshots, num_envs=num_envs, seed=seed)
