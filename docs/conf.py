"""Configure Sphinx for ``make docs``. Neither the build nor the browser of a reader fetches anything.

The source directory is the repository, so that links between docs/ and the README work as in a checkout.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]

_RENDERED = ("docs", "benchmarks", "tests")  # folders with pages

project = "tony_provider"
html_show_copyright = False
extensions = ["myst_parser"]
include_patterns = [
    "docs/*.md",
    "docs/*/*.md",
    "docs/*/*/*.md",
    "*.md",
    "benchmarks/RESULTS.md",
    "tests/secure/THREATS.md",
]
exclude_patterns = [f"{path.name}/**" for path in ROOT.iterdir() if path.is_dir() and path.name not in _RENDERED]
root_doc = "docs/index"
myst_heading_anchors = 4  # as GitHub makes them
html_theme = "furo"
html_title = project
html_static_path = ["_static"]
html_css_files = ["tables.css"]


def add_navigation(app: Sphinx, document: str, source: list[str]) -> None:
    """Add the sidebar: a caption for each heading of the index, with its links. A page lists its folder's pages."""
    if document == root_doc:
        head, *sections = source[0].split("\n## ")
        trees = [_toctree(document, section, f":caption: {section.splitlines()[0]}") for section in sections]
        source[0] = "\n## ".join([head + _toctree(document, head), *sections]) + "".join(trees)
    elif (folder := ROOT / document).is_dir():
        source[0] += _toctree(document, "".join(f"](/{document}/{page.name})" for page in sorted(folder.glob("*.md"))))


def _toctree(document: str, text: str, *options: str) -> str:
    links = re.findall(r"\]\(((?:\.\./|/)?[\w/-]+)\.md\)", text)
    folder = PurePosixPath(document).parent
    paths = [os.path.normpath(link if link.startswith("/") else f"/{folder}/{link}") for link in links]
    return "\n".join(["\n\n```{toctree}", ":hidden:", *options, "", *paths, "```\n"])


def leave_folders_as_text(app: Sphinx, document: str, source: list[str]) -> None:
    """Replace links to folders by their text, because only the repository's site has pages for folders."""
    source[0] = re.sub(r"\[([^\]]+)\]\((?![a-z]+:)[^)#]*/\)", r"\1", source[0])


def lead_to_the_map(app: Sphinx, failure: Exception | None) -> None:
    page = app.builder.get_target_uri(root_doc)
    (app.outdir / "index.html").write_text(f'<meta http-equiv="refresh" content="0; url={page}">\n')


def setup(app: Sphinx) -> None:
    app.connect("source-read", add_navigation)
    app.connect("source-read", leave_folders_as_text)
    app.connect("build-finished", lead_to_the_map)
