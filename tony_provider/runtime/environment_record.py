"""The record of an environment that was built: for which Python and machine it is, and what it holds.

It is in the environment's archive, for the nodes, and beside it on the store, for submissions.
"""

from __future__ import annotations

import re
from typing import ClassVar

import attrs

from tony_provider.runtime.wheel_name import Version

_PYTHON = re.compile(r"3\.\d{1,3}")


def _is_python(_: object, field: object, value: str) -> None:
    if not _PYTHON.fullmatch(value):
        raise ValueError(f"{value!r} is no version of Python")


@attrs.frozen(kw_only=True)
class EnvironmentRecord:
    """What `airflow tony env build` has built."""

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    python: str = attrs.field(validator=_is_python)  # such as 3.12
    machine: str  # as ``uname -m`` says it
    packages: dict[str, str]  # versions by name
    built_by: str  # such as uv 0.8.3
    built_ms: int  # epoch
    archive: str = ""  # the name of its file; empty in the archive itself
    sha256: str = ""  # of the archive, hexadecimal; likewise
    size: int = 0  # bytes; likewise
    version: int = 1  # of this form

    @property
    def python_version(self) -> Version:
        """Of its Python."""
        major, minor = self.python.split(".")
        return int(major), int(minor)
