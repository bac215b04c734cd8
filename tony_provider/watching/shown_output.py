"""The output of a job's tasks among the lines of an Airflow task's log, told apart by ``worker:0 | ``."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import attrs

from tony_provider.cluster.errors import ClusterAuthError, ClusterError, NotServed
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.protocol.status import JobStatus, TaskState
from tony_provider.watching.output_follower import OutputFollower, OutputPosition
from tony_provider.watching.output_lines import LINES_PER_SECOND, OutputLines

SECONDS = 5.0  # that a master may take for one answer
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 60.0  # seconds before a master that had no answer is asked again


@attrs.frozen
class OutputWish:
    """Whose output is to be shown in the task's log."""

    tasks: list[str] = attrs.field(factory=list)  # such as evaluator:0; empty: the leader's, chief or rank 0
    fresh_until: float | None = None  # epoch seconds; who begins later shows what is printed from then on

    def of(self, status: JobStatus) -> list[str]:
        """The names of the tasks; none while they are not known."""
        return self.tasks or ([status.leader] if status.leader else [])


@attrs.define(eq=False)
class _ShownTask:
    follower: OutputFollower
    lines: OutputLines = attrs.field(factory=OutputLines)


class ShownOutput:
    """Reads what some tasks of one job print, and makes lines of it for the task's log.

    ``look`` and ``lines`` may be called in two threads, each in one at a time.

    If the wish is not fresh any more at the first look, what is there already is not shown.
    """

    def __init__(
        self,
        application_id: str,
        wish: OutputWish,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._application_id = application_id
        self._wish = wish
        self._at_end: bool | None = None  # whether to begin at the end of the output; None before the first look
        self._clock = clock
        self._tasks: dict[str, _ShownTask] = {}
        self._lines: deque[str | tuple[str, OutputPosition]] = deque()  # and how far a task's output is shown by them
        self._told: dict[str, OutputPosition] = {}
        self._began = False
        self._off = False
        self._pause = 0.0
        self._next = float("-inf")

    def is_due(self, status: JobStatus | None) -> bool:
        """Whether there may be something to show, and the master is to be asked for it."""
        if self._off or status is None or status.state.is_final or self._clock() < self._next:
            return False
        return status.generation > 0 and bool(self._wish.of(status))

    def look(self, hook: TonyHook, status: JobStatus) -> None:
        """Ask the job's master for what was printed since the last look.

        Blocks for SECONDS at most for each task. Raises nothing of the cluster's.
        """
        if self._at_end is None:
            until = self._wish.fresh_until
            self._at_end = until is not None and hook.now() > until
        running = self._running(status)
        if not running:
            self._next = self._clock() + FIRST_PAUSE
            return
        try:
            problems = [self._look_at(hook, task) for task in running]
        except (NotServed, ClusterAuthError) as error:
            self._off = True
            older = "the job's master is of an older release" if isinstance(error, NotServed) else str(error)
            self._lines.append(f"The output of the job's tasks is not shown here: {older}")
            return
        self._pause = min(max(FIRST_PAUSE, 2 * self._pause), LONGEST_PAUSE) if any(problems) else 0.0
        self._next = self._clock() + self._pause
        self._off = bool(self._tasks) and all(each.lines.is_full for each in self._tasks.values())

    def lines(self) -> list[str]:
        """The lines to log, those since the last call."""
        found = []
        while self._lines:
            line = self._lines.popleft()
            if isinstance(line, str):
                found.append(line)
            else:
                self._told[line[0]] = line[1]
        return found

    def told(self) -> dict[str, OutputPosition]:
        """Up to where each task's output is in the lines that ``lines`` has given."""
        return dict(self._told)

    def _running(self, status: JobStatus) -> list[str]:
        begun = {task.name for task in status.tasks if task.state is TaskState.RUNNING or task.name in self._tasks}
        return [name for name in self._wish.of(status) if name in begun]

    def _look_at(self, hook: TonyHook, name: str) -> str:
        """What keeps the task's output from being seen; empty: nothing."""
        task = self._tasks.get(name)
        if task is None:
            begin = OutputPosition.end() if self._at_end else None
            follower = OutputFollower(hook, self._application_id, name, begin, seconds=SECONDS)
            task = self._tasks[name] = _ShownTask(follower)
        follower, lines = task.follower, task.lines
        follower.hook = hook
        try:
            pieces = follower.new()
        except (NotServed, ClusterAuthError):
            raise
        except ClusterError as error:
            return str(error)
        for piece in pieces:
            if piece.new_container:
                lines.end()
            lines.add(piece.data, piece.missed, piece.skipped)
        self._show(name, lines.take(self._clock()))
        position = follower.position
        if not lines.waits and position.attempt is not None:
            self._lines.append((name, attrs.evolve(position, offset=position.offset - lines.pending)))
        return follower.problem

    def _show(self, name: str, lines: Sequence[str]) -> None:
        if lines and not self._began:
            self._began = True
            all_of_it = f"airflow tony logs {self._application_id} --task {name}"
            self._lines.append(f"What {name} prints, {LINES_PER_SECOND} lines a second at most; all of it: {all_of_it}")
        self._lines.extend(prefixed(name, lines))


def prefixed(task: str, lines: Sequence[str]) -> list[str]:
    """Lines of a task's output as they are told apart from our own."""
    return [f"{task} | {line}" for line in lines]


def shown_output(application_id: str, wish: OutputWish | None) -> ShownOutput | None:
    """What shows the output that is wished for; None: none is."""
    return None if wish is None else ShownOutput(application_id, wish)


Told = Mapping[str, OutputPosition]
"""By the name of a task: up to where its output is in the task's log already."""
