"""The application master: carries out what the session decides, and tells it what happens. One asyncio loop."""

from __future__ import annotations

import asyncio
import logging
import random
from functools import partial
from typing import Callable, Optional

from tony_provider.runtime.am import messages
from tony_provider.runtime.am.background import Background
from tony_provider.runtime.am.launches import Launches
from tony_provider.runtime.am.records import Records
from tony_provider.runtime.am.resource_manager import (
    Allocated,
    Completed,
    ConnectionLost,
    Event,
    LaunchFailed,
    Registered,
    ResourceManager,
    ResourceManagerError,
    StopRequested,
)
from tony_provider.runtime.am.service import Listener, Stream
from tony_provider.runtime.am.session import snapshot
from tony_provider.runtime.am.session.actions import (
    Action,
    Cancel,
    Finish,
    LaunchTask,
    Note,
    Release,
    Request,
    SendRendezvous,
    ShutdownTask,
    Verdict,
)
from tony_provider.runtime.am.session.limits import too_large
from tony_provider.runtime.am.session.session import Session
from tony_provider.runtime.application import ApplicationDescription
from tony_provider.runtime.clock import epoch_ms
from tony_provider.runtime.frameworks import get_framework
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.protocol.status import FailureKind, JobStatus
from tony_provider.runtime.task_identity import TaskIdentity

log = logging.getLogger(__name__)

TICK = 0.5  # seconds
Step = Callable[[float], "list[Action]"]


class Master(Listener):
    """Runs one session. Everything that happens becomes a step, taken one after the other by ``run``."""

    def __init__(
        self,
        description: ApplicationDescription,
        resource_manager: ResourceManager,
        launches: Launches,
        records: Records,
        *,
        am_attempt: int,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Within a running event loop. ``jitter``: see Session."""
        self.description = description
        self._am_attempt = am_attempt
        self._rm = resource_manager
        self._launches = launches
        self._records = records
        self._started_ms = epoch_ms()
        job = description.job
        self.session = Session(job, get_framework(job.framework), jitter=jitter)
        self._steps: asyncio.Queue[Step] = asyncio.Queue()
        self._streams: dict[str, Stream] = {}
        self._verdict: Optional[Verdict] = None
        self._ended: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._background = Background(partial(_set_exception, self._ended))

    # ---- what people see ---------------------------------------------------------------------------------------

    def status(self) -> JobStatus:
        return snapshot.job_status(
            self.session,
            application_id=self.description.application_id,
            am_attempt=self._am_attempt,
            started_ms=self._started_ms,
            now=_now(),
            now_ms=epoch_ms(),
        )

    # ---- running -----------------------------------------------------------------------------------------------

    async def run(self, registered: Registered) -> Verdict:
        """From the answer to the registration until every task is stopped. Raises what goes wrong inside."""
        self._rm.release([container.id for container in registered.containers])
        # Not known, YARN itself refuses what is too large, in its own words.
        problem = too_large(self.description.job, registered.largest) if registered.largest else None
        if problem:
            self._steps.put_nowait(partial(self.session.fail, FailureKind.LAUNCH, problem))
        else:
            self._steps.put_nowait(self.session.start)
        try:
            self._background.spawn(self._listen())
            self._background.spawn(self._tick())
            self._background.spawn(self._work())
            return await self._ended
        finally:
            await self._background.close()

    def stop(self, reason: str) -> None:
        """Have the job end as killed; a second time it hurries."""
        self._steps.put_nowait(partial(self.session.stop_requested, reason))

    async def _work(self) -> None:
        while self._verdict is None:
            step = await self._steps.get()
            before = self.session.phase
            for action in step(_now()):
                self._carry_out(action)
            if self.session.phase is not before:
                log.info("%s: %s", self.session.phase.value, snapshot.message(self.session, _now()))
                self._records.changed()
                self._rm.set_progress(snapshot.fraction_done(self.session))
        if not self._ended.done():
            self._ended.set_result(self._verdict)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            self._steps.put_nowait(self.session.tick)

    async def _listen(self) -> None:
        try:
            async for event in self._rm.events():
                self._steps.put_nowait(partial(self._happened, event))
        except ResourceManagerError as error:
            self._steps.put_nowait(partial(self.session.fail, FailureKind.LAUNCH, str(error)))

    def _happened(self, event: Event, now: float) -> list[Action]:
        if isinstance(event, Allocated):
            return self.session.allocated(event.key, event.container, now)
        if isinstance(event, LaunchFailed):
            return self.session.launch_failed(event.container_id, event.reason, now)
        if isinstance(event, Completed):
            return self.session.completed(event.container_id, event.exit_status, event.diagnostics, now)
        if isinstance(event, StopRequested):
            return self.session.stop_requested(event.reason, now)
        if isinstance(event, ConnectionLost):
            return [Note("cluster_unreachable", event.reason)]
        raise TypeError(event)

    # ---- what the session wants --------------------------------------------------------------------------------

    def _carry_out(self, action: Action) -> None:
        if isinstance(action, Note):
            self._note(action)
        elif isinstance(action, Request):
            self._rm.request(action.requests)
        elif isinstance(action, Cancel):
            self._rm.cancel(action.keys)
        elif isinstance(action, Release):
            self._rm.release(action.container_ids)
        elif isinstance(action, LaunchTask):
            launch = self._launches.launch(action.task, action.attempt, action.container)
            self._background.spawn(self._rm.launch(action.container, launch))
        elif isinstance(action, SendRendezvous):
            message = messages.rendezvous(action.cluster)
            for task in action.starts:
                self._send(task, message)
        elif isinstance(action, ShutdownTask):
            self._send(action.task, messages.shutdown(action.grace, action.reason))
        elif isinstance(action, Finish):
            self._verdict = action.verdict
        else:
            raise TypeError(action)

    def _note(self, note: Note) -> None:
        log.info("%s%s: %s", f"{note.task} " if note.task else "", note.event, note.message)
        self._records.note(note.event, note.message, note.task, time_ms=epoch_ms())

    def _send(self, task: str, message: tony_pb2.ToExecutor) -> None:
        stream = self._streams.get(task)
        if stream:
            stream.send(message)

    # ---- the executors, see Listener ---------------------------------------------------------------------------

    def refusal(self, identity: TaskIdentity) -> Optional[str]:
        task = self.session.task(identity.task)
        if not (
            task
            and task.container
            and task.container.id == identity.container_id
            and self.session.is_current(identity.task, identity.attempt)
        ):
            return f"attempt {identity.attempt} of {identity.task} in {identity.container_id} was replaced or ended"
        return None

    def attached(self, stream: Stream, registration: tony_pb2.Registration) -> None:
        self._steps.put_nowait(partial(self._attached, stream, registration))

    def _attached(self, stream: Stream, registration: tony_pb2.Registration, now: float) -> list[Action]:
        name, attempt = stream.identity.task, stream.identity.attempt
        former = self._streams.get(name)
        if former:
            former.close()
        self._streams[name] = stream
        log.info(
            "%s: its executor is process %d on %s, with Python %s",
            name,
            registration.pid,
            registration.node,
            registration.python,
        )
        return self.session.registered(
            name,
            attempt,
            registration.host,
            registration.ports,
            registration.generation,
            registration.start,
            registration.resumed_step or None,
            stream.identity.container_id,
            now,
        )

    def detached(self, stream: Stream) -> None:
        self._steps.put_nowait(partial(self._detached, stream))

    def _detached(self, stream: Stream, now: float) -> list[Action]:
        name = stream.identity.task
        if self._streams.get(name) is not stream:
            return []  # a newer one took its place
        del self._streams[name]
        return self.session.disconnected(name, stream.identity.attempt, now)

    def received(self, stream: Stream, message: tony_pb2.FromExecutor) -> None:
        self._steps.put_nowait(partial(self._received, stream, message))

    def _received(self, stream: Stream, message: tony_pb2.FromExecutor, now: float) -> list[Action]:
        name, attempt = stream.identity.task, stream.identity.attempt
        kind = message.WhichOneof("kind")
        if kind == "heartbeat":
            self._records.changed(soon=False)
            self._rm.set_progress(snapshot.fraction_done(self.session))
            return self.session.heartbeat(name, attempt, messages.beat(message.heartbeat), now)
        if kind == "started":
            return self.session.process_started(name, attempt, message.started.start, now)
        if kind == "exited":
            return self.session.process_ended(name, attempt, messages.process_end(message.exited), now)
        log.warning("%s sent a message of a kind that is not known here", name)
        return []


def _set_exception(future: asyncio.Future[Verdict], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


def _now() -> float:
    return asyncio.get_running_loop().time()
