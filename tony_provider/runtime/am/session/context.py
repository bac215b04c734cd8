"""The context of a session: its state and its parts, which reach each other through it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tony_provider.runtime.am.session.containers import Containers
from tony_provider.runtime.am.session.restart_policy import RestartGroups
from tony_provider.runtime.am.session.session_state import SessionState
from tony_provider.runtime.frameworks.base import Framework
from tony_provider.runtime.jobspec.opening_hours import ZoneOffset

if TYPE_CHECKING:
    from tony_provider.runtime.am.session.checkpoints import SessionCheckpoints
    from tony_provider.runtime.am.session.completion import EarlyEnds, FinishedTasks, JobCompletion
    from tony_provider.runtime.am.session.reports import ContainerFailures, ExecutorReports
    from tony_provider.runtime.am.session.resizing import Elastic, SpareRoom
    from tony_provider.runtime.am.session.restarts import ProcessStarts, Restarts
    from tony_provider.runtime.am.session.sizing import TypeSizes
    from tony_provider.runtime.am.session.stages import Stages
    from tony_provider.runtime.am.session.suspension import Suspension
    from tony_provider.runtime.am.session.timeouts import Liveness


class SessionContext:
    """The state and the parts of one session."""

    framework: Framework
    zone_offsets: Sequence[ZoneOffset]  # of the time zone of the job's windows
    state: SessionState
    containers: Containers
    groups: RestartGroups
    sizes: TypeSizes
    completion: JobCompletion
    early_ends: EarlyEnds
    finished_tasks: FinishedTasks
    starts: ProcessStarts
    restarts: Restarts
    container_failures: ContainerFailures
    reports: ExecutorReports
    checkpoints: SessionCheckpoints
    stages: Stages
    suspension: Suspension
    elastic: Elastic
    spare_room: SpareRoom
    liveness: Liveness


class Part:
    """A part of the session. Its times are the session's, in seconds."""

    def __init__(self, context: SessionContext) -> None:
        """Create the part before the parts that ``context`` receives later. Methods may use every part."""
        self._context = context
        self._state = context.state
        self._containers = context.containers
        self._groups = context.groups

    @property
    def _sizes(self) -> TypeSizes:
        return self._context.sizes

    @property
    def _completion(self) -> JobCompletion:
        return self._context.completion

    @property
    def _finished(self) -> FinishedTasks:
        return self._context.finished_tasks

    @property
    def _starts(self) -> ProcessStarts:
        return self._context.starts

    @property
    def _restarts(self) -> Restarts:
        return self._context.restarts

    @property
    def _checkpoints(self) -> SessionCheckpoints:
        return self._context.checkpoints

    @property
    def _suspension(self) -> Suspension:
        return self._context.suspension
