"""How Sphinx renders the documents: ``make docs``. Nothing is fetched, neither then nor by a reader's browser.

Its source directory is the repository, so that links lead from docs/ to the README and back, as they do in a checkout.
"""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]

project = "tony_provider"
html_show_copyright = False
extensions = ["myst_parser"]
include_patterns = ["docs/*.md", "docs/*/*.md", "README.md", "CHANGELOG.md", "CONTRIBUTING.md"]
exclude_patterns = [f"{path.name}/**" for path in ROOT.iterdir() if path.is_dir() and path.name != "docs"]
root_doc = "docs/index"
myst_heading_anchors = 4  # as GitHub makes them
html_theme = "furo"
html_title = project
html_static_path = ["_static"]
html_css_files = ["tables.css"]


def add_navigation(app: Sphinx, document: str, source: list[str]) -> None:
    """The map's links, in their order; then what it does not name."""
    if document == root_doc:
        linked = re.findall(r"\]\(((?:\.\./)?[\w/-]+\.md)", source[0])
        pages = [(ROOT / "docs" / link).resolve() for link in linked] + sorted((ROOT / "docs").rglob("*.md"))
        paths = dict.fromkeys("/" + str(page.relative_to(ROOT).with_suffix("")) for page in pages)
        paths.pop(f"/{root_doc}")
        named = [f"Begin here <{path}>" if path == "/README" else path for path in paths]
        source[0] += "\n".join(["\n```{toctree}", ":hidden:", *named, "```\n"])


def leave_folders_as_text(app: Sphinx, document: str, source: list[str]) -> None:
    """They have a page where the repository is shown, and none here."""
    source[0] = re.sub(r"\[([^\]]+)\]\((?![a-z]+:)[^)#]*/\)", r"\1", source[0])


def lead_to_the_map(app: Sphinx, failure: Exception | None) -> None:
    page = app.builder.get_target_uri(root_doc)
    (app.outdir / "index.html").write_text(f'<meta http-equiv="refresh" content="0; url={page}">\n')


def setup(app: Sphinx) -> None:
    app.connect("source-read", add_navigation)
    app.connect("source-read", leave_folders_as_text)
    app.connect("build-finished", lead_to_the_map)
