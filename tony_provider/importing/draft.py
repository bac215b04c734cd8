"""A job of ours while it is made of somebody else's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tony_provider.importing.imported import LeftBehind
from tony_provider.runtime.spec.model import PREPARE, Role
from tony_provider.runtime.spec.problems import NOT_GIVEN

Path = tuple[str, ...]

_SERVICE_ROLES = {role.value for role in Role} - {Role.WORKER.value} | {"tensorboard"}
_MOST_LETTERS = 32  # of a task type's name


class Draft:
    """What is known so far. ``origins`` has, for each key that was carried over, theirs."""

    def __init__(self) -> None:
        self.job: dict[str, Any] = {}
        self.arguments: dict[str, Any] = {}
        self.left: list[LeftBehind] = []
        self.origins: dict[Path, str] = {}
        self.no_command: dict[str, str] = {}  # by task type: why nobody knows its command
        self.exports = ""  # what every command begins with
        self._types: dict[str, str] = {}  # ours by theirs
        self._told: set[str] = set()  # what was left, by which it is found again
        self._added: set[tuple[Path, str]] = set()  # to lists

    def put(self, path: Path | str, value: Any, key: str) -> None:
        """Set a key of ours, by its path, to what stands at ``key`` of theirs."""
        path = _path(path)
        place = self.job
        for name in path[:-1]:
            place = place.setdefault(name, {})
        place[path[-1]] = value
        self.origins[path] = key

    def add(self, path: Path | str, value: str, key: str) -> None:
        """Append to a list of ours, once."""
        path = _path(path)
        if (path, value) in self._added:
            return
        self._added.add((path, value))
        if found := self.get(path):
            found.append(value)
            self.origins[path] = key
        else:
            self.put(path, [value], key)

    def get(self, path: Path | str) -> Any:
        """What a key of ours has; None: nothing."""
        found: Any = self.job
        for name in _path(path):
            found = found.get(name) if isinstance(found, Mapping) else None
        return found

    def share(self, key: str) -> None:
        """Make a list's elements the job's that every task type has, such as a file that all of them find."""
        lists = [task.get(key, []) for task in self.tasks.values()]
        if not lists:
            return
        shared = set.intersection(*map(set, lists))
        for each in [each for each in lists[0] if each in shared]:
            self.add(key, each, self.origins[("tasks", next(iter(self.tasks)), key)])
        for own in lists:
            own[:] = [each for each in own if each not in shared]

    def remove(self, path: Path) -> Any:
        """Take a key of ours out again, or an element of a list; its value."""
        place: Any = self.job
        for name in path[:-1]:
            place = place[int(name)] if isinstance(place, list) else place[name]
        return place.pop(int(path[-1]) if isinstance(place, list) else path[-1])

    def files(self) -> list[str]:
        """What is said of the job's files, and of those of every task type."""
        places = [self.job, *self.tasks.values()]
        return list(dict.fromkeys(str(each) for place in places for each in place.get("files") or []))

    def leave(self, key: str, why: str, value: object = NOT_GIVEN) -> None:
        """Note that something of theirs is not carried over, once."""
        left = LeftBehind(key, why, value)
        if repr(left) not in self._told:
            self._told.add(repr(left))
            self.left.append(left)

    @property
    def tasks(self) -> dict[str, dict[str, Any]]:
        tasks: dict[str, dict[str, Any]] = self.job.setdefault("tasks", {})
        return tasks

    def task_type(self, name: str) -> str:
        """Our name of a task type: one for each of theirs, told where it differs."""
        if name not in self._types:
            ours = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_")[:_MOST_LETTERS] or "task"
            ours = ours if ours[0].isalpha() else f"task_{ours}"[:_MOST_LETTERS]
            while ours in self._types.values():
                ours = f"{ours[: _MOST_LETTERS - 1]}x"
            self._types[name] = ours
            if ours != name:
                self.leave(name, f"is called {ours}: a task type's name has lower-case letters, digits and _")
        return self._types[name]

    def known_type(self, name: str) -> str | None:
        """Our name of a task type that was met already; None: of no such type."""
        return self._types.get(name)

    def service_type(self, name: str) -> str:
        """As ``task_type``, for a system to which names mean nothing: here some of them are roles."""
        if name == PREPARE:
            self._types.setdefault(name, "prepare_service")
            self.leave(name, "is called prepare_service: all others wait for a task type named prepare")
        ours = self.task_type(name)
        if ours in _SERVICE_ROLES:
            self.put(("tasks", ours, "role"), Role.WORKER.value, name)
        return ours


def _path(path: Path | Sequence[str] | str) -> Path:
    return tuple(path.split(".")) if isinstance(path, str) else tuple(path)
