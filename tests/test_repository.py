"""Rules for every tracked file: nothing names one machine, every requirement has its pin."""

import ast
import re
import runpy
import shutil
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from session import program

ROOT = Path(__file__).resolve().parent.parent

# Written in pieces, or this file would name what it looks for.
UNWANTED_TEXT = re.compile(
    "|".join(
        [
            r"(?<![\w.])/work" + r"/",
            r"(?<![\w.])/home" + r"/\w",
            r"(?<![\w.])/Users" + r"/\w",
            r"(?<![\w.])/root" + r"/(?!\.cache)",
            r"\.\./" + r"shared",
            r"(extra-)?index" + r"-url",
            r"find" + r"-links",
        ]
    )
)


def tracked_files() -> list[Path]:
    """Return the files that git tracks or would add."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    names = [name for name in listing.stdout.split("\0") if name]
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def unwanted_lines(text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), start=1):
        if found := UNWANTED_TEXT.search(line):
            yield f"line {number} has {found.group()!r}"


def test_no_file_names_a_place_on_one_machine() -> None:
    files = tracked_files()
    assert ROOT / "setup.py" in files
    wrong = []
    for path in files:
        text = path.read_bytes().decode("utf-8", errors="ignore")
        wrong += [f"{path.relative_to(ROOT)} {problem}" for problem in unwanted_lines(text)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "text", ["see /" + "work/main/a", "(/" + "home/someone", "../" + "shared", "--index" + "-url x"]
)
def test_place_on_one_machine_is_seen(text: str) -> None:
    assert list(unwanted_lines("fine\n" + text)) == [
        f"line 2 has {UNWANTED_TEXT.search(text).group()!r}"  # type: ignore[union-attr]
    ]


def test_relative_paths_and_addresses_are_no_places_on_one_machine() -> None:
    assert not list(unwanted_lines("docs/work/a, ./home/b, example.org/work/, /var/run/, /work."))


# The name there is not ours. The options before it are as written, `-c pins.txt` for example.
FROM_INDEX = re.compile(
    r"\b(?:pip3? (?:install|download|wheel)|uv add|uvx(?! --from \S+\.whl )|pipx (?:install|run))\b"
    r"""(?: [^\s|;&]+)*? ["']?surreal[-_]like(?![\w/.-])"""
)


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("pip install surreal-" + "like", True),
        ("python -m pip install -U 'surreal_" + "like[atari]'", True),
        ("pip install -c pins.txt torch surreal-" + "like==1.0", True),
        ("uvx surreal-" + "like", True),
        ("uvx --from surreal-" + "like[plot] surreal-" + "like", True),
        ("uvx --from dist/a-1.0-py3-none-any.whl surreal-" + "like list runs", False),
        ('pip install -c constraints.txt -e ".[box2d]"', False),
        ("pip install path/to/surreal_" + "like", False),
        ('pip install "./surreal_' + 'like-1.0-py3-none-any.whl[plot]"', False),
        ("pip install /wheels/*.whl; surreal-" + "like", False),
    ],
)
def test_an_installation_from_an_index_is_seen(line: str, wrong: bool) -> None:
    assert bool(FROM_INDEX.search(line)) is wrong


def test_no_file_installs_this_from_an_index() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {found.group()}"
        for path in tracked_files()
        for found in FROM_INDEX.finditer(path.read_bytes().decode("utf-8", errors="ignore"))
    ]
    assert wrong == []


# -- requirements and pins -----------------------------------------------------------------------

PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([0-9][A-Za-z0-9.]*)")


def canonical(name: str) -> str:
    """Return the name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    found = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        match = PIN.fullmatch(line)
        assert match, f"constraints.txt: {line!r} is not of the form name==1.2.3"
        found[canonical(match[1])] = match[2]
    return found


def required_names() -> set[str]:
    """Return the name of every requirement in the lists that setup.py assigns."""
    tree = ast.parse((ROOT / "setup.py").read_text())
    assigned = [node.value for node in tree.body if isinstance(node, ast.Assign)]
    lists = [part for value in assigned for part in ast.walk(value) if isinstance(part, ast.List)]
    texts = [ast.literal_eval(line) for part in lists for line in part.elts]
    return {canonical(re.split(r"[\[<>=]", text)[0]) for text in texts}


def test_every_requirement_is_pinned() -> None:
    names = required_names()
    assert {"torch", "pyzmq", "types-psutil", "s3fs"} <= names
    assert not names - set(pins())


def test_pins_are_plain_versions() -> None:
    assert pins()["torch"] == "2.13.0"
    assert PIN.fullmatch("torch==2.13.0+" + "cpu") is None


# -- what is installed ---------------------------------------------------------------------------


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The arguments with which setup.py calls setup."""
    found: dict[str, Any] = {}
    monkeypatch.setattr("setuptools.setup", found.update)
    monkeypatch.chdir(ROOT)
    runpy.run_path("setup.py")
    return found


def test_the_name_is_that_in_setup(given: dict[str, Any]) -> None:
    # `session` cannot read setup.py, which is not installed.
    assert given["name"] == program._DISTRIBUTION


URL = "https://host.example/somebody/surreal"


@pytest.mark.parametrize(
    ("text", "without", "with_url"),
    [
        ("[a `b`](docs/a.md#b)", "a `b`", f"[a `b`]({URL}/blob/HEAD/docs/a.md#b)"),
        ("[a](#b)", "a", f"[a]({URL}/blob/HEAD/README.md#b)"),
        ("![a](docs/a.svg)", "a", f"![a]({URL}/raw/HEAD/docs/a.svg)"),
        ("[a](https://b.example/c)", *["[a](https://b.example/c)"] * 2),
        ("`[a](b)`", *["`[a](b)`"] * 2),
        ("```python\nx = [a](b)\n```", *["```python\nx = [a](b)\n```"] * 2),
    ],
)
def test_links_lead_elsewhere(
    text: str, without: str, with_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("setuptools.setup", lambda **_: None)
    function = runpy.run_path(str(ROOT / "setup.py"))["without_relative_links"]
    assert function(text, "") == without
    assert function(text, URL) == with_url


def test_readme_names_each_extra_and_what_all_leaves_out(given: dict[str, Any]) -> None:
    extras = given["extras_require"]
    table = (ROOT / "README.md").read_text().partition("| extra | for |")[2].partition("\n\n")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| `")]
    named = [name for first, *_ in rows for name in re.findall(r"`(\w+)`", first)]
    assert sorted(named) == sorted(extras)
    [left_out] = [text for first, text, *_ in rows if first.strip() == "`all`"]
    outside = {name for name in extras if not set(extras[name]) <= set(extras["all"])}
    assert set(re.findall(r"`(\w+)`", left_out)) == outside - {"dev", "docs"}


def test_every_file_of_a_package_is_installed(given: dict[str, Any]) -> None:
    patterns = {
        f"{package.replace('.', '/')}/{pattern}"
        for package, found in given["package_data"].items()
        for pattern in found
        if package in given["packages"]
    }
    paths = [path.relative_to(ROOT) for path in tracked_files()]
    data = [
        each for each in paths if each.parts[0] in given["package_data"] and each.suffix != ".py"
    ]
    assert Path("surreal_like/addons/gateway/clients/surreal_client.hpp") in data
    left_out = [each for each in data if not any(fnmatch(each.as_posix(), p) for p in patterns)]
    assert left_out == []
