"""The image's recipe, read: nothing here can build it, so what can be known of it is held."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from session.addons.kubernetes.objects import objects_of
from tests.addons.kubernetes.conftest import setting_of

ROOT = Path(__file__).resolve().parents[3]
RECIPE = ROOT / "k8s" / "Dockerfile"
# Public names only, none with an address of somebody's registry.
BASES = ("python:${PYTHON}",)


def instructions() -> list[tuple[str, str]]:
    """Each instruction and its arguments, continued lines joined, comments left out."""
    text = re.sub(r"^#.*\n", "", RECIPE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip()]
    return [(line.partition(" ")[0], line.partition(" ")[2].strip()) for line in lines]


def stages() -> dict[str, list[tuple[str, str]]]:
    """Name of each stage -> its instructions, the one that names what it begins with first."""
    found: dict[str, list[tuple[str, str]]] = {}
    name = ""
    for word, rest in instructions():
        if word == "FROM":
            name = rest.split(" AS ")[1]
            found[name] = []
        if name:
            found[name].append((word, rest))
    return found


def lineage(name: str) -> list[str]:
    """A stage and those that it was built upon."""
    base = stages()[name][0][1].split(" AS ")[0]
    return [name, *lineage(base)] if base in stages() else [name]


def test_instructions_are_known() -> None:
    known = {"FROM", "ARG", "RUN", "COPY", "ENV", "WORKDIR", "USER", "CMD", "LABEL"}
    assert {word for word, _ in instructions()} <= known


def test_stages_begin_with_public_images_or_with_each_other() -> None:
    [tag] = [rest.partition("=")[2] for word, rest in instructions() if rest.startswith("PYTHON=")]
    assert re.fullmatch(r"\d+\.\d+\.\d+-slim-[a-z]+", tag)
    there: list[str] = []
    for name, lines in stages().items():
        base = lines[0][1].split(" AS ")[0]
        assert base in [*there, *BASES]
        there.append(name)


def test_what_is_copied_between_stages_is_there() -> None:
    for name, lines in stages().items():
        for word, rest in lines:
            source = re.match(r"--from=(\S+)", rest)
            if word == "COPY" and source is not None:
                assert list(stages()).index(source[1]) < list(stages()).index(name)


def test_there_is_one_image_for_cpu_and_one_for_cuda() -> None:
    assert list(stages())[-1] == "cpu"  # what a build without a target gives
    for target in ("cpu", "cuda"):
        lines = [line for stage in lineage(target) for line in stages()[stage]]
        copied = [rest for word, rest in lines if word == "COPY"]
        assert copied == [f"--from={target}-environment /opt/venv /opt/venv"]


def test_the_user_is_the_one_of_the_pods() -> None:
    for target in ("cpu", "cuda"):
        lines = [line for stage in lineage(target) for line in stages()[stage]]
        (user,) = [rest for word, rest in lines if word == "USER"]
        for each in objects_of(setting_of()):
            template = each.get("spec", {}).get("template")
            if template is not None:
                context = template["spec"]["securityContext"]
                assert user == f"{context['runAsUser']}:{context['runAsGroup']}"


def test_no_address_and_no_secret_is_in_it() -> None:
    text = RECIPE.read_text()
    assert "://" not in text
    assert "keys" not in text
    ignored = (ROOT / "k8s" / "Dockerfile.dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    assert "**/keys" in ignored


def test_every_file_that_is_copied_exists_and_is_sent_to_the_builder() -> None:
    sent = (ROOT / "k8s" / "Dockerfile.dockerignore").read_text().splitlines()
    for word, rest in instructions():
        if word == "COPY" and not rest.startswith("--from"):
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists()
                assert f"!{source}" in sent


def test_pins_are_kept_and_nothing_is_cached() -> None:
    for word, rest in instructions():
        if word == "RUN" and "pip install" in rest:
            assert "-c /tmp/constraints.txt" in rest
            assert "--no-cache-dir" in rest


def test_make_image_builds_the_target_that_is_asked_for() -> None:
    words = ["make", "--dry-run", "image", "IMAGE=mine:1", "TARGET=cuda", "IMAGE_EXTRAS=atari"]
    said = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert "--target cuda --tag mine:1" in said.stdout
    assert "EXTRAS='atari'" in said.stdout
    names = set(re.findall(r"--build-arg (\w+)=", said.stdout))
    assert names <= {rest.partition("=")[0] for word, rest in instructions() if word == "ARG"}


def test_labels_say_what_it_is_and_where_it_comes_from() -> None:
    [given] = [rest for word, rest in instructions() if word == "LABEL"]
    assert {"title", "licenses"} <= set(re.findall(r"org\.opencontainers\.image\.(\w+)=", given))
    for url, labels in (("", ["version", "revision"]), ("x", ["version", "revision", "source"])):
        words = ["make", "--dry-run", "image", f"URL={url}"]
        said = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
        found = re.findall(r"--label org\.opencontainers\.image\.(\w+)=\S", said.stdout)
        assert found == labels


def test_kind_test_makes_a_cluster_uses_it_and_removes_it() -> None:
    # `make` runs lines with its own name even in a dry run: kind is a word that is printed.
    words = ["make", "--dry-run", "kind-test", "KIND=echo kind", "IMAGE=mine:1"]
    said = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    steps = r"docker build|^kind \w+ [\w-]+|pytest .*test_cluster\.py"
    found = [each.split()[0:2] for each in re.findall(steps, said.stdout, re.MULTILINE)]
    assert [" ".join(words) for words in found] == [
        "docker build",
        "kind create",
        "kind load",
        "pytest -m",
        "kind delete",
    ]
