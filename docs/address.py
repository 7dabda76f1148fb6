"""Writes the address of the repository into the files that show it: `make address`.

The address is `URL` in setup.py. Each of these files has one place for it, between the lines
`generated: setup.py` and `end`. README's links need none: setup.py makes them for package indexes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_PLACE = re.compile(
    r"^([^\w\n]+generated: setup\.py.*?\n).*?^([^\w\n]+end\W*?\n)", re.DOTALL | re.MULTILINE
)

# File -> what it shows without an address, and with one.
PLACES = {
    "README.md": (
        """\
In a clone of this repository:

<!-- shown: fetches PyTorch -->
```console
$ make train
```
""",
        """\
<!-- shown: fetches PyTorch -->
```console
$ git clone {url} surreal_like && cd surreal_like
$ make train
```
""",
    ),
    "CITATION.cff": ("", "repository-code: {url}\n"),
    "SECURITY.md": (
        """\
This repository has no public address yet, so this page has no private channel to name. Write to
the people from whom you got your copy, so that only they can read it.
""",
        """\
Open [a private report]({url}/security/advisories/new).
""",
    ),
    "CONTRIBUTING.md": (
        """\
There is no public address yet: send a patch against `main` (`git format-patch main`) to the people
from whom you got your copy.
""",
        """\
Open a pull request against `main` of [the repository]({url}), from a fork of it.
""",
    ),
    ".github/ISSUE_TEMPLATE/config.yml": (
        "",
        """\
contact_links:
  - name: A vulnerability
    url: {url}/security/policy
    about: The security policy says how to report it in private.
""",
    ),
}


def read_url(root: Path) -> str:
    """Return the address that stands in setup.py, empty if there is none yet."""
    found = re.search(r'^URL = "(.*)"', (root / "setup.py").read_text(), re.MULTILINE)
    if found is None:
        raise ValueError('setup.py has no line of the form URL = "https://..."')
    return found[1]


def files_with_address(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield each file that shows the address, and the text that it must have."""
    url = read_url(root)
    for name, (without, with_url) in PLACES.items():
        shown = with_url.format(url=url) if url else without
        before = (root / name).read_text()
        text, count = _PLACE.subn(rf"\g<1>{shown}\g<2>", before)
        if count != 1:
            raise ValueError(f"{name} has {count} places for the address, and needs one")
        yield root / name, text


if __name__ == "__main__":
    for path, text in files_with_address(ROOT):
        path.write_text(text)
