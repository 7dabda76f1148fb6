"""The pages for the next engineer name files and code that exist."""

import inspect
import re
from itertools import chain

import pytest

from docs.generate import ROOT
from session.addons import add_ons
from tests.test_layers import FOLDERS, PACKAGES, imported, sources, table_of_hooks

TEXT = (ROOT / "docs" / "architecture.md").read_text()
WALK = (ROOT / "docs" / "read_the_core.md").read_text()
FIRST_HOUR = (ROOT / "CONTRIBUTING.md").read_text()
NAMED = re.compile(r"`([\w/.*]+)`")


def test_the_rooms_are_drawn_in_their_order() -> None:
    drawn = TEXT.partition(" surreal_like/ ")[2].partition("\n\n")[0]
    rooms = [re.split(r"\s{4,}", line.strip())[1:] for line in drawn.splitlines()]
    assert [*chain(*rooms)] == ["addons/NAME", *reversed(FOLDERS[:-1])]


def test_each_add_on_has_its_row() -> None:
    table = TEXT.partition("| add-on | holds | needs |\n|---|---|---|\n")[2].partition("\n\n")[0]
    found = [(name, needs) for name, _, needs in map(cells, table.splitlines())]
    assert found == [(name, ", ".join(each.needs)) for name, each in add_ons().items()]


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_each_hook_has_its_row() -> None:
    callers: dict[str, list[str]] = {}
    for source in sources(*PACKAGES):
        for _, name in imported(source) if "hooks" in source.text else ():
            home, _, hook = name.rpartition(".")
            if home == "session.addons.hooks":
                callers.setdefault(hook, []).append(f"`{source.path}`")
    # It wraps two of them in functions, which others call.
    wrapped = {"FETCH": "fetch", "RUNS_AT": "runs_at"}
    rows = [
        f"| `{hook.name}` | {inspect.getdoc(protocol)} "
        f"| {', '.join(callers.get(wrapped.get(variable, variable), []))} |"
        for variable, hook, protocol in table_of_hooks()
    ]
    table = TEXT.partition("| hook | function | called by |\n|---|---|---|\n")[2]
    assert table.partition("\n\n")[0] == "\n".join(rows)


def test_marks_of_tests_name_add_ons() -> None:
    files = [each.text for each in sources("tests") if "from tests.add_ons import" in each.text]
    marked = {name for text in files for name in re.findall(r'needs\("(\w+)"\)', text)}
    assert marked
    assert marked <= set(add_ons())


@pytest.mark.parametrize(
    "text", [TEXT, WALK, FIRST_HOUR], ids=["architecture", "read_the_core", "contributing"]
)
def test_each_file_that_is_named_exists(text: str) -> None:
    folder = ROOT
    for name in NAMED.findall(text):
        # A name without a folder is a file beside the one that was named before it.
        if "/" in name:
            path = ROOT / name
            folder = path if path.is_dir() else path.parent
        elif name.endswith(".py"):
            path = folder / name
        else:
            continue
        assert path.exists(), path.relative_to(ROOT)


def test_each_name_that_is_to_be_opened_stands_in_its_file() -> None:
    table = TEXT.partition("## Where do I change ...?")[2]
    for path, names in re.findall(r"`([\w/]+\.py)`: ((?:`\w+`(?:, )?)+)", table + FIRST_HOUR):
        source = (ROOT / path).read_text()
        for name in re.findall(r"\w+", names):
            assert re.search(rf"\b(?:def|class) {name}\b|^{name}\b", source, re.M), (path, name)


def test_the_walk_names_code_of_its_files_and_takes_an_hour() -> None:
    steps = re.findall(r"^\| `([\w/]+\.\w+)` \((\d)\) \| (.*?) \|", WALK, re.M)
    assert len(steps) == WALK.count("\n| `")
    assert sum(int(minutes) for _, minutes, _ in steps) == 60
    asked, answered = re.split(r"^## (?:Ten questions|Answers)$", WALK, flags=re.M)[1:]
    answers = re.findall(r"^\d+\. .*`([\w/]+\.py)`.*\.$", answered, re.M)
    assert len(re.findall(r"^\d+\. .*\?$", asked, re.M)) == len(answers) == 10
    assert {*answers} <= {path for path, _, _ in steps}
    for path, _, names in steps:
        source = (ROOT / path).read_text()
        for name in re.findall(r"`(?:\w+\.)?(\w+)`", names):
            assert re.search(rf"\b(?:def|class) {name}\b|^ *{name}\b", source, re.M), (path, name)
