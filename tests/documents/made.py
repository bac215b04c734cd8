"""What the pages have from elsewhere: blocks between two comments, ``<!-- table: JobResult -->`` and ``<!-- end -->``.

Each fact is written once, beside the code that it is of, or measured, and can be read wherever the page can.
"""

from __future__ import annotations

import re

from tests.documents import lifecycles, performance, reference
from tests.secure import threats

PAGES = (reference.PAGE, lifecycles.PAGE, performance.PAGE, threats.PAGE)
MAKERS = {"table": reference.table, "states": lifecycles.picture, "bench": performance.tables, "threats": threats.table}

_BLOCK = re.compile(r"(<!-- (\w+): (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def renewed(page: str) -> str:
    """The page with every block as its maker has it. KeyError: a block that nobody knows."""
    return _BLOCK.sub(lambda block: block[1] + MAKERS[block[2]](block[3]) + block[4], page)


def blocks_of(page: str, kind: str) -> list[str]:
    return [block[3] for block in _BLOCK.finditer(page) if block[2] == kind]
