"""Whole runs on a cluster: `make cluster-test` says on which.

Controllers, scheduler and API server are real. Where no cluster is named, the pods are processes of
this machine.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from main.cli import main as surreal_like
from session.addons.kubernetes.kustomize import dump_objects
from session.addons.kubernetes.secret import SECRETS, overlay_secrets, write_overlay_keys
from session.addons.kubernetes.settings import RUN_PATH
from session.folder import RunFolder
from session.launchers.handle import open_run
from tests.addons.kubernetes.cluster import FOREIGN, IMAGE, TestedCluster
from tests.addons.kubernetes.old_server import edit_files
from tests.addons.kubernetes.test_manifests import copy_of_k8s

pytestmark = [pytest.mark.slow, pytest.mark.kubectl, pytest.mark.cluster, pytest.mark.timeout(900)]
pytestmark += [] if FOREIGN else [pytest.mark.root]
own_nodes = pytest.mark.skipif(bool(FOREIGN), reason="only pods of this machine are cut off")

_RUN = "app.kubernetes.io/instance=cartpole"
_OBJECTS = "job,statefulset,deployment,pod,service,configmap,secret,networkpolicy"
# Longer than the probes of the stand-in need to find a pod dead; and the time until removal.
_QUIET_SECONDS, _TTL_SECONDS = 45, 90
# With these requests a node with four cores and 16 GB has room for all pods.
_KINDS = (
    "learner",
    "replay",
    "agent",
    "evaluator",
    "ps",
    "tensorplex",
    "tensorboard",
    "loggerplex",
)
_SMALL: dict[str, dict[str, float]] = {kind: {"cpu": 0.1} for kind in _KINDS}
_SMALL["replay"]["memory_bytes"] = 2**30


class Run:
    """The run `cartpole` of a namespace, by our own commands."""

    def __init__(self, cluster: TestedCluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder

    def command(self, *words: str) -> None:
        assert surreal_like([words[0], str(self.folder), *words[1:]]) == 0

    def launch(self, *words: str) -> None:
        place = ("--on", "kubernetes", "--folder", str(self.folder))
        assert surreal_like(["launch", *words, *place]) == 0

    def progress(self, name: str) -> int:
        """The newest value that the learner has written to its progress, 0 without one."""
        with open_run(self.folder) as run:
            return int(run.progress().get(name, 0))

    def events(self, kind: str) -> list[dict[str, Any]]:
        """What Loggerplex has noted of one kind."""
        read = ("cat", f"{RUN_PATH}/events.jsonl")
        lines = self.cluster.kubectl("exec", "deploy/cartpole-loggerplex", "--", *read)
        found = [json.loads(line) for line in lines.splitlines()]
        return [each for each in found if each["event"] == kind]

    def agents(self, num: int) -> None:
        """Waits for so many agents that are ready."""
        self.cluster.until(lambda: len(self.cluster.ready("agent")) == num, f"{num} agents")

    def learns(self) -> int:
        """Waits until the learner learns; returns how often it has."""
        return self.cluster.until(lambda: self.progress("iteration"), "the learner learns")


@pytest.fixture
def run(cluster: TestedCluster, tmp_path: Path) -> Run:
    return Run(cluster, tmp_path / "cartpole")


def test_cartpole_is_solved_by_pods_that_come_and_go(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = run.cluster
    kubernetes = (f"image={IMAGE}", f"ttl_seconds={_TTL_SECONDS}")
    settings = [f"session_config.kubernetes.{each}" for each in kubernetes]
    # Without a goal and a budget of steps it is not over, however fast it learns meanwhile.
    settings += ["session_config.stop={seconds: 1800}", "session_config.agent.num=1"]
    settings += [f"session_config.resources={json.dumps(_SMALL)}"]
    run.launch("configs/cartpole_dqn.yaml", *settings)
    run.command("scale", "eval=0")
    run.learns()
    run.command("scale", "agent=3")
    run.agents(3)

    run.command("restart", "agent-0")
    if not FOREIGN:
        cluster.kubelet.kill(cluster.namespace, "cartpole-agent-1")
    cluster.kubectl("delete", "pod", "cartpole-agent-2", "cartpole-replay-0", "--wait=false")
    cluster.until(lambda: restarts_of(cluster, "cartpole-agent-0") == 1, "agent-0 is restarted")
    run.agents(3)
    assert FOREIGN or restarts_of(cluster, "cartpole-agent-1") == 1

    before = run.progress("iteration")
    (learner,) = cluster.ready("learner")
    cluster.kubectl("delete", "pod", learner, "--wait=false")
    cluster.until(lambda: learner not in cluster.pods(), "the learner's pod is gone")
    cluster.until(lambda: cluster.ready("learner"), "another learner")
    restored = cluster.until(lambda: run.events("restored"), "it reports what it restored")
    assert int(restored[-1]["detail"].removeprefix("iteration ")) >= before > 0

    run.command("scale", "agent=1")
    cluster.until(lambda: sum("-agent-" in name for name in cluster.pods()) == 1, "one agent")
    assert run.events("leaving")

    capsys.readouterr()
    run.command("status")
    assert "learner" in capsys.readouterr().out
    run.command("logs", "--component", "agent-0")
    assert "acting: version" in capsys.readouterr().out

    run.command("stop")
    assert dict(RunFolder(run.folder).read_result() or {})["status"] == "interrupted"
    assert kept(cluster, _OBJECTS) == []
    before = 3 if not FOREIGN else len(kept(cluster, "pvc"))
    assert len(kept(cluster, "pvc")) == before
    run.launch("--resume", "session_config.stop={eval_return: 475, seconds: 3600}")
    cluster.until(lambda: cluster.is_complete("cartpole-learner"), "solved", seconds=400.0)
    run.command("status")
    result = dict(RunFolder(run.folder).read_result() or {})
    assert (result["status"], result["goal_met"]) == ("stopped", True)
    assert_nothing_restarts(cluster)
    # The cluster removes the Job, and with it what the Job owns.
    cluster.until(lambda: not kept(cluster, _OBJECTS), "all but the volumes is removed")
    assert len(kept(cluster, "pvc")) == before


def kept(cluster: TestedCluster, kinds: str) -> list[str]:
    """The names of the objects of the run."""
    return cluster.kubectl("get", kinds, f"--selector={_RUN}", "--output=name").split()


def restarts_of(cluster: TestedCluster, pod: str) -> int:
    return max((num for (name, _), num in cluster.restarts().items() if name == pod), default=0)


def assert_nothing_restarts(cluster: TestedCluster) -> None:
    """What has nothing to do any more idles, not ready, and the servers serve on."""
    cluster.until(lambda: not cluster.ready("agent") and not cluster.ready("eval"), "they idle")
    before, until = cluster.restarts(), time.monotonic() + _QUIET_SECONDS
    while time.monotonic() < until:
        assert cluster.restarts() == before
        time.sleep(1.0)
    for part in ("ps", "replay", "tensorplex", "loggerplex"):
        assert cluster.ready(part), part


def test_pods_of_an_overlay_wait_for_the_secrets_and_go_with_it(
    cluster: TestedCluster, tmp_path: Path
) -> None:
    overlay = cartpole_overlay(tmp_path)
    objects = tmp_path / "objects.yaml"
    secrets = tmp_path / "secrets.yaml"
    secrets.write_text(dump_objects(overlay_secrets(overlay)))
    made = cluster.kubectl("kustomize", str(overlay)).split("\n---\n")
    objects.write_text("\n---\n".join(each for each in made if "\nkind: Secret\n" not in each))
    cluster.kubectl("apply", "-f", str(objects))
    cluster.until(lambda: len(cluster.pods()) == 8, "pods are made")
    if not FOREIGN:
        missing = 'MountVolume.SetUp failed: secret "cartpole-{}" not found'
        # This experiment has no gateway.
        wanted = {missing.format(each) for each in SECRETS if each != "keys-gateway"}
        cluster.until(lambda: waiting(cluster) == wanted, "they wait")
    cluster.kubectl("apply", "-f", str(secrets))

    def they_work() -> bool:
        # A quick learner has reached its goal before both agents are ready, and they idle.
        return len(cluster.ready("agent")) == 2 or cluster.is_complete("cartpole-learner")

    cluster.until(they_work, "they work")
    cluster.kubectl("delete", "-k", str(overlay))
    cluster.until(lambda: not kept(cluster, f"{_OBJECTS},pvc"), "all is removed")


def cartpole_overlay(folder: Path) -> Path:
    top = copy_of_k8s(folder)
    if not FOREIGN:
        edit_files(top)
    for path in top.rglob("*.yaml"):
        small = re.sub(r"\bcpu: (\d+m|'\d+')$", "cpu: 100m", path.read_text(), flags=re.MULTILINE)
        path.write_text(small)
    write_overlay_keys(top / "overlays" / "cartpole")
    return top / "overlays" / "cartpole"


def waiting(cluster: TestedCluster) -> set[str]:
    """What the containers of pods wait for."""
    return {
        each["state"].get("waiting", {}).get("message", "")
        for pod in cluster.pods().values()
        for each in pod["status"].get("containerStatuses", [])
    }


@own_nodes
def test_a_replay_whose_node_vanishes_is_given_up(run: Run) -> None:
    """No FIN arrives: only the kernel's patience with what is not confirmed ends."""
    # No goal, and no process that would see it reached.
    goal = ("session_config.stop.eval_return=null", "session_config.stop.seconds=1800")
    run.launch("configs/cartpole_dqn.yaml", *goal)
    cluster = run.cluster
    cluster.until(lambda: run.progress("env_steps") > 10_000, "they step")
    cluster.kubelet.unplug(cluster.namespace, "cartpole-replay-0")
    # What an operator does for a node that does not come back.
    cluster.kubectl("delete", "pod", "cartpole-replay-0", "--force", "--grace-period=0")
    cluster.until(lambda: cluster.ready("replay"), "another replay")
    before = run.progress("env_steps")
    cluster.until(
        lambda: run.progress("env_steps") > before + 10_000, "they step on", seconds=240.0
    )
    assert not cluster.is_complete("cartpole-learner")
