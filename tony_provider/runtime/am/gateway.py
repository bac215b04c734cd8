"""The application master's end of the executors' streams, which passes their messages to the session in order.

The module also contains requests to executors, the streams of tunnels, and the comparison of node clocks.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Callable, Optional, Union

import attrs

from tony_provider.runtime.am import executor_messages
from tony_provider.runtime.am.checkpoint_commits import CheckpointCommits, CommitRequest
from tony_provider.runtime.am.executor_server import Listener, Outgoing, Stream
from tony_provider.runtime.am.input_shards import InputAssigner
from tony_provider.runtime.am.records import TaskLogs
from tony_provider.runtime.am.session.actions import Action
from tony_provider.runtime.am.session.session import Session
from tony_provider.runtime.am.session.session_events import (
    Disconnected,
    ExecutorLeft,
    ExecutorRegistered,
    FromTask,
    LastOutput,
    ModelExport,
    PreparationFailed,
    ProcessStacks,
    ProcessStarted,
    Report,
)
from tony_provider.runtime.am.session.session_state import Heartbeat, ProcessEnd
from tony_provider.runtime.common import clock
from tony_provider.runtime.common.clock import difference, epoch_ms
from tony_provider.runtime.common.concurrency import wait_with_timeout
from tony_provider.runtime.common.quantities import some
from tony_provider.runtime.protocol import limits, messages, tony_pb2
from tony_provider.runtime.protocol.limits import CLOCKS_DIFFER
from tony_provider.runtime.protocol.store_tokens import StoreToken
from tony_provider.runtime.protocol.task_identity import TaskIdentity
from tony_provider.runtime.protocol.tunnel_streams import FrameError, Window

log = logging.getLogger(__name__)

Step = Callable[[float], "list[Action]"]
"""Function that gets the session's time and returns the actions to execute."""


class ExecutorGateway(Listener):
    """Passes messages of executors to the session, the checkpoint commits, the inputs, and open requests.

    ``post`` queues a step of the session. ``heard`` is called before the session's step for each heartbeat and each end
    of a user process, with the task, its attempt, the message, and the time.
    """

    def __init__(
        self,
        session: Session,
        checkpoints: CheckpointCommits,
        inputs: InputAssigner,
        logs: TaskLogs,
        post: Callable[[Step], None],
        heard: Callable[[str, int, Union[Heartbeat, ProcessEnd], float], None],
    ) -> None:
        self.streams = ExecutorStreams()
        self.executor_requests = ExecutorRequests(self.streams)
        self.tunnel_streams = TunnelStreams(self.streams)
        self.clocks = NodeClocks()
        self.logs = logs
        self.newer_token: Optional[StoreToken] = None  # for containers that were launched with an older token
        self._session = session
        self._inputs = inputs
        self._post = post
        self._heard = heard
        self._am_attempt = logs.am_attempt
        self._handlers: Mapping[Optional[str], Callable[[Stream, str, int, tony_pb2.FromExecutor], None]] = {
            "uploaded": lambda stream, task, attempt, message: checkpoints.uploaded(
                CommitRequest(task, attempt, message.uploaded, partial(_answer, stream, message))
            ),
            "checkpoint_state": lambda _, task, attempt, message: checkpoints.reported(
                task, attempt, message.checkpoint_state
            ),
            "input_part_wanted": lambda stream, task, _, message: inputs.part_wanted(
                task, message.input_part_wanted, stream.send
            ),
            "shard_request": lambda stream, task, attempt, message: inputs.shard_requested(
                task, attempt, message.shard_request, stream.send
            ),
        }

    def send_newer_token(self, token: StoreToken) -> None:
        """Send the token to all executors, including executors that connect later."""
        self.newer_token = token
        self.streams.send_all([task.name for task in self._session.tasks], executor_messages.newer_token(token))

    def refusal(self, identity: TaskIdentity) -> Optional[str]:
        return self._session.refusal(identity.task, identity.attempt, identity.container_id)

    def attached(self, stream: Stream, registration: tony_pb2.Registration) -> None:
        self._post(partial(self._attached, stream, registration))

    def received(self, stream: Stream, message: tony_pb2.FromExecutor) -> None:
        kind = message.WhichOneof("kind")
        if kind in ("tail", "page"):
            self.executor_requests.answered(stream, getattr(message, kind).question, message)
        elif kind == "tunnel":
            self.tunnel_streams.received(stream, message.tunnel)
        else:
            if kind == "last_words":
                self.logs.keep(stream.identity, message.last_words)
            self._post(partial(self._received, stream, message))

    def detached(self, stream: Stream) -> None:
        self.executor_requests.ended(stream)
        self.tunnel_streams.ended(stream)
        self._post(partial(self._detached, stream))

    # ---- the steps ---------------------------------------------------------------------------------------------

    def _attached(self, stream: Stream, registration: tony_pb2.Registration, now: float) -> list[Action]:
        identity = stream.identity
        self.streams.attach(stream)
        stream.send(executor_messages.welcome(self._am_attempt, self._session.liveness.heartbeat_seconds))
        if self.newer_token:
            stream.send(executor_messages.newer_token(self.newer_token))
        log.info(
            "the executor of %s is process %d on %s, with Python %s",
            identity.task,
            registration.pid,
            registration.node,
            registration.python,
        )
        self.clocks.registered(registration.node, registration.clock_ms)
        self._inputs.holds(identity.task, identity.attempt, registration.shards)
        event = ExecutorRegistered(
            identity.task,
            identity.attempt,
            identity.container_id,
            registration.host,
            dict(registration.ports),
            registration.generation,
            registration.start,
            messages.resume_point_of(registration.resumed) if registration.HasField("resumed") else None,
        )
        return self._session.handle(event, now)

    def _detached(self, stream: Stream, now: float) -> list[Action]:
        if not self.streams.detach(stream):
            return []
        identity = stream.identity
        return self._session.handle(FromTask(identity.task, identity.attempt, Disconnected()), now)

    def _received(self, stream: Stream, message: tony_pb2.FromExecutor, now: float) -> list[Action]:
        identity, kind = stream.identity, message.WhichOneof("kind")
        if kind in _REPORTS:
            report = _REPORTS[kind](getattr(message, kind))
            if isinstance(report, (Heartbeat, ProcessEnd)):
                self._heard(identity.task, identity.attempt, report, now)
            return self._session.handle(FromTask(identity.task, identity.attempt, report), now)
        if kind == "leave":
            return self._session.handle(ExecutorLeft(identity.container_id), now)
        if handle := self._handlers.get(kind):
            handle(stream, identity.task, identity.attempt, message)
        else:
            log.warning("%s sent a message of an unknown kind", identity.task)
        return []


_REPORTS: dict[Optional[str], Callable[[Any], Report]] = {
    "heartbeat": executor_messages.heartbeat,
    "started": lambda started: ProcessStarted(started.start),
    "exited": executor_messages.process_end,
    "settled": executor_messages.settlement,
    "stacks": lambda stacks: ProcessStacks(stacks.start, executor_messages.stacks(stacks)),
    "last_words": lambda last: LastOutput(last.tail),
    "preparation_failed": lambda failed: PreparationFailed(
        failed.start, failed.uri, failed.damaged, failed.reason, failed.unfit
    ),
    "exported": lambda exported: ModelExport(executor_messages.exported(exported), exported.problem),
}
"""Conversions of the messages that the session handles, by kind."""


def _answer(stream: Stream, asked: tony_pb2.FromExecutor, granted: bool, reason: str, resend: bool) -> None:
    stream.send(executor_messages.checkpoint_answer(asked.uploaded.request, granted, reason, resend))


class ExecutorStreams:
    """The open streams to executors. Each task has only its newest stream here."""

    def __init__(self) -> None:
        self._streams: dict[str, Stream] = {}

    def attach(self, stream: Stream) -> None:
        """Add a stream, and close a former stream of the same task."""
        self.close(stream.identity.task)
        self._streams[stream.identity.task] = stream

    def detach(self, stream: Stream) -> bool:
        """Remove a stream that has ended. Return False if another stream has already replaced it."""
        if self._streams.get(stream.identity.task) is not stream:
            return False
        del self._streams[stream.identity.task]
        return True

    def close(self, task: str) -> None:
        """Close a task's stream."""
        if stream := self._streams.pop(task, None):
            stream.close()

    def find(self, task: str) -> Optional[Stream]:
        """Return the task's stream, or None if its executor is not connected."""
        return self._streams.get(task)

    def send(self, task: str, message: Outgoing) -> None:
        """Send a message to a task's executor.

        Without a stream the message is dropped. The master repeats important messages when the executor returns.
        """
        if stream := self.find(task):
            stream.send(message)

    def dismiss(self, task: str, order: Outgoing) -> None:
        """Send a task's executor the order to end."""
        if stream := self.find(task):
            stream.is_dismissed = True
            stream.send(order)

    def send_all(self, tasks: Iterable[str], message: Outgoing) -> None:
        for task in tasks:
            self.send(task, message)


MOST_AT_ONCE = 64  # limit of open requests to one executor

MakeQuestion = Callable[[int], tony_pb2.ToExecutor]
"""Function that builds a request message with this request number, which the answer must contain."""


class NoAnswerError(Exception):
    """An executor did not answer. The message says whether it is not connected, has disconnected, or took too long."""


@attrs.define(eq=False)
class ExecutorRequest:
    """A request to one executor. Its answer may have several messages."""

    _stream: Stream
    _answers: asyncio.Queue[Optional[tony_pb2.FromExecutor]] = attrs.field(factory=asyncio.Queue)

    async def answer(self, seconds: float) -> tony_pb2.FromExecutor:
        """Wait for the next message of the answer. Raise NoAnswerError if none arrives within ``seconds``."""
        task = self._stream.identity.task
        try:
            message = await wait_with_timeout(self._answers.get(), seconds)
        except asyncio.TimeoutError as error:
            raise NoAnswerError(f"the executor of {task} did not answer within {seconds:g} s") from error
        if message is None:
            raise NoAnswerError(f"the executor of {task} disconnected before it answered")
        return message

    def is_to(self, stream: Stream) -> bool:
        return self._stream is stream

    def add(self, message: Optional[tony_pb2.FromExecutor]) -> None:
        """Add a message of the answer, or None if the executor has disconnected."""
        self._answers.put_nowait(message)


class ExecutorRequests:
    """The open requests to executors, by number. Not thread-safe: use on the event loop only."""

    def __init__(self, streams: ExecutorStreams) -> None:
        self._streams = streams
        self._numbers = itertools.count(1)
        self._open: dict[int, ExecutorRequest] = {}
        self._count: Counter[str] = Counter()

    async def ask(self, task: str, make: MakeQuestion, seconds: float) -> tony_pb2.FromExecutor:
        """Send a request to an executor and return its answer, which has one message. Raises NoAnswerError."""
        with self.asking(task, make) as question:
            return await question.answer(seconds)

    @contextmanager
    def asking(self, task: str, make: MakeQuestion) -> Iterator[ExecutorRequest]:
        """Context manager that sends a request on entry. Messages that arrive after its exit are dropped.

        Raises NoAnswerError if the task has no connected executor, or if too many requests are open.
        """
        stream = self._streams.find(task)
        if stream is None:
            raise NoAnswerError(f"no executor of {task} is connected")
        if self._count[task] >= MOST_AT_ONCE:
            raise NoAnswerError(f"the limit of {MOST_AT_ONCE} unanswered requests to the executor of {task} is reached")
        number, question = next(self._numbers), ExecutorRequest(stream)
        self._open[number] = question
        self._count[task] += 1
        try:
            stream.send(make(number))
            yield question
        finally:
            del self._open[number]
            self._count[task] -= 1

    def answered(self, stream: Stream, number: int, message: tony_pb2.FromExecutor) -> None:
        """Pass an answer to the request that it names. An answer of another executor is ignored."""
        question = self._open.get(number)
        if question and question.is_to(stream):
            question.add(message)

    def ended(self, stream: Stream) -> None:
        """Fail the requests to an executor whose stream has ended."""
        for question in self._open.values():
            if question.is_to(stream):
                question.add(None)


Hear = Callable[[tony_pb2.TunnelFrame], None]
"""Function that sends a frame to the user's end. The frame contains the stream's number on that end."""


class NoStreamError(Exception):
    """A stream cannot be opened. The message contains the reason."""


@attrs.define(eq=False)
class TunnelStream:
    """One stream between a user and an executor. Each side has its own number for the stream."""

    number: int  # on the executor's side
    executor: Stream
    _of_user: int  # number on the user's side
    _hear: Hear
    _say: Callable[[TunnelStream, tony_pb2.TunnelFrame], None]
    _up: Window = attrs.field(factory=Window)
    _down: Window = attrs.field(factory=Window)
    _ended_up: bool = False
    _ended_down: bool = False

    @property
    def is_over(self) -> bool:
        return self._ended_up and self._ended_down

    def from_user(self, frame: tony_pb2.TunnelFrame) -> None:
        """Forward a frame to the executor."""
        if self._holds(frame, self._up, self._down):
            kind = frame.WhichOneof("kind")
            self._ended_up = self._ended_up or kind in ("end", "closed")
            self._ended_down = self._ended_down or kind == "closed"
            self._say(self, _numbered(frame, self.number))

    def from_executor(self, frame: tony_pb2.TunnelFrame) -> None:
        """Forward a frame to the user."""
        if self._holds(frame, self._down, self._up):
            kind = frame.WhichOneof("kind")
            self._ended_down = self._ended_down or kind in ("end", "closed")
            self._ended_up = self._ended_up or kind == "closed"
            self._hear(_numbered(frame, self._of_user))

    def close(self, why: str) -> None:
        """Close the stream and notify both sides."""
        self._ended_up = self._ended_down = True
        self._say(self, tony_pb2.TunnelFrame(stream=self.number, closed=why))
        self._hear(tony_pb2.TunnelFrame(stream=self._of_user, closed=why))

    def _holds(self, frame: tony_pb2.TunnelFrame, sent: Window, granted: Window) -> bool:
        """Return whether a frame is within the flow-control window. Otherwise close the stream."""
        kind = frame.WhichOneof("kind")
        try:
            if kind == "data":
                sent.spend(len(frame.data))
            elif kind == "credit":
                granted.grant(frame.credit)
        except FrameError as error:
            self.close(str(error))
            return False
        return True


class TunnelStreams:
    """The open streams of all tunnels. Not thread-safe: use on the event loop only."""

    def __init__(self, executors: ExecutorStreams) -> None:
        self._executors = executors
        self._numbers = itertools.count(1)
        self._open: dict[int, TunnelStream] = {}
        self._to_say: dict[Stream, list[tony_pb2.TunnelFrame]] = {}

    def open(self, wanted: tony_pb2.TunnelOpen, of_user: int, hear: Hear) -> TunnelStream:
        """Open a stream, for which a task's executor connects to a port of the task. Raises NoStreamError."""
        executor = self._executors.find(wanted.task)
        if executor is None:
            raise NoStreamError(f"no executor of {wanted.task} is connected")
        if len(self._open) >= limits.MOST_TUNNEL_STREAMS:
            raise NoStreamError(f"the limit of {limits.MOST_TUNNEL_STREAMS} connections to this job's tasks is reached")
        stream = TunnelStream(next(self._numbers), executor, of_user, hear, self._say)
        self._open[stream.number] = stream
        self._say(stream, tony_pb2.TunnelFrame(stream=stream.number, open=wanted))
        return stream

    def received(self, executor: Stream, frames: tony_pb2.TunnelFrames) -> None:
        """Handle frames of an executor. Frames for streams of other executors are ignored."""
        for frame in frames.frames:
            stream = self._open.get(frame.stream)
            if stream is not None and stream.executor is executor:
                stream.from_executor(frame)
                self.forget_if_over(stream)

    def ended(self, executor: Stream) -> None:
        """Close the streams to an executor that has disconnected."""
        for stream in [each for each in self._open.values() if each.executor is executor]:
            stream.close(f"the executor of {executor.identity.task} disconnected")
            self.forget_if_over(stream)

    def forget_if_over(self, stream: TunnelStream) -> None:
        if stream.is_over:
            self._open.pop(stream.number, None)

    def _say(self, stream: TunnelStream, frame: tony_pb2.TunnelFrame) -> None:
        """Queue a frame. All frames for one executor in one iteration of the event loop share a message."""
        if not self._to_say:
            asyncio.get_running_loop().call_soon(self._send)
        self._to_say.setdefault(stream.executor, []).append(frame)

    def _send(self) -> None:
        said, self._to_say = self._to_say, {}
        for executor, frames in said.items():
            executor.send(tony_pb2.ToExecutor(tunnel=tony_pb2.TunnelFrames(frames=frames)))


def _numbered(frame: tony_pb2.TunnelFrame, number: int) -> tony_pb2.TunnelFrame:
    copy = tony_pb2.TunnelFrame()
    copy.CopyFrom(frame)
    copy.stream = number
    return copy


_MOST_NAMED = 3  # number of nodes that one line names


class NodeClocks:
    """Collects which nodes' clocks differ from the job's clock. Executors report the time when they register."""

    def __init__(self) -> None:
        self._ahead: dict[str, float] = {}  # seconds that a clock is ahead of the job's clock, by host

    def registered(self, node: str, clock_ms: int) -> None:
        """Compare a node's clock with the job's. ``clock_ms``: present time of the node, or 0 if it is unknown."""
        host, ahead = node.partition(":")[0], (clock_ms - epoch_ms()) / 1000
        if clock_ms and abs(ahead) > CLOCKS_DIFFER:
            self._ahead[host] = ahead
        else:
            self._ahead.pop(host, None)

    @property
    def troubles(self) -> list[str]:
        """At most two lines about wrong clocks: for the application master's node, and for all other nodes."""
        lines = []
        if (ahead := -clock.correction()) != 0:
            lines.append(
                f"the clock of the application master's node is {difference(ahead)} the clock of the store. The times "
                "of this job follow the clock of the store"
            )
        if self._ahead:
            worst = sorted(self._ahead.items(), key=lambda item: -abs(item[1]))
            named = some((f"{node} ({difference(ahead)} it)" for node, ahead in worst), _MOST_NAMED)
            lines.append(f"clocks that differ from this job's clock: {named}")
        return lines
