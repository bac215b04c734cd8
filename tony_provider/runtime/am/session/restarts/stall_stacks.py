"""The stacks of a stalled gang: which processes hang in another place than the others."""

from __future__ import annotations

import re
from collections.abc import Iterable

import attrs

from tony_provider.runtime.am.session.state.task import Task
from tony_provider.runtime.protocol.status import Failure
from tony_provider.runtime.quantities import count, some

_PLACES = 3  # that a message shows
_FRAMES = 12  # of each stack in a message
_COLLECTIVE = re.compile(
    r"distributed|collective|horovod|mpi4py|multihost|barrier|all_?(reduce|gather|to_?all)|broadcast", re.IGNORECASE
)


@attrs.define
class _Place:
    """Processes that hang in the same place."""

    frames: tuple[str, ...]
    tasks: list[str]  # or one of several user processes of a task
    processes: list[str]

    @property
    def order(self) -> tuple[bool, int]:
        """The key by which the place that explains the stall comes first."""
        return any(map(_COLLECTIVE.search, self.frames)), len(self.processes)

    @property
    def text(self) -> str:
        more = [f"  and {len(self.frames) - _FRAMES} more"] if len(self.frames) > _FRAMES else []
        frames = [f"  {frame}" for frame in self.frames[:_FRAMES]]
        return "\n".join([f"{some(self.processes)}:", *frames, *more])


def with_stacks(failure: Failure, tasks: Iterable[Task]) -> Failure:
    """Return the failure of a stall with the stacks of these tasks' processes.

    Processes that wait in a collective operation come last, and otherwise those come first whose stack few others have.
    """
    places = sorted(_places(tasks), key=lambda place: place.order)
    if not places:
        return failure
    first = places[0]
    others = {task for place in places for task in place.tasks} - {*first.tasks}
    summary = f"{some(dict.fromkeys(first.tasks))} at {first.frames[0]}"
    if others:
        summary += f", unlike {count(len(others), 'other')}"
    shown = "\n".join(place.text for place in places[:_PLACES])
    return attrs.evolve(failure, message=f"{failure.message}; {summary}\n{shown}")


def _places(tasks: Iterable[Task]) -> Iterable[_Place]:
    found: dict[tuple[str, ...], _Place] = {}
    for task in tasks:
        for stack in (task.process.stacks or ()) if task.process else ():
            if stack.frames:
                place = found.setdefault(stack.frames, _Place(stack.frames, [], []))
                name = f"{task.name} {stack.process}".rstrip()
                place.tasks.append(name)
                place.processes.append(f"{name} (process {stack.pid}, {stack.command})")
    return found.values()
