"""Kubernetes keeps the contract of launchers, on a cluster that is played on this machine."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from session.folder import RunFolder
from session.launchers.kubernetes.cluster import KubernetesCluster
from session.launchers.launcher import ComponentStatus
from tests.contracts.launcher import Launched, LauncherContract
from tests.kubernetes.conftest import setting_of
from tests.kubernetes.playing import Playground, playground

pytestmark = [pytest.mark.slow, pytest.mark.root, pytest.mark.kubectl, pytest.mark.timeout(600)]

# A run that nothing ends, and that leaves the machine some time.
_ENDLESS = (
    "session_config.stop.eval_return=null",
    "session_config.stop.env_steps=null",
    "session_config.stop.seconds=3600",
    "session_config.agent.num=1",
    "session_config.evaluator.interval_seconds=5.0",
    "env_config.num_envs=1",
    "learner_config.replay.samples_per_insert=1.0",
)


@pytest.fixture
def run_folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="sl-pods-"))
    path.chmod(0o755)
    yield path / "mine"
    shutil.rmtree(path, ignore_errors=True)


class Numbered:
    """The run, with the numbers that its processes have on this machine.

    In its pod every process has the number 1, so that a table of pods shows none.
    """

    def __init__(self, run: KubernetesCluster, cluster: Playground) -> None:
        self._run = run
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    def status(self) -> list[ComponentStatus]:
        return [replace(row, pid=self.number(row.name)) for row in self._run.status()]

    def number(self, component: str) -> int:
        return self._cluster.pods.process("mine", component) or 0


@dataclass(frozen=True)
class LaunchedPods(Launched):
    """The same for what another shell sees."""

    def elsewhere(self, *words: str) -> Any:
        found = super().elsewhere(*words)
        if words[0] == "status":
            for row in found:
                row["pid"] = self.run.number(row["name"])  # type: ignore[attr-defined]
        return found


class TestKubernetes(LauncherContract):
    names = (
        *("replay-0", "learner", "agent-0", "eval-0"),
        *("ps", "loggerplex", "tensorplex", "tensorboard"),
    )
    said = ("agent-0", "acting: version")

    @contextmanager
    def launched(self, path: Path) -> Iterator[Launched]:
        with pytest.MonkeyPatch.context() as patch, playground(path.parent, patch) as cluster:
            setting = setting_of(*_ENDLESS, name="mine")
            folder = RunFolder(path)
            folder.create()
            run = KubernetesCluster(setting.config, setting.topology, folder)
            text = run.dry_run()
            run.launch()
            yield LaunchedPods(Numbered(run, cluster), folder, text, command_line=None)

    def test_what_was_shown_before_is_what_runs(self, run_folder: Path) -> None:
        """Objects have no lines of commands: what was shown is what the cluster keeps."""
        with self.launched(run_folder) as launched:
            launched.running(*self.names)
            for each in yaml.safe_load_all(launched.dry_run):
                kubectl = launched.run.kubectl  # type: ignore[attr-defined]
                found = kubectl.get(each["kind"].lower(), each["metadata"]["name"])
                if each["metadata"]["name"] == "mine-learner" and each["kind"] == "Job":
                    # Added once the others are tied to it.
                    each["spec"]["ttlSecondsAfterFinished"] = 3600
                assert found.get("spec") == each.get("spec")
                assert found.get("data") == each.get("data")
