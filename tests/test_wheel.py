"""The wheel, installed into an environment of its own, works without the repository."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from email import message_from_string
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from session.version import VERSION

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("main", "session", "surreal_like", "configs", "benchmarks/results")
FILES = ("setup.py", "pyproject.toml", "README.md", "LICENSE")
# As `python -m build` does it: a source archive, and the wheel of that.
HOOK = (
    "import sys; from setuptools import build_meta; "
    "print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"
)
# Beside it: `main`, `session` and `tests` that are not ours, and must not be executed.
COLLIDING = ("session.py", "tests/__init__.py")
MAIN = """
if __name__ != "__main__" and not __name__.startswith("_algorithm_"):
    raise SystemExit("executed as " + __name__)
from surreal_like import Env, train

class Echo(Env):
    obs_spec = {"type": "float32", "dim": [1]}
    action_spec = {"type": "discrete", "dim": [2]}

    def reset(self):
        self.seen = self.rng.integers(0, 2, 1).astype("float32")
        return self.seen, {}

    def step(self, action):
        return self.seen, float(action == self.seen[0]), True, False, {}

if __name__ == "__main__":
    stop = {"session_config.stop": {"env_steps": 2000}}
    print(train(algorithm="dqn", env="main.py:Echo", overrides=stop, folder="script").ok)
"""


@dataclass(frozen=True)
class Installed:
    """The wheel, the programs of the environment where it is installed, and its source archive."""

    wheel: Path
    bin: Path
    source: Path

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment in the current folder."""
        inherited = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        return subprocess.run(
            [str(self.bin / words[0]), *words[1:]],
            env={**inherited, **environment},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )

    def read(self, *words: str, **environment: str) -> str:
        """Run a program that must succeed; return its standard output."""
        done = self.run(*words, **environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def build(kind: str, source: Path, place: Path) -> Path:
    """Build a source archive or a wheel of a source tree."""
    words = [sys.executable, "-c", HOOK, kind, str(place)]
    done = subprocess.run(words, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return place / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Build the wheel from a copy of the tree, and install it where our packages are visible."""
    top = tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, top / "source" / name, ignore=ignored)
    for name in FILES:
        shutil.copyfile(ROOT / name, top / "source" / name)
    archive = build("build_sdist", top / "source", top)
    with tarfile.open(archive) as tar:
        tar.extractall(top, filter="data")
    source = top / archive.name.removesuffix(".tar.gz")
    wheel = build("build_wheel", source, top)
    shutil.rmtree(top / "source")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(top / "venv")], check=True)
    python = top / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "-q", "--no-deps", "--no-index", str(wheel)], check=True)
    (site,) = (top / "venv" / "lib").glob("python*/site-packages")
    # Folders of a .pth file come last, and their own .pth files are not read: an editable
    # installation of this repository is not seen.
    seen = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (site / "peers.pth").write_text("\n".join(seen))
    return Installed(wheel, python.parent, source)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_has_the_packages_and_the_experiments_and_nothing_else(installed: Installed) -> None:
    with zipfile.ZipFile(installed.wheel) as wheel:
        names = wheel.namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {
        "main",
        "session",
        "surreal_like",
    }
    inside = "surreal_like/configs/"
    configs = {name.removeprefix(inside) for name in names if name.startswith(inside)}
    folder = ROOT / "configs"
    shipped = [*folder.glob("*.yaml"), *filter(Path.is_file, folder.glob("trained/**/*"))]
    assert configs == {path.relative_to(folder).as_posix() for path in shipped}
    assert not [name for name in names if "/tests/" in name or "/benchmarks/" in name]


def test_its_version_is_that_of_the_tree(installed: Installed) -> None:
    assert f"surreal_like-{VERSION}-" in installed.wheel.name
    assert installed.read("surreal-like", "--version") == f"surreal-like {VERSION}\n"


@pytest.mark.parametrize("url", ["", "https://host.example/somebody/surreal"])
def test_links_of_its_description_work_anywhere(
    installed: Installed, folder: Path, url: str
) -> None:
    shutil.copytree(installed.source, folder / "source")
    lines = (folder / "source" / "setup.py").read_text().splitlines()
    changed = [f'URL = "{url}"' if line.startswith("URL = ") else line for line in lines]
    (folder / "source" / "setup.py").write_text("\n".join(changed))
    made = build("prepare_metadata_for_build_wheel", folder / "source", folder)
    found = message_from_string((made / "METADATA").read_text(encoding="utf-8"))
    links = targets(str(found.get_payload()))
    pages = {link for link in links if link.startswith(f"{url}/blob/HEAD/docs/")}
    assert {link for link in links if "://" not in link} == set()
    if url:
        assert f"{url}/raw/HEAD/docs/images/roles.svg" in links
        assert len(pages) > 10
        assert found.get_all("Project-URL") == [f"Source, {url}", f"Issues, {url}/issues"]
        inside = [link.removeprefix(url).partition("#")[0] for link in links if url in link]
        assert all((ROOT / Path(*Path(each).parts[3:])).exists() for each in inside)
    else:
        assert not pages
        assert found.get_all("Project-URL") is None


def targets(page: str) -> set[str]:
    """Return where the links and pictures of a page of Markdown lead."""
    tokens = MarkdownIt("commonmark").enable("table").parse(page)
    inline = [child for token in tokens for child in token.children or []]
    return {
        str(each.attrs[name]) for each in inline for name in ("href", "src") if name in each.attrs
    }


def test_a_shipped_experiment_is_trained_by_its_name(installed: Installed, folder: Path) -> None:
    listed = installed.read("surreal-like", "list", "experiments").splitlines()
    (line,) = (line for line in listed if line.startswith("cartpole_ppo "))
    assert line.split()[1:4] == ["gym:CartPole-v1", "ppo", "475"]
    assert line.endswith(" s")
    # `PYTHONPATH` leads to files with names of ours; they are not executed.
    for name in ("main.py", *COLLIDING):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("raise SystemExit('executed')")
    stop = "session_config.stop={iterations: 5}"
    words = ("train", "cartpole_ppo", "--folder", "run", stop)
    installed.read("surreal-like", *words, PYTHONPATH=str(folder))
    assert json.loads((folder / "run" / "result.json").read_text())["iterations"] >= 5
    where = installed.read("python", "-c", "import surreal_like; print(surreal_like.__file__)")
    assert Path(where.strip()).is_relative_to(installed.bin.parent)


def test_a_trained_policy_plays_at_once(installed: Installed, folder: Path) -> None:
    words = ("evaluate", "cartpole_pqn", "--trained", "--episodes", "5", "--json")
    assert json.loads(installed.read("surreal-like", *words))["mean_return"] > 475.0
    assert not list(folder.iterdir())


def test_a_new_project_runs(
    installed: Installed, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed.read("surreal-like", "init", "mine")
    monkeypatch.chdir(folder / "mine")
    files = {path.name: path.read_text() for path in Path().iterdir()}
    assert "no mistakes" in installed.read("surreal-like", "check", "experiment.yaml")
    installed.read("surreal-like", "train", "experiment.yaml")
    assert "2 passed" in installed.read("python", "-m", "pytest", "-p", "no:cacheprovider")
    again = installed.run("surreal-like", "init", ".")
    assert again.returncode == 2
    assert again.stderr.count("\n") == 1
    assert files == {path.name: path.read_text() for path in Path().iterdir() if path.is_file()}


def test_names_of_the_user_s_files_do_not_collide(installed: Installed, folder: Path) -> None:
    (folder / "main.py").write_text(MAIN)
    for name in COLLIDING:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("raise SystemExit('executed')")
    assert installed.read("python", "main.py").splitlines()[-1] == "True"
    words = ("train", "--algorithm", "dqn", "--quiet", "session_config.stop={env_steps: 2000}")
    workers = ("env_config.vector=process", "env_config.num_envs=2")
    for on in ("serial", "local"):
        installed.read("surreal-like", *words, "--env", "main.py:Echo", "--on", on, *workers)
    refused = installed.run("surreal-like", *words, "--env", "main:Echo")
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert "name it main.py:NAME" in refused.stderr
