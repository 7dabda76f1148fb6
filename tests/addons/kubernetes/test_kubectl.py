"""The real kubectl with what the repository ships, against a real API server."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from main.cli import main as surreal_like
from session.addons.kubernetes.cluster import KubernetesCluster
from session.addons.kubernetes.run import KINDS
from session.addons.kubernetes.secret import (
    SECRETS,
)
from session.errors import UsageError
from session.folder import RunFolder
from session.launchers.handle import make_cluster, open_run
from tests.addons.kubernetes.cluster import TestedCluster
from tests.addons.kubernetes.conftest import K8S, ROOT, setting_of
from tests.addons.kubernetes.old_server import edit_files
from tests.addons.kubernetes.test_kustomize import by_name, overlays_with_keys
from tests.addons.kubernetes.test_manifests import OVERLAYS
from tests.docs.examples import blocks

# Used by every test, so that it is there before what tests leave behind is looked for.
pytestmark = [
    *(pytest.mark.kubectl, pytest.mark.cluster),
    pytest.mark.usefixtures("control_plane"),
]

_NO_CLUSTER = """
clusters: [{name: none, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: none, context: {cluster: none}}]
current-context: none
"""


class Shell:
    """Runs kubectl in a namespace that admits no pod."""

    def __init__(self, cluster: TestedCluster) -> None:
        self._cluster = cluster

    def __call__(self, *words: str, code: int = 0) -> str:
        return self._cluster.kubectl(*words, code=code)

    def objects(self) -> list[dict[str, Any]]:
        """All objects of runs, volumes included."""
        kinds = ",".join((*KINDS, "pvc"))
        selector = "--selector=app.kubernetes.io/instance"
        return list(self._cluster.get(kinds, selector)["items"])

    def kinds(self) -> set[str]:
        return {each["kind"] for each in self.objects()}


@pytest.fixture
def kubectl(namespace: TestedCluster) -> Shell:
    return Shell(namespace)


@pytest.fixture
def applied(tmp_path: Path) -> Path:
    """Overlays with keys, without what the API server of these tests is too old for."""
    overlays = overlays_with_keys(tmp_path)
    edit_files(overlays.parent)
    return overlays


def verbs(said: str) -> set[str]:
    return {line.rpartition(" ")[2] for line in said.splitlines() if line}


def unchanged(said: str) -> bool:
    """kubectl sends the selector of a budget in any case, and calls that configured."""
    lines = [line for line in said.splitlines() if "poddisruptionbudget" not in line]
    return verbs("\n".join(lines)) == {"unchanged"}


@pytest.mark.parametrize("name", OVERLAYS)
def test_an_overlay_is_applied_changed_and_deleted(
    name: str, applied: Path, kubectl: Shell
) -> None:
    overlay = str(applied / name)
    assert verbs(kubectl("apply", "-k", overlay)) == {"created"}
    assert unchanged(kubectl("apply", "-k", overlay))
    assert kubectl("diff", "-k", overlay) == ""
    patches = applied / name / "patches.yaml"
    patches.write_text(patches.read_text().replace("cpu: 500m", "cpu: 250m"))
    assert "cpu: 250m" in kubectl("diff", "-k", overlay, code=1)
    said = kubectl("apply", "-k", overlay)
    assert verbs(said) == {"configured", "unchanged"}
    configured = [line for line in said.splitlines() if "configured" in line]
    assert f"statefulset.apps/{name}-agent configured" in configured
    assert len([line for line in configured if "poddisruptionbudget" not in line]) == 1
    kubectl("delete", "-k", overlay)
    assert not kubectl.objects()


def test_the_single_file_is_the_same_for_a_cluster(
    applied: Path, rendered: Path, kubectl: Shell
) -> None:
    shutil.copy(rendered / "cartpole.yaml", applied.parent)
    edit_files(applied.parent)
    assert verbs(kubectl("apply", "-f", str(applied.parent / "cartpole.yaml"))) == {"created"}
    said = kubectl("apply", "-k", str(applied / "cartpole"))
    assert [line for line in said.splitlines() if "unchanged" not in line] == [
        "secret/cartpole-keys created",
        "secret/cartpole-keys-agent created",
        "secret/cartpole-keys-evaluator created",
        "secret/cartpole-keys-gateway created",
    ]


def test_the_secret_goes_to_apply(
    applied: Path, kubectl: Shell, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    overlay = applied / "cartpole"
    assert surreal_like(["keys", "--secret", str(overlay)]) == 0
    secret = tmp_path / "secret.yaml"
    secret.write_text(capsys.readouterr().out)
    kubectl("apply", "-f", str(secret))
    # The very Secrets that kustomize makes, their labels aside.
    said = kubectl("apply", "-k", str(overlay))
    for each in SECRETS:
        assert f"secret/cartpole-{each} unchanged" in said


def test_agents_are_scaled_and_counted(applied: Path, kubectl: Shell) -> None:
    kubectl("apply", "-k", str(applied / "cartpole-64"))
    path = "jsonpath={.spec.replicas}"
    assert kubectl("get", "statefulset/cartpole-64-agent", "-o", path) == "64"
    kubectl("scale", "statefulset/cartpole-64-agent", "--replicas=100")
    assert kubectl("get", "statefulset/cartpole-64-agent", "-o", path) == "100"
    selector = ["-l", "app.kubernetes.io/instance=cartpole-64"]
    assert len(kubectl("get", "service", *selector, "-o", "name").splitlines()) == 7


# -- our own commands, where no pod ever comes --------------------------------------------------


def cluster_in(path: Path, *overrides: str) -> KubernetesCluster:
    setting = setting_of(*overrides, name="mine")
    folder = RunFolder(path / "mine")
    folder.create()
    made = make_cluster("kubernetes", setting.config, setting.topology, folder)
    assert isinstance(made, KubernetesCluster)
    return made


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("session.addons.kubernetes.cluster._PODS_SECONDS", 0.0)


def test_launch_applies_what_dry_run_shows(tmp_path: Path, kubectl: Shell) -> None:
    cluster = cluster_in(tmp_path, "session_config.kubernetes.ttl_seconds=null")
    shown = list(yaml.safe_load_all(cluster.dry_run()))
    assert not kubectl.objects()
    cluster.launch()
    assert by_name(kubectl.objects()).keys() == {
        *by_name(shown),
        *(("Secret", f"mine-{each}") for each in SECRETS),
    }
    assert cluster.folder.config.is_file()
    manifest = cluster.folder.path / "kubernetes.yaml"
    assert manifest.read_text() == cluster.dry_run()
    edit_files(manifest.parent)
    assert kubectl("diff", "-f", str(manifest)) == ""


def test_the_learners_job_takes_all_but_the_volumes_with_it(tmp_path: Path, kubectl: Shell) -> None:
    cluster_in(tmp_path, "session_config.kubernetes.ttl_seconds=600").launch()
    kept = {(each["kind"], each["metadata"]["name"]): each for each in kubectl.objects()}
    job = kept.pop(("Job", "mine-learner"))
    assert job["spec"]["ttlSecondsAfterFinished"] == 600
    owners = {key: each["metadata"].get("ownerReferences") for key, each in kept.items()}
    ours = [{k: job["metadata"][k] for k in ("name", "uid")} | {"apiVersion": "batch/v1"}]
    ours[0]["kind"] = "Job"
    free = {key for key, owner in owners.items() if owner is None}
    assert free == {key for key in kept if key[0] == "PersistentVolumeClaim"}
    assert all(owner == ours for key, owner in owners.items() if key not in free)


def test_an_hour_is_the_time_until_all_is_removed(tmp_path: Path, kubectl: Shell) -> None:
    cluster_in(tmp_path).launch()
    (job,) = [each for each in kubectl.objects() if each["kind"] == "Job"]
    assert job["spec"]["ttlSecondsAfterFinished"] == 3600


def test_without_a_ttl_objects_stay(tmp_path: Path, kubectl: Shell) -> None:
    cluster_in(tmp_path, "session_config.kubernetes.ttl_seconds=null").launch()
    assert not [each for each in kubectl.objects() if "ownerReferences" in each["metadata"]]


def test_two_runs_of_one_name_are_refused(tmp_path: Path, kubectl: Shell) -> None:
    cluster_in(tmp_path / "a").launch()
    with pytest.raises(UsageError, match=r"has a run 'mine' already.*kubernetes\.name=NAME"):
        cluster_in(tmp_path / "b").launch()
    assert not (tmp_path / "b" / "mine" / "config.yaml").exists()


def test_volumes_of_an_earlier_run_are_not_taken_over(tmp_path: Path, kubectl: Shell) -> None:
    cluster = cluster_in(tmp_path / "a")
    cluster.launch()
    cluster.remove()
    assert kubectl.kinds() == {"PersistentVolumeClaim"}
    with pytest.raises(UsageError, match=r"has left its volumes.*--resume.*kubectl delete pvc"):
        cluster_in(tmp_path / "b").launch()
    cluster.config["run"]["part"] = 2
    cluster.launch()


def test_a_run_whose_learner_never_began_is_simply_removed(tmp_path: Path, kubectl: Shell) -> None:
    cluster_in(tmp_path).launch()
    with open_run(tmp_path / "mine") as run:
        run.stop(interrupted=True, reason="enough")
        outcome = run.wait(10.0)
    assert outcome.status == "interrupted"
    assert outcome.reason == "enough: no learner was running"
    assert kubectl.kinds() == {"PersistentVolumeClaim"}


def test_scale_changes_the_stateful_set(tmp_path: Path, kubectl: Shell) -> None:
    cluster = cluster_in(tmp_path)
    cluster.launch()
    cluster.scale("agent", 7)
    assert kubectl("get", "sts", "mine-agent", "-o", "jsonpath={.spec.replicas}") == "7"
    for kind, num in (("replay", 2), ("agent", -1), ("agent", 10_000)):
        with pytest.raises(UsageError, match="cannot scale"):
            cluster.scale(kind, num)
    with pytest.raises(UsageError, match="no component 'agent-9'"):
        cluster.restart("agent-9")


def test_the_autoscaler_of_a_launched_run_goes_with_it(tmp_path: Path, kubectl: Shell) -> None:
    cluster = cluster_in(tmp_path)
    cluster.launch()
    shutil.copytree(K8S / "autoscaling", tmp_path / "autoscaling")
    folder = cluster.folder.path
    lines = {"resources": ["kubernetes.yaml"], "components": ["../autoscaling"]}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(lines))
    edit_files(tmp_path)
    said = kubectl("apply", "-k", str(folder))
    changed = [line for line in said.splitlines() if "unchanged" not in line]
    assert changed == ["horizontalpodautoscaler.autoscaling/mine-agent created"]
    cluster.remove()
    # Not by the list of the kinds that are removed.
    assert kubectl("get", "hpa", "--output=name") == ""


def test_a_missing_namespace_is_one_line(tmp_path: Path, kubectl: Shell) -> None:
    cluster = cluster_in(tmp_path, "session_config.kubernetes.namespace=nowhere")
    with pytest.raises(UsageError, match='namespaces "nowhere" not found') as caught:
        cluster.launch()
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_no_cluster_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(_NO_CLUSTER)
    monkeypatch.setenv("KUBECONFIG", str(config))
    with pytest.raises(UsageError, match=r"no cluster answers.*refused") as caught:
        cluster_in(tmp_path).launch()
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "mine" / "config.yaml").exists()


def refuse_join(capsys: pytest.CaptureFixture[str], folder: Path, *options: str) -> str:
    """The one line with which machines of the cluster are refused."""
    words = [each for option in options for each in ("--option", option)]
    place = ("--token", "sl1-a-secret", "--on", "kubernetes", "--folder", str(folder))
    assert surreal_like(["join", "192.0.2.7:41391", *place, *words]) == 2
    out, line = capsys.readouterr()
    assert (out, line.count("\n")) == ("", 1)
    assert not folder.exists()
    return line


def test_machines_that_the_cluster_refuses_are_one_line(
    kubectl: Shell,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "joined"
    assert 'namespaces "nope" not found' in refuse_join(capsys, folder, "namespace=nope")
    assert re.search("kubectl get: .*context.*nope", refuse_join(capsys, folder, "context=nope"))
    config = json.loads(Path(os.environ["KUBECONFIG"]).read_text())
    config["users"][0]["user"]["as"] = "guest"
    guest = tmp_path / "guest"
    guest.write_text(json.dumps(config))
    with monkeypatch.context() as patch:
        patch.setenv("KUBECONFIG", str(guest))
        assert 'User "guest" cannot get resource "statefulsets"' in refuse_join(capsys, folder)
        guest.write_text(_NO_CLUSTER)
        assert "no cluster answers: " in refuse_join(capsys, folder)
    assert not kubectl.objects()


def test_the_commands_of_the_page_work(
    tmp_path: Path, kubectl: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = ROOT / "docs" / "kubernetes.md"
    monkeypatch.chdir(tmp_path)
    shutil.copytree(K8S / "autoscaling", tmp_path / "k8s" / "autoscaling")
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ran = []
    for block in blocks(page):
        if block.language != "console":
            continue
        for command in block.text.splitlines():
            line = command.removeprefix("$ ")
            # Whatever it wrote before, the API server of this test is older.
            if "kubectl" in line:
                edit_files(tmp_path)
            done = subprocess.run(
                ["bash", "-o", "pipefail", "-c", line],
                env={**os.environ, "PATH": programs},
                capture_output=True,
                text=True,
                timeout=100,
                check=False,
            )
            assert done.returncode == 0, f"{line}: {done.stderr}"
            ran.append(line)
    assert [line for line in ran if line.startswith("kubectl scale")]
    assert not kubectl.objects()


def test_the_old_server_drops_no_field_silently(
    tmp_path: Path, kubectl: Shell, rendered: Path
) -> None:
    """What it does not know is in :mod:`tests.addons.kubernetes.old_server`, and nowhere else."""
    for name in OVERLAYS:
        shutil.copy(rendered / f"{name}.yaml", tmp_path)
    edit_files(tmp_path)
    for path in tmp_path.glob("*.yaml"):
        kubectl("apply", "-f", str(path))
    found = by_name(kubectl.objects())
    for path in tmp_path.glob("*.yaml"):
        for key, given in by_name(list(yaml.safe_load_all(path.read_text()))).items():
            assert dropped(given, found[key]) == []


def dropped(given: Any, found: Any, path: str = "") -> list[str]:
    """The paths of the fields that were given, and were not kept."""
    lost: list[str] = []
    if isinstance(given, dict):
        for key in given:
            place = f"{path}.{key}"
            lost += dropped(given[key], found[key], place) if key in found else [place]
    elif isinstance(given, list):
        assert len(given) == len(found), path
        for number, pair in enumerate(zip(given, found, strict=True)):
            lost += dropped(*pair, f"{path}.{number}")
    return lost
