"""Settings of the documentation site, which `make docs` writes to `site/`."""

import os
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

from address import read_url  # noqa: E402

from session.version import VERSION  # noqa: E402

project = "surreal_like"
version = release = VERSION
html_title = f"{project} {VERSION}"
html_theme = "furo"
if url := read_url(ROOT):
    html_theme_options = {"source_view_link": f"{url}/blob/HEAD/docs/{{filename}}"}
html_copy_source = False
html_show_copyright = False
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

# Links to headings have the anchors that GitHub makes, too; one that leads nowhere is a warning.
myst_heading_anchors = 4

# Docstrings put code between single backticks, as the pages do.
default_role = "code"
autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
napoleon_use_ivar = True
maximum_signature_line_length = 88
python_use_unqualified_type_names = True


# Pages that include a file from outside of docs/. Links to the file work on a git host; on the site
# they lead to the page.
DOCS = ROOT / "docs"
INCLUDED = {
    "../README.md": "start.md",
    "../CONTRIBUTING.md": "contributing.md",
    "../SECURITY.md": "security.md",
    "../benchmarks/README.md": "measurements.md",
    "../examples/README.md": "examples.md",
}
_LINK = re.compile(r"\]\((?!\w+:|#|<)([^)#]+)(#[^)]*)?\)")


def setup(app: Any) -> None:
    """Lets links into and out of the files that pages include work on the site."""
    app.connect(
        "include-read", lambda app, path, page, text: _move_links((DOCS / path).resolve(), text)
    )
    app.connect("source-read", lambda app, page, text: _move_links(DOCS / page, text))


def _move_links(path: Path, text: list[str]) -> None:
    """Makes the links of a file relative to docs/; other files than pages are downloads."""

    def moved(link: re.Match[str]) -> str:
        target = os.path.relpath(path.parent / link[1], DOCS)
        target = INCLUDED.get(target, target)
        outside = target.startswith("..") and target.endswith(".md")
        return f"](<path:{target}>)" if outside else f"]({target}{link[2] or ''})"

    text[0] = _LINK.sub(moved, text[0])
