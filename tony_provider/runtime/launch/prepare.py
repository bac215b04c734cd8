"""Verify the runtime archive and put the part for this Python into the container's directory ``tony``.

launcher.sh runs this text with each Python that it finds: ``python -I -S -c <this text> <SHA-256>``. The exit code is 0
when all is done, 1 when this Python does not suit (the text printed is its version), and 3 when the archive was changed
or cannot be unpacked. The program reads the archive once, so that it unpacks what it has verified.
"""

import os
import sys


def end(code: int, text: str) -> None:
    """End the program with an exit code, and a text for the launcher."""
    sys.stdout.write(text)
    sys.exit(code)


def write(name: str, content: "memoryview") -> None:
    """Write a new file below ``tony``."""
    path = os.path.join("tony", name)
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    with open(path, "xb") as file:
        file.write(content)


def entries(archive: "memoryview") -> "dict[str, memoryview]":
    """Return the files of a zip archive that compresses nothing. The module zipfile takes longer than all of this."""
    found, at = {}, 0
    while bytes(archive[at : at + 4]) == b"PK\3\4":
        size, name_size, extra_size = (
            int.from_bytes(archive[at + start : at + end], "little") for start, end in ((18, 22), (26, 28), (28, 30))
        )
        content = at + 30 + name_size + extra_size
        found[bytes(archive[at + 30 : at + 30 + name_size]).decode()] = archive[content : content + size]
        at = content + size
    return found


def main() -> None:
    """Do all of it."""
    version = "%d.%d" % sys.version_info[:2]
    if sys.version_info < (3, 9):
        end(1, version)
    from hashlib import sha256
    from importlib.machinery import EXTENSION_SUFFIXES

    with open("tony-runtime.zip", "rb") as packed:
        archive = memoryview(packed.read())
    if sha256(archive).hexdigest() != sys.argv[1]:
        copy = os.path.realpath("tony-runtime.zip")
        if "/filecache/" in copy:  # a NodeManager's: it fetches the archive again for the next container
            os.remove(copy)
        end(
            3,
            "the tony runtime is not what was submitted: a program has changed it in the staging directory, or in this "
            "node's copy, since. Programs of other jobs of the same user can do so",
        )
    own = "cp" + version.replace(".", "")
    files = {name: content for name, content in entries(archive).items() if name.startswith((own + "/", own + ".zip"))}
    if not files:
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
