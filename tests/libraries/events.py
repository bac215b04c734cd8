"""The reports of the programs of a training, see programs/moments.py."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

Life = tuple[str, int]  # of processes that start together: the application, and their generation or process
Files = Mapping[str, str]  # digests by path, in the order of modification times


@dataclass(frozen=True)
class Event:
    event: str  # began, paused, saved
    step: int
    name: str
    at: float
    rank: int
    pid: int
    application: str
    generation: int
    files: Files  # in the checkpoint directory at this moment


@dataclass(frozen=True)
class Events:
    """The reports of all processes of one training."""

    directory: Path
    alone: bool  # the only process; otherwise all restart together

    def all(self, event: str = "") -> list[Event]:
        """Return the events, oldest first."""
        found = [
            Event(**json.loads(line))
            for path in self.directory.glob("events-*.jsonl")
            for line in path.read_text().splitlines(keepends=True)
            if line.endswith("\n")
        ]
        return sorted((each for each in found if event in ("", each.event)), key=lambda each: each.at)

    def lives(self) -> list[dict[int, Event]]:
        """Return the beginnings by rank, for each life."""
        found: dict[Life, dict[int, Event]] = {}
        for event in self.all("began"):
            found.setdefault(self._life(event), {})[event.rank] = event
        return list(found.values())

    def saves(self) -> list[dict[int, Event]]:
        """Return what the ranks have reported about each save, by rank."""
        found: dict[tuple[Life, int, str], dict[int, Event]] = {}
        for event in self.all("saved"):
            found.setdefault((self._life(event), event.step, event.name), {})[event.rank] = event
        return list(found.values())

    def _life(self, event: Event) -> Life:
        return event.application, event.pid if self.alone else event.generation

    def own(self, event: Event, leader: Event) -> Files:
        """Return the files of an event that its rank has written itself, in this life or a former one.

        Without those that are obsolete: parts of saves that ``leader``, rank 0 at the same moment, has removed.
        """
        written: set[tuple[str, str]] = set()
        began: Files = {}
        for each in self.all():
            if each.rank != event.rank or each.at > event.at:
                continue
            if each.event == "began":
                began = each.files
            else:
                written |= set(each.files.items()) - set(began.items())
        kept = {path.partition("/")[0] for path in leader.files}
        return {
            path: digest
            for path, digest in event.files.items()
            if (path, digest) in written and (path.partition("/")[0] in kept or "/" not in path)
        }
