"""The scripts of the pages, and what they import."""

from __future__ import annotations

import re

from tony_provider.portal.pages import DIRECTORY

_IMPORTS = re.compile(r"""^(?:import|export) (?:[^"';]* from )?"(\.[^"]+)";$""", re.MULTILINE)


def _imported(script: str) -> set[str]:
    """The scripts that it names, relative to the directory of all."""
    text = (DIRECTORY / script).read_text()
    folder = (DIRECTORY / script).parent
    return {(folder / each).resolve().relative_to(DIRECTORY).as_posix() for each in _IMPORTS.findall(text)}


def test_the_tab_on_a_dag_names_all_that_it_needs() -> None:
    """A browser asks for what the tab's own script names at once, and for the rest only level by level."""
    named = _imported("dag.js")
    needed, unread = set[str](), set(named)
    while unread:
        script = unread.pop()
        needed.add(script)
        unread |= _imported(script) - needed
    assert needed == named
    assert len(named) > 10
