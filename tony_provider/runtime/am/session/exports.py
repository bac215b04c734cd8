"""Exports of the model on its way: asked for by somebody or at every Nth checkpoint, and what becomes of that."""

from __future__ import annotations

from typing import Optional

import attrs

from tony_provider.runtime.am.session.actions import AskExport
from tony_provider.runtime.am.session.state.session_state import SessionState
from tony_provider.runtime.am.session.state.task import Task
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.protocol.export_status import ExportedModel, ExportRequest


class SessionExports:
    """The part of the session that asks the leading task for exports of its model.

    A request stays open until an export has come after it: whatever starts again in between is asked anew. Nothing of
    the job depends on it.
    """

    def __init__(self, state: SessionState) -> None:
        self._state = state

    def ask(self, reason: str, asked_ms: int) -> None:
        """Ask for an export, in place of what is asked for already."""
        state, leader = self._state, self._state.leader
        if leader is None:
            state.note("export_requested", f"{reason}; the job has no task that could make one")
            return
        open_one = state.export_request
        state.export_request = ExportRequest(asked_ms, reason, open_one.since_ms if open_one else asked_ms)
        asked = self.ask_again(leader)
        when = "" if asked else f"; {leader.name} is asked once it runs"
        state.note("export_requested", f"{reason}{when}", data=self._request_data())

    def ask_again(self, task: Task) -> bool:
        """Ask the leading task what it may not have heard. False when there is nobody to ask, or nothing."""
        request = self._state.export_request
        if request is None or task is not self._state.leader or not task.runs:
            return False
        self._state.emit(AskExport(task.name, request.asked_ms, request.reason))
        return True

    def exported(self, task: Task, export: ExportedModel) -> None:
        """An export is on the store. Told again, it changes nothing."""
        state, request = self._state, self._state.export_request
        answered = _answered(request, export)
        known = state.export is not None and state.export.uri == export.uri
        if task is not self._state.leader or (known and not answered):
            return
        state.export, state.export_problem = export, ""
        if answered:
            state.export_request = None
        data = {"export": attrs.asdict(export), **self._request_data()}
        state.note("exported", f"the model of step {export.step} is in {export.uri}", task, data)

    def failed(self, task: Task, export: ExportedModel, problem: str) -> None:
        """An export will not come to the store. Told again, it changes nothing."""
        state, request = self._state, self._state.export_request
        told = f"the export of step {export.step} is not on the store: {problem}"
        if task is not self._state.leader or state.export_problem == told:
            return
        state.export_problem = told
        if request is not None and _answered(request, export):
            state.export_request = attrs.evolve(request, problem=told)
        state.note("export_failed", told, task, self._request_data())

    def committed(self, point: ResumePoint, before: Optional[ResumePoint], now: float) -> None:
        """A checkpoint is on the store: with ``export.every``, it may be the one to export at.

        ``before`` is the newest one before it.
        """
        every = self._state.job.export.every
        leader = self._state.leader
        if every is None or leader is None or not leader.runs:
            return
        former = before.save if before else point.save - 1
        if point.save // every > former // every:  # saves are counted over all applications of the training
            self.ask(f"export.every: {point.label} is on the store", round((self._state.epoch + now) * 1000))

    def _request_data(self) -> dict[str, object]:
        request = self._state.export_request
        return {"export_request": attrs.asdict(request) if request else None}


def _answered(request: Optional[ExportRequest], export: ExportedModel) -> bool:
    """Whether there is a request, and the export came after it."""
    return request is not None and export.asked_ms >= request.asked_ms
