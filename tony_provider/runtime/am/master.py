"""The application master: reports events to the session and executes the session's actions, in one asyncio loop.

The module also builds the launch contexts of executors: command, environment, files, credentials.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
from collections.abc import Sequence
from functools import partial
from typing import Any, Callable, Optional, Union, cast

import attrs

from tony_provider.runtime.am import executor_messages
from tony_provider.runtime.am.checkpoint_chain import FencedError, OwnChain, SupersededError
from tony_provider.runtime.am.checkpoint_commits import CheckpointCommits
from tony_provider.runtime.am.gateway import ExecutorGateway, Step
from tony_provider.runtime.am.input_shards import InputAssigner, OpenedInput
from tony_provider.runtime.am.output_publisher import OutputPublisher, TaskParts
from tony_provider.runtime.am.records import ApplicationRecords
from tony_provider.runtime.am.resource_manager import (
    AttemptOver,
    Background,
    ConnectionLost,
    ConnectionRestored,
    Container,
    Event,
    Launch,
    Registered,
    ResourceManager,
    ResourceManagerError,
)
from tony_provider.runtime.am.session import actions, job_status, session_events
from tony_provider.runtime.am.session.actions import Action, Note, Verdict
from tony_provider.runtime.am.session.gang import requests_too_large
from tony_provider.runtime.am.session.session import Session
from tony_provider.runtime.am.session.session_events import (
    CheckpointOrder,
    EventsWritten,
    FromTask,
    JobFailed,
    OutputsPublished,
    Recovered,
    Started,
    StopOrder,
    Tick,
)
from tony_provider.runtime.am.session.session_state import Heartbeat, ProcessEnd
from tony_provider.runtime.am.token_replacement import StoreAccess
from tony_provider.runtime.application import ApplicationDescription
from tony_provider.runtime.checkpoint.stored_checkpoint import Stop
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.clock import epoch_ms, moment
from tony_provider.runtime.common.concurrency import loop_time, retry
from tony_provider.runtime.common.network import Address
from tony_provider.runtime.common.quantities import count, size
from tony_provider.runtime.frameworks.base import get_framework
from tony_provider.runtime.hadoop.tokens import AM_RM_TOKEN, NM_TOKEN, REGISTRY_TOKEN, Credentials
from tony_provider.runtime.jobspec.container_content import image_of, is_docker_image
from tony_provider.runtime.launch.launch_context import container_files, launch_command, launch_environment
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.protocol.limits import without_foreign_places
from tony_provider.runtime.protocol.metrics import MetricValues
from tony_provider.runtime.protocol.status import FailureKind, JobState, JobStatus
from tony_provider.runtime.protocol.store_tokens import StoreToken
from tony_provider.runtime.protocol.task_identity import TaskIdentity, make_token
from tony_provider.runtime.storage import StorageError

log = logging.getLogger(__name__)


# Secrets that every executor receives. Executors also receive user secrets and tokens of other services, selected by
# prefix. All remaining secrets stay with the application master.
_HANDED_ON = frozenset(
    {
        contract.SECRET_DESCRIPTION,
        contract.SECRET_CA,
        contract.SECRET_CLIENT_CERTIFICATE,
        contract.SECRET_CLIENT_KEY,
        contract.SECRET_ADDRESS_KEY,
        contract.SECRET_JOB_KEY,
        contract.SECRET_STORE_TOKEN,
    }
)
_KEPT_TOKENS = frozenset({AM_RM_TOKEN, NM_TOKEN})


@attrs.frozen
class ExecutorLaunches:
    """Builds the launch contexts of executors."""

    description: ApplicationDescription
    credentials: Credentials = attrs.field(repr=False)  # credentials of the application master
    task_key: bytes = attrs.field(repr=False)
    address: Address  # of the gRPC server

    def launch(self, task: str, attempt: int, container: Container) -> Launch:
        """Return the launch of an executor in this container. The credentials include a token for the task."""
        description = self.description
        identity = TaskIdentity(description.application_id, container.id, task, attempt)
        resources = description.resources_of(identity.task_type)
        return Launch(
            command=launch_command("executor", description.runtime, description.runtime_pythons, resources),
            env=self._environment(identity),
            files=container_files(description.runtime, resources),
            credentials=self._credentials(identity),
        )

    def _environment(self, identity: TaskIdentity) -> dict[str, str]:
        return {
            **launch_environment(self.description, identity.task_type),
            contract.ENV_AM_ADDRESS: str(self.address),
            contract.ENV_TASK: identity.task,
            contract.ENV_TASK_ATTEMPT: str(identity.attempt),
        }

    def _credentials(self, identity: TaskIdentity) -> bytes:
        mine = self.credentials
        withheld = set(map(contract.user_secret, self.description.job.secrets_withheld(identity.task_type)))
        secrets = {
            name: value
            for name, value in mine.secrets.items()
            if name in _HANDED_ON
            or name.startswith(contract.SECRET_OTHER_TOKEN_PREFIX)
            or (name.startswith(contract.SECRET_USER_PREFIX) and name not in withheld)
        }
        secrets[contract.SECRET_TASK_TOKEN] = make_token(self.task_key, identity).encode()
        in_docker = is_docker_image(image_of(self.description.job, identity.task_type))
        withheld_tokens = _KEPT_TOKENS if in_docker else _KEPT_TOKENS | {REGISTRY_TOKEN}
        tokens = {alias: token for alias, token in mine.tokens.items() if token.kind not in withheld_tokens}
        return Credentials(tokens, secrets).to_bytes()


TICK = 0.25  # seconds between two ticks; also delays the restart of a user process that has died
_IDLE_TICK = 1.0  # seconds between two ticks while nothing happens
_BUSY_SECONDS = 10.0  # seconds after an action in which ticks follow at intervals of TICK
_OWNERSHIP_SECONDS = 10.0  # seconds between two checks for another owner and for a stop order
_CUT_OFF_SECONDS = 5.0  # seconds between these checks while the cluster is unreachable: it may start another master
_FOREVER = float("inf")
_LAUNCHES_AT_ONCE = 32
_SLICE = 0.02  # seconds for which consecutive steps may hold the event loop
_MOST_LOOKS = 10_000.0  # limit of tasks checked per second; with thousands of tasks, ticks become less frequent


class DismissedError(Exception):
    """The cluster has ended this application attempt, so the master must not change the job's state any more."""


@attrs.frozen
class JobData:
    """The opened inputs and outputs of a job."""

    inputs: Sequence[OpenedInput]
    outputs: OutputPublisher


class Master:
    """Runs one session of a job.

    Each event becomes a step. ``run`` executes the steps one at a time.
    """

    def __init__(
        self,
        resource_manager: ResourceManager,
        launches: ExecutorLaunches,
        records: ApplicationRecords,
        chain: OwnChain,
        access: StoreAccess,
        data: JobData,
    ) -> None:
        """Create the master, within a running event loop."""
        ownership = chain.ownership
        self.description = description = ownership.description
        self._rm = resource_manager
        self._launches = launches
        self._records = records
        self._ownership = ownership
        self._access = access
        access.listeners.append(self._has_newer_token)
        started = records.previous.history.started if records.previous else None
        self._started_ms = epoch_ms() if started is None else int(started * 1000)
        job = description.job
        self.session = Session(
            job,
            get_framework(job.framework),
            jitter=random.random,
            epoch=epoch_ms() / 1000 - loop_time(),
            zone_offsets=description.zone_offsets,
            avoided_nodes=description.avoided_nodes,
        )
        epoch = self.session.state.epoch
        records.series.begin(min(loop_time(), self._started_ms / 1000 - epoch), epoch)
        self._leader = ""
        self._steps: asyncio.Queue[Step] = asyncio.Queue()
        self._checkpoints = CheckpointCommits(
            description,
            chain,
            self.session,
            self.post,
            lambda note: self._steps.put_nowait(lambda _: [note]),
            self._send,
        )
        self._inputs = InputAssigner(
            data.inputs,
            self.session,
            ownership,
            lambda *said: self._note(Note(*said)),
            lambda problem: self.post(JobFailed(FailureKind.INPUT, problem)),
        )
        self._outputs = data.outputs
        self._task_parts = TaskParts(
            self._outputs, self.session, records.when_kept, lambda *said: self._note(Note(*said))
        )
        self.executors = ExecutorGateway(
            self.session, self._checkpoints, self._inputs, records.logs, self._steps.put_nowait, self._heard
        )
        self.executors.newer_token = access.newer
        self._rendezvous = executor_messages.Rendezvous()
        self._launching: asyncio.Queue[actions.LaunchTask] = asyncio.Queue()
        self._verdict: Optional[Verdict] = None
        self._ended: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._background = Background(partial(_set_exception, self._ended))
        self._busy_until = 0.0  # see _BUSY_SECONDS
        self._stop_seen = False  # the store contains a stop order, and the session has received it
        self._cluster_away = ""  # since when and why the cluster is unreachable; empty if it is reachable
        self.cut_off = False  # the cluster became unreachable, and no event has arrived since
        self._action_handlers = self._make_action_handlers()
        self._cluster_handlers: dict[type, Callable[[Any], list[Action]]] = {
            ConnectionLost: self._connection_lost,
            ConnectionRestored: lambda _: [Note("cluster_reachable", "the cluster answers again")],
            AttemptOver: self._attempt_over,
        }

    # ---- status and control, for the web server ----------------------------------------------------------------

    def use(self) -> dict[str, MetricValues]:
        """Return the current resource use by task name, including metrics that the status omits."""
        return self._records.series.use()

    def status(self) -> JobStatus:
        status = job_status.job_status(
            self.session,
            application_id=self.description.application_id,
            am_attempt=self._ownership.am_attempt,
            started_ms=self._started_ms,
            now=loop_time(),
            now_ms=epoch_ms(),
        )
        submitted_ms = self.description.submitted_ms
        if status.times and submitted_ms is not None:
            # Not negative, even if the clock of the submitting host is ahead.
            queue = max(0.0, round((self._started_ms - submitted_ms) / 1000, 1))
            status = attrs.evolve(status, times=attrs.evolve(status.times, queue=queue))
        troubles = filter(
            None,
            [
                self._cluster_away,
                self._access.trouble(epoch_ms()),
                *self._records.troubles,
                *self.executors.clocks.troubles,
            ],
        )
        whole = attrs.evolve(
            status,
            troubles=list(troubles),
            inputs=self._inputs.status,
            outputs=self._outputs.status,
            store_token=self._access.life,
            labels=self.description.labels,
        )
        return without_foreign_places(whole, self.description.application_dir)

    def post(self, event: session_events.Event) -> None:
        """Queue an event for the session, after the steps that are already queued."""
        self._steps.put_nowait(partial(self.session.handle, event))

    def give_up(self, error: Union[SupersededError, DismissedError]) -> None:
        """End ``run`` with this error, because this master no longer owns the tasks."""
        _set_exception(self._ended, error)

    async def check_newest(self) -> None:
        """Check that there is no newer application master. Raises SupersededError. A failed check is only logged."""
        try:
            await asyncio.to_thread(self._ownership.check_newest)
        except StorageError as error:
            log.warning("cannot check for a newer application master: %s", error)

    # ---- running -----------------------------------------------------------------------------------------------

    def begin(self, registered: Registered, *, refused: Optional[tuple[FailureKind, str]] = None) -> None:
        """Process the registration response as the first step. The caller starts the gRPC server only after this call.

        ``refused``: failure kind and reason if no task may be started, otherwise None.
        """
        before = self.session.phase
        for action in self.session.handle(self._first_event(registered, refused), loop_time()):
            self._carry_out(action)
        self._report_phase(before)

    async def run(self) -> Verdict:
        """Execute steps until all tasks are stopped, and return how the job ended.

        Raises SupersededError, DismissedError, and internal errors.
        """
        try:
            for work in (self._listen, self._tick, self._work, self._announce, self._watch_ownership, collect_seldom):
                self._background.spawn(work())
            last_call = 2 * self.description.job.timeouts.checkpoint  # enough to save a checkpoint and to copy it
            self._background.spawn(self._access.fetch())
            self._background.spawn(self._access.mind(last_call, lambda reason: self.post(CheckpointOrder(reason))))
            for worker in (self._checkpoints, *self._inputs.workers, self._task_parts):
                self._background.spawn(worker.run())
            for _ in range(_LAUNCHES_AT_ONCE):
                self._background.spawn(self._launch())
            return await self._ended
        finally:
            await self._background.close()

    def _first_event(self, registered: Registered, refused: Optional[tuple[FailureKind, str]]) -> session_events.Event:
        previous = self._records.previous
        if previous and not refused:
            return Recovered(registered.containers, previous.history, registered.largest, former=previous.status)
        self._rm.release([container.id for container in registered.containers])
        if refused:
            return JobFailed(*refused)
        # If the limits are unknown, YARN itself rejects requests that are too large.
        problem = requests_too_large(self.description.job, registered.largest) if registered.largest else None
        if problem:
            return JobFailed(FailureKind.LAUNCH, problem)
        return Started(registered.largest)

    async def _work(self) -> None:
        """Execute the queued steps one at a time, and the actions of each step in their order.

        Thousands of steps may be queued, and no step awaits anything. So the method yields to the event loop regularly.
        """
        began = loop_time()
        while self._verdict is None:
            step, before = await self._steps.get(), self.session.phase
            for action in step(loop_time()):
                self._carry_out(action)
                began = await _share_loop(began)
            self._report_phase(before)
            began = await _share_loop(began)
        if not self._ended.done():
            self._ended.set_result(self._verdict)

    def _carry_out(self, action: Action) -> None:
        self._busy_until = loop_time() + _BUSY_SECONDS
        self._action_handlers[type(action)](action)

    def _report_phase(self, before: JobState) -> None:
        if self.session.phase is not before:
            leader = self.session.state.leader
            self._leader = leader.name if leader else ""
            log.info("%s: %s", self.session.phase.value, job_status.message(self.session, loop_time()))
            self._records.changed()
            self._rm.set_progress(job_status.fraction_done(self.session))

    async def _tick(self) -> None:
        least = len(self.session.tasks) / _MOST_LOOKS
        while True:
            await asyncio.sleep(max(least, TICK if loop_time() < self._busy_until else _IDLE_TICK))
            self.post(Tick())
            self._checkpoints.look()
            self._inputs.look()
            self._task_parts.look()

    async def _announce(self) -> None:
        """Write this master's address to the store, for executors that have lost their connection to a master."""
        announce = partial(asyncio.to_thread, self._ownership.announce, self._launches.address)
        await retry(announce, _FOREVER, StorageError, partial(log.warning, "%s"))

    # ---- the cluster -------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        try:
            async for event in self._rm.events():
                self._steps.put_nowait(partial(self._happened, event))
        except ResourceManagerError as error:
            self.post(JobFailed(FailureKind.LAUNCH, str(error)))

    def _happened(self, event: Event, now: float) -> list[Action]:
        if not isinstance(event, ConnectionLost):
            self.cut_off, self._cluster_away = False, ""
        own = self._cluster_handlers.get(type(event))
        return own(event) if own else self.session.handle(cast(session_events.Event, event), now)

    def _connection_lost(self, event: ConnectionLost) -> list[Action]:
        self.cut_off = True
        self._cluster_away = (
            self._cluster_away or f"the cluster has not answered since {moment(epoch_ms())}: {event.reason}"
        )
        return [Note("cluster_unreachable", event.reason)]

    def _attempt_over(self, event: AttemptOver) -> list[Action]:
        self.give_up(DismissedError(event.reason))
        return []

    async def _watch_ownership(self) -> None:
        while True:
            await asyncio.sleep(_CUT_OFF_SECONDS if self.cut_off else _OWNERSHIP_SECONDS)
            await self._check_ownership()

    async def _check_ownership(self) -> None:
        """Check that no other application or master has replaced this one, and whether the store contains a stop order.

        Raises SupersededError.
        """
        try:
            await asyncio.to_thread(self._ownership.check)
        except FencedError as error:
            self.post(JobFailed(FailureKind.FENCED, str(error)))
        except StorageError as error:
            log.warning("cannot check which application owns the training: %s", error)
        stop = self._ownership.stop
        if stop is not None and not self._stop_seen:
            self._stop_seen = True
            self._steps.put_nowait(partial(self._stop_by_order, stop))

    def _stop_by_order(self, stop: Stop, now: float) -> list[Action]:
        """End the job because of a stop order on the store.

        Ignore the order if the job is already ending, because a second stop would skip the grace period.
        """
        return [] if self.session.verdict else self.session.handle(StopOrder(stop.reason, stop.grace), now)

    def _heard(self, name: str, attempt: int, said: Union[Heartbeat, ProcessEnd], now: float) -> None:
        """Update series, status and progress from a heartbeat or process end, before the session handles it."""
        task, series, leads = self.session.task(name), self._records.series, name == self._leader
        if task and task.attempt == attempt:
            if isinstance(said, ProcessEnd):
                series.ended(task, said.progress, now, leads=leads)
                self._inputs.process_ended(name, attempt, said.start)
            else:
                series.heard(task, said, now, leads=leads)
        self._records.changed(soon=False)
        self._rm.set_progress(job_status.fraction_done(self.session))

    # ---- what the session wants --------------------------------------------------------------------------------

    def _make_action_handlers(self) -> dict[type, Callable[[Any], None]]:
        """Return the function that executes each kind of action."""
        rm, checkpoints, streams = self._rm, self._checkpoints, self.executors.streams
        return {
            actions.Note: self._note,
            actions.FlushEvents: self._keep_notes,
            actions.RequestContainers: lambda action: rm.request(action.requests),
            actions.CancelRequests: lambda action: rm.cancel(action.keys),
            actions.ReleaseContainers: lambda action: rm.release(action.container_ids),
            actions.AvoidNodes: lambda action: rm.avoid(action.nodes),
            actions.ProbeRoom: lambda action: rm.look_for_room(action.request, action.most),
            actions.LaunchTask: self._launching.put_nowait,
            actions.ChooseResumePoint: lambda action: checkpoints.choose(
                action.generation, action.trusted, action.tasks
            ),
            actions.NoteFailedResume: checkpoints.note_failed_resume,
            actions.NoteSoundResume: lambda action: checkpoints.note_sound_resume(action.resume),
            actions.ExcludeCheckpoint: lambda action: checkpoints.set_aside(action.resume, action.reason),
            actions.SendRendezvous: self._send_rendezvous,
            actions.StopProcess: lambda action: streams.send(action.task, executor_messages.stop_process(action)),
            actions.ShutdownTask: lambda action: streams.dismiss(action.task, executor_messages.shutdown(action)),
            actions.AskCheckpoint: lambda action: streams.send_all(
                action.tasks, executor_messages.checkpoint_now(action.reason)
            ),
            actions.AskExport: lambda action: streams.send(action.task, executor_messages.export_now(action)),
            actions.Disconnect: lambda action: streams.close(action.task),
            actions.PublishOutputs: lambda action: self._background.spawn(self._publish(action)),
            actions.Finish: self._finish,
        }

    def _has_newer_token(self, token: StoreToken) -> None:
        self._note(Note("store_token", f"using a newer token of the store, valid until {moment(token.until_ms)}"))
        self.executors.send_newer_token(token)
        self._records.changed()

    def _note(self, note: Note) -> None:
        log.info("%s%s: %s", f"{note.task} " if note.task else "", note.event, note.message)
        self._records.note(note)

    def _keep_notes(self, action: actions.FlushEvents) -> None:
        self._records.when_kept(partial(self.post, FromTask(action.task, action.attempt, EventsWritten())))

    async def _publish(self, action: actions.PublishOutputs) -> None:
        self._note(Note("publishing", ", ".join(self.description.job.outputs)))
        problem = await self._outputs.publish(
            action.parts, lambda trouble: self._note(Note("store_unavailable", trouble))
        )
        for each in self._outputs.status:
            if each.files is not None:
                self._note(
                    Note(
                        "published", f"{each.name}: {count(each.files, 'file')}, {size(each.bytes or 0)}, in {each.uri}"
                    )
                )
        self.post(OutputsPublished(problem))

    async def _launch(self) -> None:
        """Launch containers one at a time. Build each launch context only just before its launch."""
        while True:
            action = await self._launching.get()
            launch = self._launches.launch(action.task, action.attempt, action.container)
            await self._rm.launch(action.container, launch)
            await asyncio.sleep(0)  # yield to the event loop even if the cluster accepts a launch without waiting

    def _send_rendezvous(self, action: actions.SendRendezvous) -> None:
        for task, message in self._rendezvous.messages(action):
            self.executors.streams.send(task, message)

    def _send(self, task: str, message: tony_pb2.ToExecutor) -> None:
        self.executors.streams.send(task, message)

    def _finish(self, action: actions.Finish) -> None:
        self._verdict = action.verdict


async def _share_loop(began: float) -> float:
    """Yield to the event loop if _SLICE has passed since ``began``. Return the start time of the current slice."""
    if loop_time() - began <= _SLICE:
        return began
    await asyncio.sleep(0)
    return loop_time()


def _set_exception(future: asyncio.Future[Verdict], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


_THRESHOLDS = (10_000, 20, 1 << 20)  # generation 0: after 10,000 new objects; 1: after 20 of these; 2: almost never
_EVERY = 300.0  # seconds between two full collections


async def collect_seldom() -> None:
    """Run full garbage collections rarely, in place of automatic ones, until cancelled.

    While the number of objects grows, automatic collections examine all objects again and again. With thousands of
    tasks each collection takes most of a second and frees almost nothing.
    """
    before = gc.get_threshold()
    gc.set_threshold(*_THRESHOLDS)
    try:
        while True:
            await asyncio.sleep(_EVERY)
            gc.collect()
    finally:
        gc.set_threshold(*before)
