"""Settings of the documentation site, which `make docs` writes to `site/`."""

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


def setup(app: Any) -> None:
    """Let README's links to files outside of docs/ work in the page that includes it."""
    app.connect("include-read", _move_links)


def _move_links(app: Any, path: Path, page: str, text: list[str]) -> None:
    if path.name == "README.md":
        text[0] = re.sub(r"\]\((?!\w+:|#|docs/)", "](../", text[0])
