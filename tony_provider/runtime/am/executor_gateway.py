"""The application master's side of the executors' streams: what they say becomes steps of the session, in order."""

from __future__ import annotations

import logging
from functools import partial
from typing import Callable, Optional, Union

from tony_provider.runtime.am import wire_messages
from tony_provider.runtime.am.checkpoint_commits import CheckpointCommits, CommitRequest, Step
from tony_provider.runtime.am.executor_requests import ExecutorRequests
from tony_provider.runtime.am.executor_streams import ExecutorStreams
from tony_provider.runtime.am.inputs.input_dealer import InputDealer
from tony_provider.runtime.am.last_outputs import LastOutputs
from tony_provider.runtime.am.node_clocks import NodeClocks
from tony_provider.runtime.am.service import Listener, Stream
from tony_provider.runtime.am.session.actions import Action
from tony_provider.runtime.am.session.session import Session
from tony_provider.runtime.am.session.state.process_state import ProcessEnd
from tony_provider.runtime.am.session.state.task import Heartbeat
from tony_provider.runtime.am.store_access import StoreAccess
from tony_provider.runtime.am.tunnel_streams import TunnelStreams
from tony_provider.runtime.protocol import points, tony_pb2
from tony_provider.runtime.task_identity import TaskIdentity

log = logging.getLogger(__name__)


class ExecutorGateway(Listener):
    """Passes what executors say on to those whom it concerns, mostly to the session.

    ``post`` takes steps; ``heard`` is called with each heartbeat and each end of a user process, the task, its
    attempt, and the time, before the session knows of it.
    """

    def __init__(
        self,
        session: Session,
        checkpoints: CheckpointCommits,
        inputs: InputDealer,
        post: Callable[[Step], None],
        heard: Callable[[str, int, Union[Heartbeat, ProcessEnd], float], None],
        last_outputs: LastOutputs,
        access: StoreAccess,
        *,
        am_attempt: int,
    ) -> None:
        self.streams = ExecutorStreams()
        self.executor_requests = ExecutorRequests(self.streams)
        self.tunnel_streams = TunnelStreams(self.streams)
        self.clocks = NodeClocks()
        self._session = session
        self._checkpoints = checkpoints
        self._inputs = inputs
        self._post = post
        self._heard = heard
        self._last_outputs = last_outputs
        self._access = access
        self._am_attempt = am_attempt

    def refusal(self, identity: TaskIdentity) -> Optional[str]:
        return self._session.refusal(identity.task, identity.attempt, identity.container_id)

    def attached(self, stream: Stream, registration: tony_pb2.Registration) -> None:
        self._post(partial(self._attached, stream, registration))

    def received(self, stream: Stream, message: tony_pb2.FromExecutor) -> None:
        kind = message.WhichOneof("kind")
        if kind == "tail":
            self.executor_requests.answered(stream, message.tail.question, message)
        elif kind == "page":
            self.executor_requests.answered(stream, message.page.question, message)
        elif kind == "tunnel":
            self.tunnel_streams.received(stream, message.tunnel)
        elif kind == "last_words":
            self._last_outputs.keep(stream.identity, message.last_words.output)
            self._post(partial(self._received, stream, message))
        else:
            self._post(partial(self._received, stream, message))

    def detached(self, stream: Stream) -> None:
        self.executor_requests.ended(stream)
        self.tunnel_streams.ended(stream)
        self._post(partial(self._detached, stream))

    # ---- the steps ---------------------------------------------------------------------------------------------

    def _attached(self, stream: Stream, registration: tony_pb2.Registration, now: float) -> list[Action]:
        identity = stream.identity
        self.streams.attach(stream)
        stream.send(wire_messages.welcome(self._am_attempt, self._session.heartbeat_seconds))
        if self._access.newer:  # its container may have been launched before
            stream.send(wire_messages.newer_token(self._access.newer))
        log.info(
            "%s: its executor is process %d on %s, with Python %s",
            identity.task,
            registration.pid,
            registration.node,
            registration.python,
        )
        self.clocks.registered(registration.node, registration.clock_ms)
        self._inputs.holds(identity.task, identity.attempt, registration.shards)
        return self._session.registered(
            identity.task,
            identity.attempt,
            registration.host,
            registration.ports,
            registration.generation,
            registration.start,
            points.of_message(registration.resumed) if registration.HasField("resumed") else None,
            identity.container_id,
            now,
        )

    def _detached(self, stream: Stream, now: float) -> list[Action]:
        if not self.streams.detach(stream):
            return []
        return self._session.disconnected(stream.identity.task, stream.identity.attempt, now)

    def _received(self, stream: Stream, message: tony_pb2.FromExecutor, now: float) -> list[Action]:
        session, name, attempt = self._session, stream.identity.task, stream.identity.attempt
        kind = message.WhichOneof("kind")
        if kind == "heartbeat":
            beat = wire_messages.beat(message.heartbeat)
            self._heard(name, attempt, beat, now)
            return session.heartbeat(name, attempt, beat, now)
        if kind == "started":
            return session.process_started(name, attempt, message.started.start, now)
        if kind == "exited":
            end = wire_messages.process_end(message.exited)
            self._heard(name, attempt, end, now)
            return session.process_ended(name, attempt, end, now)
        if kind == "settled":
            return session.settled(name, attempt, wire_messages.settlement(message.settled), now)
        if kind == "stacks":
            stacks = wire_messages.stacks(message.stacks)
            return session.stacks_written(name, attempt, message.stacks.start, stacks, now)
        if kind == "last_words":
            return session.last_words(name, attempt, message.last_words.tail, now)
        if kind == "restore_failed":
            failed = message.restore_failed
            return session.restore_failed(name, attempt, failed.start, failed.uri, failed.damaged, failed.reason, now)
        if kind == "uploaded":
            self._checkpoints.uploaded(
                CommitRequest(name, attempt, message.uploaded, partial(_answer, stream, message))
            )
            return []
        if kind == "exported":
            export = wire_messages.exported(message.exported)
            return session.exported(name, attempt, export, message.exported.problem, now)
        if kind == "checkpoint_state":
            self._checkpoints.reported(name, attempt, message.checkpoint_state)
            return []
        if kind == "input_part_wanted":
            self._inputs.part_wanted(name, message.input_part_wanted, stream.send)
            return []
        if kind == "shard_request":
            self._inputs.shard_requested(name, attempt, message.shard_request, stream.send)
            return []
        if kind == "leave":
            return session.left(stream.identity.container_id, now)
        log.warning("%s sent a message of a kind that is not known here", name)
        return []


def _answer(stream: Stream, asked: tony_pb2.FromExecutor, granted: bool, reason: str, resend: bool) -> None:
    stream.send(wire_messages.checkpoint_answer(asked.uploaded.request, granted, reason, resend))
