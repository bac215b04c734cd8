"""A run of MLflow that is open as long as its job, and its end where no task is left to tell it."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

import attrs

from tony_provider.hooks.mlflow_server import MlflowServer
from tony_provider.runtime.clock import epoch_ms
from tony_provider.runtime.protocol.status import FinalStatus

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
            close(server, self, application_id, reason)
        except Exception as error:  # noqa: BLE001 - MLflow and its servers may raise anything
            log.warning("MLflow's run %s of %s stays open: %s", self.run_id, application_id, error)


def close(server: MlflowServer, run: OpenMlflowRun, application_id: str, reason: str) -> None:
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
