"""Trained policies for the package: learned, chosen, evaluated, written, and played again.

Of each experiment three seeds are trained, or taken from the folder of runs that learn.py or
milestones.py has kept. The parameters with the best score in each run play 1,000 fresh episodes;
the run of the median seed goes into configs/trained/ with its card. Parameters above 200 kB are
stored as halves, and what the card says was played with these.

    python benchmarks/zoo.py cartpole_dqn acrobot_dqn --runs runs/learn
    python benchmarks/zoo.py --check score
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import learn
import milestones
import safetensors.torch
import torch
import yaml
from machine import machine
from milestones import in_folder_of_data
from setting import add_seeds, run_folders, seeds_of

from session.checkpoint import STATE, read_state, save_one
from session.config.session_defaults import EVALUATION_MODES
from session.folder import RunFolder
from surreal_like.addons.analysis.evaluate import evaluate
from surreal_like.data.policy_names import PolicyId, learning_policies, named_policies
from surreal_like.experiment.checkpoints import default_checkpoint, whole_checkpoint
from surreal_like.experiment.shipped import list_experiments, shipped_folder
from surreal_like.experiment.trained import Card, list_trained
from surreal_like.learner.saver import PARAMETERS

PLACE = shipped_folder() / "trained"
EPISODES = 1000
# What a test plays again: fewer where images are computed.
SAMPLE, SAMPLE_OF_IMAGES = 20, 5
# Of all episodes; no run has had it.
SEED = 20_261_130
# Of one training.
SECONDS = 7200.0
HALVES_ABOVE_BYTES = 200_000
NUMBERS = ("mean_return", "std_return", "min_return", "max_return")
# Of the state of a checkpoint.
KEPT = ("iteration", "version", "env_steps", "mean_return", "episodes")


def rows() -> dict[str, learn.Row]:
    """Returns the rows of learn.py and milestones.py that train a shipped experiment as it is."""
    known = (*learn.ROWS, *milestones.ROWS)
    return {each.name: each for each in known if each.name == each.config}


def trained_run(row: learn.Row, seed: int, folder: Path) -> RunFolder:
    """Returns the run of a seed, which is trained now unless the folder has it.

    Raises:
        SystemExit: it has not reached its goal; the message says why.
    """
    run = RunFolder(folder / row.name / f"seed-{seed}")
    if run.read_result() is None:
        # Its environment steps limit it; how fast the machine was is no fact about the policy.
        long = replace(row, at_most_seconds=SECONDS)
        learn.one_run(long, seed, run.path, f"session_config.stop.seconds={SECONDS}")
    result = run.read_result()
    if row.goal is not None and not (result and result["goal_met"]):
        why = result["reason"] if result else "no result"
        raise SystemExit(f"{row.name}, seed {seed} has not met its goal: {why}")
    return run


def played(folder: Path, checkpoint: str, episodes: int) -> dict[str, Any]:
    """Plays fresh episodes as the run's goal is judged; returns what a card has of them."""
    config = RunFolder(folder).read_config()
    greedy = config.session_config.evaluator.mode[0] == EVALUATION_MODES[0]
    found = evaluate(
        folder, episodes=episodes, checkpoint=checkpoint, seed=SEED, deterministic=greedy
    )
    numbers = {name: float(found[name]) for name in NUMBERS}
    error = numbers["std_return"] / math.sqrt(found["episodes"])
    means = found.get("policies", {})
    policies = {name: means[name] for name in named_policies(config) if name in means}
    return {
        **numbers,
        "standard_error": error,
        "episodes": found["episodes"],
        "seed": SEED,
        **({"policies": policies} if policies else {}),
    }


def merit(score: Mapping[str, Any]) -> float:
    """Returns the mean return that decides which seed is in the middle; of several policies all."""
    return float(sum((score.get("policies") or {"": score["mean_return"]}).values()))


def write(run: RunFolder, checkpoint: str, place: Path) -> str:
    """Writes config and parameters of a run as a trained policy; returns their type.

    Args:
        run: the run.
        checkpoint: name of the checkpoint of each policy.
        place: folder that is made.
    """
    config = run.read_config()
    found = {
        PolicyId(name).best: whole_checkpoint(run, checkpoint, name)
        for name in learning_policies(config)
    }
    size = sum((path / PARAMETERS).stat().st_size for path in found.values())
    halves = size > HALVES_ABOVE_BYTES
    place.mkdir(parents=True)
    # Where the run was is no fact about the policy.
    config.session_config.folder = None
    config.dump_file(place / "config.yaml")
    for name, path in found.items():
        tensors = safetensors.torch.load_file(path / PARAMETERS)
        if halves:
            # Moments of observations and shifts stay whole: they are few.
            tensors = {
                key: x.half() if x.dtype == torch.float32 and x.dim() > 1 else x
                for key, x in tensors.items()
            }
        for key, x in tensors.items():
            if not x.isfinite().all():
                raise SystemExit(
                    f"{path / PARAMETERS}: {key} has values that are not finite as {x.dtype}: the "
                    "policy cannot be stored; train it again"
                )
        state = {key: x for key, x in read_state(path).items() if key in KEPT}
        data = safetensors.torch.save(tensors)
        best = place / "checkpoints" / name
        save_one(best, state, lambda new, data=data: _store(new, data))  # type: ignore[misc]
    return "float16" if halves else "float32"


def _store(folder: Path, data: bytes) -> None:
    (folder / PARAMETERS).write_bytes(data)


def make(row: learn.Row, seeds: list[int], runs: Path) -> Card:
    """Trains, chooses, writes and evaluates the policy of one experiment; returns its card."""
    found = {seed: trained_run(row, seed, runs) for seed in seeds}
    named = {seed: default_checkpoint(run) for seed, run in found.items()}
    scores = {seed: merit(played(run.path, named[seed], EPISODES)) for seed, run in found.items()}
    seed = sorted(scores, key=scores.__getitem__)[len(scores) // 2]
    # The policy before stays until the new one is whole, and has played.
    with tempfile.TemporaryDirectory(dir=PLACE) as scratch:
        place = Path(scratch) / row.name
        card = describe(row, found[seed], named[seed], place, scores)
        shutil.rmtree(PLACE / row.name, ignore_errors=True)
        place.rename(PLACE / row.name)
    return card


def describe(
    row: learn.Row, run: RunFolder, checkpoint: str, place: Path, scores: Mapping[int, float]
) -> Card:
    """Writes the policy of a run into a new folder, plays it, and writes its card.

    Args:
        row: of the experiment.
        run: the run.
        checkpoint: name of the checkpoint of each policy.
        place: the folder.
        scores: seed -> mean return of each run.
    """
    precision = write(run, checkpoint, place)
    facts = next(each for each in list_experiments() if each.name == row.name)
    here = machine()
    images = facts.environment.startswith("atari:")
    state = next(place.glob(f"checkpoints/best/**/{STATE}"))
    card = Card(
        environment=facts.environment,
        algorithm=facts.algorithm,
        extra=facts.extra,
        fingerprint=str(learn.experiment_of(row)["experiment"]),
        seed=int(run.read_config().session_config.seed),
        seeds={each: round(score, 4) for each, score in scores.items()},
        env_steps=int(json.loads(state.read_text())["env_steps"]),
        score=played(place, "best", EPISODES),
        sample=played(place, "best", SAMPLE_OF_IMAGES if images else SAMPLE),
        precision=precision,
        date=here["date"],
        machine=f"{here['processor']}, {here['cores']} cores, {here['memory_gib']} GiB",
        versions=here["versions"],
        command=f"make trained NAME={row.name}",
    )
    (place / "card.yaml").write_text(yaml.safe_dump(asdict(card), sort_keys=False, width=100))
    return card


def differences(
    kept: Mapping[str, Any], found: Mapping[str, Any], score: Mapping[str, Any], *, same: bool
) -> str:
    """Returns how an evaluation differs from that of a card; empty if it does not.

    Args:
        kept: of the card.
        found: of now, of as many episodes.
        score: of the card, of all its episodes: a few may all be the same.
        same: with the same versions and processor: then all numbers are the same. Otherwise means
            differ by what :func:`allowed` returns at most, that of each policy by itself.
    """
    if same:
        names = (*NUMBERS, *(name for name in ("policies",) if name in kept))
        other = [name for name in names if kept[name] != found[name]]
        return ", ".join(f"{name} {found[name]}, was {kept[name]}" for name in other)
    before, now = (each.get("policies") or {"": each["mean_return"]} for each in (kept, found))
    texts = [
        f"mean return {name} {now.get(name)}, was {mean:g}".replace("  ", " ")
        for name, mean in before.items()
        if not abs(now.get(name, math.inf) - mean) <= allowed(score, mean, kept["episodes"])
    ]
    return ", ".join(texts)


def allowed(score: Mapping[str, Any], mean: float, episodes: int) -> float:
    """Returns how far a mean return may be from one of as many episodes on another processor.

    That is four standard errors, and at least 2 % of the range of the returns or of the mean. Cards
    have the spread of the joint return only: it is the bound for that of each policy. Where one
    agent wins what another loses, it is 0, and 10 % of the mean are allowed, at least 0.1.
    """
    if "policies" in score and score["min_return"] == score["max_return"] == 0:
        return 0.1 * max(1.0, abs(mean))
    error: float = score["std_return"] / math.sqrt(episodes)
    width: float = score["max_return"] - score["min_return"]
    return max(4 * error, 0.02 * width, 0.02 * abs(mean))


def checked(episodes: str) -> Iterator[tuple[str, str]]:
    """Plays what each card says again; yields its name, and how it differs.

    Args:
        episodes: score or sample.
    """
    here = machine()
    for name, card in list_trained().items():
        kept: Mapping[str, Any] = getattr(card, episodes)
        found = played(PLACE / name, "best", int(kept["episodes"]))
        # Another processor adds in another order.
        same = card.versions == here["versions"] and card.machine.startswith(
            f"{here['processor']}, "
        )
        yield name, differences(kept, found, card.score, same=same)


def main() -> int:
    """Makes or checks policies; returns 1 if one differs from its card."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", choices=[[], *rows()], metavar="NAME", help="to make")
    add_seeds(parser, "101..103")
    parser.add_argument("--runs", type=Path, help="folder with runs; others are trained into it")
    parser.add_argument("--check", choices=("score", "sample"), help="play these episodes again")
    given = parser.parse_args()
    chosen = [rows()[name] for name in given.names]
    with run_folders(given.runs) as folder, in_folder_of_data(chosen, folder / "recorded"):
        for row in chosen:
            card: Any = make(row, seeds_of(given.seeds), folder)
            print(f"{row.name}: seed {card.seed} of {card.seeds}, {card.reached}")
    wrong = 0
    # Each as soon as it is known: together they take many minutes.
    for name, text in checked(given.check) if given.check else ():
        print(f"{name}: {text or 'as its card says'}", flush=True)
        wrong += bool(text)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
