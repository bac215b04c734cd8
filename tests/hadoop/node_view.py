"""What a NodeManager and its containers see of this machine where containers run as other users of the system.

Run as a program, `python node_view.py VIEW -- COMMAND…`, it begins a command (a NodeManager) in a mount namespace of
its own, which ends with it: there /etc/passwd and /etc/group know the users of the tests, and the folders that
containers need (Java's jars, Python) can be reached, whatever home of root's they are in. The machine's own files stay
as they are. Only root may do it.
"""

from __future__ import annotations

import ctypes
import json
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18  # linux/mount.h
_CLONE_NEWNS = 0x00020000  # linux/sched.h
_STAGE = "/mnt"  # where what will be reached is held while its way there is made anew
GID = 23000  # of all the users: a group that they share shows what only the owner may do
FIRST_UID = 23001


@dataclass(frozen=True)
class NodeView:
    """``reachable`` are folders; ``users`` become users of the system, numbered from FIRST_UID.

    ``groups``: by name, who of them is in it, beside the one of all of them.
    """

    users: tuple[str, ...]
    reachable: tuple[str, ...]
    folder: str  # for the files that stand for /etc/passwd and /etc/group
    groups: Mapping[str, tuple[str, ...]]

    def write(self) -> Path:
        """The file that the program reads; it is written beside the two that it mounts."""
        folder = Path(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        people = [
            f"{user}:x:{number}:{GID}::/nonexistent:/usr/sbin/nologin"
            for number, user in enumerate(self.users, FIRST_UID)
        ]
        groups = [f"ordinary:x:{GID}:"]
        groups += [f"{name}:x:{GID + n}:{','.join(who)}" for n, (name, who) in enumerate(self.groups.items(), 1)]
        for name, lines in (("passwd", people), ("group", groups)):
            (folder / name).write_text(Path("/etc", name).read_text().rstrip("\n") + "\n" + "\n".join(lines) + "\n")
        path = folder / "view.json"
        path.write_text(json.dumps(asdict(self)))
        return path


def uid_of(users: tuple[str, ...], user: str) -> int:
    return FIRST_UID + users.index(user)


def lacks_rights() -> str:
    """Why this process may begin nothing in a view of its own, in words; empty when it may."""
    if os.geteuid() != 0:
        return "only root may begin containers as other users"
    child = os.fork()
    if child == 0:
        os._exit(0 if ctypes.CDLL(None).unshare(_CLONE_NEWNS) == 0 else 1)
    return "" if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 else "no mount namespace may be made here"


def begin(view: Path, command: list[str]) -> None:
    """Never returns. Raises OSError."""
    wanted = json.loads(view.read_text())
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "no mount namespace")
    _mount(libc, "none", "/", _MS_REC | _MS_PRIVATE)
    for name in ("passwd", "group"):
        _mount(libc, str(Path(wanted["folder"], name)), f"/etc/{name}", _MS_BIND)
    closed: dict[Path, list[Path]] = {}
    for folder in _passable(wanted["reachable"]):
        if (door := _closed_door(folder)) is not None:
            closed.setdefault(door, []).append(folder)
    for door, folders in closed.items():
        _open(libc, door, folders)
    os.execv(command[0], command)


def _passable(folders: list[str]) -> Iterator[Path]:
    """Of one that is closed itself, what is in it."""
    for folder in map(Path, folders):
        if folder.stat().st_mode & stat.S_IXOTH:
            yield folder
        else:
            yield from (each for each in folder.iterdir() if each.is_dir())


def _closed_door(folder: Path) -> Path | None:
    """The first of its parents that others may not pass."""
    ways = [*reversed(folder.parents), folder]
    return next((way for way in ways if not way.stat().st_mode & stat.S_IXOTH), None)


def _open(libc: ctypes.CDLL, door: Path, folders: list[Path]) -> None:
    """An empty folder instead, in which these are where they were."""
    _mount(libc, "tmpfs", _STAGE, 0, "tmpfs")
    for number, folder in enumerate(folders):
        held = Path(_STAGE, str(number))
        held.mkdir()
        _mount(libc, str(folder), str(held), _MS_BIND | _MS_REC)
    _mount(libc, "tmpfs", str(door), 0, "tmpfs")
    for number, folder in enumerate(folders):
        folder.mkdir(parents=True, exist_ok=True)
        _mount(libc, str(Path(_STAGE, str(number))), str(folder), _MS_BIND | _MS_REC)


def _mount(libc: ctypes.CDLL, source: str, target: str, flags: int, kind: str = "none") -> None:
    options = b"mode=755" if kind == "tmpfs" else None
    if libc.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{source} on {target}: {os.strerror(number)}")


if __name__ == "__main__":
    begin(Path(sys.argv[1]), sys.argv[3:])
