"""The real kubectl builds what the repository ships; no cluster is asked."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from session.addons.kubernetes.secret import KEYS_FOLDER, overlay_secrets, write_overlay_keys
from session.tensorplex.prometheus import exposition
from surreal_like.addons.kubernetes.experiment_objects import write_overlay
from tests.addons.kubernetes.conftest import ROOT, setting_of
from tests.addons.kubernetes.schemas import validate
from tests.addons.kubernetes.test_manifests import OVERLAYS, copy_of_k8s
from tests.addons.kubernetes.test_objects import GATEWAYS, LABELS, METRICS
from tests.docs.examples import blocks

pytestmark = pytest.mark.kubectl


def overlays_with_keys(folder: Path) -> Path:
    """A copy of the overlays, with keys."""
    top = copy_of_k8s(folder)
    for name in OVERLAYS:
        write_overlay_keys(top / "overlays" / name)
    return top / "overlays"


def autoscaled(folder: Path, **more: Any) -> Path:
    """A kustomization of a user, beside the overlay `cartpole`: the line of the document."""
    overlay = overlays_with_keys(folder) / "cartpole-scaled"
    overlay.mkdir()
    lines = {"resources": ["../cartpole"], "components": ["../../autoscaling"], **more}
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump(lines))
    return overlay


def kustomized(overlay: Path) -> list[dict[str, Any]]:
    """The valid objects that kustomize makes of a folder."""
    said = subprocess.run(
        ["kubectl", "kustomize", str(overlay)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    objects = list(yaml.safe_load_all(said.stdout))
    for each in objects:
        for version in ("1.28", "1.37"):
            validate(each, version)
    return objects


def built(overlay: Path) -> list[dict[str, Any]]:
    """The valid objects that kustomize makes of an overlay, without its Secrets."""
    objects = kustomized(overlay)
    secrets = [each for each in objects if each["kind"] == "Secret"]
    ours = overlay_secrets(overlay)
    assert {key: each["metadata"] for key, each in by_name(secrets).items()} == {
        key: each["metadata"] for key, each in by_name(ours).items()
    }
    return [each for each in objects if each["kind"] != "Secret"]


def by_name(objects: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(each["kind"], each["metadata"]["name"]): each for each in objects}


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_overlay_is_the_single_file_and_is_valid(
    name: str, tmp_path: Path, rendered: Path
) -> None:
    single = list(yaml.safe_load_all((rendered / f"{name}.yaml").read_text()))
    assert by_name(single) == by_name(built(overlays_with_keys(tmp_path) / name))


def test_an_overlay_with_gateways_is_the_single_file(tmp_path: Path) -> None:
    overlay, single = write_overlay(setting_of(*GATEWAYS), tmp_path / "overlays" / "cartpole")
    write_overlay_keys(overlay)
    assert by_name(list(yaml.safe_load_all(single.read_text()))) == by_name(built(overlay))


def test_an_overlay_with_labels_and_metrics_is_the_single_file(tmp_path: Path) -> None:
    setting = setting_of(*LABELS, *METRICS)
    overlay, single = write_overlay(setting, tmp_path / "overlays" / "cartpole")
    write_overlay_keys(overlay)
    assert by_name(list(yaml.safe_load_all(single.read_text()))) == by_name(built(overlay))
    assert "costs" in {
        key for each in overlay_secrets(overlay) for key in each["metadata"]["labels"]
    }


def test_the_autoscaler_of_the_page_is_that_of_its_run(tmp_path: Path) -> None:
    page = ROOT / "docs" / "kubernetes.md"
    (shown,) = [each.text for each in blocks(page) if each.text.startswith("resources:")]
    assert "../mine" in shown
    lines = yaml.safe_load(shown.replace("../mine", "../cartpole-64"))
    overlay = autoscaled(tmp_path, **lines)
    objects = by_name(kustomized(overlay))
    scaler = objects.pop(("HorizontalPodAutoscaler", "cartpole-64-agent"))
    assert objects == by_name(kustomized(overlay.parent / "cartpole-64"))
    spec, labels = scaler["spec"], scaler["metadata"]["labels"]
    target = spec["scaleTargetRef"]
    agents = objects[target["kind"], target["name"]]
    assert agents["apiVersion"] == target["apiVersion"]
    assert labels.items() <= agents["metadata"]["labels"].items()
    assert (spec["minReplicas"], spec["maxReplicas"]) == (4, 200)
    # The number that the learner reports, under the labels of the adapter.
    (metric,) = [each["external"]["metric"] for each in spec["metrics"]]
    chosen = metric["selector"]["matchLabels"]
    assert chosen.pop("run") == "cartpole-64"
    (label,) = (f'{name}="{value}"' for name, value in chosen.items())
    row = {"name": "learner", "state": "running", "age_seconds": 0, "restarts": 0, "rss_bytes": 0}
    text = exposition([row | {"status": {"wanted": 9.0, "wanted_own": 7.0}}], {}, {})
    assert f"{metric['name']}{{{label}}} 7.0" in text.splitlines()


def test_without_keys_kubectl_says_what_to_do(tmp_path: Path) -> None:
    overlay = copy_of_k8s(tmp_path) / "overlays" / "cartpole"
    with pytest.raises(subprocess.CalledProcessError) as caught:
        built(overlay)
    assert KEYS_FOLDER in caught.value.stderr
