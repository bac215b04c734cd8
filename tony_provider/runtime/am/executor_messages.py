"""Convert between protocol messages and the session's classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Callable, Optional, Union

from tony_provider.runtime.am.session.actions import AskExport, SendRendezvous, ShutdownTask, StopProcess
from tony_provider.runtime.am.session.session_state import Heartbeat, ProcessEnd, ProcessStack, Settlement
from tony_provider.runtime.am.snapshot_rounds import SaveEntry, TaskDirectory
from tony_provider.runtime.common.clock import epoch_ms
from tony_provider.runtime.frameworks.base import ClusterSpec
from tony_provider.runtime.outputs.publication import OutputPart
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.protocol.limits import valid_parameters
from tony_provider.runtime.protocol.messages import ClusterPacker, resume_message
from tony_provider.runtime.protocol.metrics import METRICS, MetricValues
from tony_provider.runtime.protocol.status import ExportedModel, ProcessStatus, TaskProgress
from tony_provider.runtime.protocol.store_tokens import StoreToken


def heartbeat(message: tony_pb2.Heartbeat) -> Heartbeat:
    """Convert a heartbeat for the session."""
    return Heartbeat(
        values=metric_values(message),
        progress=_progress(message),
        activity=message.activity,
        upload_problem=message.trouble,
        notices=tuple(message.notices),
        ready=message.ready,
        output_problem=message.output_problem,
        parameters=valid_parameters(message.parameters),
        further=[_process(each) for each in message.further],
    )


_FIELDS = tuple(
    (metric.name, tony_pb2.Heartbeat.DESCRIPTOR.fields_by_name[metric.name].has_presence) for metric in METRICS
)


def metric_values(message: tony_pb2.Heartbeat) -> MetricValues:
    """Return the known values of the metrics in a heartbeat."""
    return {name: getattr(message, name) for name, is_optional in _FIELDS if not is_optional or message.HasField(name)}


def process_end(message: tony_pb2.ProcessExited) -> ProcessEnd:
    """Convert the message about the end of a user process for the session."""
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
        parameters=valid_parameters(message.parameters),
        output_problem=message.output_problem,
        node_problem=message.node_problem,
        process=message.process,
        outputs=tuple(OutputPart(each.name, each.part, each.files, each.bytes) for each in message.outputs),
    )


def stacks(message: tony_pb2.Stacks) -> tuple[ProcessStack, ...]:
    """Convert the stack traces of user processes for the session."""
    return tuple(ProcessStack(each.pid, each.command, each.process, tuple(each.frames)) for each in message.processes)


def settlement(message: tony_pb2.Settled) -> Settlement:
    """Convert the last message about a start of user processes for the session."""
    unstored = message.unstored if message.HasField("unstored") else None
    return Settlement(message.start, message.problem, tuple(message.notices), unstored)


def welcome(am_attempt: int, heartbeat_seconds: float) -> tony_pb2.ToExecutor:
    """Return the master's first message on a stream, with its attempt number and the heartbeat interval."""
    greeting = tony_pb2.Welcome(am_attempt=am_attempt, heartbeat_seconds=heartbeat_seconds, clock_ms=epoch_ms())
    return tony_pb2.ToExecutor(welcome=greeting)


class Rendezvous:
    """Builds the messages of each rendezvous. All of them contain the cluster's addresses, which are encoded once."""

    def __init__(self) -> None:
        self._cluster: Optional[ClusterSpec] = None  # newest cluster specification; ``_packed`` is its encoded form
        self._packed = b""
        self._packer = ClusterPacker()

    def messages(self, action: SendRendezvous) -> Iterator[tuple[str, Callable[[], tony_pb2.ToExecutor]]]:
        """Yield each task with a function that builds the task's message.

        Each message contains a copy of all addresses, so build a message only when it is sent.
        """
        common = tony_pb2.Rendezvous(
            generation=action.cluster.generation,
            cluster=self._pack(action.cluster),
            resume=resume_message(action.resume),
            keep_checkpoints=action.keep_checkpoints,
            preflight=action.preflight.value if action.preflight else "",
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
    """Return the message that makes an executor stop its user process but continue to run."""
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


def shutdown(action: ShutdownTask) -> tony_pb2.ToExecutor:
    """Return the message that makes an executor stop its user process and exit."""
    return tony_pb2.ToExecutor(shutdown=tony_pb2.Shutdown(grace_seconds=action.grace, reason=action.reason))


def checkpoint_answer(request: int, granted: bool, reason: str, resend: bool) -> tony_pb2.ToExecutor:
    """Return the answer to an executor's commit request. ``reason``: why the master rejects the request.

    ``resend``: the executor must upload all files again, because objects of former checkpoints are missing.
    """
    answer = tony_pb2.CheckpointAnswer(request=request, granted=granted, reason=reason, resend=resend)
    return tony_pb2.ToExecutor(checkpoint=answer)


def take_snapshot(
    generation: int, start: int, version: int, save: int, uri: str, leave_out: Sequence[str]
) -> tony_pb2.ToExecutor:
    """Return the order to upload the checkpoint directory in the state of ``version``."""
    take = tony_pb2.TakeSnapshot(
        generation=generation, start=start, wanted=True, version=version, save=save, uri=uri, leave_out=leave_out
    )
    return tony_pb2.ToExecutor(take_snapshot=take)


def no_snapshot(generation: int, start: int, reason: str) -> tony_pb2.ToExecutor:
    """Return the message that cancels snapshots of this start."""
    return tony_pb2.ToExecutor(take_snapshot=tony_pb2.TakeSnapshot(generation=generation, start=start, reason=reason))


def task_directory(attempt: int, message: tony_pb2.CheckpointState) -> TaskDirectory:
    """Convert the state of a checkpoint directory for the snapshot rounds."""
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
    """Return the message that makes an executor request a checkpoint from its user process."""
    return tony_pb2.ToExecutor(checkpoint_now=tony_pb2.CheckpointNow(reason=reason))


def export_now(action: AskExport) -> tony_pb2.ToExecutor:
    """Return the message that makes an executor request a model export from its user process."""
    return tony_pb2.ToExecutor(export_now=tony_pb2.ExportNow(asked_ms=action.asked_ms, reason=action.reason))


def exported(message: tony_pb2.Exported) -> ExportedModel:
    """Convert the message about an export for the session."""
    return ExportedModel(message.step, message.uri, message.exported_ms, message.asked_ms)


def newer_token(token: StoreToken) -> tony_pb2.ToExecutor:
    """Return the message with newer tokens of the store and of the other services that it names."""
    others = [tony_pb2.OtherToken(name=each.name, text=each.text, until_ms=each.until_ms) for each in token.others]
    newer = tony_pb2.NewerToken(text=token.text, until_ms=token.until_ms, others=others)
    return tony_pb2.ToExecutor(newer_token=newer)


def tail_wanted(question: int, size: int, after: Optional[int] = None) -> tony_pb2.ToExecutor:
    """Return the request for the end of a task's log.

    ``size``: maximum size in bytes. ``after``: optional offset to read from, in bytes.
    """
    return tony_pb2.ToExecutor(tail_wanted=tony_pb2.TailWanted(question=question, bytes=size, after=after))


def page_wanted(
    question: int, *, method: str, target: str, headers: Mapping[str, str], body: bytes
) -> tony_pb2.ToExecutor:
    """Return the request for a page of the sidecar. ``target``: quoted path and query below the sidecar's root."""
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
