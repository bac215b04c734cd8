"""The packages of an environment that somebody has packed or made, by the names of the files in it."""

from __future__ import annotations

import re
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from tony_provider.runtime.local.unpacking import UNREADABLE

_PACKAGE = re.compile(r"(?:.*/)?site-packages/([^/]+?)-[^/-]+(?:-py3\.\d+)?\.(?:dist-info|egg-info)(?:/.*)?")
_CONFIG = "pyvenv.cfg"
_SHARES = re.compile(rb"^include-system-site-packages\s*=\s*true\s*$", re.MULTILINE | re.IGNORECASE)
_MOST_BYTES = 1 << 16  # of pyvenv.cfg


def packages_of_archive(archive: Path) -> set[str] | None:
    """None: it cannot be told, as it has others' packages, too, or is no archive. Raises OSError.

    A packed tar is read whole: some seconds for each GiB.
    """
    try:
        return _packages(_in_zip(archive) if zipfile.is_zipfile(archive) else _in_tar(archive))
    except OSError:
        raise
    except UNREADABLE:
        return None  # whoever unpacks it says what is wrong


def packages_of_directory(directory: Path) -> set[str] | None:
    """Of a directory of this machine; None: it cannot be told."""
    if not (directory / "bin" / "python").exists():
        return None
    found = [(f"{path.relative_to(directory)}", b"") for path in directory.glob("lib*/python3*/site-packages/*")]
    config = directory / _CONFIG
    if config.is_file():
        found.append((_CONFIG, config.read_bytes()[:_MOST_BYTES]))
    return _packages(iter(found))


def _packages(files: Iterator[tuple[str, bytes]]) -> set[str] | None:
    packages = set()
    for name, content in files:
        if _SHARES.search(content):
            return None
        if match := _PACKAGE.fullmatch(name):
            packages.add(match[1])
    return packages or None


def _in_tar(archive: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(archive, mode="r|*") as tar:
        for member in tar:
            file = tar.extractfile(member) if _is_config(member.name) and member.isreg() else None
            yield member.name, file.read(_MOST_BYTES) if file else b""


def _in_zip(archive: Path) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(archive) as opened:
        for name in opened.namelist():
            if _is_config(name):
                with opened.open(name) as file:
                    yield name, file.read(_MOST_BYTES)
            else:
                yield name, b""


def _is_config(name: str) -> bool:
    return name.rpartition("/")[2] == _CONFIG
