"""Wheel file names, with the Pythons and machines that they support, and the record of a built environment."""

from __future__ import annotations

import re
from typing import ClassVar, Optional

import attrs

# https://packaging.python.org/en/latest/specifications/binary-distribution-format/
_NAME = re.compile(
    r"(?P<project>[^-\s]+)-(?P<version>[^-\s]+)(-\d[^-\s]*)?-(?P<pythons>[^-\s]+)-(?P<abis>[^-\s]+)-(?P<platforms>[^-\s]+)\.whl"
)
_PYTHON = re.compile(r"(?P<kind>py|cp)3(?P<minor>\d*)")
_LINUX = re.compile(r"(?:linux|manylinux\d+|manylinux_\d+_\d+|musllinux_\d+_\d+)_(?P<machine>\w+)")
_ANY = "any"

Version = tuple[int, int]
"""A Python's version without its patch level, such as ``(3, 12)``."""


def version_text(version: Version) -> str:
    """Format a version: ``3.12``."""
    return "{}.{}".format(*version)


def normalized(project: str) -> str:
    """Return a project's name in normalized form (PEP 503), in which package indexes compare names."""
    return re.sub(r"[-_.]+", "-", project).lower()


@attrs.frozen
class WheelName:
    """Parts of a wheel's file name."""

    project: str  # as the file name spells it
    version: str
    pythons: list[str]  # such as cp312, py3
    abis: list[str]
    platforms: list[str]  # such as manylinux_2_17_x86_64, any

    @classmethod
    def parse(cls, file: str) -> Optional[WheelName]:
        """Parse a file name. Return None if it is not a wheel's name."""
        match = _NAME.fullmatch(file)
        if match is None:
            return None
        tags = [match[each].split(".") for each in ("pythons", "abis", "platforms")]
        return cls(match["project"], match["version"], *tags)

    @property
    def normalized(self) -> str:
        """Name of the project in normalized form (PEP 503)."""
        return normalized(self.project)

    def suits_machine(self, machine: str) -> bool:
        """Return whether the wheel fits Linux on this machine, named as by ``uname -m``."""
        return _ANY in self.platforms or machine in self.machines

    @property
    def machines(self) -> list[str]:
        """Machines with Linux that the wheel's file name lists."""
        return [match["machine"] for each in self.platforms if (match := _LINUX.fullmatch(each))]

    def suits_python(self, version: Version) -> bool:
        """Return whether the wheel fits CPython of this version."""
        return any(self._suits(tag, version) for tag in self.pythons)

    def _suits(self, tag: str, version: Version) -> bool:
        match = _PYTHON.fullmatch(tag)
        if match is None or version[0] != 3:
            return False
        minor = int(match["minor"]) if match["minor"] else None
        if match["kind"] == "py" or "abi3" in self.abis or "none" in self.abis:
            return minor is None or minor <= version[1]
        return minor == version[1]


_RECORDED_PYTHON = re.compile(r"3\.\d{1,3}")


def _is_python(_: object, field: object, value: str) -> None:
    if not _RECORDED_PYTHON.fullmatch(value):
        raise ValueError(f"{value!r} is not a version of Python")


@attrs.frozen(kw_only=True)
class EnvironmentRecord:
    """Record of an environment that `airflow tony env build` has built."""

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    python: str = attrs.field(validator=_is_python)  # such as 3.12
    machine: str  # named as by ``uname -m``
    packages: dict[str, str]  # versions by name
    built_by: str  # such as uv 0.8.3
    built_ms: int  # epoch milliseconds
    archive: str = ""  # file name of the archive; empty in the record within the archive
    sha256: str = ""  # of the archive, hexadecimal; empty in the record within the archive
    size: int = 0  # bytes of the archive; 0 in the record within the archive
    version: int = 1  # version of this format

    @property
    def python_version(self) -> Version:
        """Version of the environment's Python."""
        major, minor = self.python.split(".")
        return int(major), int(minor)
