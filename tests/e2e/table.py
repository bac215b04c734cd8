"""The table that `make e2e` prints."""

from __future__ import annotations

from tests.row_tables import Table

TABLE = Table(
    texts=(("row", 26), ("what is done", 44), ("what was seen", 62)),
    notes="""\
A row passes when, beside what it says, each training has had exactly the applications that it was meant to have, one
at a time, none was started that nobody asked for, no process, folder or staging of them is left, and the task's links
are those of its last try.
""",
)
