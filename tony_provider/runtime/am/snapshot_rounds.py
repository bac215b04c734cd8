"""Decide when the tasks of a gang take a snapshot together, so that each checkpoint contains whole saves only.

A *save* is what the program of a task writes to its checkpoint directory. A *snapshot* copies the saves to the store.
The decisions use the tasks' reports about their directories, but neither clocks of nodes nor the order of messages.
Entries of several tasks belong to the same save if they have the same name or step, or if each is its task's first.

Times are seconds of the master's monotonic clock.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Generic, Optional, TypeVar, Union

import attrs

from tony_provider.runtime.checkpoint.save_formats import ORBAX_UNFINISHED

UNMET_WAIT = 240.0  # seconds that a save may lack files of other tasks; then snapshots omit this save
FIRST_WAIT = 5.0  # seconds to wait for other tasks after one has begun a save with a new kind of name
_NUMBER = re.compile(r"[0-9]+")
_ORBAX = re.compile(rf".*?{re.escape(ORBAX_UNFINISHED)}[^/]*")  # path of a save that Orbax has not finished

Part = TypeVar("Part")  # what a task has uploaded


@attrs.frozen
class SaveEntry:
    """A top-level entry of a task's checkpoint directory."""

    name: str
    group: str  # the name without the numbers that stand for the task's ranks
    news: bool = True  # whether it has changed since the newest committed checkpoint
    first: bool = False  # whether it was written at most once since the start of the processes
    step: Optional[int] = None
    needs: Mapping[str, int] = attrs.field(factory=dict)  # other files that the save needs: minimum size by path
    sizes: Mapping[str, int] = attrs.field(factory=dict)  # sizes of its own files, if it needs others or is unfinished

    @property
    def pattern(self) -> str:
        """The name without its numbers: the same for all saves of one kind."""
        return _NUMBER.sub("#", self.group)

    @property
    def is_numbered(self) -> bool:
        """Whether the name identifies one save, as ``step-10`` does and ``last.pt`` does not."""
        return _NUMBER.search(self.group) is not None


@attrs.frozen
class TaskDirectory:
    """The last report of a task about its checkpoint directory."""

    attempt: int
    generation: int
    start: int
    version: int  # number of the directory's state, counted by the executor; an order names this number
    ready: bool = False  # the directory is consistent
    last: bool = False  # the task's processes have ended
    entries: tuple[SaveEntry, ...] = ()  # changed entries first, from the newest to the oldest
    base: str = ""  # URI of the checkpoint that the directory was restored from or committed as
    save: int = 0  # number of the checkpoint ``base``; 0 if there is none
    blocker: str = ""  # why the directory is not consistent, otherwise empty
    succeeded: bool = False  # the task's processes have ended with success
    ordered: str = ""  # URI of the checkpoint in the newest order that the task has received
    busy: bool = False  # the task has not finished this order

    @property
    def news(self) -> list[SaveEntry]:
        """The entries that have changed since the newest committed checkpoint."""
        return [entry for entry in self.entries if entry.news]


@attrs.frozen
class TakeOrder:
    """Orders a task to take and upload a snapshot."""

    task: str
    state: TaskDirectory
    leave_out: tuple[str, ...]  # top-level entries that the snapshot omits


@attrs.frozen
class Waiting:
    """The reason why no snapshot can be taken now."""

    reason: str
    refused: bool = False  # waiting does not help; the reason names a remedy


@attrs.define
class Round(Generic[Part]):
    """A snapshot that has been ordered."""

    uri: str
    save: int
    orders: dict[str, TakeOrder]  # by task
    parts: dict[str, Part] = attrs.field(factory=dict)  # by task
    problem: str = ""  # why the snapshot cannot be completed, otherwise empty

    @property
    def is_complete(self) -> bool:
        """Whether all ordered parts are uploaded, so that the master commits the checkpoint."""
        return self.parts.keys() == self.orders.keys()


class SnapshotRounds(Generic[Part]):
    """Keeps the directory states of all tasks that write checkpoints, and the snapshot that is in progress."""

    def __init__(self) -> None:
        self.round: Optional[Round[Part]] = None
        self._states: dict[str, TaskDirectory] = {}
        self._writers: dict[str, set[str]] = {}  # tasks that have written entries of each pattern
        self._seen: dict[str, float] = {}  # time when a task first began to write entries of each pattern
        self._began: dict[str, float] = {}  # time when each task began a write that it has not finished
        # Time since which an entry needs files that no task has. Key: task, start of its processes, name of the entry.
        self._unmet: dict[tuple[str, int, str], float] = {}

    def state(self, task: str) -> Optional[TaskDirectory]:
        return self._states.get(task)

    def report(self, task: str, state: TaskDirectory, now: float) -> Optional[TakeOrder]:
        """Record the state of a task's directory. Return the order to repeat if the task has not received it yet.

        A report may have been sent before the order arrived. So a failed snapshot is recognized only in reports that
        name the order.
        """
        self._states[task] = state
        began = self._began.pop(task, now)
        if state.blocker:
            self._began[task] = began
        for entry in state.entries:
            self._writers.setdefault(entry.pattern, set()).add(task)
            self._seen.setdefault(entry.pattern, began)
        ordered = self.round
        if ordered is None or task not in ordered.orders or task in ordered.parts:
            return None
        order = ordered.orders[task]
        if state.ordered == ordered.uri:
            ordered.problem = "" if state.busy else f"{task} could not upload its part"
        elif (state.attempt, state.start) != (order.state.attempt, order.state.start):
            ordered.problem = f"{task} was restarted"
        else:
            return order
        return None

    def forget(self, tasks: Collection[str]) -> None:
        """Keep only these tasks, because all others are gone or may not write checkpoints any more."""
        self._states = {task: state for task, state in self._states.items() if task in tasks}

    def broken(self) -> Optional[str]:
        """Return why the current round cannot be completed, or None."""
        if self.round is None or self.round.is_complete:
            return None
        gone = next((task for task in self.round.orders if task not in {*self._states, *self.round.parts}), None)
        return f"{gone} writes no more checkpoints" if gone else self.round.problem or None

    def add(self, task: str, uri: str, part: Part) -> Optional[dict[str, Part]]:
        """Add the part that a task has uploaded. Return all parts of the checkpoint if none is missing, otherwise None.

        Raises LookupError if the task was not ordered to upload this part.
        """
        ordered = self.round
        if ordered is None or ordered.uri != uri or task not in ordered.orders:
            raise LookupError("no snapshot of this task was ordered, or a newer snapshot was ordered since")
        ordered.parts[task] = part
        return dict(ordered.parts) if ordered.is_complete else None

    def order(self, uri: str, save: int, orders: Sequence[TakeOrder]) -> Round[Part]:
        """Begin a round with these orders, and return it."""
        self.round = Round(uri, save, {order.task: order for order in orders})
        return self.round

    def ended(self, uri: str, *, committed: bool) -> None:
        """End the round. After a commit, the directories of its tasks count as unchanged until their next report."""
        if self.round is None or self.round.uri != uri:
            return
        for task, order in self.round.orders.items() if committed else ():
            state = self._states.get(task)
            if state is not None and state.version == order.state.version:
                entries = tuple(attrs.evolve(entry, news=False) for entry in state.entries)
                self._states[task] = attrs.evolve(state, entries=entries, base=uri)
        self.round = None

    def plan(
        self,
        ranks: Mapping[str, int],
        groups: Mapping[str, str],
        origins: Mapping[int, str],
        now: float,
        running: Optional[Collection[str]] = None,
    ) -> Union[Sequence[TakeOrder], Waiting, None]:
        """Return the orders for the next snapshot, the reason to wait, or None if no task has news.

        ``ranks``: rank of each task that may write checkpoints. ``groups``: group of each task. Groups are independent,
        and a snapshot contains a single group. ``running``: tasks whose processes may still write; default: all.

        ``origins``: checkpoint URI by rank. The newest checkpoint contains the part that the rank uploaded for that
        checkpoint. A task with another base uploads its part even without news.
        """
        waiting: Optional[Waiting] = None
        for group in sorted({groups[task] for task in ranks}):
            members = {task: rank for task, rank in ranks.items() if groups[task] == group}
            plan = self._plan(members, origins, now, members if running is None else running)
            if isinstance(plan, Waiting):
                waiting = waiting or plan
            elif plan:
                return plan
        return waiting

    def _plan(
        self, ranks: Mapping[str, int], origins: Mapping[int, str], now: float, running: Collection[str]
    ) -> Union[Sequence[TakeOrder], Waiting, None]:
        in_order = sorted(ranks, key=lambda task: ranks[task])
        states = {task: self._states[task] for task in in_order if task in self._states}
        writers = {task: state for task, state in states.items() if state.news}
        if not writers:
            return None
        for task, state in states.items():
            if state.blocker and not state.last:
                return Waiting(f"in {task}, {state.blocker}")
        leave_out = {task: self._leftovers(task, states) for task in states}
        saves = {task: _without(state, leave_out[task]) for task, state in states.items()}
        problem = _divided(writers) or self._mismatch(ranks, saves, now, running)
        if problem is not None:
            return problem
        unmet_saves = self._unmet_saves(saves, now)
        for key, waiting in unmet_saves.items():
            if now - self._unmet[key] < UNMET_WAIT:
                return waiting
            task, _, name = key
            leave_out[task] = (*leave_out[task], name)
        if unmet_saves and not any(_without(state, leave_out[task]).news for task, state in writers.items()):
            return next(iter(unmet_saves.values()))
        again = {
            task
            for task, state in states.items()
            if state.ready and state.entries and state.base != origins.get(ranks[task])
        }
        return [
            TakeOrder(task, state, leave_out[task])
            for task, state in states.items()
            if task in writers or task in again
        ]

    def _mismatch(
        self,
        ranks: Mapping[str, int],
        states: Mapping[str, TaskDirectory],
        now: float,
        running: Collection[str],
    ) -> Optional[Waiting]:
        """Return the reason to wait if the new entries of different tasks do not belong to the same save."""
        ended = {task for task, state in states.items() if state.last}
        for task, state in states.items():
            for entry in state.news:
                others = self._writers[entry.pattern] & set(ranks) - {task}
                may_follow = (set(ranks) & set(running)) - ended - {task}
                if not others and may_follow and now - self._seen[entry.pattern] < FIRST_WAIT:
                    return Waiting(f"{task} has written {entry.name}, and other tasks may be about to do so")
                for other in sorted(others):
                    if other not in states:
                        return Waiting(f"{task} and {other} have written {entry.name}, but {other} has ended")
                    if _is_passed(entry, state, states[other]):
                        continue
                    problem = _compare(task, entry, other, states[other])
                    if problem is not None:
                        return problem
        return None

    def _unmet_saves(self, states: Mapping[str, TaskDirectory], now: float) -> dict[tuple[str, int, str], Waiting]:
        """Return the new entries that need files which no task has, and record since when.

        The keys are the same as in ``_unmet``.
        """
        sizes: dict[str, int] = {}
        for state in states.values():
            for entry in state.entries:
                for path, size in entry.sizes.items():
                    sizes[path] = max(size, sizes.get(path, -1))
        found: dict[tuple[str, int, str], Waiting] = {}
        for task, state in states.items():
            for entry in state.news:
                missing = unmet(entry.needs, sizes)
                if missing is not None and not any(_is_passed(entry, state, other) for other in states.values()):
                    reason = f"{entry.name} of {task} is not complete: no task has {missing}"
                    found[task, state.start, entry.name] = Waiting(reason)
        of_others = {key: since for key, since in self._unmet.items() if key[0] not in states}
        self._unmet = of_others | {key: self._unmet.get(key, now) for key in found}
        return found

    def _leftovers(self, task: str, states: Mapping[str, TaskDirectory]) -> tuple[str, ...]:
        """Return the task's entries that are left over from numbered saves.

        The first writer of such a save has removed its own entry. Other writers never remove theirs.
        """
        found = []
        for entry in states[task].entries:
            first = next((other for other in states if other in self._writers[entry.pattern]), task)
            is_gone = entry.group not in {each.group for each in states[first].entries}
            is_past = not entry.news or _is_passed(entry, states[task], states[first])
            if entry.is_numbered and first != task and is_gone and is_past:
                found.append(entry.name)
        return tuple(found)


def _without(state: TaskDirectory, names: Collection[str]) -> TaskDirectory:
    return attrs.evolve(state, entries=tuple(entry for entry in state.entries if entry.name not in names))


def _is_passed(entry: SaveEntry, state: TaskDirectory, other: TaskDirectory) -> bool:
    """Return whether the other task has removed this save, because both tasks have a later save of this kind.

    "Later" refers to the order of the entries in ``state``, which is by the clock of the task's node.
    """
    if any(each.group == entry.group for each in other.entries):
        return False
    later = itertools.takewhile(lambda each: each != entry, state.news)
    groups = {each.group for each in other.news}
    return any(each.is_numbered and each.pattern == entry.pattern and each.group in groups for each in later)


def _compare(task: str, entry: SaveEntry, other: str, state: TaskDirectory) -> Optional[Waiting]:
    """Return the reason to wait if another task does not have the save that contains the entry."""
    same = [each for each in state.entries if each.group == entry.group]
    if not same:
        same = [each for each in state.entries if each.pattern == entry.pattern and _has_step(each, entry)]
    if not same:
        if state.succeeded and not state.news:
            return None  # the other task writes no later saves
        return Waiting(f"{task} has written {entry.name}, but {other} has not written it yet")
    theirs = same[0]
    if _has_step(theirs, entry):
        return None
    if entry.step is not None and theirs.step is not None:
        return Waiting(f"{entry.name} is of step {entry.step} in {task} and of step {theirs.step} in {other}")
    if entry.is_numbered or (entry.first and theirs.first):
        return None
    return Waiting(
        f"{task} and {other} both write {entry.name} repeatedly, and its content does not show which writes belong "
        "together. Have the program save each step under a different name, or call "
        "tony_sdk.commit_checkpoint(step, path) in each task. If the files of rank 0 are enough, set checkpoint.mirror "
        "to leader",
        refused=True,
    )


def _divided(writers: Mapping[str, TaskDirectory]) -> Optional[Waiting]:
    """Return the reason to wait if processes of Orbax wait for each other's files in separate directories.

    A task reports an unfinished save only after the save has not changed for two minutes.
    """
    unfinished = {
        task: save.group()
        for task, state in writers.items()
        for entry in state.news
        for save in map(_ORBAX.match, entry.sizes)
        if save is not None
    }
    if len(unfinished) <= 1:
        return None
    first, second = sorted(unfinished)[:2]
    return Waiting(
        f"{first} and {second} have both started {unfinished[first]} in separate directories and not finished it. "
        "Orbax with several processes saves into one directory that all processes share: set checkpoint.shared to true",
        refused=True,
    )


def _has_step(one: SaveEntry, other: SaveEntry) -> bool:
    return one.step is not None and one.step == other.step


def unmet(needs: Mapping[str, int], sizes: Mapping[str, int]) -> Optional[str]:
    """Return the first file of ``needs`` that is missing in ``sizes`` or too small there, or None."""
    return next((path for path, size in sorted(needs.items()) if sizes.get(path, -1) < size), None)
