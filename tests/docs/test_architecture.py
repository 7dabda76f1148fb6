"""The page for the next engineer names files and code that exist."""

import re

from docs.generate import ROOT
from main.addons import MODULES
from tests.take_out import ADD_ONS

TEXT = (ROOT / "docs" / "architecture.md").read_text()
NAMED = re.compile(r"`([\w/.*]+)`")


def test_the_tree_has_each_add_on_that_can_be_taken_out() -> None:
    assert sorted(MODULES) == sorted(
        f"{paths[0]}/addon".replace("/", ".") for paths in ADD_ONS.values()
    )


def test_each_file_that_is_named_exists() -> None:
    folder = ROOT
    for name in NAMED.findall(TEXT):
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
    for path, names in re.findall(r"`([\w/]+\.py)`: ((?:`\w+`(?:, )?)+)", table):
        source = (ROOT / path).read_text()
        for name in re.findall(r"\w+", names):
            assert re.search(rf"\b(?:def|class) {name}\b|^{name}\b", source, re.M), (path, name)
