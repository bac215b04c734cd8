"""The history of a job, as a later application master must know it: counters, rebuilt from the event log.

Each note that changes one of them carries the new values as ``data``: a JSON object to be laid over what was known
before, objects in it too (see ``merge``). So the order of the events is all that counts, and older ones can be folded
into one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Optional

import attrs

from tony_provider.runtime.am.session.actions import Verdict
from tony_provider.runtime.am.session.restarts.progress import GroupProgress
from tony_provider.runtime.am.session.restarts.repeated_failures import SeenFailure
from tony_provider.runtime.am.session.state.task_outcome import TaskOutcome
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.codec import from_plain
from tony_provider.runtime.outputs.output_part import OutputPart
from tony_provider.runtime.protocol.export_status import ExportedModel, ExportRequest


@attrs.frozen
class TaskHistory:
    """How often one task has had a container, and its process been started."""

    attempt: int = 1
    start: int = 0  # of its user process, the newest, where that is more than History.start
    outcome: Optional[TaskOutcome] = None  # None: it is not over yet


@attrs.frozen
class History:
    """What former application masters knew of the job. Times are seconds since the epoch."""

    started: Optional[float] = None  # the application
    generation: int = 0  # the newest that began
    resume: Optional[ResumePoint] = None  # that it went on from
    absent: list[str] = attrs.field(factory=list)  # tasks that it did without
    start: int = 0  # every task's user process has been started as often, or more often: see TaskHistory
    anew: dict[str, int] = attrs.field(factory=dict)  # likewise by type, when its tasks were to begin anew
    tasks: dict[str, TaskHistory] = attrs.field(factory=dict)
    restarts: int = 0  # all of them
    restart_times: dict[str, list[float]] = attrs.field(factory=dict)  # those without progress since, by restart group
    failures: dict[str, list[SeenFailure]] = attrs.field(factory=dict)  # of programs, without progress, by group
    moves: dict[str, int] = attrs.field(factory=dict)  # of tasks away from nodes, without progress since, by group
    progress: dict[str, GroupProgress] = attrs.field(factory=dict)  # by restart group
    restarting: dict[str, bool] = attrs.field(factory=dict)  # by group: one was decided, and did not begin yet
    nodes: dict[str, int] = attrs.field(factory=dict)  # containers lost, by host:port
    memory: dict[str, int] = attrs.field(factory=dict)  # MiB by task type, where it was raised
    checkpoint: Optional[ResumePoint] = None  # the newest that was committed
    went_back: str = ""  # URI of an older checkpoint than the newest one, from which the job resumed last
    export: Optional[ExportedModel] = None  # the newest
    export_request: Optional[ExportRequest] = None  # that was not answered
    suspended: Optional[str] = None  # why the job is suspended, or was about to be; None: it is not
    by_windows: bool = False  # it is, since none of its windows is open; else somebody had it so
    out_of_hours: bool = False  # somebody has it go on, though none of its windows is open
    at_rest: bool = False  # it is, and has given everything back
    instances: dict[str, int] = attrs.field(factory=dict)  # tasks by type, where it was resized
    resizing: dict[str, Optional[int]] = attrs.field(factory=dict)  # and where it was to be; None: that is over
    by_policy: dict[str, bool] = attrs.field(factory=dict)  # of those: by the job's own policy, and nobody's word
    most: dict[str, Optional[int]] = attrs.field(factory=dict)  # that this takes of a type, as somebody has said
    vacant: list[str] = attrs.field(factory=list)  # tasks whose containers went to others, and are not asked for
    verdict: Optional[Verdict] = None  # that the job was ending with
    parts: list[OutputPart] = attrs.field(factory=list)  # of outputs: those that count, once all that decide succeeded

    @classmethod
    def read(cls, events: Iterable[Mapping[str, Any]]) -> History:
        """The history by the lines of the event log, oldest first.

        Each is a JSON object with ``time_ms`` and perhaps ``data``. Raises CodecError when they are not what a
        session's notes carried.
        """
        known: dict[str, Any] = {}
        for event in events:
            time_ms, data = event.get("time_ms"), event.get("data")
            if isinstance(time_ms, int):
                known.setdefault("started", time_ms / 1000)
            if isinstance(data, Mapping):
                known = merge(known, data)
        return from_plain(known, cls, ignore_unknown=True)


def merge(known: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """``data`` laid over ``known``, objects within them too."""
    merged = dict(known)
    for key, value in data.items():
        before = merged.get(key)
        merged[key] = merge(before, value) if isinstance(before, Mapping) and isinstance(value, Mapping) else value
    return merged
