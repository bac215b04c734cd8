"""The table that `make secure` prints."""

from __future__ import annotations

from tests.row_tables import Table

TABLE = Table(
    texts=(("row", 24), ("attempt", 46), ("by whom", 16), ("what happened", 58), ("cost", 22)),
    notes="""\
The clusters have Kerberos and https throughout, and run containers as their users: by LinuxContainerExecutor, whose
native program is a stand-in of the tests. alice's job is the one that is attacked. A row passes when nothing of the
attempt had any effect, and her job went on to SUCCEEDED and left nothing. Several rows attack one job together: after
each it must run as before, with its first containers, and it ends when the last of them is over.
cost: what the attempt cost her job or the machine, where there is something to tell.
""",
)
