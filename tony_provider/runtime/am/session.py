"""The job's session: which task is where, what is to be done next, and how the job ends.

A pure state machine: inputs come as method calls with the time (seconds of a clock that never goes back), outputs are
lists of actions. It does no input or output of its own, so that every order of events can be tried in tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Optional

from tony_provider.runtime.am import failures, words
from tony_provider.runtime.am.actions import (
    Action,
    Finish,
    LaunchTask,
    Note,
    Release,
    SendRendezvous,
    Verdict,
)
from tony_provider.runtime.am.ending import Ending
from tony_provider.runtime.am.gang import Gang
from tony_provider.runtime.am.judge import Judge
from tony_provider.runtime.am.resource_manager import Container, FinalStatus
from tony_provider.runtime.am.task import Beat, ProcessEnd, Task
from tony_provider.runtime.frameworks.base import ClusterSpec, TaskAddress
from tony_provider.runtime.protocol.status import Failure, FailureKind, JobState, TaskState
from tony_provider.runtime.spec.model import JobSpec, Role

LOST_AFTER = 15.0  # seconds of silence; executors send a heartbeat every 3 s
MOST_REPLACEMENTS = 3  # containers of one task lost before the gang started
_ASLEEP = 5.0  # seconds between two ticks after which the application master itself was not running
_KILL_SIGNALS = (9, 15)


class Session:
    """``decisive`` are task types, see Framework.decisive; ``jitter`` gives random numbers from 0 to 1."""

    def __init__(
        self,
        job: JobSpec,
        *,
        decisive: Sequence[str],
        jitter: Callable[[], float],
        lost_after: float = LOST_AFTER,
    ) -> None:
        self.job = job
        self.tasks = [
            Task(name, index, job.role(name), spec, name in decisive)
            for name, spec in job.tasks.items()
            for index in range(spec.instances)
        ]
        self.phase = JobState.WAITING
        self.generation = 0
        self.verdict: Optional[Verdict] = None
        self.warnings: list[str] = []
        self.gang = Gang(job, self.tasks, jitter)
        self._ending = Ending(self.tasks)
        self._lost_after = lost_after
        self._by_name = {task.name: task for task in self.tasks}
        self._by_container: dict[str, Task] = {}
        self._judge = Judge(self.tasks)
        self._evaluators_until: Optional[float] = None
        self._started = 0.0
        self._ticked: Optional[float] = None
        self._out: list[Action] = []

    @property
    def finished(self) -> bool:
        return self.phase.is_final

    def task(self, name: str) -> Optional[Task]:
        return self._by_name.get(name)

    def is_current(self, name: str, attempt: int) -> bool:
        """Whether this attempt of this task may speak: its container is the one that the session counts on."""
        task = self._by_name.get(name)
        return task is not None and task.attempt == attempt and task.launched and not task.container_ended

    # ---- the cluster -------------------------------------------------------------------------------------------

    def start(self, now: float) -> list[Action]:
        """Ask for the gang's containers."""
        self._started = now
        self._out += self.gang.start(now)
        self._note("requested", self.gang.describe(now))
        return self._taken()

    def allocated(self, key: int, container: Container, now: float) -> list[Action]:
        task = None if self.verdict else self.gang.granted(key, container, now)
        if task is None:
            self._out.append(Release((container.id,)))
            return self._taken()
        self._by_container[container.id] = task
        self._note("allocated", f"{container.id} on {container.node}", task)
        if self.phase is JobState.STARTING:
            self._launch(task, container, now)
        elif self.gang.complete:
            self.phase = JobState.STARTING
            self._note("gang_complete", f"all {words.count(len(self.tasks), 'container')} are there")
            for each in self.tasks:
                if each.container:
                    self._launch(each, each.container, now)
        return self._taken()

    def launch_failed(self, container_id: str, reason: str, now: float) -> list[Action]:
        task = self._by_container.pop(container_id, None)
        if task is None:
            return []
        self._out.append(Release((container_id,)))
        task.container_ended = True
        if not task.told_to_stop:
            self._lost_before_start(task, failures.of_launch(task, reason), now)
        self._check(now)
        return self._taken()

    def completed(self, container_id: str, exit_status: int, diagnostics: str, now: float) -> list[Action]:
        task = self._by_container.pop(container_id, None)
        if task is None:
            return []
        task.container_ended = True
        task.connected = False
        self._note("container_completed", f"exit status {exit_status}", task)
        if task.told_to_stop:
            if not task.ended:
                task.state = TaskState.STOPPED
        elif not task.launched:
            task.container, task.state = None, TaskState.REQUESTED
            self._out.append(self.gang.ask([task]))
        elif self._judge.is_doubtful(task):
            self._settle(task, exit_status, diagnostics)
        elif not task.ended:
            self._container_failed(task, exit_status, diagnostics, now)
        self._check(now)
        return self._taken()

    def stop_requested(self, reason: str, now: float) -> list[Action]:
        """Somebody wants the job to end now. Asked again, containers are taken away without grace."""
        if self.verdict:
            self._out += self._ending.hurry(now)
        else:
            failure = Failure(FailureKind.KILLED, reason)
            self._conclude(Verdict(FinalStatus.KILLED, reason, failure), now, reason)
        self._check(now)
        return self._taken()

    def fail(self, kind: FailureKind, message: str, now: float) -> list[Action]:
        """End the job for a reason that is no task's."""
        self._conclude_failed(Failure(kind, message), now)
        self._check(now)
        return self._taken()

    # ---- the executors -----------------------------------------------------------------------------------------

    def registered(
        self, name: str, attempt: int, host: str, ports: Mapping[str, int], generation: int, now: float
    ) -> list[Action]:
        """An executor's stream is up. ``generation`` is that of the user process that it runs already, 0 for none."""
        if not self.is_current(name, attempt):
            return []
        task = self._by_name[name]
        task.connected, task.heard_at = True, now
        if not task.ended:
            task.trouble_at = None
        if task.told_to_stop:
            self._out += self._ending.stop(task, now, self.job.timeouts.grace, "the job has ended")
        elif task.state is TaskState.STARTING:
            task.state, task.deadline = TaskState.REGISTERED, None
            task.host, task.ports = host, dict(ports)
            self._note("registered", f"on {host}, ports {dict(ports)}", task)
        elif task.state is TaskState.REGISTERED and self.phase is JobState.RUNNING and generation < self.generation:
            self._out.append(SendRendezvous(self._cluster(), (name,)))
        self._check(now)
        return self._taken()

    def disconnected(self, name: str, attempt: int, now: float) -> list[Action]:
        """An executor's stream is down; it may come back."""
        if self.is_current(name, attempt):
            task = self._by_name[name]
            task.connected = False
            if not task.ended and task.trouble_at is None:
                task.trouble_at = now
        return self._taken()

    def heartbeat(self, name: str, attempt: int, beat: Beat, now: float) -> list[Action]:
        if self.is_current(name, attempt):
            task = self._by_name[name]
            task.heard_at = now
            task.rss_bytes, task.cpu_percent, task.activity = beat.rss_bytes, beat.cpu_percent, beat.activity
            task.progress = beat.progress or task.progress
        return []

    def process_started(self, name: str, attempt: int, generation: int, now: float) -> list[Action]:
        task = self._by_name.get(name)
        if task and self.is_current(name, attempt) and generation == self.generation:
            task.heard_at = now
            if task.state is TaskState.REGISTERED:
                task.state = TaskState.RUNNING
                self._note("started", f"user process of generation {generation}", task)
        return self._taken()

    def process_ended(self, name: str, attempt: int, end: ProcessEnd, now: float) -> list[Action]:
        task = self._by_name.get(name)
        if not task or not self.is_current(name, attempt) or end.generation != self.generation or task.end:
            return []
        started = task.state is TaskState.RUNNING
        task.heard_at, task.end = now, end
        task.progress = end.progress or task.progress
        self._note("ended", words.process_end(end), task)
        if end.succeeded and task.role is not Role.PS:
            if not task.ended:
                task.state = TaskState.SUCCEEDED
        elif task.told_to_stop:
            if not task.ended:
                task.state = TaskState.STOPPED
        elif end.succeeded:
            self._failed(task, failures.of_early_end(task), now)
        else:
            # YARN kills all processes of a container at once: its word on why comes a little later.
            doubtful = not end.out_of_memory and (end.stopped or end.signal in _KILL_SIGNALS)
            self._failed(task, failures.of_process(task, end, started=started), now, doubtful=doubtful)
        self._check(now)
        return self._taken()

    # ---- the clock ---------------------------------------------------------------------------------------------

    def tick(self, now: float) -> list[Action]:
        """Look at every deadline. To be called about once a second."""
        if self.finished:
            return []
        self._forgive_own_sleep(now)
        if self.verdict is None:
            self._look_at_queue(now)
            self._look_at_starts(now)
            self._look_at_silence(now)
            self._look_at_lifetime(now)
        self._check(now)
        self._out += self._ending.tick(now)
        self._check(now)
        return self._taken()

    def _forgive_own_sleep(self, now: float) -> None:
        """Silence that was our own is nobody's fault: heartbeats may be waiting to be read."""
        asleep = 0.0 if self._ticked is None else now - self._ticked
        self._ticked = now
        if asleep > _ASLEEP:
            for task in self.tasks:
                if task.heard_at is not None:
                    task.heard_at = min(now, task.heard_at + asleep)

    def _look_at_queue(self, now: float) -> None:
        if self.phase is not JobState.WAITING:
            return
        missing = self.gang.timed_out(now)
        if missing:
            self._conclude_failed(Failure(FailureKind.QUEUE_TIMEOUT, missing), now)
            return
        before = self._held()
        self._out += self.gang.tick(now)
        for container_id in before - self._held():
            del self._by_container[container_id]

    def _held(self) -> set[str]:
        return {task.container.id for task in self.tasks if task.container and not task.container_ended}

    def _look_at_starts(self, now: float) -> None:
        late = [task for task in self.tasks if task.deadline is not None and now >= task.deadline and not task.ended]
        if not late:
            return
        for task in late:
            task.deadline = None
        requested = [task for task in late if task.state is TaskState.REQUESTED]
        if requested:
            limit = self.job.timeouts.allocation
            message = (
                f"{words.some(task.name for task in requested)} lost its container before the job had started, and "
                f"no new one was granted within {limit:g} s (timeouts.allocation)"
            )
            self._conclude_failed(Failure(FailureKind.CONTAINER_LOST, message, requested[0].name), now)
            return
        self._not_registered(late, now)

    def _not_registered(self, late: list[Task], now: float) -> None:
        limit = self.job.timeouts.registration
        for task in [task for task in late if task.role is Role.SIDECAR]:
            message = f"{task.name} on {task.node} did not register within {limit:g} s"
            self._failed(task, Failure(FailureKind.REGISTRATION_TIMEOUT, message, task.name), now)
        needed = [task for task in late if task.role is not Role.SIDECAR]
        if needed:
            names = words.some(f"{task.name} on {task.node}" for task in needed)
            message = (
                f"not registered within {limit:g} s (timeouts.registration): {names}. The node may be slow to copy "
                "files, or may not reach the application master; the container's log says more"
            )
            for task in needed:
                task.state = TaskState.FAILED
            self._conclude_failed(Failure(FailureKind.REGISTRATION_TIMEOUT, message, needed[0].name), now)

    def _look_at_silence(self, now: float) -> None:
        for task in self.tasks:
            if task.heard_at is None or task.ended or task.container_ended or task.told_to_stop:
                continue
            silence = now - task.heard_at
            if silence <= self._lost_after:
                continue
            failure = failures.of_silence(task, silence)
            if self.phase is JobState.STARTING:
                self._lost_before_start(task, failure, now)
            else:
                self._failed(task, failure, now)

    def _look_at_lifetime(self, now: float) -> None:
        limit = self.job.timeouts.lifetime
        if limit is not None and now - self._started >= limit:
            reason = f"the job's lifetime of {limit:g} s (timeouts.lifetime) is over"
            self._conclude(Verdict(FinalStatus.KILLED, reason, Failure(FailureKind.KILLED, reason)), now, reason)

    # ---- starting ----------------------------------------------------------------------------------------------

    def _launch(self, task: Task, container: Container, now: float) -> None:
        task.state, task.launched = TaskState.STARTING, True
        task.deadline = now + self.job.timeouts.registration
        self._out.append(LaunchTask(task.name, task.attempt, container))

    def _container_failed(self, task: Task, exit_status: int, diagnostics: str, now: float) -> None:
        failure = failures.of_container(task, exit_status, diagnostics)
        if self.phase is JobState.STARTING and exit_status in words.NODE_TROUBLE:
            self._lost_before_start(task, failure, now)
        else:
            self._failed(task, failure, now)

    def _lost_before_start(self, task: Task, failure: Failure, now: float) -> None:
        """Nothing has run yet, so another container costs little."""
        if self.phase is not JobState.STARTING or task.replaced >= MOST_REPLACEMENTS:
            self._failed(task, failure, now)
            return
        if task.container and not task.container_ended:
            self._by_container.pop(task.container.id, None)
            self._out.append(Release((task.container.id,)))
        task.back_to_request()
        task.deadline = now + self.job.timeouts.allocation
        self._note("replaced", f"asking for another container: {failure.message}", task)
        self._out.append(self.gang.ask([task]))

    def _cluster(self) -> ClusterSpec:
        return ClusterSpec(
            self.generation,
            tuple(
                TaskAddress(task.type, task.index, task.role, task.host, task.ports) for task in self.tasks if task.host
            ),
        )

    def _rendezvous(self) -> None:
        missing = [task for task in self.tasks if task.state is not TaskState.REGISTERED]
        if any(not (task.role is Role.SIDECAR and task.ended) for task in missing):
            return
        self.generation += 1
        self.phase = JobState.RUNNING
        self._note("rendezvous", f"generation {self.generation} with {words.count(len(self.tasks), 'task')}")
        names = tuple(task.name for task in self.tasks if task.state is TaskState.REGISTERED)
        self._out.append(SendRendezvous(self._cluster(), names))

    # ---- ending ------------------------------------------------------------------------------------------------

    def _failed(self, task: Task, failure: Failure, now: float, *, doubtful: bool = False) -> None:
        self._judge.failed(task, failure, now, doubtful=doubtful)
        self._note("failed", failure.message, task)
        if task.role is Role.SIDECAR:
            self.warnings.append(failure.message)

    def _settle(self, task: Task, exit_status: int, diagnostics: str) -> None:
        """The cluster's word on a task that was killed by a signal."""
        better = failures.of_container(task, exit_status, diagnostics) if exit_status < 0 else None
        self._judge.settled(task, better)
        if better:
            self._note("failed", better.message, task)

    def _check(self, now: float) -> None:
        """What follows from the state, whatever brought it about."""
        if self.verdict is None:
            cause = self._judge.cause(now)
            if cause:
                self._conclude_failed(cause, now)
            elif self.phase is JobState.STARTING:
                self._rendezvous()
            elif self.generation and not self._judge.pending:
                self._look_at_success(now)
        if self.verdict and not self.finished and self._ending.done:
            self._finish(self.verdict)

    def _look_at_success(self, now: float) -> None:
        if not all(task.state is TaskState.SUCCEEDED for task in self.tasks if task.decisive):
            return
        if self._evaluators_until is None:
            self.phase = JobState.FINISHING
            self._evaluators_until = now + self.job.timeouts.evaluator
            self._note("stopping", "every task that decides has succeeded; stopping the others")
            for task in self.tasks:
                if task.role is not Role.EVALUATOR or task.ended:
                    self._stop(task, now, "the job has succeeded")
        running = [task for task in self.tasks if task.role is Role.EVALUATOR and not task.ended]
        if not running or now >= self._evaluators_until:
            self._conclude(Verdict(FinalStatus.SUCCEEDED, "the job has succeeded"), now, "the job has succeeded")

    def _conclude_failed(self, failure: Failure, now: float) -> None:
        self._conclude(Verdict(FinalStatus.FAILED, failure.message, failure), now, "another task has failed")

    def _conclude(self, verdict: Verdict, now: float, reason: str) -> None:
        if self.verdict:
            return
        self.verdict = verdict
        self.phase = JobState.FINISHING
        self._note("verdict", f"{verdict.status.value}: {verdict.message}")
        self._out += self.gang.cancel()
        for task in self.tasks:
            self._stop(task, now, reason)

    def _stop(self, task: Task, now: float, reason: str) -> None:
        if not task.told_to_stop:
            self._out += self._ending.stop(task, now, self.job.timeouts.grace, reason)

    def _finish(self, verdict: Verdict) -> None:
        self.phase = JobState(verdict.status.value)
        for task in self.tasks:
            if not task.ended:
                task.state = TaskState.STOPPED
        self._out.append(Finish(verdict))

    # ---- outputs -----------------------------------------------------------------------------------------------

    def _note(self, event: str, message: str, task: Optional[Task] = None) -> None:
        self._out.append(Note(event, message, task.name if task else None))

    def _taken(self) -> list[Action]:
        out, self._out = self._out, []
        return out
