"""The address of the repository stands in setup.py, and one command writes it everywhere else."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from docs.address import PLACES, ROOT, files_with_address

URL = "https://host.example/somebody/surreal"


def test_each_file_shows_the_address_that_setup_has() -> None:
    for path, text in files_with_address(ROOT):
        assert path.read_text() == text, "run make address"


@pytest.fixture
def write_address(tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """Set the address in a copy of the files, run `make address` there, and read them again."""
    for name in ("setup.py", "Makefile", "docs/address.py", *PLACES):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)

    def write(url: str) -> dict[str, str]:
        lines = (tmp_path / "setup.py").read_text().splitlines()
        changed = [f'URL = "{url}"' if line.startswith("URL = ") else line for line in lines]
        (tmp_path / "setup.py").write_text("\n".join(changed))
        words = ["make", "--quiet", "address", f"PYTHON={sys.executable}"]
        subprocess.run(words, cwd=tmp_path, check=True, timeout=60)
        return {name: (tmp_path / name).read_text() for name in PLACES}

    return write


def test_one_command_writes_it_and_takes_it_back(
    write_address: Callable[[str], dict[str, str]],
) -> None:
    without = write_address("")
    shown = write_address(URL)
    assert [name for name, text in shown.items() if URL not in text] == []
    start = shown["README.md"].partition("```console\n")[2]
    assert start.startswith(f"$ git clone {URL} surreal_like && cd surreal_like\n$ make train\n")
    assert yaml.safe_load(shown["CITATION.cff"])["repository-code"] == URL
    [contact] = yaml.safe_load(shown[".github/ISSUE_TEMPLATE/config.yml"])["contact_links"]
    assert contact["url"].startswith(URL)
    assert not any("host.example" in text for text in without.values())
    assert write_address("") == without


def test_without_an_address_the_first_command_can_be_pasted(
    write_address: Callable[[str], dict[str, str]],
) -> None:
    first = write_address("")["README.md"].partition("\n```\n")[0]
    assert "In a clone of this repository:\n" in first
    assert first.endswith("\n```console\n$ make train")
