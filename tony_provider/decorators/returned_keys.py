"""A check of the keys of a function's result that become XComs of their own.

Airflow's client writes a key into the path of a request as it is, and the HTTP library resolves its ``..``. So a job
could choose a key that leads to another task, or to another resource of Airflow's API.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from tony_provider.exceptions import TonyResultRefused
from tony_provider.runtime.spec.problems import shown

_PART = r"(?!\.{1,2}(?:/|\Z))[\w .,:=@+()-]+"
_KEY = re.compile(rf"{_PART}(?:/{_PART})*")


def expect_own_keys(keys: Iterable[object], taken: Collection[str]) -> None:
    """Check that each key names an XCom of the task, and none of those that the provider pushes itself.

    :param taken: the keys of the provider's own XComs.

    Raises TonyResultRefused.
    """
    for key in keys:
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            rule = "letters, digits, blanks and _ . , : = @ + ( ) -, with / between two parts"
            raise TonyResultRefused(f"@task.tony: the returned key {shown(key)} cannot be an XCom; a key has {rule}")
        if key in taken:
            raise TonyResultRefused(
                f"@task.tony: the returned key {shown(key)} is the key of an XCom that the task has itself; return "
                "another key, or leave multiple_outputs out"
            )
