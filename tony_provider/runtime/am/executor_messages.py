"""Translation between the protocol's messages and the session's own classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Callable, Optional, Union

from tony_provider.runtime.am.session.actions import AskExport, SendRendezvous, StopProcess
from tony_provider.runtime.am.session.session_state import Heartbeat, ProcessEnd, ProcessStack, Settlement
from tony_provider.runtime.am.snapshot_rounds import SaveEntry, TaskDirectory
from tony_provider.runtime.common.clock import epoch_ms
from tony_provider.runtime.frameworks.base import ClusterSpec
from tony_provider.runtime.outputs.output_place import OutputPart
from tony_provider.runtime.protocol import messages as addresses
from tony_provider.runtime.protocol import messages as points
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.protocol.status import ExportedModel, ProcessStatus, TaskProgress
from tony_provider.runtime.protocol.store_tokens import StoreToken


def heartbeat(message: tony_pb2.Heartbeat) -> Heartbeat:
    """A heartbeat's message as the session takes it."""
    return Heartbeat(
        rss_bytes=message.rss_bytes,
        cpu_percent=message.cpu_percent,
        progress=_progress(message),
        activity=message.activity,
        trouble=message.trouble,
        notices=tuple(message.notices),
        ready=message.ready,
        output_problem=message.output_problem,
        further=[_process(each) for each in message.further],
        read_bytes=message.read_bytes if message.HasField("read_bytes") else None,
        written_bytes=message.written_bytes if message.HasField("written_bytes") else None,
        received_bytes=message.received_bytes if message.HasField("received_bytes") else None,
        sent_bytes=message.sent_bytes if message.HasField("sent_bytes") else None,
        gpu_percent=message.gpu_percent if message.HasField("gpu_percent") else None,
        gpu_bytes=message.gpu_bytes if message.HasField("gpu_bytes") else None,
        node_busy_percent=message.node_busy_percent if message.HasField("node_busy_percent") else None,
    )


def process_end(message: tony_pb2.ProcessExited) -> ProcessEnd:
    """The message of a user process's end as the session takes it."""
    return ProcessEnd(
        start=message.start,
        exit_code=message.exit_code,
        signal=message.signal,
        out_of_memory=message.out_of_memory,
        stopped=message.stopped,
        output_tail=message.output_tail,
        error=message.error,
        not_kept=message.not_kept,
        model_dir=message.model_dir,
        progress=_progress(message),
        output_problem=message.output_problem,
        node_problem=message.node_problem,
        process=message.process,
        outputs=tuple(OutputPart(each.name, each.part, each.files, each.bytes) for each in message.outputs),
    )


def stacks(message: tony_pb2.Stacks) -> tuple[ProcessStack, ...]:
    """Convert the stacks of a start's processes for the session."""
    return tuple(ProcessStack(each.pid, each.command, each.process, tuple(each.frames)) for each in message.processes)


def settlement(message: tony_pb2.Settled) -> Settlement:
    """Convert the last message about a start for the session."""
    unstored = message.unstored if message.HasField("unstored") else None
    return Settlement(message.start, message.problem, tuple(message.notices), unstored)


def welcome(am_attempt: int, heartbeat_seconds: float) -> tony_pb2.ToExecutor:
    """The master's first message on a stream: who it is, and how often it wants to hear of the executor."""
    greeting = tony_pb2.Welcome(am_attempt=am_attempt, heartbeat_seconds=heartbeat_seconds, clock_ms=epoch_ms())
    return tony_pb2.ToExecutor(welcome=greeting)


class Rendezvous:
    """Makes the messages of each rendezvous. What they have in common, the addresses of all, is encoded once."""

    def __init__(self) -> None:
        self._cluster: Optional[ClusterSpec] = None  # that ``_packed`` is of: the newest
        self._packed = b""
        self._packer = addresses.ClusterPacker()

    def messages(self, action: SendRendezvous) -> Iterator[tuple[str, Callable[[], tony_pb2.ToExecutor]]]:
        """The messages by task, each made when it is sent: the addresses are copied into it."""
        common = tony_pb2.Rendezvous(
            generation=action.cluster.generation,
            cluster=self._pack(action.cluster),
            resume=points.resume_message(action.resume),
            keep_checkpoints=action.keep_checkpoints,
        )
        for task, start in action.starts.items():
            yield task, partial(_rendezvous, common, start)

    def _pack(self, cluster: ClusterSpec) -> bytes:
        if cluster is not self._cluster:
            self._cluster, self._packed = cluster, self._packer.pack(cluster)
        return self._packed


def _rendezvous(common: tony_pb2.Rendezvous, start: int) -> tony_pb2.ToExecutor:
    message = tony_pb2.ToExecutor(rendezvous=common)
    message.rendezvous.start = start
    return message


def stop_process(action: StopProcess) -> tony_pb2.ToExecutor:
    """The message by which an executor stops its user process and stays."""
    return tony_pb2.ToExecutor(
        stop=tony_pb2.StopProcess(
            generation=action.generation,
            start=action.start,
            grace_seconds=action.grace,
            checkpoint_seconds=action.checkpoint_seconds,
            reason=action.reason,
            stacks=action.stacks,
        )
    )


def shutdown(grace: float, reason: str) -> tony_pb2.ToExecutor:
    """The message by which an executor stops its user process and ends."""
    return tony_pb2.ToExecutor(shutdown=tony_pb2.Shutdown(grace_seconds=grace, reason=reason))


def checkpoint_answer(request: int, granted: bool, reason: str, resend: bool) -> tony_pb2.ToExecutor:
    """The answer to an executor's request for a commit. ``reason``: why it is not granted.

    ``resend``: objects of former checkpoints are gone, so that all files have to be uploaded again.
    """
    answer = tony_pb2.CheckpointAnswer(request=request, granted=granted, reason=reason, resend=resend)
    return tony_pb2.ToExecutor(checkpoint=answer)


def take_snapshot(
    generation: int, start: int, version: int, save: int, uri: str, leave_out: Sequence[str]
) -> tony_pb2.ToExecutor:
    """The order to upload the checkpoint directory in the state of this version."""
    take = tony_pb2.TakeSnapshot(
        generation=generation, start=start, wanted=True, version=version, save=save, uri=uri, leave_out=leave_out
    )
    return tony_pb2.ToExecutor(take_snapshot=take)


def no_snapshot(generation: int, start: int, reason: str) -> tony_pb2.ToExecutor:
    """The message that no snapshot of this start is wanted any more."""
    return tony_pb2.ToExecutor(take_snapshot=tony_pb2.TakeSnapshot(generation=generation, start=start, reason=reason))


def task_directory(attempt: int, message: tony_pb2.CheckpointState) -> TaskDirectory:
    """The state of a checkpoint directory as the rounds of snapshots take it."""
    entries = tuple(
        SaveEntry(
            each.name,
            each.group,
            each.news,
            each.first,
            each.step if each.HasField("step") else None,
            dict(each.needs),
            dict(each.sizes),
        )
        for each in message.entries
    )
    return TaskDirectory(
        attempt,
        message.generation,
        message.start,
        message.version,
        message.ready,
        message.last,
        entries,
        message.base,
        message.save,
        message.blocker,
        message.succeeded,
        message.ordered,
        message.busy,
    )


def checkpoint_now(reason: str) -> tony_pb2.ToExecutor:
    """The message by which an executor asks its user process for a checkpoint."""
    return tony_pb2.ToExecutor(checkpoint_now=tony_pb2.CheckpointNow(reason=reason))


def export_now(action: AskExport) -> tony_pb2.ToExecutor:
    """The message by which an executor asks its user process for an export of its model."""
    return tony_pb2.ToExecutor(export_now=tony_pb2.ExportNow(asked_ms=action.asked_ms, reason=action.reason))


def exported(message: tony_pb2.Exported) -> ExportedModel:
    """The message of an export as the session takes it."""
    return ExportedModel(message.step, message.uri, message.exported_ms, message.asked_ms)


def newer_token(token: StoreToken) -> tony_pb2.ToExecutor:
    """The message that brings an executor newer tokens of the store, and of what it names beside it."""
    others = [tony_pb2.OtherToken(name=each.name, text=each.text, until_ms=each.until_ms) for each in token.others]
    newer = tony_pb2.NewerToken(text=token.text, until_ms=token.until_ms, others=others)
    return tony_pb2.ToExecutor(newer_token=newer)


def tail_wanted(question: int, size: int, after: Optional[int] = None) -> tony_pb2.ToExecutor:
    """The question for the end of a task's log; ``size`` in bytes. ``after`` so many of it all, where that is given."""
    return tony_pb2.ToExecutor(tail_wanted=tony_pb2.TailWanted(question=question, bytes=size, after=after))


def page_wanted(
    question: int, *, method: str, target: str, headers: Mapping[str, str], body: bytes
) -> tony_pb2.ToExecutor:
    """The question for a page of the side-car."""
    wanted = tony_pb2.PageWanted(question=question, method=method, target=target, headers=headers, body=body)
    return tony_pb2.ToExecutor(page_wanted=wanted)


def _process(message: tony_pb2.ProcessBeat) -> ProcessStatus:
    return ProcessStatus(
        local_rank=message.local_rank,
        rank=message.rank,
        rss_bytes=message.rss_bytes,
        cpu_percent=message.cpu_percent,
        progress=_progress(message),
    )


def _progress(
    message: Union[tony_pb2.Heartbeat, tony_pb2.ProcessBeat, tony_pb2.ProcessExited],
) -> Optional[TaskProgress]:
    if not message.HasField("progress"):
        return None
    progress = message.progress
    return TaskProgress(
        step=progress.step,
        total_steps=progress.total_steps or None,
        steps_per_second=progress.steps_per_second or None,
        metrics=dict(progress.metrics),
    )
