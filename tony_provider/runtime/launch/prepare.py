"""Verify the runtime archive and put the part for this Python into the container's directory ``tony``.

launcher.sh runs this text with each Python that it finds: ``python -I -S -c <this text> <SHA-256>``. The exit code is 0
on success, 1 if this Python does not suit (the program prints its version), and 3 if the archive was changed or cannot
be unpacked. The program reads the archive only once, so that it unpacks the same bytes that it has verified.
"""

import os
import sys

_CHUNK = 1 << 20  # bytes


def end(code: int, text: str) -> None:
    """Print a text for the launcher, and exit with this code."""
    sys.stdout.write(text)
    sys.exit(code)


def write(name: str, content: bytes) -> None:
    """Write a new file below ``tony``."""
    path = os.path.join("tony", name)
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    with open(path, "xb") as file:
        file.write(content)


def read(own: str) -> "tuple[str, dict[str, bytes]]":
    """Read the archive once. Return its SHA-256, and its files whose names begin with ``own``.

    The archive is not compressed. The module zipfile would take longer than this whole program.
    """
    from hashlib import sha256

    digest, found = sha256(), {}
    with open("tony-runtime.zip", "rb") as packed:

        def take(size: int) -> bytes:
            part = packed.read(size)
            digest.update(part)
            return part

        header = take(30)
        while header[:4] == b"PK\3\4":
            size, name_size, extra_size = (
                int.from_bytes(header[start:end], "little") for start, end in ((18, 22), (26, 28), (28, 30))
            )
            name = take(name_size).decode("utf-8", "replace")
            take(extra_size)
            if name.startswith((own + "/", own + ".zip")):
                found[name] = take(size)
            else:
                for start in range(0, size, _CHUNK):
                    take(min(_CHUNK, size - start))
            header = take(30)
        while take(_CHUNK):
            pass
    return digest.hexdigest(), found


def main() -> None:
    """Verify the archive and write the files for this Python."""
    version = "%d.%d" % sys.version_info[:2]
    if sys.version_info < (3, 9):
        end(1, version)
    from importlib.machinery import EXTENSION_SUFFIXES

    own = "cp" + version.replace(".", "")
    sha256, files = read(own)
    if sha256 != sys.argv[1]:
        copy = os.path.realpath("tony-runtime.zip")
        if "/filecache/" in copy:  # a copy of the NodeManager, which fetches it again for the next container
            os.remove(copy)
        end(
            3,
            "the tony runtime is not what was submitted: a program has changed it in the staging directory or in this "
            "node's cache since the submission. Programs of other jobs of the same user can do this. Submit it again",
        )
    if own + ".zip" not in files:
        end(1, version)
    core = [name for name in files if "/cygrpc." in name]
    if core and not any(name.endswith(EXTENSION_SUFFIXES[0]) for name in core):
        end(1, version + " for " + getattr(sys.implementation, "_multiarch", sys.platform))
    for name, content in files.items():
        write(name.replace(own + ".zip", "runtime.zip").replace(own, "lib", 1), content)


try:
    main()
except Exception as error:
    end(3, "the tony runtime cannot be unpacked in this container: " + str(error))
