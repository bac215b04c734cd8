"""Verify the runtime archive and put the part for this Python into the container's directory ``tony``.

launcher.sh runs this text with each Python that it finds: ``python -I -S -c <this text> <SHA-256>``. The exit code is 0
on success, 1 if this Python does not suit (the program prints its version), and 3 if the archive was changed or cannot
be unpacked. The program reads the archive only once, so that it unpacks the same bytes that it verifies. The files get
their names only after the verification.
"""

import io
import os
import sys
from hashlib import sha256

_BLOCK = 1 << 18  # bytes; a block stays in the processor's cache while it is hashed and written


def end(code: int, text: str) -> None:
    """Print a text for the launcher, and exit with this code."""
    sys.stdout.write(text)
    sys.exit(code)


class Archive:
    """The runtime archive, which is a zip file without compression. The module zipfile alone takes longer to load."""

    def __init__(self, file: "io.BufferedReader") -> None:
        self.file = file
        self.digest = sha256()
        self.block = memoryview(bytearray(_BLOCK))
        self.files: "dict[str, str]" = {}  # names of the unpacked files, by their paths

    def read(self, size: int) -> bytes:
        """Read the next bytes into memory."""
        content = self.file.read(size)
        self.digest.update(content)
        return content

    def copy(self, size: int, path: str) -> None:
        """Copy the next bytes into a new file."""
        with open(path, "xb") as target:
            while size:
                part = self.block[: self.file.readinto(self.block[:size])]
                if not part:
                    break
                self.digest.update(part)
                target.write(part)
                size -= len(part)

    def unpack(self, prefix: str) -> None:
        """Unpack the files with this prefix into numbered files. Record their names without the prefix."""
        header = self.read(30)
        while header[:4] == b"PK\3\4":
            size, name_size, extra_size = (
                int.from_bytes(header[start:end], "little") for start, end in ((18, 22), (26, 28), (28, 30))
            )
            name = self.read(name_size).decode("utf-8", "replace")
            self.read(extra_size)
            if name.startswith(prefix):
                path = os.path.join("tony", str(len(self.files)))
                self.files[path] = name[len(prefix) :]
                self.copy(size, path)
            else:
                for start in range(0, size, _BLOCK):
                    self.read(min(_BLOCK, size - start))
            header = self.read(30)
        while self.read(_BLOCK):
            pass


def main() -> None:
    """Verify the archive and unpack the files for this Python."""
    version = "%d.%d" % sys.version_info[:2]
    if sys.version_info < (3, 9):
        end(1, version)
    with open("tony-runtime.zip", "rb") as file:
        archive = Archive(file)
        try:
            archive.unpack("cp%d%d/" % sys.version_info[:2])
            name_files(archive, version)
        finally:
            for path in archive.files:  # a full disk needs room for the error message
                if os.path.exists(path):
                    os.remove(path)


def name_files(archive: Archive, version: str) -> None:
    """Verify the unpacked files, and give them their names."""
    files = archive.files
    if archive.digest.hexdigest() != sys.argv[1]:
        copy = os.path.realpath("tony-runtime.zip")
        if "/filecache/" in copy:  # a copy of the NodeManager, which fetches it again for the next container
            os.remove(copy)
        end(
            3,
            "the tony runtime is not what was submitted: a program has changed it in the staging directory or in "
            "this node's cache since the submission. Programs of other jobs of the same user can do this. Submit "
            "it again",
        )
    if "runtime.zip" not in files.values():
        end(1, version)
    from importlib.machinery import EXTENSION_SUFFIXES

    core = [name for name in files.values() if "/cygrpc." in name]
    if core and not any(name.endswith(EXTENSION_SUFFIXES[0]) for name in core):
        end(1, version + " for " + getattr(sys.implementation, "_multiarch", sys.platform))
    while files:
        path, name = files.popitem()
        target = os.path.join("tony", name)
        os.makedirs(os.path.dirname(target), 0o700, exist_ok=True)
        os.rename(path, target)


try:
    main()
except Exception as error:
    end(3, "the tony runtime cannot be unpacked in this container: " + str(error))
