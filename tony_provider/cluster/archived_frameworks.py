"""Frameworks of other packages in the runtime archive: their code, and the entry points that name them."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator
from pathlib import Path

import attrs

from tony_provider.runtime.frameworks import plugins

log = logging.getLogger(__name__)

_INFO = "tony_frameworks-1.dist-info"  # the distribution that the nodes find, whatever brought them here
_METADATA = b"Metadata-Version: 2.1\nName: tony-frameworks\nVersion: 1\n"


@attrs.frozen
class ArchiveEntry:
    """A file of the archive: its bytes now, or a file to read them from."""

    content: bytes | Path

    def read(self) -> bytes:
        return self.content if isinstance(self.content, bytes) else self.content.read_bytes()


def framework_entries() -> Iterator[tuple[str, ArchiveEntry]]:
    """Yield the files of the packages that define frameworks, by their names in the archive.

    Of each it is the package that holds the module, without what it depends on: it is to be small. One that has no
    files to take is left out, with a warning: jobs of other frameworks go on.
    """
    points = []
    for point in plugins.entry_points():
        try:
            files = dict(_files(point.value.partition(":")[0]))
        except (ImportError, OSError, ValueError) as error:
            log.warning("The framework %s (%s) does not travel to the nodes: %s", point.name, point.value, error)
            continue
        points.append(point)
        for name, path in files.items():
            yield name, ArchiveEntry(path)
    if points:
        listed = "".join(f"{point.name} = {point.value}\n" for point in points)
        yield f"{_INFO}/METADATA", ArchiveEntry(_METADATA)
        yield f"{_INFO}/entry_points.txt", ArchiveEntry(f"[{plugins.GROUP}]\n{listed}".encode())


def _files(module: str) -> Iterator[tuple[str, Path]]:
    """By their names. Raises ImportError where the module is not installed, or has no file."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ImportError(f"{module} has no file")
    package = module if spec.submodule_search_locations else module.rpartition(".")[0]
    if not package:
        yield Path(spec.origin).name, Path(spec.origin)
        return
    directory = Path(spec.origin).parent
    for path in sorted(directory.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield f"{package.replace('.', '/')}/{path.relative_to(directory).as_posix()}", path
    *above, _ = package.split(".")
    for depth in range(len(above), 0, -1):
        directory = directory.parent
        if (directory / "__init__.py").is_file():
            yield f"{'/'.join(above[:depth])}/__init__.py", directory / "__init__.py"
