"""A tracking server of MLflow: what Airflow's connection says of it, and a client that asks it."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import attrs
from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook

from tony_provider.exceptions import TonySpecError
from tony_provider.runtime.common.clock import epoch_ms
from tony_provider.runtime.protocol.status import FinalStatus

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

# How the client of MLflow, here and in the job's tasks, is told what the connection says.
_USER, _PASSWORD, _TOKEN = "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN"
# A server that is away is found to be so within a minute.
_DEADLINES = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",  # seconds
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",  # what it would tell its makers is not ours to tell
}
_asking = threading.Lock()  # the environment is that of the whole process


@attrs.frozen
class MlflowServer:
    """Where a tracking server is, and who asks it."""

    uri: str  # http://…, databricks://…, or a store of MLflow's that needs no server, such as sqlite:///…
    credentials: Mapping[str, str] = attrs.field(repr=False)  # by the environment variables that MLflow reads

    @classmethod
    def of_connection(cls, conn_id: str) -> MlflowServer:
        """Of Airflow's connection, whatever its type. Raises TonySpecError; else as Airflow does."""
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
        """The values among the credentials that nobody may see."""
        return [value for name, value in self.credentials.items() if name != _USER]

    @contextmanager
    def client(self) -> Iterator[MlflowClient]:
        """Context manager with a client, which takes deadlines and credentials from the environment at each call.

        One at a time in a process.
        """
        with _asking, _environment({**_DEADLINES, **self.credentials}):
            try:
                from mlflow.tracking import MlflowClient
            except ModuleNotFoundError as error:
                if error.name != "mlflow":
                    raise  # it is there, and lacks something else
                raise ModuleNotFoundError("it needs mlflow-skinny: pip install 'tony-provider[mlflow]'") from error
            yield MlflowClient(tracking_uri=self.uri)


def _address(host: str | None, scheme: str | None, port: int | None) -> str:
    if not host:
        return ""
    address = host if "://" in host else f"{scheme or 'http'}://{host}"
    return f"{address}:{port}" if port else address


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


TRAINING_TAG = "tony.training"  # whose run it is: the name of the training's identity
VERDICT_TAG, APPLICATION_TAG, REASON_TAG = "tony.verdict", "tony.application_id", "tony.reason"

log = logging.getLogger(__name__)
_closing = ThreadPoolExecutor(1, thread_name_prefix="tony-mlflow")  # clients wait for each other anyway


@attrs.frozen
class OpenMlflowRun:
    """A run that is to be closed when its job is killed while nothing but a trigger waits for it."""

    conn_id: str
    run_id: str
    training: str = ""  # whose run it is; empty: of a trigger that was begun by an older release, which did not say

    def close_later(self, application_id: str, reason: str) -> None:
        """Have a thread of its own close the run: nobody waits for a server that may be away."""
        try:
            server = MlflowServer.of_connection(self.conn_id)  # here: not every thread may ask Airflow
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
    """Write that the run's job was killed, unless it is that of an earlier job that has succeeded, or not its own.

    Which run it is came from Airflow's store of the task, where more people write than may change the task. Raises what
    MLflow's client raises.
    """
    with server.client() as client:
        from mlflow.entities import RunTag

        known = client.get_run(run.run_id).data.tags
        if run.training and known.get(TRAINING_TAG) != run.training:
            log.warning("MLflow's run %s, which Airflow's store names, is not that of %s", run.run_id, run.training)
            return
        if known.get(VERDICT_TAG) == FinalStatus.SUCCEEDED.value:
            return
        tags = {VERDICT_TAG: FinalStatus.KILLED.value, APPLICATION_TAG: application_id, REASON_TAG: reason}
        client.log_batch(run.run_id, tags=[RunTag(*tag) for tag in tags.items()])
        client.set_terminated(run.run_id, FinalStatus.KILLED.value, epoch_ms())
