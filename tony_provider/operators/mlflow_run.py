"""Record a training as a run on an MLflow server, as the operator's argument ``mlflow`` requests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

import attrs

from tony_provider.arguments import expect_keys, text_of
from tony_provider.cluster.records.history import Mask, mask_values
from tony_provider.cluster.records.summary import Curve
from tony_provider.exceptions import TonySpecError
from tony_provider.hooks.connection import mask_of
from tony_provider.hooks.mlflow_server import (
    APPLICATION_TAG,
    REASON_TAG,
    TRAINING_TAG,
    VERDICT_TAG,
    MlflowServer,
    OpenMlflowRun,
)
from tony_provider.operators.try_state import EndedTry, StateStore, TaskInstanceInfo
from tony_provider.runtime.common.codec import to_plain
from tony_provider.runtime.jobspec.model import JobSpec, TaskSpec
from tony_provider.runtime.jobspec.problems import flattened, shown
from tony_provider.runtime.protocol.status import FinalStatus

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

_KEYS = ["conn_id", "experiment", "run_name"]


@attrs.frozen
class MlflowOptions:
    """The MLflow server that records a training, and the names of the training there."""

    conn_id: str
    experiment: str | None = None
    run_name: str | None = None

    @classmethod
    def of(cls, given: Any) -> MlflowOptions | None:
        """Return the options for the rendered argument, or None if it is empty. Raises TonySpecError."""
        if not given:
            return None
        if isinstance(given, str):
            return cls(given)
        if not isinstance(given, Mapping):
            raise TonySpecError(
                f"mlflow: should be the id of a connection, or a mapping with a conn_id, not {shown(given)}"
            )
        expect_keys("mlflow", given, _KEYS)
        conn_id, experiment, run_name = (text_of("mlflow", given, key) for key in _KEYS)
        if conn_id is None:
            raise TonySpecError("mlflow.conn_id: is needed: the id of a connection with the address of the server")
        return cls(conn_id, experiment, run_name)


_LONGEST_NAME = 250  # characters, like the next two constants; limits of older MLflow servers
_LONGEST_PARAMETER = 500
_LONGEST_TAG = 5000
_NOT_IN_NAMES = re.compile(r"[^\w\-. /]", re.ASCII)


@attrs.frozen
class MetricPoint:
    """A value of a metric at a step and a time."""

    name: str
    value: float
    time_ms: int  # epoch milliseconds
    step: int


def parameters(job: JobSpec, mask: Mask) -> dict[str, str]:
    """Return the settings of the job that differ from the defaults, keyed by their paths.

    The number of instances of each task type is always included, because it is needed to compare trainings.
    """
    of_task = to_plain(TaskSpec(command=""))
    del of_task["instances"]
    defaults = to_plain(JobSpec(framework="", tasks={})) | {"tasks": dict.fromkeys(job.tasks, of_task)}
    usual = flattened(defaults)
    return {
        name(path): str(value)[:_LONGEST_PARAMETER]
        for path, value in flattened(mask_values(to_plain(job), mask)).items()
        if value != usual.get(path) and value not in (None, [], {}, "")
    }


def points(ended: EndedTry) -> list[MetricPoint]:
    """Return points for the job's metrics, times and restarts, and for the curves in its summary."""
    time_ms, status = ended.finished_ms or ended.started_ms or 0, ended.status
    step = (status and status.step) or 0
    values: dict[str, float | None] = dict(status.metrics) if status else {}
    curves = ended.summary.curves if ended.summary else []
    for curve in curves:
        values.pop(curve.metric, None)
    values |= {
        "tony.total_seconds": ended.total_seconds,
        "tony.waiting_seconds": ended.waiting_seconds,
        "tony.training_seconds": ended.training_seconds,
        "tony.steps_per_second": status.steps_per_second if status else None,
        "tony.restarts": status.restarts if status else None,
    }
    newest = [MetricPoint(name(each), value, time_ms, step) for each, value in values.items() if value is not None]
    return [*newest, *(point for curve in curves for point in _of_curve(curve, ended.started_ms or 0))]


def _of_curve(curve: Curve, started_ms: int) -> Iterator[MetricPoint]:
    for step, seconds, value in zip(curve.steps, curve.seconds, curve.values, strict=True):
        yield MetricPoint(name(curve.metric), float(value), started_ms + int(seconds * 1000), step)


def verdict_tags(ended: EndedTry) -> dict[str, str]:
    """Return tags with the result of the try, and the locations of its model and checkpoint."""
    status, checkpoint = ended.status, ended.status.checkpoint_dir if ended.status else None
    found = {
        APPLICATION_TAG: ended.application_id,
        VERDICT_TAG: ended.verdict.value,
        REASON_TAG: ended.reason,
        "tony.queue": ended.queue,
        "tony.model_dir": (status.model_dir if status else None) or "",
        "tony.checkpoint_dir": checkpoint or "",
        "tony.try_number": str(ended.run.try_number),
    }
    return {key: value[:_LONGEST_TAG] for key, value in found.items()}


def name(text: str) -> str:
    """Return the text as a valid name for MLflow."""
    return _NOT_IN_NAMES.sub("_", text)[:_LONGEST_NAME]


STATE_KEY = "tony_mlflow_run"
_MOST_POINTS = 1000  # metric values in one request; a limit of MLflow's servers
_MOST_PARAMETERS = 100
_RUN_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")
_STATES = {FinalStatus.SUCCEEDED: "FINISHED", FinalStatus.FAILED: "FAILED", FinalStatus.KILLED: "KILLED"}


@attrs.frozen
class MlflowRun:
    """The run of one training on a tracking server. Every method raises the exceptions of MLflow's client."""

    options: MlflowOptions
    server: MlflowServer
    training: str  # name of the training's identity
    run: TaskInstanceInfo
    store: StateStore

    def begin(self, job: JobSpec, secrets: Mapping[str, str]) -> dict[str, str]:
        """Create the run of a new application, or reuse the training's run, and write the job's parameters to it.

        Values are masked as in Airflow's logs. Return the environment variables with which the job's programs find the
        run.
        """
        with self.server.client() as client:
            found = self._found_or_created(client, None)
            if found.info.status != "RUNNING":
                client.update_run(found.info.run_id, status="RUNNING")
            self._write_parameters(client, found, parameters(job, mask_of(secrets)))
        return {"MLFLOW_TRACKING_URI": self.server.uri, "MLFLOW_RUN_ID": found.info.run_id}

    def end(self, ended: EndedTry) -> str:
        """Write the result of the try, and return the run's ID. Repeated calls write the same values."""
        with self.server.client() as client:
            from mlflow.entities import Metric, RunTag

            found = self._found_or_created(client, ended.application_id, ended.started_ms)
            run_id: str = found.info.run_id
            measured = iter([Metric(each.name, each.value, each.time_ms, each.step) for each in points(ended)])
            while batch := list(islice(measured, _MOST_POINTS)):
                client.log_batch(run_id, metrics=batch)
            client.log_batch(run_id, tags=[RunTag(*tag) for tag in verdict_tags(ended).items()])
            client.set_terminated(run_id, _STATES[ended.verdict], ended.finished_ms)
        return run_id

    def _found_or_created(self, client: MlflowClient, application_id: str | None, started_ms: int | None = None) -> Run:
        """Return the training's newest run, or a new run.

        Create a new run if there is none, or if the newest run records the success of another application. It
        starts at ``started_ms``, in epoch milliseconds; None for now.
        """
        experiment = self._experiment(client)
        found = self._remembered(client, experiment) or self._tagged(client, experiment)
        tags = found.data.tags if found is not None else {}
        is_mine = application_id is not None and tags.get(APPLICATION_TAG) == application_id
        if found is None or (not is_mine and tags.get(VERDICT_TAG) == FinalStatus.SUCCEEDED.value):
            name = self.options.run_name or self._name()
            found = client.create_run(experiment, started_ms, self._tags(), name)
        self.store.set(STATE_KEY, found.info.run_id, forever=True)
        return found

    def _experiment(self, client: MlflowClient) -> str:
        name = self.options.experiment or self.run.dag_id
        from mlflow.exceptions import MlflowException

        if found := client.get_experiment_by_name(name):
            return str(found.experiment_id)
        try:
            return str(client.create_experiment(name))
        except MlflowException as error:
            found = client.get_experiment_by_name(name)
            if found is None or error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            return str(found.experiment_id)  # another task has just created it

    def _remembered(self, client: MlflowClient, experiment: str) -> Run | None:
        """Return the stored run, or None if it was deleted, or belongs to another server, experiment or training."""
        from mlflow.exceptions import MlflowException

        known = _remembered(self.store)
        if known is None:
            return None
        try:
            found = client.get_run(known)
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return None
            raise
        info, training = found.info, found.data.tags.get(TRAINING_TAG)
        is_ours = (info.lifecycle_stage, info.experiment_id, training) == ("active", experiment, self.training)
        return found if is_ours else None

    def _tagged(self, client: MlflowClient, experiment: str) -> Run | None:
        of_training = f"tags.`{TRAINING_TAG}` = '{self.training}'"
        found = client.search_runs([experiment], of_training, max_results=1, order_by=["attributes.start_time DESC"])
        return next(iter(found), None)

    def _write_parameters(self, client: MlflowClient, found: Run, wanted: Mapping[str, str]) -> None:
        """Write the parameters that the run lacks. MLflow rejects changed values, so values of the first try stay."""
        from mlflow.entities import Param

        fresh = iter([Param(*each) for each in wanted.items() if each[0] not in found.data.params])
        while batch := list(islice(fresh, _MOST_PARAMETERS)):
            client.log_batch(found.info.run_id, params=batch)

    def _name(self) -> str:
        index = f"[{self.run.map_index}]" if self.run.map_index >= 0 else ""
        return f"{self.run.task_id}{index} {self.run.run_id}"

    def _tags(self) -> dict[str, Any]:
        airflow = {f"airflow.{key}": value for key, value in self.run.labels.items() if key != "try_number"}
        source = {"mlflow.source.type": "JOB", "mlflow.source.name": f"{self.run.dag_id}.{self.run.task_id}"}
        return {TRAINING_TAG: self.training, **airflow, **source}


def known_run(options: MlflowOptions, store: StateStore, training: str) -> OpenMlflowRun | None:
    """Return the MLflow run of a training, by the run ID in Airflow's store, or None without a stored ID."""
    known = _remembered(store)
    return OpenMlflowRun(options.conn_id, known, training) if known is not None else None


def _remembered(store: StateStore) -> str | None:
    """Return the stored run ID. It is untrusted: the job and users who may not change the task can write it."""
    found = store.get(STATE_KEY, forever=True)
    return found if isinstance(found, str) and _RUN_ID.fullmatch(found) else None
