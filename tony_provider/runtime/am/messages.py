"""Between the protocol's messages and the session's own words."""

from __future__ import annotations

from typing import Optional, Union

from tony_provider.runtime.am.session.task import Beat, ProcessEnd
from tony_provider.runtime.frameworks.base import ClusterSpec
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.protocol.status import TaskProgress


def beat(message: tony_pb2.Heartbeat) -> Beat:
    return Beat(message.rss_bytes, message.cpu_percent, _progress(message), message.activity)


def process_end(message: tony_pb2.ProcessExited) -> ProcessEnd:
    return ProcessEnd(
        start=message.start,
        exit_code=message.exit_code,
        signal=message.signal,
        out_of_memory=message.out_of_memory,
        stopped=message.stopped,
        output_tail=message.output_tail,
        error=message.error,
        model_dir=message.model_dir,
        progress=_progress(message),
    )


def rendezvous(cluster: ClusterSpec) -> tony_pb2.ToExecutor:
    tasks = [
        tony_pb2.TaskAddress(type=task.type, index=task.index, role=task.role.value, host=task.host, ports=task.ports)
        for task in cluster.tasks
    ]
    return tony_pb2.ToExecutor(rendezvous=tony_pb2.Rendezvous(generation=cluster.generation, tasks=tasks))


def shutdown(grace: float, reason: str) -> tony_pb2.ToExecutor:
    return tony_pb2.ToExecutor(shutdown=tony_pb2.Shutdown(grace_seconds=grace, reason=reason))


def _progress(message: Union[tony_pb2.Heartbeat, tony_pb2.ProcessExited]) -> Optional[TaskProgress]:
    if not message.HasField("progress"):
        return None
    progress = message.progress
    return TaskProgress(
        step=progress.step,
        total_steps=progress.total_steps or None,
        steps_per_second=progress.steps_per_second or None,
        metrics=dict(progress.metrics),
    )
