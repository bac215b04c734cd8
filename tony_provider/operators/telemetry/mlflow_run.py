"""The run of MLflow that belongs to a training: one for all its tries, until it has succeeded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

import attrs

from tony_provider.hooks.masking import mask_of
from tony_provider.hooks.mlflow_server import MlflowServer
from tony_provider.operators.telemetry.ended_try import EndedTry
from tony_provider.operators.telemetry.mlflow_options import MlflowOptions
from tony_provider.operators.telemetry.mlflow_values import parameters, points, verdict_tags
from tony_provider.operators.tries import TaskRun
from tony_provider.runtime.protocol.status import FinalStatus
from tony_provider.runtime.spec.model import JobSpec
from tony_provider.state_store import StateStore
from tony_provider.watching.open_mlflow_run import APPLICATION_TAG, TRAINING_TAG, VERDICT_TAG, OpenMlflowRun

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

STATE_KEY = "tony_mlflow_run"
_MOST_POINTS = 1000  # of one request, as MLflow's servers take them
_MOST_PARAMETERS = 100
_RUN_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")
_STATES = {FinalStatus.SUCCEEDED: "FINISHED", FinalStatus.FAILED: "FAILED", FinalStatus.KILLED: "KILLED"}


@attrs.frozen
class MlflowRun:
    """The run of one training on a tracking server. Every method raises what MLflow's client raises."""

    options: MlflowOptions
    server: MlflowServer
    training: str  # the name of its identity
    run: TaskRun
    store: StateStore

    def begin(self, job: JobSpec, secrets: Mapping[str, str]) -> dict[str, str]:
        """Create or join the run for a new application, and write the job's parameters, masked as in Airflow's logs.

        Returns the variables with which the job's programs find it.
        """
        with self.server.client() as client:
            found = self._found_or_created(client, None)
            if found.info.status != "RUNNING":
                client.update_run(found.info.run_id, status="RUNNING")
            self._write_parameters(client, found, parameters(job, mask_of(secrets)))
        return {"MLFLOW_TRACKING_URI": self.server.uri, "MLFLOW_RUN_ID": found.info.run_id}

    def end(self, ended: EndedTry) -> str:
        """Write how the try went; returns the run's id. Done again, it writes the same."""
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
        """The newest run of the training, unless that has succeeded, with another application.

        A new one begins at ``started_ms``, in epoch milliseconds; default: now.
        """
        experiment = self._experiment(client)
        found = self._remembered(client, experiment) or self._tagged(client, experiment)
        if found is not None:
            tags = found.data.tags
            is_mine = application_id is not None and tags.get(APPLICATION_TAG) == application_id
            if is_mine or tags.get(VERDICT_TAG) != FinalStatus.SUCCEEDED.value:
                self.store.set(STATE_KEY, found.info.run_id, forever=True)
                return found
        name = self.options.run_name or self._name()
        created = client.create_run(experiment, started_ms, self._tags(), name)
        self.store.set(STATE_KEY, created.info.run_id, forever=True)
        return created

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
            return str(found.experiment_id)  # another task was faster

    def _remembered(self, client: MlflowClient, experiment: str) -> Run | None:
        """A hint only: the run may be deleted, on the server that another connection named, or another training's."""
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
        """MLflow refuses another value for a parameter that it has: the first try's stay."""
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
    """The run of a training, by what Airflow's store says; None where it says nothing."""
    known = _remembered(store)
    return OpenMlflowRun(options.conn_id, known, training) if known is not None else None


def _remembered(store: StateStore) -> str | None:
    """What may be a run's id. More people may write it than may change the task, and so may its job."""
    found = store.get(STATE_KEY, forever=True)
    return found if isinstance(found, str) and _RUN_ID.fullmatch(found) else None
