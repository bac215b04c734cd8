"""Log lines about a watched job: outages and their end, and changes of state, tasks, steps and metrics.

Long outages are logged again at growing intervals. A line is not repeated while nothing changes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from enum import Enum, auto

import attrs

from tony_provider.cluster.errors import ClusterUnreachable
from tony_provider.cluster.interface import Application, ApplicationState
from tony_provider.runtime.common.clock import moment
from tony_provider.runtime.common.quantities import left, number, span, speed, steps, steps_and_percent
from tony_provider.runtime.protocol.limits import SLOW_ANSWER, STATUS_STALE
from tony_provider.runtime.protocol.metrics import IN_TASK_TABLES
from tony_provider.runtime.protocol.status import JobState, JobStatus, TaskProgress, TaskState, TaskStatus
from tony_provider.runtime.storage.errors import StorageUnreachable
from tony_provider.watching.observation import Observation, Outage, Peer, UnansweredCalls, peer_of_error

FIRST_REMINDER = 60.0  # seconds from a problem's start to its first reminder; later pauses double up to LONGEST_PAUSE
LONGEST_PAUSE = 600.0


@attrs.define
class _Trouble:
    what: str
    since: float
    since_ms: int
    remind_at: float
    said: str = ""
    pause: float = FIRST_REMINDER
    told: bool = False  # whether the problem was logged since its current start

    @property
    def line(self) -> str:
        return f"{self.what} since {moment(self.since_ms)}" + (f": {self.said}" if self.said else "")


class OngoingProblems:
    """The current problems, and when to log each again.

    ``tell`` is called with the lines. Problems that come and go produce few lines. Times are seconds of ``clock``.
    """

    def __init__(self, tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._tell = tell
        self._clock = clock
        self._troubles: dict[Hashable, _Trouble] = {}
        self._former: dict[Hashable, tuple[_Trouble, float]] = {}  # last ended problem by key, and when it ended

    @property
    def lines(self) -> list[str]:
        """One line for each current problem."""
        return [trouble.line for trouble in self._troubles.values()]

    def __contains__(self, key: Hashable) -> bool:
        return key in self._troubles

    def goes_on(self, key: Hashable, what: str, said: str = "", *, since: float | None = None) -> None:
        """Record that a problem exists: ``what``, such as "The store does not answer", and a reason ``said``, if known.

        ``since`` is its start; None for now. The problem is logged at once, again when its reason becomes known, and
        then at growing intervals.
        """
        now = self._clock()
        if key not in self._troubles:
            self._troubles[key] = self._begin(key, now, now if since is None else since)
        trouble = self._troubles[key]
        is_reminder, says_more = now >= trouble.remind_at, bool(said) and not trouble.said
        trouble.what, trouble.said = what, said or trouble.said
        if is_reminder:
            trouble.pause = min(2 * trouble.pause, LONGEST_PAUSE)
            trouble.remind_at = now + trouble.pause
            self._say(trouble, f"{trouble.line} (for {span(now - trouble.since)})" if trouble.told else trouble.line)
        elif key not in self._former and (says_more or not trouble.told):
            self._say(trouble, trouble.line)

    def _begin(self, key: Hashable, now: float, since: float) -> _Trouble:
        since_ms = int((time.time() - (now - since)) * 1000)
        former, over = self._former.get(key, (None, 0.0))
        if former is not None and now - over < FIRST_REMINDER:
            return attrs.evolve(former, since=since, since_ms=since_ms, said="", told=False)
        self._former.pop(key, None)
        return _Trouble("", since, since_ms, now + FIRST_REMINDER)

    def _say(self, trouble: _Trouble, line: str) -> None:
        trouble.told = True
        self._tell(line)

    def is_over(self, key: Hashable, line: str) -> None:
        """Record the end of a problem. If it was logged, log ``line``, such as "The store answers again"."""
        trouble, now = self._troubles.pop(key, None), self._clock()
        if trouble is None:
            return
        self._former[key] = trouble, now
        if trouble.told:
            self._tell(f"{line}, after {span(now - trouble.since)}")

    def forget(self, key: Hashable) -> None:
        """Drop a problem without a log line, because another line replaces it."""
        self._troubles.pop(key, None)


_MOST_CHARACTERS = 500  # maximum length of a message of a cluster or a master


class _Key(Enum):
    MASTER = auto()
    STATUS = auto()


class ReachabilityLog:
    """Logs which peers do not answer, by comparing each observation with the previous one.

    Times of two clocks are never compared. A status is stale if it has not changed for a long time since this process
    first read it.
    """

    def __init__(
        self, contact: UnansweredCalls, tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._contact = contact
        self._clock = clock
        self._tell = tell
        self._troubles = OngoingProblems(tell, clock)
        self._attempt: int | None = None  # last attempt of the application master that was seen running
        self._written: int | None = None  # time of the newest status, by its master's clock; 0 if there is none
        self._written_seen = 0.0
        self._told_of_master: tuple[str, ...] = ()  # problems that the master reported, without their reasons
        self._looked_at = self._awake_since = clock()

    @property
    def lines(self) -> list[str]:
        """One line for each peer or record that is unavailable now."""
        return self._troubles.lines

    @property
    def wants_master(self) -> bool:
        """Whether to query the master, because the status on the store is stale or unavailable."""
        return _Key.STATUS in self._troubles or Peer.STORE in self._troubles

    def begin_anew(self) -> None:
        """Forget all state, because it belongs to the previous application."""
        for key in _Key:
            self._troubles.forget(key)
        self._attempt = self._written = None
        self._told_of_master = ()

    def look(self, seen: Observation | None) -> None:
        """Judge an observation. None means that there is no news, and only time has passed."""
        now = self._clock()
        if now - self._looked_at > SLOW_ANSWER:
            self._awake_since = now  # this process was not scheduled either, so do not blame the peer
        self._looked_at = now
        for side in Peer:
            self._look_at(side, seen)
        if seen is None:
            return
        if seen.application is not None and not any(peer_of_error(each) is Peer.CLUSTER for each in seen.outages):
            self._look_at_master(seen.application)
            if seen.whole and not seen.outages:
                self._look_at_status(seen, seen.application)
        self._tell_of_master(seen)

    def _look_at(self, side: Peer, seen: Observation | None) -> None:
        error = next((each for each in seen.outages if peer_of_error(each) is side), None) if seen is not None else None
        silent = self._contact.silent_since(side)
        if error is not None:
            self._troubles.goes_on(side, f"{side} {_does(error)}", _line(str(error)), since=silent)
        elif silent is not None and self._is_long(silent, said := self._contact.said(side)):
            self._troubles.goes_on(side, f"{side} does not answer", _line(said), since=silent)
        elif seen is not None and (side is Peer.CLUSTER or not seen.outages):  # a cluster outage prevents store calls
            self._troubles.is_over(side, f"{side} answers again")

    def _is_long(self, silent: float, said: str) -> bool:
        """Whether the silence since ``silent`` is longer than SLOW_ANSWER.

        ``said`` is the message of a failed call. Without a failed call, time in which this process did not run is
        ignored.
        """
        return self._clock() - (silent if said else max(silent, self._awake_since)) > SLOW_ANSWER

    def _look_at_master(self, application: Application) -> None:
        """Detect a lost application master: the attempt is later than the last one seen."""
        number = application.attempt_number
        if application.is_final:
            self._troubles.forget(_Key.MASTER)
        elif number is None:  # YARN names no attempt while the next attempt waits for its container
            if self._attempt is not None and application.state is ApplicationState.ACCEPTED:
                self._waits_for(self._attempt + 1, application)
        elif application.state is ApplicationState.RUNNING:
            if _Key.MASTER in self._troubles:
                self._troubles.is_over(_Key.MASTER, f"Attempt {number} of the application master has taken over")
            elif self._attempt is not None and number > self._attempt:
                self._tell(f"The application master was lost, and attempt {number} has taken over")
            self._attempt = number
        elif number > (self._attempt or 1):
            self._waits_for(number, application)

    def _waits_for(self, attempt: int, application: Application) -> None:
        what = f"The application master was lost: {application.id} waits for attempt {attempt}"
        self._troubles.goes_on(_Key.MASTER, what, _line(application.diagnostics)[:_MOST_CHARACTERS])

    def _look_at_status(self, seen: Observation, application: Application) -> None:
        if application.state is not ApplicationState.RUNNING or (seen.status and seen.status.state.is_final):
            self._troubles.forget(_Key.STATUS)
            self._written = None
            return
        written, now = seen.status.updated_ms if seen.status else 0, self._clock()
        if written != self._written:
            self._troubles.is_over(_Key.STATUS, "The job's status is written again")
            self._written, self._written_seen = written, now
        elif now - self._written_seen > STATUS_STALE:
            what = "The job's status on the store has not changed" if written else "The job has no status on the store"
            self._troubles.goes_on(_Key.STATUS, what, self._master_says(seen), since=self._written_seen)

    @staticmethod
    def _master_says(seen: Observation) -> str:
        """Describe the master's answer. Return an empty string if the master was not queried yet."""
        if isinstance(seen.master, JobStatus):
            return "its application master answers, and reports the status directly"
        return f"its application master does not answer either ({seen.master})" if seen.master is not None else ""

    def _tell_of_master(self, seen: Observation) -> None:
        """Log once each problem that the master itself reports.

        The text before the colon identifies a problem: what is wrong, and since when. The reason after the colon may
        change with each attempt, because it can contain the name of a temporary file.
        """
        if (status := seen.newest) is None or status.state.is_final:
            return
        found = {trouble.partition(": ")[0]: trouble for trouble in status.troubles}
        for what, trouble in found.items():
            if what not in self._told_of_master:
                self._tell(f"The application master reports: {_line(trouble)[:_MOST_CHARACTERS]}")
        self._told_of_master = tuple(found)


def _does(error: Outage) -> str:
    return "does not answer" if isinstance(error, ClusterUnreachable | StorageUnreachable) else "rejects requests"


def _line(text: str) -> str:
    return " ".join(text.split())


PROGRESS_INTERVAL = 10.0  # minimum seconds between progress lines
MAX_ROWS = 20  # maximum rows of one task table; a summary line replaces the rest

_NOT_TOGETHER = (
    JobState.WAITING,
    JobState.STARTING,
    JobState.RESTARTING,
    JobState.SUSPENDED,
    JobState.RECOVERING,
)
_HEADER = ("task", "state", "node", "step", "steps/s", *(metric.title.lower() for metric in IN_TASK_TABLES))


class ProgressLog:
    """Turns the statuses of one job into lines for the task's log, without repetitions."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._application_line = ""
        self._job_line = ""
        self._message = ""
        self._generation = self._restarts = 0
        self._tasks: dict[str, tuple[TaskState, int, int, str | None]] = {}
        self._step: int | None = None
        self._progress_at: float | None = None
        self._warnings: list[str] = []

    def lines(self, application: Application, status: JobStatus | None) -> list[str]:
        lines = [] if _says_all(application, status) else self._application_lines(application)
        if status is not None:
            lines += self._job_lines(status)
            lines += self._generation_lines(status)
            lines += self._task_lines(status)
            lines += self._progress_lines(status)
            lines += self._warning_lines(status)
        return lines

    def _application_lines(self, application: Application) -> list[str]:
        line = f"{application.id} is {application.state}"
        if application.queue:
            line += f" in queue {application.queue}"
        if line == self._application_line:
            return []
        self._application_line = line
        return [line]

    def _job_lines(self, status: JobStatus) -> list[str]:
        line = f"Job is {_state(status)}"
        if line == self._job_line and status.message == self._message:
            return []
        # The state alone describes a success. The reason of a failure is logged when the job begins to end, and again
        # in its error.
        is_new = status.message != self._message and status.state is not JobState.SUCCEEDED
        self._job_line, self._message = line, status.message
        cause = f"{status.failure.cause}; " if status.failure and status.failure.cause else ""
        return [f"{line}: {cause}{status.message}" if status.message and is_new else line]

    def _generation_lines(self, status: JobStatus) -> list[str]:
        """Return the line that names the cause of a restart, and the step from which the tasks train.

        Return it each time that tasks start together, or that a task has restarted alone.
        """
        if status.state in _NOT_TOGETHER:
            return []
        why = status.restarted_after if status.restarts > self._restarts else None
        started, number = status.generation > self._generation, status.generation_after_restart
        self._generation, self._restarts = status.generation, status.restarts
        if not started:
            return [f"{why.full_message}; {why.task} restarts (restart {status.restarts})"] if why else []
        again = f" (generation {number})" if number is not None else ""
        job = f"{why.full_message}; restart {status.restarts}" if why and again else "The job"
        if status.resumed is not None:
            return [f"{job} resumes from {status.resumed.label}{again}"]
        if status.generation == 1:
            return []
        return [f"{job} trains from the beginning{again}: no checkpoint was on the store"]

    def _task_lines(self, status: JobStatus) -> list[str]:
        seen = {task.name: (task.state, task.attempt, task.start, task.node) for task in status.tasks}
        changed = [task for task in status.tasks if self._tasks.get(task.name) != seen[task.name]]
        self._tasks = seen
        if not changed:
            return []
        # For a small gang show all tasks, because users would think that an omitted task was lost.
        return task_table(status.tasks if len(status.tasks) <= MAX_ROWS else changed, status.tasks)

    def _warning_lines(self, status: JobStatus) -> list[str]:
        """Return the lines for new warnings."""
        new = [f"Warning: {each}" for each in status.warnings if each not in self._warnings]
        self._warnings = status.warnings
        return new

    def _progress_lines(self, status: JobStatus) -> list[str]:
        if status.step is None or status.step == self._step:
            return []
        now = self._clock()
        recent = self._progress_at is not None and now - self._progress_at < PROGRESS_INTERVAL
        if recent and not status.state.is_final:
            return []
        self._step, self._progress_at = status.step, now
        return [progress_line(status)]


def _says_all(application: Application, status: JobStatus | None) -> bool:
    """Whether the job's success makes the line about the application's end superfluous."""
    return application.state is ApplicationState.FINISHED and status is not None and status.state is JobState.SUCCEEDED


def progress_line(status: JobStatus) -> str:
    """Format like ``step 120 of 900 (13 %), 8.4 steps/s, about 1 min 33 s left, loss=0.31, checkpoint 100``."""
    line = f"step {steps_and_percent(status.step or 0, status.total_steps)}"
    if status.steps_per_second is not None:
        line += f", {speed(status.steps_per_second)}"
    forecast = left(status.step, status.total_steps, status.steps_per_second)
    if forecast and status.state is JobState.RUNNING:
        line += f", {forecast}"
    if metrics := " ".join(f"{name}={number(value)}" for name, value in sorted(status.metrics.items())):
        line += f", {metrics}"
    if status.checkpoint is not None:
        step = status.checkpoint.step
        line += f", {status.checkpoint.label}" if step is None else f", checkpoint {step}"
    return line


def task_table(tasks: Sequence[TaskStatus], everyone: Sequence[TaskStatus]) -> list[str]:
    """Return the rows of a text table of ``tasks``, under a header.

    ``everyone`` are all tasks of the job. If the table lacks some of them, a last line has the number of tasks in each
    state.
    """
    shown = tasks[:MAX_ROWS]
    lines = _aligned([_HEADER, *map(_row, shown)])
    if len(shown) < len(everyone):
        counts = Counter(task.state.value for task in everyone)
        lines.append(f"of {len(everyone)} tasks: " + ", ".join(f"{count} {state}" for state, count in counts.items()))
    return lines


def _row(task: TaskStatus) -> tuple[str, ...]:
    progress = task.progress or TaskProgress()
    return (
        task.name,
        _task_state(task),
        task.node or "-",
        steps(progress.step) if task.progress else "-",
        number(progress.steps_per_second) if progress.steps_per_second is not None else "-",
        *(metric.text(getattr(task, metric.name)) or "-" for metric in IN_TASK_TABLES),
    )


def _state(status: JobStatus) -> str:
    """Format the job's state, such as ``RUNNING``, or ``RESTARTING (restart 2)``."""
    if status.state is JobState.RECOVERING:
        return f"{status.state.value} (its application master was restarted, its tasks continue)"
    return f"{status.state.value} (restart {status.restarts})" if status.restarts else status.state.value


def _task_state(task: TaskStatus) -> str:
    """Format a state, such as ``RUNNING``, ``RUNNING (start 3)``, or ``RUNNING (start 4, container 2)``.

    Two numbers are shown if they are above 1: the starts of the task's program, and the task's containers, including
    lost ones.
    """
    counts = (("start", task.start), ("container", task.attempt))
    told = ", ".join(f"{what} {count}" for what, count in counts if count > 1)
    return f"{task.state.value} ({told})" if told else task.state.value


def _aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    rows = list(rows)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
