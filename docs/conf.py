"""How Sphinx makes a site of these pages: `make docs`, then open build/docs/index.html."""

from fednode import __version__

project = "fednode"
author = "the fednode authors"
release = version = __version__
extensions = ["myst_nb"]
html_theme = "furo"
html_title = f"fednode {version}"
templates_path: list[str] = []
exclude_patterns = ["conf.py"]
# The notebook is run by tests/e2e/test_readme.py, not by each build of the site.
nb_execution_mode = "off"
# Headings can be linked to as on GitHub.
myst_heading_anchors = 3
# Pages link to files of the checkout beside docs/, as GitHub shows them; tests/unit/test_docs.py
# follows each link.
suppress_warnings = ["myst.xref_missing"]
