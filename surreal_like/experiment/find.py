"""Finds what the policies of a run are made of: algorithms, and trained policies of other runs."""

from __future__ import annotations

import os
from pathlib import Path

from session.addons.hooks import fetch, is_url
from session.config import Config
from session.config.named_code import in_snapshot
from session.config.sections import sections_of
from session.errors import UsageError
from session.folder import RunFolder
from surreal_like.agent.agent import Agent, AgentMode
from surreal_like.algorithm.algorithm import Algorithm
from surreal_like.algorithm.registry import find_algorithm
from surreal_like.data.added_parts import policy_spec
from surreal_like.data.policy_names import learning_policies
from surreal_like.errors import SpecError
from surreal_like.experiment.checkpoints import whole_checkpoint
from surreal_like.experiment.trained import PREFIX, how_to_replace, trained_folder
from surreal_like.learner.group_leader import of_rank
from surreal_like.learner.joint import KEY, share_plan
from surreal_like.learner.learner import Learner
from surreal_like.learner.saver import PARAMETERS
from surreal_like.network.files import load_parameters
from surreal_like.policies.config import policy_config, policy_configs
from surreal_like.policies.fixed_policies import Found


def find_in(run: RunFolder | None) -> Found:
    """Returns what finds algorithms and trained policies, for a process of a run."""
    return Found(lambda config: algorithm_of(config, run), load_agent)


def algorithm_of(config: Config, folder: RunFolder | None) -> type[Algorithm]:
    """Returns the algorithm of a run; a user's own file is loaded from the code snapshot.

    Raises:
        ConfigError: the algorithm cannot be found or loaded.
    """
    name = config.algorithm
    return find_algorithm(name if folder is None else in_snapshot(name, folder))


def learners_of(config: Config, folder: RunFolder, rank: int = 0) -> dict[str, Learner]:
    """Returns the learner of each policy that learns, as a rank of a group of learners has it."""
    learners = {
        name: algorithm_of(own, folder).learner(**sections_of(of_rank(own, rank)))
        for name, own in policy_configs(config).items()
    }
    for name, learner in learners.items():
        learner.policy_name = name
    share_plan(learners, config.get(KEY))
    return learners


def load_agent(place: str, config: Config) -> Agent:
    """Returns the agent of a trained policy, which draws its actions.

    Args:
        place: ``FOLDER[:CHECKPOINT[:POLICY]]``; without a checkpoint the best one.
        config: config of the policy that it plays.

    Raises:
        UsageError: there is no such run, checkpoint or policy.
        CheckpointError: the checkpoint is incomplete.
        SpecError: it was trained with other specs.
    """
    folder, checkpoint, policy = split_run(place)
    run = find_run(folder)
    theirs = run.read_config()
    run.find_modules(theirs.session_config.import_path)
    name = choose_policy(theirs, policy, run)
    own = policy_config(theirs, name)
    for spec in ("obs_spec", "action_spec"):
        # The state is seen by value functions only.
        had, has = (policy_spec(each.env_config[spec]) for each in (own, config))
        if had != has:
            raise SpecError(
                f"the policy {name} of run {folder} has {spec} {had}, but its agents here have "
                f"{has}"
            )
    kind = algorithm_of(own, run).agent
    agent = kind(**sections_of(own), agent_id=0, agent_mode=AgentMode.eval_stochastic)
    give_parameters(agent, run, whole_checkpoint(run, checkpoint, name))
    return agent


def give_parameters(agent: Agent, run: RunFolder, checkpoint: Path) -> None:
    """Loads the parameters of a checkpoint of a run.

    Raises:
        CheckpointError: the file cannot be read.
        SpecError: they do not fit the agent; of a policy of the library, how to train it anew.
    """
    try:
        load_parameters(agent.module_dict(), checkpoint / PARAMETERS)
    except SpecError as error:
        raise SpecError(f"{error}{how_to_replace(run.path)}") from None


def split_run(place: str) -> tuple[str, str, str | None]:
    """Splits ``FOLDER[:CHECKPOINT[:POLICY]]``; a folder may have colons in its name."""
    parts = place.split(":")
    for given in (2, 1):
        folder = ":".join(parts[:-given])
        # A folder "trained" of one's own has to be written as ./trained.
        there = f"{folder}:" != PREFIX and (os.path.isdir(folder) or trained_folder(folder))
        if len(parts) > given and there:
            return folder, parts[-given], parts[-1] if given == 2 else None
    return place, "best", None


def find_run(folder: str | Path) -> RunFolder:
    """Returns the files of a run, of ``trained:NAME``, or of one at a URL a temporary copy.

    Raises:
        UsageError: the folder is no run folder, there is no run at the URL, or no such policy.
    """
    place = fetch(str(folder)) if is_url(folder) else trained_folder(folder)
    run = RunFolder(folder) if place is None else RunFolder(place, copy_of=str(folder))
    if not os.path.exists(run.config):
        raise UsageError(f"{folder} is not a run folder: it has no config.yaml")
    return run


def choose_policy(config: Config, policy: str | None, run: RunFolder) -> str:
    """Returns the name of the policy, the only one that learns unless it is given.

    Raises:
        UsageError: there are several, or none of that name.
    """
    names = learning_policies(config)
    if policy is None and len(names) == 1:
        return names[0]
    if policy in names:
        return policy
    wrong = f"no policy '{policy}'" if policy else "several policies: name one"
    raise UsageError(f"run {run.copy_of or run} has {wrong}; there are {', '.join(names)}")
