"""Whole trainings against other systems: time to a solved CartPole, steps while learning.

Each round runs every system in turn, each as a separate command. Prints tables and JSON, and writes
benchmarks/results/systems.json.

    python benchmarks/systems.py [--rounds 2] [--seconds 10] [--scratch FOLDER] [--no-peers]
    python benchmarks/systems.py --only cartpole pong
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from compare import Found, Group, Line, Side, keep, measure
from learn import config_file
from setting import Given, arguments
from whole import After, Record, RunFailed, ours, peer, rate

HERE = Path(__file__).resolve().parent
PARTS = ("solved", "cartpole", "pong")
# These seeds were not used for tuning our settings.
FIRST_SEED = 101
GOAL = 475.0
SOLVED_SECONDS = 60.0
NO_GOAL = (
    "session_config.stop={eval_return: null, seconds: 300}",
    "session_config.evaluator.num=0",
)
# The evaluator runs, but cannot end the run: returns of CartPole never reach this goal.
ROLLING = ("session_config.stop.eval_return=501", "session_config.learner.report_seconds=0.25")
PEERS: Mapping[str, tuple[str, str, str, tuple[str, ...]]] = {
    "sb3": ("sb3", "stable-baselines3 PPO", "sb3.py", ()),
    "single": ("sb3", "single-file PPO", "ppo_single.py", ()),
    "torchrl": ("torchrl", "TorchRL PPO", "torchrl_ppo.py", ()),
    "appo": ("sample_factory", "Sample Factory APPO", "sample_factory_appo.py", ("cartpole",)),
    "rllib": ("rllib", "RLlib IMPALA", "rllib_runs.py", ("cartpole_impala",)),
}
DID = {
    "sb3": "one process, 8 environments; settings of rl-baselines3-zoo",
    "single": "one process, 4 environments; written here after CleanRL, with its settings",
    "torchrl": "MultiSyncCollector, 2 processes of 4 environments; settings of rl-baselines3-zoo",
    "appo": "2 workers of 20 environments; settings of its example for CartPole",
    "rllib": "2 env runners of 8 environments, a learner; settings of its tuned example",
}
# Both sides have equal numbers of workers, environments, unroll steps, batch rows and passes.
LARGE = (
    "session_config.agent.num=2",
    "env_config.num_envs=64",
    "learner_config.algo.num_sgd_iter=1",
    "learner_config.algo.minibatches=1",
    "learner_config.replay.batch_size=64",
    "learner_config.replay.capacity=4096",
    "session_config.sender.max_unacked_chunks=1",
)
APPO_LARGE = (
    "--num_workers=2",
    "--num_envs_per_worker=64",
    "--rollout=32",
    "--batch_size=2048",
    "--num_batches_per_epoch=1",
    "--num_epochs=1",
    "--encoder_mlp_layers",
    "64",
    "64",
)
APPO_PONG = (
    "--num_workers=2",
    "--num_envs_per_worker=8",
    "--worker_num_splits=2",
    "--rollout=20",
    "--recurrence=1",
    "--batch_size=320",
    "--num_batches_per_epoch=1",
    "--num_epochs=1",
    "--async_rl=True",
    "--with_vtrace=False",
    "--normalize_input=False",
    "--normalize_returns=False",
    "--summaries_use_frameskip=False",
)


class Trainings:
    """Runs trainings one after the other, each with its own folder.

    Args:
        given: the command line.

    Attributes:
        reached: key of a side -> number of rounds in which it solved the task.
    """

    def __init__(self, given: Given) -> None:
        self.given = given
        self.reached: dict[str, int] = {}
        self._folders = (given.folder / f"run-{number}" for number in itertools.count())

    def rate_of_ours(self, config: str, *overrides: str) -> float:
        """Returns the environment steps per second of one of our configs."""
        over = After(self.given.seconds)
        return rate(self._train(config, 1, *NO_GOAL, *overrides, done=over))

    def rate_of_peer(self, name: str, script: str, *words: str) -> float:
        """Returns the same of a peer."""
        try:
            answer = peer(self.given.pythons[name], script, 1, self.given.seconds, *words)
            if not answer["rate"]:
                raise RunFailed(f"{script} {' '.join(words)} learned too little to have a speed")
        except RunFailed as error:
            error.peer = name
            raise
        return float(answer["rate"])

    def solved_by_us(self, seeds: itertools.count[int]) -> Mapping[str, float]:
        """Returns the seconds to each criterion, in one run each: a criterion met ends its run."""
        seed, seconds = next(seeds), f"session_config.stop.seconds={SOLVED_SECONDS}"
        greedy = self._train("cartpole_ppo", seed, seconds)[-1]["solved"]["greedy_seconds"]
        lines = self._train("cartpole_ppo", seed, seconds, *ROLLING, done=_rolled)
        rolling = next((line["wall_seconds"] for line in lines[:-1] if _rolled(line)), None)
        return self._noted("ours", {"greedy": greedy, "rolling": rolling})

    def solved_by(self, key: str, seeds: itertools.count[int]) -> Mapping[str, float]:
        """Returns the same of a peer, from one run."""
        name, _, script, words = PEERS[key]
        try:
            answer = peer(self.given.pythons[name], script, next(seeds), SOLVED_SECONDS, *words)
        except RunFailed as error:
            self.given.left_out[f"a round of {key}"] = str(error)
            answer = {"greedy_seconds": None, "rolling_seconds": None}
        found = {what: answer[f"{what}_seconds"] for what in ("greedy", "rolling")}
        return self._noted(key, found)

    def _train(
        self, config: str, seed: int, *overrides: str, done: Callable[[Record], bool] | None = None
    ) -> list[Record]:
        folder = next(self._folders)
        try:
            return ours(config_file(config), folder, seed, overrides, done)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _noted(self, key: str, found: Mapping[str, float | None]) -> dict[str, float]:
        for what, seconds in found.items():
            name = f"{key} {what}"
            self.reached[name] = self.reached.get(name, 0) + (seconds is not None)
        return {what: seconds or SOLVED_SECONDS for what, seconds in found.items()}


def _rolled(line: Record) -> bool:
    mean = line["train"]["mean_return_100"]
    return line["episodes"] >= 100 and mean is not None and mean >= GOAL


def solved(trainings: Trainings) -> Found:
    """Measures CartPole-v1 by both criteria."""
    ours_did = "configs/cartpole_ppo.yaml as it stands, an evaluator beside the agent"
    mine = partial(trainings.solved_by_us, itertools.count(FIRST_SEED))
    sides = [Side("ours", "surreal_like", ours_did, mine)]
    for key, (name, label, _, _) in PEERS.items():
        if name in trainings.given.pythons:
            theirs = partial(trainings.solved_by, key, itertools.count(FIRST_SEED))
            sides.append(Side(key, label, DID[key], theirs))
    wanted = {"greedy": "15 s, aim 6", "rolling": "30 s, aim 12"}
    labels = {
        "greedy": "greedy: 475 over 100 episodes, and again over 100 more",
        "rolling": "rolling: 475 as the mean of the last 100 training episodes",
    }
    lines = [
        Line(labels[what], f"ours {what}", tuple(f"{key} {what}" for key in PEERS), wanted[what])
        for what in labels
    ]
    about = (
        "From the start of the command, imports and evaluations included, with one seed each round "
        f"that nothing of ours was tuned on; a run that is not there after {SOLVED_SECONDS:g} s "
        f"counts as {SOLVED_SECONDS:g} s. {load()}"
    )
    found = measure(
        Group("CartPole-v1, solved", "s", "less", about, sides, lines), trainings.given.rounds
    )
    return _with_counts(found, trainings.reached)


def _with_counts(found: Found, reached: Mapping[str, int]) -> Found:
    """Adds to each number of how many rounds it is, if not of all."""
    rounds = found["rounds"]
    for key, count in reached.items():
        if count < rounds:
            found["sides"][key]["label"] += f" ({count} of {rounds} solved)"
    for line in found["lines"]:
        if reached[line["side"]] < rounds:
            line["what"] += f" ({reached[line['side']]} of {rounds} solved)"
    return found


def cartpole(trainings: Trainings) -> Found:
    """Measures CartPole-v1: environment steps while learning."""
    mine, theirs = trainings.rate_of_ours, trainings.rate_of_peer
    sides = [
        Side("ours", "surreal_like", "configs/cartpole_ppo.yaml", partial(mine, "cartpole_ppo")),
        Side(
            "ours large",
            "surreal_like",
            f"configs/cartpole_ppo.yaml {' '.join(LARGE)}",
            partial(mine, "cartpole_ppo", *LARGE),
        ),
    ]
    if "sample_factory" in trainings.given.pythons:
        options: dict[str, tuple[str, tuple[str, ...]]] = {
            "appo": ("Sample Factory, its example", ()),
            "appo large": ("Sample Factory, the same", APPO_LARGE),
        }
        for key, (label, words) in options.items():
            run = partial(
                theirs, "sample_factory", "sample_factory_appo.py", "cartpole_rate", *words
            )
            sides.append(Side(key, label, f"{DID['appo']}; {' '.join(words)}", run))
    lines = [
        Line("PPO as shipped: 1 agent, 32 environments, 6 passes", "ours", ("appo",)),
        Line(
            "PPO: 2 agents, 64 environments each, batches of 2,048 rows, 1 pass",
            "ours large",
            ("appo large",),
            "2 x, aim 60 k",
        ),
    ]
    about = (
        "Environment steps that were learned from, not those that came too late for it; "
        "networks of 2 x 64, but Sample Factory's example has 2 x 512; without evaluation. "
        f"{load()}"
    )
    return measure(
        Group("CartPole-v1, while learning", "steps/s", "more", about, sides, lines),
        trainings.given.rounds,
    )


def pong(trainings: Trainings) -> Found:
    """Measures Pong: agent steps while learning."""
    mine, theirs = trainings.rate_of_ours, trainings.rate_of_peer
    ours_did = "benchmarks/pong_impala.yaml"
    sides = [Side("ours", "surreal_like", ours_did, partial(mine, "pong_impala"))]
    if "sample_factory" in trainings.given.pythons:
        run = partial(theirs, "sample_factory", "sample_factory_appo.py", "pong", *APPO_PONG)
        did = (
            f"its Atari example with {' '.join(APPO_PONG)}; with V-trace its learner fails "
            "(no attribute 'advantages')"
        )
        sides.append(Side("appo", "Sample Factory APPO", did, run))
    if "rllib" in trainings.given.pythons:
        run = partial(theirs, "rllib", "rllib_runs.py", "pong_impala", "2", "8")
        did = "2 env runners of 8 environments, unrolls of 20, batches of 320 rows, a learner"
        sides.append(Side("rllib", "RLlib IMPALA", did, run))
    lines = [
        Line("IMPALA, agent steps", "ours", ("appo",), "1.5 x"),
        Line("IMPALA, agent steps", "ours", ("rllib",), "3 x, aim 1.9 k"),
    ]
    about = (
        "2 workers of 8 environments, unrolls of 20 steps, batches of 320 rows, one update from "
        "each; the same emulator and preprocessing, stacks of four frames of 84 x 84, the Nature "
        f"CNN with 512 features, without evaluation. A step is four screens. {load()}"
    )
    return measure(
        Group("Pong, while learning", "steps/s", "more", about, sides, lines),
        trainings.given.rounds,
    )


def load() -> str:
    """Describes the load of this machine before a group began."""
    return f"Load of the machine at the beginning: {os.getloadavg()[0]:.1f}."


def main() -> None:
    """Measures, prints the tables and writes the results."""
    peers = ("sb3", "torchrl", "sample_factory", "rllib")
    with arguments(__doc__, *peers, seconds=10.0, rounds=2, parts=PARTS) as given:
        trainings = Trainings(given)
        measures = {"solved": solved, "cartpole": cartpole, "pong": pong}
        groups = []
        left = list(given.parts)
        while left:
            try:
                groups.append(measures[left[0]](trainings))
                del left[0]
            except RunFailed as error:
                given.left_out[f"{error.peer or 'ours'} from {left[0]} on"] = str(error)
                if error.peer:
                    # Repeats this part and runs the following ones without the peer.
                    del given.pythons[error.peer]
                else:
                    del left[0]
        for part in set(PARTS) - set(given.parts):
            given.left_out[part] = "not measured this time"
        if not groups:
            raise SystemExit(f"nothing could be measured: {given.left_out}")
        keep("systems", groups, given.versions, given.left_out)


if __name__ == "__main__":
    main()
