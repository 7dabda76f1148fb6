"""Minari, Farama's format of data for offline learning: from recordings, and to them.

A Minari dataset is a folder ``NAME-vN`` on this machine; nothing is downloaded or uploaded.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from session.errors import MissingExtra, SurrealError, UsageError
from surreal_like.addons.recording.minari_episodes import Conversion, find_common_infos
from surreal_like.addons.recording.minari_spaces import leaves, spaces_from_specs
from surreal_like.addons.recording.reader import Recording
from surreal_like.addons.recording.writer import RecordingWriter
from surreal_like.data.policy_names import DEFAULT_POLICY
from surreal_like.data.spec import parse_action_spec, plain
from surreal_like.env.gym_adapter import PREFIX, find_gym_spec, make_gym
from surreal_like.env.spaces import observation_reader, specs_from_spaces
from surreal_like.errors import DataError

_log = logging.getLogger(__name__)
_HOME = "~/.minari/datasets"


def to_minari(recording: Recording, path: str | Path) -> int:
    """Writes the episodes of a recording as a new Minari dataset, as HDF5 without JPEG.

    Arrays stay as they are, bit for bit; rewards become float64, and extras infos of T rows. An
    episode without an end has neither a termination nor a truncation in Minari either. These are
    left out: versions, senders, the mark of a late beginning (a warning counts those), and what
    :func:`spaces_from_specs` loses; a Discrete starts at 0. The environment is recorded as
    Gymnasium's if it has these spaces.

    Args:
        recording: the episodes.
        path: folder of the dataset, such as ``cartpole-v0``. The ID of the dataset is its path
            below ``$MINARI_DATASETS_PATH``, else its name.

    Returns:
        Number of episodes.

    Raises:
        MissingExtra: Minari or h5py is not installed.
        UsageError: the folder has another kind of name or is not empty, or there is no episode.
    """
    minari = _import_minari()
    path = Path(path).resolve()
    about: dict[str, Any] = {
        "dataset_id": _dataset_id(minari, path),
        "minari_version": minari.__version__,
        "algorithm_name": str(recording.run["algorithm"]),
        "environment": str(recording.run["environment"]),
    }
    obs_space, action_space = spaces_from_specs(**recording.specs)
    with _new_folder(path) as folder:
        storage = minari.dataset.minari_storage.MinariStorage.new(
            folder / "data",
            observation_space=obs_space,
            action_space=action_space,
            env_spec=_find_env_spec(recording, action_space),
            data_format="hdf5",
            jpeg_encoding=False,
        )
        storage.update_metadata(about)
        storage.update_episodes(_buffers(minari, recording))
        if not storage.total_episodes:
            raise UsageError(f"{recording.path} has no episode")
        return int(storage.total_episodes)


def from_minari(path: str | Path, folder: str | Path, policy: str = DEFAULT_POLICY) -> int:
    """Writes the episodes of a Minari dataset as a new recording.

    Observations and actions are converted as those of an environment with these spaces: floats
    become float32, discrete values are counted from 0. One warning says which of observations,
    actions and rewards had to be rounded to float32, another one that images were stored as JPEG.
    An episode that both terminated and was truncated counts as terminated; one that did neither is
    cut. Infos with T or T + 1 rows of numbers, of which the last T count, become extras if all
    episodes have them in the same form; a warning names the others.

    Args:
        path: folder of the dataset, or its folder ``data``.
        folder: folder of the recording.
        policy: name of the policy in the recording.

    Returns:
        Number of episodes.

    Raises:
        MissingExtra: Minari, or the package of the storage, is not installed.
        UsageError: there is no such dataset, it has no episode, or the folder is not empty.
        SpecError: a space has no spec.
        DataError: an episode does not fit, has no observation after its last action, or goes on
            after an end; the message begins with its name in Minari.
    """
    dataset = _open(path)
    storage = dataset.storage
    obs_spec, action_spec = specs_from_spaces(storage.observation_space, storage.action_space)
    if not dataset.total_episodes:
        raise UsageError(f"{path} has no episode")
    _warn_of_jpeg(path, storage)
    convert = Conversion(
        observation_reader(storage.observation_space),
        observation_reader(storage.action_space, "actions"),
        parse_action_spec(action_spec).array.dim,
        find_common_infos(_read_episodes(path, dataset)),
    )
    with _new_folder(Path(folder).resolve()) as beside:
        with RecordingWriter(
            beside,
            obs_spec=obs_spec,
            action_spec=action_spec,
            environment=_environment_of(dataset),
            algorithm=str(storage.metadata.get("algorithm_name", "")),
            policy=policy,
            sender="minari",
        ) as writer:
            for episode in _read_episodes(path, dataset):
                where = f"episode {writer.episodes + 1:,}: "
                try:
                    writer.add(**convert(episode))
                except (DataError, ValueError) as error:
                    reason = str(error).removeprefix(where)
                    raise DataError(f"{path}: episode_{episode['id']}: {reason}") from None
        convert.warn(path)
        return writer.episodes


def _import_minari() -> Any:
    """Returns the package. Raises MissingExtra."""
    try:
        import h5py  # noqa: F401
        import minari
        import minari.dataset.minari_dataset
    except ImportError:
        raise MissingExtra.named("Minari", "offline") from None
    return minari


def _open(path: str | Path) -> Any:
    """Returns a dataset on this machine. Raises MissingExtra and UsageError."""
    minari = _import_minari()
    import gymnasium

    data = Path(path, "data") if Path(path, "data").is_dir() else Path(path)
    if not (data / "metadata.json").is_file():
        raise UsageError(f"{Path(path)} is no Minari dataset: there is no {data / 'metadata.json'}")
    try:
        return minari.MinariDataset(data)
    except ImportError as error:
        raise MissingExtra(f"{path}: {error}") from None
    except (*_BROKEN, gymnasium.error.Error) as error:
        raise UsageError(f"{path} cannot be read as a Minari dataset: {error}") from None


# What Minari raises for files that it does not expect.
_BROKEN = (ValueError, TypeError, LookupError, AssertionError, OSError)


def _read_episodes(path: str | Path, dataset: Any) -> Iterator[dict[str, Any]]:
    """Yields the episodes as Minari has them. Raises DataError if one cannot be read."""
    try:
        yield from dataset.storage.get_episodes(range(dataset.total_episodes))
    except _BROKEN as error:
        raise DataError(f"{path}: an episode cannot be read: {error}") from None


def _dataset_id(minari: Any, path: Path) -> str:
    root = Path(os.environ.get("MINARI_DATASETS_PATH") or _HOME).expanduser().resolve()
    name = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
    try:
        minari.dataset.minari_dataset.parse_dataset_id(name)
    except (ValueError, TypeError):
        raise UsageError(
            f"{name} names no Minari dataset: call the folder NAME-vN, such as cartpole-v0"
        ) from None
    return name


@contextlib.contextmanager
def _new_folder(path: Path) -> Iterator[Path]:
    """Yields a folder beside a path. It becomes that path at the end; an error removes it."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{path} is not empty: choose another folder")
    beside = path.with_name(f".{path.name}.writing")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        beside.mkdir(parents=True)
        yield beside
        beside.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _buffers(minari: Any, recording: Recording) -> Iterator[Any]:
    """Yields the episodes as Minari writes them; counts those that begin late in a warning."""
    late = 0
    for episode in recording:
        late += not episode.begun
        ends = np.zeros((2, len(episode)), np.bool_)
        ends[:, -1] = episode.terminated, episode.truncated
        extras = episode.extras
        yield minari.data_collector.EpisodeBuffer(
            observations=episode.observations,
            actions=episode.actions,
            rewards=episode.rewards.astype(np.float64),
            terminations=ends[0],
            truncations=ends[1],
            infos=extras if isinstance(extras, Mapping) else {"extras": extras},
        )
    if late:
        _log.warning("episodes without their beginning, which Minari does not mark: %d", late)


def _find_env_spec(recording: Recording, action_space: Any) -> Any:
    """Returns Gymnasium's spec of the environment if it has these spaces, else None."""
    name = str(recording.run["environment"])
    if not name.startswith(PREFIX):
        return None
    with contextlib.suppress(SurrealError), contextlib.closing(make_gym(name)) as env:
        obs_spec, _ = specs_from_spaces(env.observation_space, env.action_space)
        if plain(obs_spec) == plain(recording.specs["obs_spec"]):
            return find_gym_spec(name) if env.action_space == action_space else None
    return None


def _environment_of(dataset: Any) -> str:
    own = dataset.storage.metadata.get("environment")
    return str(own or (f"{PREFIX}{dataset.env_spec.id}" if dataset.env_spec else ""))


def _warn_of_jpeg(path: str | Path, storage: Any) -> None:
    from minari.dataset.minari_storage import is_image_space

    spaces = *leaves(storage.observation_space), *leaves(storage.action_space)
    if storage.jpeg_encoding and any(map(is_image_space, spaces)):
        _log.warning("%s: its images are stored as JPEG, which changed them", path)
