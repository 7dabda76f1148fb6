"""Settings of the documentation site, which `make docs` writes to `site/`."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from session.version import VERSION  # noqa: E402

project = "surreal_like"
version = release = VERSION
html_title = f"{project} {VERSION}"
html_theme = "furo"
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
