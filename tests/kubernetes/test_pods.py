"""The pods of the CartPole overlay, played by processes in network namespaces."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from session.folder import RunFolder
from session.launchers.kubernetes.kustomize import dump_objects
from session.launchers.kubernetes.secret import SECRETS, overlay_secrets, write_overlay_keys
from tests.kubernetes.playing import Playground, playground
from tests.kubernetes.test_manifests import copy_of_k8s

pytestmark = [pytest.mark.slow, pytest.mark.root, pytest.mark.kubectl, pytest.mark.timeout(900)]

_QUIET_SECONDS = 60.0


@pytest.fixture
def folder() -> Iterator[Path]:
    """Below a path that other users may enter: containers are not root."""
    path = Path(tempfile.mkdtemp(prefix="sl-pods-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


def learners_folder(cluster: Playground) -> RunFolder:
    return RunFolder(cluster.pods.claim("cartpole-learner"))


def iterations(cluster: Playground) -> int:
    """Updates that the learner has told of."""
    progress = learners_folder(cluster).progress
    lines = progress.read_text().splitlines() if progress.is_file() else []
    return int(json.loads(lines[-1])["iteration"]) if lines else 0


def events(cluster: Playground, kind: str) -> list[dict[str, Any]]:
    """What Loggerplex has noted of one kind."""
    path = RunFolder(cluster.pods.claim("cartpole-loggerplex")).events
    lines = path.read_text().splitlines() if path.is_file() else []
    found = [json.loads(line) for line in lines]
    return [each for each in found if each["event"] == kind]


def test_cartpole_is_solved_by_pods_that_come_and_go(
    folder: Path, rendered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = copy_of_k8s(folder)
    write_overlay_keys(top / "overlays" / "cartpole")
    secret = folder / "secret.yaml"
    secret.write_text(dump_objects(overlay_secrets(top / "overlays" / "cartpole")))
    with playground(folder, monkeypatch) as cluster:
        # The objects of the overlay; without the Secret nothing begins.
        cluster.kubectl("apply", "-f", str(rendered / "cartpole.yaml"))
        # Without an evaluator nobody sees that it is solved, however long the rest takes.
        cluster.kubectl("scale", "statefulset/cartpole-eval", "--replicas=0")
        cluster.kubectl("scale", "statefulset/cartpole-agent", "--replicas=1")
        cluster.until(
            lambda: not [name for name in cluster.pods.pods() if "-eval-" in name], "no evaluator"
        )
        cluster.kubectl("apply", "-f", str(secret))
        cluster.until(lambda: iterations(cluster) > 0, "the learner learns")
        cluster.until(lambda: len(cluster.ready("agent")) == 1, "one agent")

        cluster.kubectl("scale", "statefulset/cartpole-agent", "--replicas=3")
        cluster.until(lambda: len(cluster.ready("agent")) == 3, "three agents")

        cluster.pods.kill("cartpole-agent-1")
        cluster.until(
            lambda: any(
                name == "cartpole-agent-1" and count == 1
                for (name, _), count in cluster.restarts().items()
            ),
            "the killed agent is started again",
        )
        cluster.until(lambda: len(cluster.ready("agent")) == 3, "three agents again")

        before = iterations(cluster)
        (learner,) = [name for name in cluster.pods.pods() if "learner" in name]
        cluster.kubectl("delete", "pod", learner, "--wait=false")
        cluster.until(lambda: learner not in cluster.pods.pods(), "the learner's pod is gone")
        assert not learners_folder(cluster).over
        cluster.until(lambda: len(cluster.ready("learner")) == 1, "another learner")
        restored = cluster.until(lambda: events(cluster, "restored"), "it says what it restored")
        assert int(restored[-1]["detail"].removeprefix("iteration ")) >= before > 0

        cluster.kubectl("scale", "statefulset/cartpole-agent", "--replicas=1")
        cluster.until(
            lambda: sum("-agent-" in name for name in cluster.pods.pods()) == 1, "one agent"
        )
        assert events(cluster, "leaving")

        cluster.kubectl("scale", "statefulset/cartpole-eval", "--replicas=1")
        cluster.until(lambda: cluster.complete("cartpole-learner"), "solved", seconds=300.0)
        result = dict(learners_folder(cluster).read_result() or {})
        assert (result["status"], result["goal_met"]) == ("stopped", True)
        assert result["iteration"] > before
        assert_nothing_restarts(cluster)


def assert_nothing_restarts(cluster: Playground) -> None:
    """Who has nothing to do any more idles, not ready, and the servers serve on."""
    cluster.until(lambda: not cluster.ready("agent") and not cluster.ready("eval"), "they idle")
    before, until = cluster.restarts(), time.monotonic() + _QUIET_SECONDS
    while time.monotonic() < until:
        assert cluster.restarts() == before
        time.sleep(0.5)
    for part in ("ps", "replay", "tensorplex", "loggerplex"):
        assert cluster.ready(part), part


def env_steps(cluster: Playground) -> int:
    """Steps that the learner has heard of."""
    progress = learners_folder(cluster).progress
    lines = progress.read_text().splitlines() if progress.is_file() else []
    return int(json.loads(lines[-1])["env_steps"]) if lines else 0


def test_a_replay_whose_node_vanishes_is_given_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No FIN tells of it: only the kernel's patience with what is not confirmed ends."""
    top = copy_of_k8s(folder)
    write_overlay_keys(top / "overlays" / "cartpole")
    # No goal, and nobody who would see it reached.
    config = top / "overlays" / "cartpole" / "config.yaml"
    config.write_text(config.read_text().replace("eval_return: 475", "eval_return: null"))
    with playground(folder, monkeypatch) as cluster:
        cluster.kubectl("apply", "-k", str(top / "overlays" / "cartpole"))
        cluster.until(lambda: env_steps(cluster) > 10_000, "they step")
        cluster.pods.lose("cartpole-replay-0")
        cluster.until(lambda: len(cluster.ready("replay")) == 1, "another replay")
        before = env_steps(cluster)
        cluster.until(lambda: env_steps(cluster) > before + 10_000, "they step on", seconds=240.0)
        assert not learners_folder(cluster).over


def test_a_pod_waits_for_the_secret(
    folder: Path, rendered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with playground(folder, monkeypatch) as cluster:
        cluster.kubectl("apply", "-f", str(rendered / "cartpole.yaml"))
        cluster.until(lambda: len(cluster.pods.pods()) >= 8, "pods are made")
        waiting = cluster.until(
            lambda: [
                each["state"]["waiting"]["message"]
                for pod in cluster.pods.pods().values()
                for each in pod["status"].get("containerStatuses", [])
            ],
            "they wait",
        )
        missing = 'MountVolume.SetUp failed: secret "cartpole-{}" not found'
        # This experiment has no gateway.
        assert set(waiting) == {missing.format(each) for each in SECRETS if each != "keys-gateway"}
