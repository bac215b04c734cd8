"""The containers of the tasks: requests, launches, replacements, shutdowns, and nodes to avoid."""

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
from tony_provider.runtime.protocol.limits import KEEP_LOGS, RELEASE_WAIT
from tony_provider.runtime.protocol.status import JobState, TaskState


class Containers:
    """Requests containers for all tasks, launches executors in them, and replaces or releases them.

    ``jitter`` returns random numbers from 0 to 1. Times are on the session's clock, in seconds.
    """

    def __init__(self, state: SessionState, jitter: Callable[[], float], avoided: Sequence[str] = ()) -> None:
        """``avoided``: nodes to avoid from the start."""
        self._state = state
        self.sizes = ContainerSizes(state.job)
        self.nodes = NodeBlocklist(state.job.restart.node_losses, avoided)
        self.gang = Gang(state.job, state.tasks, self.sizes, jitter)
        self.shutdowns = ContainerShutdowns(state)
        self.by_id: dict[str, Task] = {}  # the tasks that have containers, by container ID

    def task_in(self, container_id: str) -> Optional[Task]:
        """Return the task that has this container now, or None."""
        return self.by_id.get(container_id)

    # ---- requests and launches ---------------------------------------------------------------------------------

    def ask_for(self, tasks: Sequence[Task], now: float) -> None:
        """Make these tasks the gang, request its missing containers, and wait until all of them are granted."""
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
        self.by_id[container.id] = task
        data = {"tasks": {task.name: {"attempt": task.attempt}}} if task.attempt > 1 else {}
        state.note("allocated", f"{container.id} on {container.node}", task, data)
        # Launch at once, so that the executor fetches the job's files while the gang waits for other containers.
        self._launch(task, container, now)
        if state.phase is JobState.WAITING and self.gang.brings(task):
            self._check_gang()

    def not_placed(self, key: int, reason: str) -> None:
        """Log that the cluster cannot place a container yet, and that the request is repeated."""
        if task := self.gang.asked(key):
            self._state.note("not_placed", f"{reason}; requesting again: {self.gang.describe_requests([task])}", task)

    def adopt(self, task: Task, container: Container, attempt: int) -> None:
        """Take over a container that a former application master launched."""
        task.attempt, task.preempted, task.failure = attempt, False, None
        task.container_adopted(container)
        self.nodes.saw(container.node)
        self.by_id[container.id] = task

    def _check_gang(self) -> None:
        """Let the job start once it has enough containers."""
        if self._state.first_come:
            self._state.enter(JobState.STARTING)
            self._state.note(
                "first_container", "the first container was granted; each task starts in its own container"
            )
        elif self.gang.complete:
            self._state.enter(JobState.STARTING)
            many = len(self.gang.wanted)
            what = f"all {many} containers were" if many > 1 else "the container was"
            self._state.note("gang_complete", f"{what} granted")

    def _launch(self, task: Task, container: Container, now: float) -> None:
        task.container_launched(container)
        task.deadline = now + self._state.job.timeouts.registration
        self._state.emit(LaunchTask(task.name, task.attempt, container))

    # ---- losses and replacements -------------------------------------------------------------------------------

    def ended(self, container_id: str) -> Optional[Task]:
        """Record the end of a container. Return the task that used it, or None."""
        self.shutdowns.ended(container_id)
        task = self.by_id.pop(container_id, None)
        if task is None:
            return None
        if task.connected and not task.ending:
            self._state.emit(Disconnect(task.name))  # the cluster may only have lost contact
        task.container_gone()
        task.connected = False
        return task

    def take(self, task: Task, now: float) -> None:
        """Release a task's container and reject further messages of its executor."""
        if task.has_container:
            self._state.emit(Disconnect(task.name))
            self.release(task, now)

    def release(self, task: Task, now: float) -> None:
        """Release a task's container at once, because its executor cannot report any more."""
        if task.container and not task.container_ended:
            self._let_go(task)
            self.shutdowns.take(task.container.id, now)

    def dismiss(self, task: Task, now: float, reason: str) -> None:
        """Shut down a task's container gracefully: its executor stores the log and ends."""
        if task.container and not task.container_ended:
            self.shutdowns.ask(task, now, reason, self._state.job.timeouts.grace)
            self._let_go(task)

    def _let_go(self, task: Task) -> None:
        if task.container:
            self.by_id.pop(task.container.id, None)
        task.container_gone()
        task.connected = False

    def replace(self, task: Task, now: float, reason: str, *, counted: bool = True) -> None:
        """Request another container for a task whose former container has ended or was released."""
        data = {"tasks": {task.name: known}} if (known := reopened_record(task)) else {}
        task.back_to_request()
        task.replaced += int(counted)
        if not self.gathers(task):
            task.deadline = now + self._state.job.timeouts.replacement
        self._state.note("replaced", f"requesting another container: {first_line(reason)}", task, data)
        self._state.emit(self.gang.ask([task]))

    def gathers(self, task: Task) -> bool:
        """Return whether the task's gang waits for containers. That wait has its own timeout."""
        return self._state.phase is JobState.WAITING and self.gang.brings(task)

    def blame(self, node: str, *, lacks: str = "") -> None:
        """Count a container that was lost because of its node, and avoid nodes with several such losses.

        ``lacks`` describes what the node lacks. If it is not empty, the node is avoided at once.
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
        job, self._state.nodes_in_cluster = self._state.job, nodes
        if not any((job.node_label, *(spec.node_label for spec in job.tasks.values()))):
            self.nodes.counted(nodes)
        self._avoid(self.nodes.choose_suspects())

    def _avoid(self, avoid: Optional[AvoidNodes]) -> None:
        if avoid:
            avoided = some(avoid.nodes) if avoid.nodes else "none"
            self._state.note("avoiding", f"nodes that new containers avoid: {avoided}")
            self._state.emit(avoid)

    # ---- waiting for the whole gang ----------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Release containers and repeat requests that are due."""
        if self._state.phase is JobState.WAITING:
            if self.gang.may_ask_again(now):
                wanted = self.gang.wanted
                self._state.note("asking_again", f"requesting again: {self.gang.describe_requests(wanted)}")
                self._state.emit(self.gang.ask(wanted))
            elif self.gang.must_give_back(now):
                held = sum(1 for task in self.gang.wanted if task.has_container)
                total = count(len(self.gang.wanted), "container")
                limit = self._state.job.timeouts.allocation
                self.give_all_back(now, f"{held} of {total} were granted within {limit:g} s")
            elif self.gang.starves(now):
                self._state.emit(self.nodes.lift())  # all remaining nodes may be on the list of nodes to avoid
        elif self._replacements_are_late(now):
            self._state.emit(self.nodes.lift())
        self.shutdowns.tick(now)

    def give_all_back(self, now: float, why: str) -> None:
        """Release all containers, because a partial gang only blocks resources."""
        state = self._state
        if state.phase is not JobState.WAITING:
            stage = self._gang_and_later if state.phase is JobState.RESTARTING else self.gang.wanted
            state.enter(JobState.WAITING)
            self.gang.begin(stage, now)
        wait = self.gang.pause(now)
        state.emit(*self.gang.cancel(), self.nodes.lift())
        for task in self.gang.wanted:
            self._give_back(task, now, why)
        state.note("given_back", f"{why}; releasing all containers, requesting them again in {span(wait)}")

    def suspend(self, tasks: Sequence[Task], now: float, why: str) -> None:
        """Release the containers of these tasks. Request none until the job is resumed."""
        self._state.enter(JobState.SUSPENDED)
        self._state.emit(*self.gang.cancel_all())
        for task in tasks:
            self._give_back(task, now, why)

    def join(self, tasks: Sequence[Task]) -> None:
        """Request containers for these tasks, which a resize has added to the job."""
        self._state.emit(self.gang.join(tasks))

    def part(self, tasks: Sequence[Task], now: float, why: str) -> None:
        """Release the containers of these tasks, which a resize has removed."""
        self._state.emit(*self.gang.part(tasks))
        for task in tasks:
            self._give_back(task, now, why)
            task.failure = None
        if self._state.phase is JobState.WAITING:
            self._check_gang()

    @property
    def _gang_and_later(self) -> list[Task]:
        """All tasks except tasks of earlier stages, whose milestones are reached because the gang has started."""
        earlier = self._state.before_the_gang
        return [task for task in self._state.tasks if task.type not in earlier]

    def _give_back(self, task: Task, now: float, why: str) -> None:
        self.dismiss(task, now, why)
        if task.launched:
            task.back_to_request()
        task.deadline, task.replaced, task.left_out = None, 0, False

    def _replacements_are_late(self, now: float) -> bool:
        """Return whether half of a replacement timeout is over, perhaps because all remaining nodes are avoided."""
        soon = now + self._state.job.timeouts.replacement / 2
        return any(
            task.state is TaskState.REQUESTED and task.deadline is not None and task.deadline <= soon
            for task in self._state.tasks
        )


@attrs.define
class _Departure:
    deadline: float  # time to release the container, or to give it up if it is already released
    released: bool = False
    left: bool = False  # its executor has sent its last message
    given_up: bool = False  # the session no longer waits for the container's end


class ContainerShutdowns:
    """The containers that are ending, with a deadline for each.

    Times are on the session's clock, in seconds.
    """

    def __init__(self, state: SessionState) -> None:
        self._state = state
        self._leaving: dict[str, _Departure] = {}

    @property
    def done(self) -> bool:
        """Whether the session waits for no more containers."""
        return all(departure.left or departure.given_up for departure in self._leaving.values())

    def ask(self, task: Task, now: float, reason: str, grace: float) -> None:
        """Shut down a task's executor, which first stores its logs. A later call can only shorten the deadline."""
        if task.container is None or task.container_ended:
            return
        if not task.connected:
            self.take(task.container.id, now)
            return
        departure = self._leaving.setdefault(task.container.id, _Departure(float("inf")))
        departure.deadline = min(departure.deadline, now + self._timeout(task, grace))
        self._state.emit(ShutdownTask(task.name, grace, reason))

    def take(self, container_id: str, now: float) -> None:
        """Release the container, whatever runs in it."""
        departure = self._leaving.setdefault(container_id, _Departure(now))
        if not departure.released:
            departure.released, departure.deadline = True, now + RELEASE_WAIT
            self._state.emit(ReleaseContainers((container_id,)))

    def wait_for(self, container_id: str, now: float, seconds: float = 0.0) -> None:
        """Wait for a container whose executor has received, or will receive, an order to end.

        ``seconds`` is the time that the executor needs before it stores its logs.
        """
        self._leaving.setdefault(container_id, _Departure(now + seconds + KEEP_LOGS))

    def left(self, container_id: str) -> None:
        """Record the last message of the executor in this container."""
        if departure := self._leaving.get(container_id):
            departure.left = True

    def ended(self, container_id: str) -> bool:
        """Record the end of a container. Return False if it is not a container that is ending."""
        return self._leaving.pop(container_id, None) is not None

    def hurry(self, now: float) -> None:
        """Release all containers that have not ended."""
        for container_id in list(self._leaving):
            self.take(container_id, now)

    def tick(self, now: float) -> None:
        """Release containers after their deadline. Stop waiting for containers that were already released."""
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
    """Counts lost containers by node, and chooses the nodes to avoid."""

    def __init__(self, most_losses: int, suspects: Sequence[str] = ()) -> None:
        """``most_losses`` is the number of losses after which a node is avoided, or 0 to avoid none.

        ``suspects`` are nodes to avoid from the start, the worst first.
        """
        self._most_losses = most_losses
        self._suspects = suspects if most_losses else ()
        self._has_chosen = False
        self._seen: set[str] = set()
        self._in_cluster = 0  # number of nodes, as far as the cluster reports it
        self._avoided: tuple[str, ...] = ()
        self.losses: Counter[str] = Counter()

    def saw(self, node: str) -> None:
        """Record that the cluster has allocated a container on this node."""
        self._seen.add(node)

    def restore(self, losses: Mapping[str, int]) -> None:
        """Restore the counts of a former application master."""
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
        """Avoid no node until the next loss, because no other nodes are available."""
        return self._avoid(())

    def choose_suspects(self) -> Optional[AvoidNodes]:
        """Choose nodes for the first time, once the number of nodes is known. Return the nodes to avoid, if any."""
        return None if self._has_chosen else self.choose()

    def choose(self) -> Optional[AvoidNodes]:
        """Choose nodes by all known losses. Return the nodes to avoid if they have changed."""
        self._has_chosen = True
        lost = [node for node, losses in self.losses.most_common() if 0 < self._most_losses <= losses]
        bad = list(dict.fromkeys((*lost, *self._suspects)))
        most = max(len(self._seen), self._in_cluster) // 2  # at most half, so that a small cluster keeps usable nodes
        return self._avoid(tuple(sorted(bad[:most])))

    def _avoid(self, nodes: tuple[str, ...]) -> Optional[AvoidNodes]:
        if nodes == self._avoided:
            return None
        self._avoided = nodes
        return AvoidNodes(nodes)
