"""Generated blocks of the documents, between two comments: ``<!-- table: JobResult -->`` and ``<!-- end -->``.

So each fact is written once, next to the code that it describes, and can still be read on a page.
"""

from __future__ import annotations

import re

from tests.documents import command_line, interface, lifecycles, performance, reference
from tests.secure import threats

PAGES = (*reference.PAGES, command_line.PAGE, interface.PAGE, lifecycles.PAGE, performance.PAGE, threats.PAGE)
MAKERS = {
    "table": reference.table,
    "commands": command_line.sections,
    "interface": interface.sections,
    "states": lifecycles.picture,
    "bench": performance.tables,
    "threats": threats.table,
}

_BLOCK = re.compile(r"(<!-- (\w+): ([\w.]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def renewed(page: str) -> str:
    """Return the page with each block as its maker writes it. Raises KeyError for an unknown block."""
    return _BLOCK.sub(lambda block: block[1] + MAKERS[block[2]](block[3]) + block[4], page)


def blocks_of(page: str, kind: str) -> list[str]:
    return [block[3] for block in _BLOCK.finditer(page) if block[2] == kind]
