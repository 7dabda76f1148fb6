"""Kubernetes keeps the contract of launchers: real controllers, pods run on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from session.addons.kubernetes.cluster import KubernetesCluster
from session.folder import RunFolder
from session.launchers.handle import make_cluster
from session.launchers.status import ComponentStatus
from tests.addons.kubernetes.cluster import TestedCluster, open_cluster
from tests.addons.kubernetes.conftest import setting_of
from tests.addons.kubernetes.control_plane import ControlPlane
from tests.addons.kubernetes.kubelet import Kubelet
from tests.addons.kubernetes.old_server import edit_files
from tests.contracts.launcher import Launched, LauncherContract

pytestmark = [
    *(pytest.mark.slow, pytest.mark.root, pytest.mark.kubectl, pytest.mark.cluster),
    pytest.mark.timeout(600),
]

T = TypeVar("T")
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
def no_child_left() -> None:
    """A run stays from one test to the next; what is left is looked for at the end of the file."""


class Numbered:
    """The run, with the numbers that its processes have on this machine.

    In its pod every process has the number 1, so that a table of pods shows none.
    """

    def __init__(self, run: KubernetesCluster, cluster: TestedCluster) -> None:
        self._run = run
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    def status(self) -> list[ComponentStatus]:
        return [replace(row, pid=self.number(row.name)) for row in self._run.status()]

    def number(self, component: str) -> int:
        return self._cluster.process("mine", component)


@dataclass(frozen=True)
class LaunchedPods(Launched):
    """The same for what another shell sees."""

    def until(self, look: Callable[[], T | None], seconds: float = 60.0) -> T:
        """Each look runs kubectl, and a command in a pod: slower than a look at processes."""
        return super().until(look, 4 * seconds)

    def elsewhere(self, *words: str) -> Any:
        found = super().elsewhere(*words)
        if words[0] == "status":
            for row in found:
                row["pid"] = self.run.number(row["name"])
        return found


class TestKubernetes(LauncherContract):
    names = (
        *("replay-0", "learner", "agent-0", "eval-0"),
        *("ps", "loggerplex", "tensorplex", "tensorboard"),
    )
    said = ("agent-0", "acting: version")
    plane: ControlPlane
    kubelet: Kubelet
    kept: ExitStack
    folders: pytest.TempPathFactory
    last: Launched | None = None

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _runs(
        cls, control_plane: ControlPlane, kubelet: Kubelet, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[None]:
        cls.plane, cls.kubelet, cls.kept = control_plane, kubelet, ExitStack()
        cls.folders = tmp_path_factory
        with cls.kept:
            yield

    @contextmanager
    def launched(self, path: Path) -> Iterator[Launched]:
        """A run; the one of the test before, with new pods for those that it has restarted."""
        cls = type(self)
        if cls.last is None or not self.renew(cls.last):
            cls.kept.close()
            cls.last = self.launch()
        yield cls.last

    def launch(self) -> Launched:
        cluster = self.kept.enter_context(open_cluster(self.plane, self.kubelet))
        setting = setting_of(*_ENDLESS, name="mine")
        folder = RunFolder(self.folders.mktemp("runs") / "run")
        folder.create()
        run = make_cluster("kubernetes", setting.config, setting.topology, folder)
        assert isinstance(run, KubernetesCluster)
        text = run.dry_run()
        run.launch()
        return LaunchedPods(Numbered(run, cluster), folder, text, command_line=None)

    def renew(self, launched: Launched) -> bool:
        """Removes pods whose containers were restarted; False if the run is over."""
        if launched.folder.over:
            return False
        run = launched.run
        run.scale("agent", 1)
        run.scale("eval", 1)
        kubectl = run.kubectl
        worn = [
            pod["metadata"]["name"]
            for pod in kubectl.get("pods")["items"]
            if any(each["restartCount"] for each in pod["status"].get("containerStatuses", []))
        ]
        if worn:
            kubectl.run("delete", "pod", *worn)
        return True

    def test_what_was_shown_before_is_what_runs(self, run_folder: Path) -> None:
        """Objects have no lines of commands: what was shown is what the cluster keeps."""
        with self.launched(run_folder) as launched:
            launched.running(*self.names)
            run_folder.mkdir(exist_ok=True)
            shown = run_folder / "shown.yaml"
            shown.write_text(launched.dry_run)
            edit_files(run_folder)
            assert launched.run.kubectl.run("diff", f"--filename={shown}") == ""
