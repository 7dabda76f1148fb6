"""What lies under k8s/ is what the function renders; nothing secret is among it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from main.cli import main as surreal_like
from session.wire.security import KEY_FILES
from tests.addons.kubernetes.conftest import K8S, ROOT, commands
from tests.addons.kubernetes.schemas import validate

pytestmark = pytest.mark.usefixtures("quick")
OVERLAYS = ("cartpole", "cartpole-64")
_REMEDY = "k8s/ is not what would be rendered now: run `make manifests`"


def copy_of_k8s(folder: Path) -> Path:
    """A copy without anybody's keys."""
    return Path(shutil.copytree(K8S, folder / "k8s", ignore=shutil.ignore_patterns("keys")))


def test_files_are_what_the_function_renders(rendered: Path) -> None:
    made, there = files_of(rendered), files_of(K8S)
    assert made.keys() == there.keys(), _REMEDY
    changed = [str(path) for path, text in made.items() if there[path] != text]
    assert not changed, f"{_REMEDY}: {', '.join(changed)}"


def files_of(top: Path) -> dict[Path, str]:
    """The files of the base and the overlays."""
    return {
        path.relative_to(top): path.read_text()
        for folder in ("base", "overlays")
        for path in (top / folder).rglob("*.yaml")
        if "keys" not in path.parts
    }


def test_each_overlay_has_a_single_file(rendered: Path) -> None:
    assert sorted(path.stem for path in rendered.glob("*.yaml")) == sorted(OVERLAYS)


@pytest.mark.parametrize("name", OVERLAYS)
@pytest.mark.parametrize("version", ["1.28", "1.37"])
def test_single_files_are_valid(name: str, version: str, rendered: Path) -> None:
    for each in yaml.safe_load_all((rendered / f"{name}.yaml").read_text()):
        validate(each, version)


def test_64_agents_on_spot_nodes_and_two_shards(rendered: Path) -> None:
    objects = list(yaml.safe_load_all((rendered / "cartpole-64.yaml").read_text()))
    sets = {
        each["metadata"]["name"]: each["spec"] for each in objects if each["kind"] == "StatefulSet"
    }
    assert sets["cartpole-64-agent"]["replicas"] == 64
    assert sets["cartpole-64-replay"]["replicas"] == 2
    assert "affinity" in sets["cartpole-64-agent"]["template"]["spec"]
    assert "PodDisruptionBudget" in {each["kind"] for each in objects}


def test_no_key_is_among_the_files_of_git() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.splitlines()
    assert [path for path in listed if path.startswith("k8s/")]
    assert not [path for path in listed if Path(path).name in KEY_FILES]
    assert not [path for path in listed if "/keys/" in path]
    for path in (each for each in listed if each.startswith("k8s/")):
        assert not re.search(r"^kind: Secret$", (ROOT / path).read_text(), re.MULTILINE)


def test_git_ignores_the_keys_of_an_overlay() -> None:
    place = "k8s/overlays/cartpole/keys/run_surreal-like_keys_first/server.key"
    done = subprocess.run(["git", "check-ignore", place], cwd=ROOT, check=False, timeout=60)
    assert done.returncode == 0


def test_plan_prints_what_the_single_file_holds(
    rendered: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = commands()[0]
    place = line.index("--folder")
    words = [*line[:place], *line[place + 2 :], "session_config.kubernetes.name=cartpole"]
    assert surreal_like(words) == 0
    heading, _, text = (rendered / "cartpole.yaml").read_text().partition("\n")
    assert heading.startswith("#")
    assert capsys.readouterr().out == text


@pytest.mark.parametrize(
    "words",
    [
        ["--on", "kubernetes", "--format", "shell"],
        ["--format", "yaml"],
        ["--on", "kubernetes", "--format", "table", "--folder", "there"],
    ],
)
def test_formats_that_do_not_go_with_the_place(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert surreal_like(["plan", str(ROOT / "configs" / "cartpole_dqn.yaml"), *words]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_an_overlay_that_was_written_by_hand_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "overlays" / "mine"
    folder.mkdir(parents=True)
    (folder / "kustomization.yaml").write_text("resources: []\n")
    words = [*commands()[0]]
    words[words.index("--folder") + 1] = str(folder)
    words[1] = str(ROOT / "configs" / "cartpole_dqn.yaml")
    assert surreal_like(words) == 2
    assert "written by hand" in capsys.readouterr().err
    assert (folder / "kustomization.yaml").read_text() == "resources: []\n"


def test_an_overlay_lies_beside_its_base(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["plan", str(ROOT / "configs" / "cartpole_dqn.yaml"), "--on", "kubernetes"]
    assert surreal_like([*words, "--folder", str(tmp_path / "elsewhere" / "mine")]) == 2
    assert "--folder k8s/overlays/mine" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
