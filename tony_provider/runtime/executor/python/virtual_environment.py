"""A virtual environment of one container: an interpreter of the node, and packages that lie in other directories.

What runs in it is an ordinary Python with an ordinary prefix: processes that a program starts by ``sys.executable``
see the same packages, without any variable.
"""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from tony_provider.runtime.executor.python.node_python import NodePython

_SHARED = ("share", "etc")  # directories beside packages that programs look for in their prefix
_ENTRY = re.compile(r"(?P<module>[\w.]+)\s*:\s*(?P<object>[\w.]+)\s*(\[.*\])?", re.ASCII)
_NAME = re.compile(r"[\w.-]+", re.ASCII)
_MOST_BYTES = 1 << 20  # of entry_points.txt, and of a script

# The kernel takes 127 bytes of a first line, and containers' paths are longer; as pip writes it.
_SCRIPT = """#!/bin/sh
'''exec' {python} "$0" "$@"
' '''
import sys
from {module} import {first}
if __name__ == "__main__":
    sys.exit({object}())
"""


@attrs.frozen
class VirtualEnvironment:
    """Made in ``directory``; is there once it is whole."""

    directory: Path

    @property
    def bin(self) -> Path:
        return self.directory / "bin"

    @property
    def _mark(self) -> Path:
        return self.directory / ".whole"

    @property
    def is_there(self) -> bool:
        return self._mark.exists()

    def make(self, python: NodePython, own: Sequence[Path], beneath: Sequence[Path] = ()) -> None:
        """Make it, of directories with packages: ``own``, whose commands it has, before those ``beneath``.

        Blocks; raises OSError.
        """
        packages = self.directory / "lib" / python.name / "site-packages"
        for directory in (self.bin, packages):
            directory.mkdir(parents=True)
        for name in ("python", "python3", python.name):
            (self.bin / name).symlink_to(python.executable)
        version = "{}.{}".format(*python.version)
        (self.directory / "pyvenv.cfg").write_text(
            f"home = {python.executable.parent}\ninclude-system-site-packages = false\nversion = {version}\n"
        )
        # Each with the .pth files that are in it, unlike on a line of its own.
        lines = [f"import site; site.addsitedir({str(each)!r})\n" for each in (*own, *beneath)]
        (packages / "tony-packages.pth").write_text("".join(lines))
        for directory in own:
            self._add_scripts(directory)
            self._link_shared(directory)
        self._mark.touch()

    def _add_scripts(self, packages: Path) -> None:
        for name, content in (*_entry_points(packages, self.bin / "python"), *_scripts(packages, self.bin / "python")):
            path = self.bin / name
            if not path.is_symlink() and not path.exists():
                path.write_bytes(content)
                path.chmod(0o700)

    def _link_shared(self, packages: Path) -> None:
        for name in _SHARED:
            link = self.directory / name
            if (packages / name).is_dir() and not link.is_symlink():
                link.symlink_to(packages / name)


def _entry_points(packages: Path, python: Path) -> Iterator[tuple[str, bytes]]:
    """The commands that the packages say they have."""
    for file in sorted(packages.glob("*.dist-info/entry_points.txt")):
        parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
        parser.optionxform = str  # type: ignore[assignment,method-assign] # names as they are written
        try:
            parser.read_string(file.read_bytes()[:_MOST_BYTES].decode("utf-8", "replace"))
        except configparser.Error:  # then its commands are not there, and the shell says so
            continue
        for name, entry in parser.items("console_scripts") if parser.has_section("console_scripts") else ():
            match = _ENTRY.fullmatch(entry.strip())
            if match and _NAME.fullmatch(name):
                first = match["object"].partition(".")[0]
                text = _SCRIPT.format(
                    python=_quoted(python), module=match["module"], first=first, object=match["object"]
                )
                yield name, text.encode()


def _scripts(packages: Path, python: Path) -> Iterator[tuple[str, bytes]]:
    """The commands that are files of the packages; those in Python begin with whose Python they were made."""
    places = [packages / "bin", packages / ".prefix" / "bin"]  # of an installation; of a package in a PEX
    for file in (file for place in places if place.is_dir() for file in sorted(place.iterdir())):
        if not file.is_file() or file.stat().st_size > _MOST_BYTES:
            continue
        content = file.read_bytes()
        first, _, rest = content.partition(b"\n")
        if first.startswith(b"#!") and b"python" in first:
            header = f"#!/bin/sh\n'''exec' {_quoted(python)} \"$0\" \"$@\"\n' '''\n"
            yield file.name, header.encode() + rest
        else:
            yield file.name, b"#!/bin/sh\nexec " + _quoted(file).encode() + b' "$@"\n'


def _quoted(path: Path) -> str:
    return "'" + os.fspath(path).replace("'", "'\\''") + "'"
