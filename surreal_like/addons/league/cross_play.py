"""Plays the snapshots of a policy against each other."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from session.config import Config
from session.errors import UsageError
from session.newest_checkpoint import Checkpoints
from session.process.seeding import component_seed, seed_all
from surreal_like.addons.league.snapshot_opponent import outcome_of
from surreal_like.addons.league.snapshots import FOLDER
from surreal_like.agent.acting import Acting, ActingPolicy
from surreal_like.agent.agent import Agent
from surreal_like.agent.evaluation import Evaluation
from surreal_like.data.policy_names import PolicyId, policies_of
from surreal_like.experiment.find import algorithm_of, find_run
from surreal_like.learner.saver import PARAMETERS
from surreal_like.network.files import load_parameters
from surreal_like.policies.config import policy_config
from surreal_like.policies.evaluator_builder import make_player
from surreal_like.policies.fixed_policies import build_agent

_STREAMS = 100


def play_league(
    folder: str | Path,
    *,
    episodes: int = 100,
    import_path: Sequence[str | Path] = (),
) -> dict[str, dict[str, dict[str, float]]]:
    """Lets all snapshots of each policy play against each other, each pair as many episodes.

    Both draw their actions; who plays which agent is assigned in each episode.

    Args:
        folder: the run folder.
        episodes: number of episodes of each pair.
        import_path: further folders with modules that the run needs.

    Returns:
        Policy -> snapshot -> other snapshot -> share of episodes won, a draw counting as half.

    Raises:
        UsageError: the folder is no run folder, or no policy of it has snapshots.
        CheckpointError: a snapshot is damaged.
    """
    run = find_run(folder)
    config = run.read_config()
    run.find_modules([*import_path, *config.session_config.import_path])
    found, seed = {}, config.session_config.seed
    every = policies_of(config).values()
    for policy in [each.snapshots_of for each in every if "snapshots_of" in each]:
        own = policy_config(config, policy)
        kind = algorithm_of(own, run).agent
        stored = Checkpoints(run.checkpoints / PolicyId(policy).checkpoints / FOLDER).newest_first()
        agents: dict[str, Agent] = {}
        for path in sorted(stored, key=lambda path: int(path.name)):
            name = PolicyId(policy).snapshot(path.name)
            agents[name] = build_agent(kind, own, component_seed(seed, name, 1))
            load_parameters(agents[name].module_dict(), path / PARAMETERS)
        found[policy] = _play_all(agents, config, policy, episodes)
    if not found:
        raise UsageError(f"run {run} has no league: no policy of it plays snapshots_of another")
    return found


def _play_all(
    agents: dict[str, Agent], config: Config, policy: str, episodes: int
) -> dict[str, dict[str, float]]:
    table: dict[str, dict[str, float]] = {name: {} for name in agents}
    for one, other in itertools.combinations(agents, 2):
        share = _play_pair({each: agents[each] for each in (one, other)}, config, policy, episodes)
        table[one][other], table[other][one] = share, 1 - share
    return table


def _play_pair(agents: dict[str, Agent], config: Config, policy: str, episodes: int) -> float:
    """Returns the share of episodes that the first one has won."""
    one, other = agents
    own = config.copy()
    own["policies"] = dict.fromkeys(agents, config.policies[policy])
    own.env_config.eval_policy_mapping = {"*": list(agents)}
    seed = component_seed(config.session_config.seed, f"{one} {other}", 1)
    streams = min(_STREAMS, episodes)
    with seed_all(seed):
        policies = [ActingPolicy(name, Acting(agent)) for name, agent in agents.items()]
        player = make_player(policies, own, num_envs=streams, seed=seed)
        try:
            played = Evaluation(episodes, streams)
            player.reset()
            while not played.over:
                player.step(played)
        finally:
            player.close()
    outcomes = [outcome_of(each, one, other) for each in played.finished]
    return sum(0.5 if each is None else each for each in outcomes) / episodes
