"""MLflow tracking server from an Airflow connection, its client, and the closing of a killed job's run."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import attrs
from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook

from tony_provider.exceptions import TonySpecError
from tony_provider.hooks.connection import environment
from tony_provider.runtime.common.clock import epoch_ms
from tony_provider.runtime.protocol.status import FinalStatus

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

log = logging.getLogger(__name__)


# Environment variables with the connection's credentials for the MLflow client, here and in the job's tasks.
_USER, _PASSWORD, _TOKEN = "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN"
# With these settings, the MLflow client detects an unreachable server within a minute.
_DEADLINES = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",  # seconds
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",  # whether to send telemetry is the user's decision
}
_asking = threading.Lock()  # the client is configured by environment variables, which all threads share


@attrs.frozen
class MlflowServer:
    """Address and credentials of a tracking server."""

    uri: str  # http://…, databricks://…, or a local MLflow store such as sqlite:///…
    credentials: Mapping[str, str] = attrs.field(repr=False)  # by the environment variables of MLflow

    @classmethod
    def of_connection(cls, conn_id: str) -> MlflowServer:
        """Read an Airflow connection of any type. Raises TonySpecError, and the errors of Airflow."""
        try:
            found = BaseHook.get_connection(conn_id)
        except AirflowNotFoundException as error:
            raise TonySpecError(
                f"mlflow: there is no connection {conn_id!r}. Add it with\n"
                f"  airflow connections add {conn_id} --conn-type http --conn-host http://mlflow.example.com:5000"
            ) from error
        uri = found.extra_dejson.get("tracking_uri") or _address(found.host, found.schema, found.port)
        if not uri:
            raise TonySpecError(
                f"mlflow: the connection {conn_id!r} has no host, such as http://mlflow.example.com:5000"
            )
        secret = found.password or ""
        if not secret:
            return cls(uri, {})
        return cls(uri, {_USER: found.login, _PASSWORD: secret} if found.login else {_TOKEN: secret})

    @property
    def secrets(self) -> list[str]:
        """Return the credentials that must be masked."""
        return [value for name, value in self.credentials.items() if name != _USER]

    @contextmanager
    def client(self) -> Iterator[MlflowClient]:
        """Context manager with a client, which reads deadlines and credentials from the environment at each call.

        Only one client exists in a process at a time, because the context sets these environment variables.
        """
        with _asking, environment({**_DEADLINES, **self.credentials}):
            try:
                from mlflow.tracking import MlflowClient
            except ModuleNotFoundError as error:
                if error.name != "mlflow":
                    raise  # mlflow itself is installed, but another module is missing
                raise ModuleNotFoundError(
                    "mlflow-skinny is not installed: pip install 'tony-provider[mlflow]'"
                ) from error
            yield MlflowClient(tracking_uri=self.uri)


def _address(host: str | None, scheme: str | None, port: int | None) -> str:
    if not host:
        return ""
    address = host if "://" in host else f"{scheme or 'http'}://{host}"
    return f"{address}:{port}" if port else address


TRAINING_TAG = "tony.training"  # identifies the training that the run belongs to
VERDICT_TAG, APPLICATION_TAG, REASON_TAG = "tony.verdict", "tony.application_id", "tony.reason"

_closing = ThreadPoolExecutor(1, thread_name_prefix="tony-mlflow")  # a process has one client at a time


@attrs.frozen
class OpenMlflowRun:
    """A run to close if its job is killed while only a trigger waits for the job."""

    conn_id: str
    run_id: str
    training: str = ""  # name of the training that owns the run; empty if an older release deferred the task

    def close_later(self, application_id: str, reason: str) -> None:
        """Close the run in a separate thread, so that an unreachable server delays nothing."""
        try:
            server = MlflowServer.of_connection(self.conn_id)  # read here, because other threads must not query Airflow
        except Exception as error:  # noqa: BLE001 - Airflow may raise anything
            log.warning("MLflow's run %s of %s stays open: %s", self.run_id, application_id, error)
        else:
            _closing.submit(self._close, server, application_id, reason)

    def _close(self, server: MlflowServer, application_id: str, reason: str) -> None:
        try:
            close_killed_run(server, self, application_id, reason)
        except Exception as error:  # noqa: BLE001 - MLflow and its servers may raise anything
            log.warning("MLflow's run %s of %s stays open: %s", self.run_id, application_id, error)


def close_killed_run(server: MlflowServer, run: OpenMlflowRun, application_id: str, reason: str) -> None:
    """Record that the run's job was killed. Do nothing if the run belongs to another training, or records a success.

    The run ID is from the task's state in Airflow. It is untrusted, because users who may not change the task can write
    it. Raises the errors of MLflow's client.
    """
    with server.client() as client:
        from mlflow.entities import RunTag

        known = client.get_run(run.run_id).data.tags
        if run.training and known.get(TRAINING_TAG) != run.training:
            log.warning("MLflow's run %s, which Airflow's store names, does not belong to %s", run.run_id, run.training)
            return
        if known.get(VERDICT_TAG) == FinalStatus.SUCCEEDED.value:
            return
        tags = {VERDICT_TAG: FinalStatus.KILLED.value, APPLICATION_TAG: application_id, REASON_TAG: reason}
        client.log_batch(run.run_id, tags=[RunTag(*tag) for tag in tags.items()])
        client.set_terminated(run.run_id, FinalStatus.KILLED.value, epoch_ms())
