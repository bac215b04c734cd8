"""The Pythons and machines that nodes can have: those that the runtime which is sent to them was made for."""

from __future__ import annotations

import os
import re
import sys
import zipfile
from typing import BinaryIO

import attrs

from tony_provider.runtime.wheel_name import Version, version_text

_RUNTIME = re.compile(r"cp3(\d{1,3})/runtime\.zip")
_MACHINE = re.compile(r"\.cpython-3\d+-(\w+)-linux-(?:gnu|musl)\.so$")


@attrs.frozen
class NodePythons:
    """Of all nodes together; nothing where nobody knows."""

    versions: frozenset[Version] = frozenset()
    machines: frozenset[str] = frozenset()

    def __str__(self) -> str:
        versions = " or ".join(version_text(each) for each in sorted(self.versions))
        return f"Python {versions} on {' or '.join(sorted(self.machines)) or 'any machine'}"


def of_this_host() -> NodePythons:
    """Those of nodes that get this host's own packages."""
    return NodePythons(frozenset({sys.version_info[:2]}), frozenset({os.uname().machine}))


def of_runtime(archive: BinaryIO) -> NodePythons:
    """Return the Pythons that a runtime archive was built for. Raises OSError, zipfile.BadZipFile."""
    versions: set[Version] = set()
    machines: set[str] = set()
    with zipfile.ZipFile(archive) as opened:
        for name in opened.namelist():
            if match := _RUNTIME.fullmatch(name):
                versions.add((3, int(match[1])))
            elif found := _MACHINE.search(name):
                machines.add(found[1])
    return NodePythons(frozenset(versions), frozenset(machines))
