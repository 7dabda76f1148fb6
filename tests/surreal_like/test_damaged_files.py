"""Every file of a checkpoint and of a snapshot, damaged in every way: one generation back.

Where none is left there is one clear line, and what was to be restored is as new.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from session.checkpoint import read_state
from session.config import Config
from session.errors import CheckpointError
from session.folder import RunFolder
from session.process.clock import CountedClock
from session.process.context import Context
from surreal_like.coordinator.run_stats import RunStats
from surreal_like.data.policy_names import DEFAULT_POLICY
from surreal_like.experiment.checkpoints import whole_checkpoint
from surreal_like.learner.saver import Saver
from surreal_like.network.flat import manifest_of, named_tensors, read_flat
from surreal_like.replay.chunk_accounts import AckTracker
from surreal_like.replay.kinds import UniformReplay
from surreal_like.replay.recovery import ShardRecovery
from surreal_like.run.resume import check_checkpoints
from tests.session.damage import DAMAGES, seal_again
from tests.surreal_like.coordinator.test_run_stats import config as run_config
from tests.surreal_like.learner.test_saver import SETTINGS, Line, make_learner, train, weights
from tests.surreal_like.replay.chunks import chunk_of
from tests.surreal_like.replay.configs import configs

CHECKPOINT = ("params.safetensors", "optimizer.pt", "state.json")
# Eight columns of rows and two of links.
SNAPSHOT = ("state.json", *(f"{number}.npy" for number in range(10)))


def make_record() -> RunStats:
    return RunStats(run_config(), CountedClock())


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run folder with checkpoints 5 and 10, a best one, and a record."""
    folder = RunFolder(tmp_path_factory.mktemp("saved") / "run")
    folder.create()
    learner, record = make_learner(), make_record()
    record.iterations = 10
    saver = Saver(learner, folder, SETTINGS, CountedClock())
    for version in (1, 2):
        train(learner, 5)
        saver.save(version, 100 * version, "id", record.state(learner.iteration, version))
    record.save(folder.checkpoints / "learner" / "record.json", 10, 2)
    modules = learner.module_dict()
    saver.save_best(read_flat(modules), manifest_of(named_tensors(modules)), {"mean_return": 1.0})
    return folder.path


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """Return an empty run folder."""
    folder = RunFolder(tmp_path / "run")
    folder.create()
    return folder


@pytest.fixture
def run(saved: Path, tmp_path: Path) -> RunFolder:
    """Return a copy of it."""
    return RunFolder(shutil.copytree(saved, tmp_path / "run"))


def restore(folder: RunFolder) -> tuple[Line, Mapping[str, Any] | None, list[str]]:
    said: list[str] = []
    learner = make_learner()
    state = Saver(learner, folder, SETTINGS, CountedClock(), said.append).restore()
    return learner, state, said


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", CHECKPOINT)
def test_a_damaged_checkpoint_falls_back_one_generation(
    run: RunFolder, name: str, damage: str
) -> None:
    checkpoints = run.checkpoints / "learner"
    DAMAGES[damage](checkpoints / "10" / name)
    with pytest.raises(CheckpointError, match=str(checkpoints / "10")) as caught:
        whole_checkpoint(run, "10")
    assert "\n" not in str(caught.value)
    assert whole_checkpoint(run, "latest").name == "5"
    assert check_checkpoints(run, [DEFAULT_POLICY]).startswith(
        "going on from the checkpoint before: "
    )
    learner, state, lines = restore(run)
    assert (learner.iteration, state and state["version"]) == (5, 1)
    assert len(lines) == 1
    assert str(checkpoints / "10") in lines[0]
    assert lines[0].endswith("; set aside as aside/10.1")
    assert (checkpoints / "aside" / "10.1").is_dir()
    assert restore(run)[2] == []


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", CHECKPOINT)
def test_one_clear_line_where_none_is_left(run: RunFolder, name: str, damage: str) -> None:
    for number in ("5", "10"):
        DAMAGES[damage](run.checkpoints / "learner" / number / name)
    with pytest.raises(CheckpointError, match=r"no checkpoint of run .* is whole") as caught:
        check_checkpoints(run, [DEFAULT_POLICY])
    assert "\n" not in str(caught.value)
    learner, state, said = restore(run)
    assert (state, learner.iteration, len(said)) == (None, 0, 2)
    assert not any("\n" in line for line in said)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["params.safetensors", "state.json"])
def test_damaged_best_parameters_are_set_aside(run: RunFolder, name: str, damage: str) -> None:
    DAMAGES[damage](run.checkpoints / "best" / name)
    with pytest.raises(CheckpointError, match="best"):
        whole_checkpoint(run, "best")
    _, state, said = restore(run)
    assert state is not None
    assert len(said) == 1
    assert said[0].endswith("; set aside as aside/best.1")


@pytest.mark.parametrize("damage", [damage for damage in DAMAGES if damage != "gone"])
def test_a_damaged_record_is_replaced_by_that_of_the_checkpoint(
    run: RunFolder, damage: str
) -> None:
    path = run.checkpoints / "learner" / "record.json"
    DAMAGES[damage](path)
    record = make_record()
    saved = read_state(run.checkpoints / "learner" / "10")["record"]
    said = record.restore(path, 10, saved) or ""
    assert said.endswith("; set aside as aside/record.json.1")
    assert (record.iterations, record.restored_version) == (10, 2)


# -- what is whole, but means nothing --------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"iteration": "three"},
        {"iteration": None},
        {"iteration": 10.5},
        {"version": "1"},
        {"env_steps": []},
        {"files": []},
        {"files": {"params.safetensors": 7}},
    ],
    ids=str,
)
def test_a_state_of_wrong_types_falls_back(run: RunFolder, change: dict[str, Any]) -> None:
    seal_again(run.checkpoints / "learner" / "10", **change)
    learner, state, said = restore(run)
    assert (learner.iteration, state and state["iteration"], len(said)) == (5, 5, 1)


@pytest.mark.parametrize(
    "missing", ["accounts", "judge", "lag", "episodes", "iteration", "version"]
)
def test_a_record_without_a_key_changes_nothing(run: RunFolder, missing: str) -> None:
    record, state = make_record(), make_record().state(10, 2)
    state["iterations"] = 77
    del state[missing]
    said = record.restore(run.path / "no such file", 10, state)
    assert said is not None
    assert (record.iterations, record.restored_version, record.restored_part) == (0, 0, 0)


class Own:
    """An author's saveable, which may refuse its state."""

    def __init__(self, *, refuses: bool) -> None:
        self.refuses = refuses

    def state_dict(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def load_state_dict(self, state: object) -> None:
        """Refuse once the learner has got its parameters."""
        if self.refuses:
            self.refuses = False
            raise IndexError("an author's mistake")


class Owning(Line):
    """A learner with such a saveable."""

    own = Own(refuses=False)

    def saveables(self) -> Mapping[str, Any]:
        """Return the optimiser, then the author's own."""
        return {**super().saveables(), "own": self.own}


def test_half_a_checkpoint_leaves_a_learner_as_it_was(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = make_learner(Owning)
    train(one, 3)
    Saver(one, folder, SETTINGS, CountedClock()).save(1, 0, "id")
    monkeypatch.setattr(Owning, "own", Own(refuses=True))
    two = make_learner(Owning)
    as_new, said = weights(two), list[str]()
    assert Saver(two, folder, SETTINGS, CountedClock(), said.append).restore() is None
    assert "the state of 'own' does not fit: IndexError" in said[0]
    assert (weights(two), two.iteration, two.optimizer.state_dict()["state"]) == (as_new, 0, {})


# -- snapshots of replay ---------------------------------------------------------------------------


class Shard:
    """A replay with its ledger and its snapshots, without sockets."""

    def __init__(self, folder: RunFolder, incarnation: int) -> None:
        self.said: list[str] = []
        settings = configs(capacity=100, min_size=4, session={"replay": {"snapshot": True}})
        context = SimpleNamespace(
            config=Config({**settings, "run": {"part": 1}}),
            folder=folder,
            name="replay-0",
            component=SimpleNamespace(memory=""),
            topology=(),
            spec_hash="specs",
            incarnation=incarnation,
            busy=lambda *_: None,
            event=lambda kind, text: self.said.append(f"{kind}: {text}"),
        )
        self.replay, self.ledger = UniformReplay(**settings), AckTracker()
        self.snapshots = ShardRecovery(cast(Context, context), self.replay, self.ledger)

    def insert(self, sequence: int) -> None:
        """Take in a chunk of twelve rows."""
        chunk = chunk_of("FMMMMM", "FMMTFM", sequence=sequence)
        assert self.ledger.admit(chunk)
        self.replay.insert_chunk(chunk)
        self.ledger.count_inserted(chunk)

    @property
    def rows(self) -> tuple[int, int]:
        """Rows in the replay, and rows that the ledger knows of."""
        return int(self.replay.statistics()["size"]), self.ledger.totals()["inserted"]


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run folder with snapshots 1 and 2, of 12 and 24 rows."""
    folder = RunFolder(tmp_path_factory.mktemp("snapshots") / "run")
    folder.create()
    shards = folder.checkpoints / "replay-0"
    for incarnation in (1, 2):
        shard = Shard(folder, incarnation)
        shard.snapshots.restore()
        shard.insert(incarnation)
        shard.snapshots.save({})
        shutil.copytree(shards / str(incarnation), folder.path / "kept" / str(incarnation))
    shutil.rmtree(shards)
    (folder.path / "kept").rename(shards)
    return folder.path


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", SNAPSHOT)
def test_a_damaged_snapshot_falls_back_one_generation(
    snapshots: Path, tmp_path: Path, name: str, damage: str
) -> None:
    folder = RunFolder(shutil.copytree(snapshots, tmp_path / "run"))
    DAMAGES[damage](folder.checkpoints / "replay-0" / "2" / name)
    shard = Shard(folder, 3)
    shard.snapshots.restore()
    assert shard.rows == (12, 12)
    bad, restored = shard.said
    assert bad.startswith(f"snapshot_bad: {'checkpoint file ' if name[0] != 's' else ''}")
    assert bad.endswith("; set aside as aside/2.1")
    assert restored == "restored: 12 rows"


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", SNAPSHOT)
def test_one_clear_line_where_no_snapshot_is_left(
    snapshots: Path, tmp_path: Path, name: str, damage: str
) -> None:
    folder = RunFolder(shutil.copytree(snapshots, tmp_path / "run"))
    shutil.rmtree(folder.checkpoints / "replay-0" / "1")
    DAMAGES[damage](folder.checkpoints / "replay-0" / "2" / name)
    shard = Shard(folder, 3)
    shard.snapshots.restore()
    assert (shard.rows, len(shard.said)) == ((0, 0), 1)
    shard.insert(1)
    assert shard.rows == (12, 12)


@pytest.mark.parametrize("where", ["replay", "ledger"])
@pytest.mark.parametrize("depth", [0, 1])
def test_a_snapshot_without_a_key_leaves_an_empty_replay(
    snapshots: Path, tmp_path: Path, where: str, depth: int
) -> None:
    whole = read_state(snapshots / "checkpoints" / "replay-0" / "2")[where]
    for key in whole if depth == 0 else ("storage", "selector", "limiter"):
        # Runs that began earlier have none of these.
        added = key in ("fenced", "env_steps", "began")
        if key not in whole or added or (depth and not isinstance(whole[key], dict)):
            continue
        folder = RunFolder(shutil.copytree(snapshots, tmp_path / key))
        if depth == 0:
            lacking = {name: each for name, each in whole.items() if name != key}
        else:
            lacking = {**whole, key: dict(list(whole[key].items())[1:])}
        for number in ("1", "2"):
            seal_again(folder.checkpoints / "replay-0" / number, **{where: lacking})
        shard = Shard(folder, 3)
        shard.snapshots.restore()
        assert (shard.rows, len(shard.said)) == ((0, 0), 2), shard.said
        shard.insert(1)
        assert shard.rows == (12, 12)
