"""The tasks' containers: asked for, launched, replaced, given back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Optional

import attrs

from tony_provider.runtime.am.resource_manager import Container
from tony_provider.runtime.am.session.actions import AvoidNodes, Disconnect, LaunchTask, ReleaseContainers, ShutdownTask
from tony_provider.runtime.am.session.gang import ContainerSizes, Gang
from tony_provider.runtime.am.session.session_state import SessionState, Task, reopened_record
from tony_provider.runtime.common.quantities import count, some, span
from tony_provider.runtime.common.text import first_line
from tony_provider.runtime.protocol.status import JobState, TaskState
from tony_provider.runtime.protocol.timing import KEEP_LOGS, RELEASE_WAIT


class Containers:
    """The containers of all tasks: asks for them, launches executors in them, replaces them, gives them back.

    ``jitter`` gives random numbers from 0 to 1. Times are the session's, in seconds.
    """

    def __init__(self, state: SessionState, jitter: Callable[[], float]) -> None:
        self._state = state
        self.sizes = ContainerSizes(state.job)
        self.nodes = NodeBlocklist(state.job.restart.node_losses)
        self.gang = Gang(state.job, state.tasks, self.sizes, jitter)
        self.shutdowns = ContainerShutdowns(state)
        self._by_id: dict[str, Task] = {}

    def task_in(self, container_id: str) -> Optional[Task]:
        """The task that has this container now; None: no task has."""
        return self._by_id.get(container_id)

    # ---- getting them ------------------------------------------------------------------------------------------

    def ask_for(self, tasks: Sequence[Task], now: float) -> None:
        """Ask for containers for these tasks, all but those that have theirs, and wait for all of them."""
        self._state.enter(JobState.WAITING)
        self.gang.begin(tasks, now)
        self._state.emit(self.gang.ask(task for task in self.gang.wanted if not task.has_container))
        self._state.note("requested", self.gang.describe(now))

    def granted(self, key: int, container: Container, now: float) -> None:
        state = self._state
        self.nodes.saw(container.node)
        task = None if state.verdict else self.gang.granted(key, now)
        if task is None:
            state.emit(ReleaseContainers((container.id,)))
            return
        self._by_id[container.id] = task
        data = {"tasks": {task.name: {"attempt": task.attempt}}} if task.attempt > 1 else {}
        state.note("allocated", f"{container.id} on {container.node}", task, data)
        # Before the others are there: its executor starts, and fetches the job's files, while they are waited for.
        self._launch(task, container, now)
        if state.phase is JobState.WAITING and self.gang.brings(task):
            self._look_at_gang()

    def not_placed(self, key: int, reason: str) -> None:
        """Tell that a container is asked for again, since there is no place for it yet."""
        if task := self.gang.asked(key):
            self._state.note("not_placed", f"{reason}; asking again: {self.gang.describe_requests([task])}", task)

    def adopt(self, task: Task, container: Container, attempt: int) -> None:
        """Take over a container that a former application master launched."""
        task.attempt, task.yields, task.failure = attempt, False, None
        task.container_adopted(container)
        self.nodes.saw(container.node)
        self._by_id[container.id] = task

    def _look_at_gang(self) -> None:
        """The job starts once there are enough containers."""
        if self._state.first_come:
            self._state.enter(JobState.STARTING)
            self._state.note("first_container", "the first container is there; each task begins when its own is")
        elif self.gang.complete:
            self._state.enter(JobState.STARTING)
            many = len(self.gang.wanted)
            what = f"all {many} containers are" if many > 1 else "the container is"
            self._state.note("gang_complete", f"{what} there")

    def _launch(self, task: Task, container: Container, now: float) -> None:
        task.container_launched(container)
        task.deadline = now + self._state.job.timeouts.registration
        self._state.emit(LaunchTask(task.name, task.attempt, container))

    # ---- losing them -------------------------------------------------------------------------------------------

    def ended(self, container_id: str) -> Optional[Task]:
        """Record that the cluster says a container has ended; returns the task that counted on it, if there is one."""
        self.shutdowns.ended(container_id)
        task = self._by_id.pop(container_id, None)
        if task is None:
            return None
        if task.connected and not task.told_to_stop:
            self._state.emit(Disconnect(task.name))  # lost is not dead: its node may only be out of the cluster's reach
        task.container_gone()
        task.connected = False
        return task

    def take(self, task: Task, now: float) -> None:
        """Give a task's container up: nothing of it is to be heard again, and YARN ends it."""
        if task.has_container:
            self._state.emit(Disconnect(task.name))
            self.release(task, now)

    def release(self, task: Task, now: float) -> None:
        """Give a task's container up at once: its executor cannot speak any more."""
        if task.container and not task.container_ended:
            self._let_go(task)
            self.shutdowns.take(task.container.id, now)

    def dismiss(self, task: Task, now: float, reason: str) -> None:
        """Give a task's container up in good order: its executor ends, and keeps the log."""
        if task.container and not task.container_ended:
            self.shutdowns.ask(task, now, reason, self._state.job.timeouts.grace)
            self._let_go(task)

    def _let_go(self, task: Task) -> None:
        if task.container:
            self._by_id.pop(task.container.id, None)
        task.container_gone()
        task.connected = False

    def replace(self, task: Task, now: float, reason: str, *, counted: bool = True) -> None:
        """Ask for another container for a task, whose former one has ended or was given up."""
        data = {"tasks": {task.name: known}} if (known := reopened_record(task)) else {}
        task.back_to_request()
        task.replaced += int(counted)
        if not self.gathers(task):
            task.deadline = now + self._state.job.timeouts.replacement
        self._state.note("replaced", f"asking for another container: {first_line(reason)}", task, data)
        self._state.emit(self.gang.ask([task]))

    def gathers(self, task: Task) -> bool:
        """Whether the gang that it is of waits for its containers: there is a time of its own for that."""
        return self._state.phase is JobState.WAITING and self.gang.brings(task)

    def blame(self, node: str, *, lacks: str = "") -> None:
        """Count a container as lost by its node's fault. A node that loses several is avoided.

        ``lacks``: what the node lacks, for which it is avoided at once.
        """
        avoid = self.nodes.lost(node, unfit=bool(lacks))
        losses = self.nodes.losses[node]
        data = {"nodes": {node: losses}}
        self._state.note("node_loss", lacks or f"{count(losses, 'container')} lost on {node}", data=data)
        self._avoid(avoid)

    def nodes_counted(self, nodes: int) -> None:
        """Record the number of nodes in the cluster, of which at most half are avoided.

        If the job names a node label, only nodes that have run its containers count.
        """
        job = self._state.job
        if not any((job.node_label, *(spec.node_label for spec in job.tasks.values()))):
            self.nodes.counted(nodes)

    def _avoid(self, avoid: Optional[AvoidNodes]) -> None:
        if avoid:
            avoided = some(avoid.nodes) if avoid.nodes else "no node"
            self._state.note("avoiding", f"containers are asked for elsewhere than on {avoided}")
            self._state.emit(avoid)

    # ---- waiting for the whole gang ----------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Give back and ask again what it is time for."""
        if self._state.phase is JobState.WAITING:
            if self.gang.may_ask_again(now):
                wanted = self.gang.wanted
                self._state.note("asking_again", f"asking again for {self.gang.describe_requests(wanted)}")
                self._state.emit(self.gang.ask(wanted))
            elif self.gang.must_give_back(now):
                held = sum(1 for task in self.gang.wanted if task.has_container)
                total = count(len(self.gang.wanted), "container")
                limit = self._state.job.timeouts.allocation
                self.give_all_back(now, f"{held} of {total} were granted within {limit:g} s")
            elif self.gang.starves(now):
                self._state.emit(self.nodes.lift())  # perhaps there are no nodes but those that are avoided
        elif self._replacements_are_late(now):
            self._state.emit(self.nodes.lift())
        self.shutdowns.tick(now)

    def give_all_back(self, now: float, why: str) -> None:
        """Give all containers back: nobody is served by a gang that holds a part of what it needs."""
        state = self._state
        if state.phase is not JobState.WAITING:
            stage = self._gang_and_later if state.phase is JobState.RESTARTING else self.gang.wanted
            state.enter(JobState.WAITING)
            self.gang.begin(stage, now)
        wait = self.gang.pause(now)
        state.emit(*self.gang.cancel(), self.nodes.lift())
        for task in self.gang.wanted:
            self._give_back(task, now, why)
        state.note("given_back", f"{why}; giving them back, asking again in {span(wait)}")

    def suspend(self, tasks: Sequence[Task], now: float, why: str) -> None:
        """Give the containers of these tasks back, and ask for none until somebody says so."""
        self._state.enter(JobState.SUSPENDED)
        self._state.emit(*self.gang.cancel_all())
        for task in tasks:
            self._give_back(task, now, why)

    def join(self, tasks: Sequence[Task], now: float) -> None:
        """Ask for containers for these tasks as well, which the job has got."""
        self._state.emit(self.gang.join(tasks))

    def part(self, tasks: Sequence[Task], now: float, why: str) -> None:
        """Give the containers of these tasks back, which the job does without."""
        self._state.emit(*self.gang.part(tasks))
        for task in tasks:
            self._give_back(task, now, why)
            task.failure = None
        if self._state.phase is JobState.WAITING:
            self._look_at_gang()

    @property
    def _gang_and_later(self) -> list[Task]:
        """All tasks but those that others wait for before they begin together: these would come too late."""
        earlier = self._state.before_the_gang
        return [task for task in self._state.tasks if task.type not in earlier]

    def _give_back(self, task: Task, now: float, why: str) -> None:
        self.dismiss(task, now, why)
        if task.launched:
            task.back_to_request()
        task.deadline, task.replaced, task.absent = None, 0, False

    def _replacements_are_late(self, now: float) -> bool:
        """Half of the time for one is over: perhaps there are no nodes but those that are avoided."""
        soon = now + self._state.job.timeouts.replacement / 2
        return any(
            task.state is TaskState.REQUESTED and task.deadline is not None and task.deadline <= soon
            for task in self._state.tasks
        )


@attrs.define
class _Departure:
    deadline: float
    released: bool = False
    left: bool = False  # its executor has taken leave
    given_up: bool = False  # nobody waits for it any more


class ContainerShutdowns:
    """The containers that are to end, and by when each is to have done so.

    Times are the session's, in seconds.
    """

    def __init__(self, state: SessionState) -> None:
        self._state = state
        self._leaving: dict[str, _Departure] = {}

    @property
    def done(self) -> bool:
        """Whether no container is left that somebody could still wait for."""
        return all(departure.left or departure.given_up for departure in self._leaving.values())

    def ask(self, task: Task, now: float, reason: str, grace: float) -> None:
        """Have a task's executor end, its logs kept. Again with a shorter grace, it hurries."""
        if task.container is None or task.container_ended:
            return
        if not task.connected:
            self.take(task.container.id, now)
            return
        departure = self._leaving.setdefault(task.container.id, _Departure(float("inf")))
        departure.deadline = min(departure.deadline, now + self._timeout(task, grace))
        self._state.emit(ShutdownTask(task.name, grace, reason))

    def take(self, container_id: str, now: float) -> None:
        """Give the container back, whatever runs in it."""
        departure = self._leaving.setdefault(container_id, _Departure(now))
        if not departure.released:
            departure.released, departure.deadline = True, now + RELEASE_WAIT
            self._state.emit(ReleaseContainers((container_id,)))

    def wait_for(self, container_id: str, now: float, seconds: float = 0.0) -> None:
        """Wait for a container whose executor was told to end before, or is told so when it asks.

        ``seconds``: that it has before its logs are kept.
        """
        self._leaving.setdefault(container_id, _Departure(now + seconds + KEEP_LOGS))

    def left(self, container_id: str) -> None:
        """Record that the executor in it has taken leave."""
        if departure := self._leaving.get(container_id):
            departure.left = True

    def ended(self, container_id: str) -> bool:
        """Record that the cluster says a container has ended. False when it was not one of these."""
        return self._leaving.pop(container_id, None) is not None

    def hurry(self, now: float) -> None:
        """Take away every one that is still there."""
        for container_id in list(self._leaving):
            self.take(container_id, now)

    def tick(self, now: float) -> None:
        """Take away, or give up, those whose time is over."""
        for container_id, departure in list(self._leaving.items()):
            if now < departure.deadline:
                continue
            if departure.released:
                departure.given_up = True  # the cluster stops it when the application ends, at the latest
            else:
                self.take(container_id, now)

    def _timeout(self, task: Task, grace: float) -> float:
        if task.process is None or not task.busy:
            return KEEP_LOGS
        return (grace if task.process.runs else 0.0) + self._state.last_copies + KEEP_LOGS


class NodeBlocklist:
    """Counts lost containers by node, and says which nodes to avoid."""

    def __init__(self, most_losses: int) -> None:
        """``most_losses`` on one node until it is avoided; 0: never."""
        self._most_losses = most_losses
        self._seen: set[str] = set()
        self._in_cluster = 0  # number of nodes, as far as the cluster reports it
        self._avoided: tuple[str, ...] = ()
        self.losses: Counter[str] = Counter()

    def saw(self, node: str) -> None:
        """Record that the cluster gave a container on this node."""
        self._seen.add(node)

    def restore(self, losses: Mapping[str, int]) -> None:
        """Take over what a former application master knew."""
        self.losses.update(losses)
        self._seen.update(losses)

    def counted(self, nodes: int) -> None:
        """Record the number of nodes that can run the job, for the next choice."""
        self._in_cluster = nodes

    def lost(self, node: str, *, unfit: bool = False) -> Optional[AvoidNodes]:
        """Count a container that was lost on this node. Return the nodes to avoid if they have changed.

        ``unfit``: the node lacks something, so it is avoided from the first loss on.
        """
        self.saw(node)
        self.losses[node] = max(self.losses[node] + 1, self._most_losses if unfit else 0)
        return self.choose()

    def lift(self) -> Optional[AvoidNodes]:
        """Avoid no node until the next loss: nothing else is to be had."""
        return self._avoid(())

    def choose(self) -> Optional[AvoidNodes]:
        """Choose by all that is known. Return the nodes to avoid if they have changed."""
        bad = [node for node, losses in self.losses.most_common() if 0 < self._most_losses <= losses]
        most = max(len(self._seen), self._in_cluster) // 2  # never all: a small cluster would be locked out
        return self._avoid(tuple(sorted(bad[:most])))

    def _avoid(self, nodes: tuple[str, ...]) -> Optional[AvoidNodes]:
        if nodes == self._avoided:
            return None
        self._avoided = nodes
        return AvoidNodes(nodes)
