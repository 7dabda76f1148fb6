"""The files of a run on Ray: the job of a cluster that is there, and that of KubeRay."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from session.addons.ray.submission import RayCluster
from session.folder import RunFolder
from surreal_like.run.request import RunRequest
from tests.add_ons import needs
from tests.addons.kubernetes.schemas import validate

pytestmark = [pytest.mark.slow, needs("kubernetes")]
VERSION = "1.30"


def scripts(folder: Path, *words: str) -> dict[str, str]:
    """The files of CartPole with four agents."""
    plan = RunRequest("cartpole_dqn", "ray", words, agents=4).resolve()
    return dict(RayCluster(plan.config, plan.topology, RunFolder(folder)).scripts())


def test_a_job_asks_for_the_sum_of_the_core(tmp_path: Path) -> None:
    address = "session_config.ray.address=http://192.0.2.7:8265"
    gpu = "session_config.resources={learner: {gpu: 1}}"
    submit = scripts(tmp_path / "a run", address, gpu)["submit.sh"]
    assert "--entrypoint-num-cpus 5.25 --entrypoint-num-gpus 1 " in submit
    assert "--address http://192.0.2.7:8265" in submit
    assert subprocess.run(["bash", "-n"], input=submit, text=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("plain-7", "plain-7"),
        ("_first", "first-[0-9a-f]{6}"),
        ("über_alles_", "ber-alles-[0-9a-f]{6}"),
        ("2026-11-25", "run-[0-9a-f]{6}"),
        ("ßß", "run-[0-9a-f]{6}"),
        ("a_long_name_of_a_study_with_seeds_101_to_108_and_two_algorithms", "a-long.*[0-9a-f]{6}"),
    ],
)
def test_names_of_ray_jobs_are_those_that_kuberay_takes(
    tmp_path: Path, folder: str, name: str
) -> None:
    job = yaml.safe_load(scripts(tmp_path / folder)["rayjob.yaml"])
    found = job["metadata"]["name"]
    assert re.fullmatch(name, found)
    assert re.fullmatch("[a-z]([-a-z0-9]{0,45}[a-z0-9])?", found)


def test_pods_of_a_ray_job_are_pods(tmp_path: Path) -> None:
    job = yaml.safe_load(scripts(tmp_path / "My_Run")["rayjob.yaml"])
    cluster = job["spec"]["rayClusterSpec"]
    core, agents = cluster["workerGroupSpecs"]
    assert job["metadata"]["name"] == "my-run"
    assert (core["minReplicas"], core["maxReplicas"]) == (1, 1)
    assert (agents["minReplicas"], agents["maxReplicas"]) == (0, 4)
    for group in (cluster["headGroupSpec"], core, agents):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, **group["template"]}
        validate(pod, VERSION)
