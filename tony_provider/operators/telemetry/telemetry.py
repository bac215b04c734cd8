"""What a try of a training tells others: before its application is submitted, and when the try has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import attrs

from tony_provider.airflow_versions.deferral_errors import TaskDeferred
from tony_provider.cluster.submission_request import SubmissionRequest
from tony_provider.exceptions import TonyTaskKilled
from tony_provider.hooks.mlflow_server import MlflowServer
from tony_provider.operators.telemetry.ended_try import EndedTry
from tony_provider.operators.telemetry.mlflow_options import MlflowOptions
from tony_provider.operators.telemetry.mlflow_run import MlflowRun, known_run
from tony_provider.operators.telemetry.stats import tell_stats
from tony_provider.operators.telemetry.traces import tell_trace, trace_environment
from tony_provider.operators.training_task import TrainingTask
from tony_provider.operators.tries import TaskRun
from tony_provider.state_store import StateStore
from tony_provider.watching.open_mlflow_run import OpenMlflowRun
from tony_provider.watching.watch_result import WatchResult

if TYPE_CHECKING:
    from tony_provider.cluster.history.job_history import JobHistory
    from tony_provider.cluster.history.job_summary import JobSummary
    from tony_provider.cluster.identity import Identity


@attrs.define
class Telemetry:
    """The part of a try that tells others. Whatever becomes of that, a training goes on, and ends as it does.

    Only what is wrong with the argument ``mlflow`` fails the task, before anything is started.
    """

    task: TrainingTask
    run: TaskRun
    identity: Callable[[], Identity]  # of the training; may raise as the hook does
    store: StateStore
    summary: JobSummary | None = None  # where there is one, its curves are told, too
    history: JobHistory | None = None  # what the application has left, where that was read already
    _ended: WatchResult | None = None
    _open: OpenMlflowRun | None = None  # MLflow's run, since it was told that the training begins

    def completed(self, request: SubmissionRequest) -> SubmissionRequest:
        """The request with what its programs are to know of those who are told. Raises TonySpecError."""
        environment, credentials = trace_environment(), {}
        run = self._mlflow_run()
        if run is not None:
            with self._bearing("MLflow does not know of this training yet"):
                environment |= run.begin(request.job, request.secrets)
                self._open = OpenMlflowRun(run.options.conn_id, environment["MLFLOW_RUN_ID"], run.training)
                credentials = dict(run.server.credentials)
        return attrs.evolve(
            request,
            environment={**request.environment, **environment},
            secrets={**credentials, **request.secrets},
        )

    @property
    def open_run(self) -> OpenMlflowRun | None:
        """What is to be closed where no task is left to tell how the training ended; None: nothing that is known."""
        with self._bearing("MLflow's run stays open where a user ends this task"):
            options = MlflowOptions.of(self.task.mlflow)
            if self._open is None and options is not None:
                return known_run(options, self.store, self.identity().name)
        return self._open

    @property
    def secrets(self) -> list[str]:
        """Values that the job's programs know beside the task's own secrets; Airflow masks them from here on."""
        with self._bearing("What the job has printed is shown with MLflow's password, should it be in it"):
            options = MlflowOptions.of(self.task.mlflow)
            if options is not None:
                return MlflowServer.of_connection(options.conn_id).secrets
        return []

    def saw(self, ending: WatchResult) -> None:
        """That there is nothing more to wait for, and what is known of the application by then."""
        self._ended = ending

    def hurry(self, application_id: str, reason: str) -> None:
        """Have MLflow's run closed beside what goes on here: Airflow may end this process before the job has ended."""
        with self._bearing("MLflow's run stays open"):
            if (run := self.open_run) is not None:
                run.close_later(application_id, reason)

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Context manager around every part of a try: the last one tells how it went.

        Nothing is told where there is no application, or it goes on; but MLflow of a run that was begun for one.
        """
        try:
            yield
        except TaskDeferred:
            raise
        except BaseException as error:
            self._tell(error)
            raise
        self._tell(None)

    def _tell(self, error: BaseException | None) -> None:
        application_id, seen = self.task.switch.application_id or "", self._ended
        goes_on = isinstance(error, TonyTaskKilled) and self.task.on_kill_action == "keep"
        if goes_on or (error is None and seen is None) or not (application_id or self._open):
            return
        ended = EndedTry(
            run=self.run,
            application_id=application_id,
            error=error,
            application=seen.application if seen is not None else None,
            status=seen.status if seen is not None else None,
            summary=self.summary,
        )
        with self._bearing("Airflow's metrics are not told of it"):
            tell_stats(ended)
        with self._bearing("The trace of this task lacks the training's spans"):
            tell_trace(ended, lambda: self._history_of(application_id).events)
        with self._bearing("MLflow is not told of it"):
            run = self._mlflow_run()
            if run is not None:
                self.task.log.info("MLflow's run: %s, of %s", run.end(ended), run.server.uri)

    def _history_of(self, application_id: str) -> JobHistory:
        if self.history is not None and self.history.application_id == application_id:
            return self.history
        return self.task.hook.history(self.identity(), application_id)

    def _mlflow_run(self) -> MlflowRun | None:
        """None where none is wanted. Raises TonySpecError."""
        options = MlflowOptions.of(self.task.mlflow)
        if options is None:
            return None
        server = MlflowServer.of_connection(options.conn_id)
        return MlflowRun(options, server, self.identity().name, self.run, self.store)

    @contextmanager
    def _bearing(self, without: str) -> Iterator[None]:
        """Others may raise anything: clients of statsd, exporters, MLflow and its servers."""
        try:
            yield
        except Exception as error:  # noqa: BLE001
            self.task.log.warning("%s: %s: %s", without, type(error).__name__, error)
