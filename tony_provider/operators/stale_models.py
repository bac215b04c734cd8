"""Operator that lists the DAG runs whose models no longer match their data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperator

from tony_provider.arguments import DEFAULT_CONN_ID

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from tony_provider.cluster.records.staleness import StaleRun


class TonyStaleModels(BaseOperator):
    """Return the DAG runs to repeat, because the data of their models or of an ancestor's model has changed.

    The result is a list of mappings with ``trigger_dag_id`` and ``trigger_run_id``, for
    ``TriggerDagRunOperator.partial(reset_dag_run=True, …).expand_kwargs(…)``. It omits runs with a stale ancestor that
    must be repeated first. So a scheduled DAG repeats all of them, one generation in each of its runs. It also omits
    runs that are queued, running or deleted in Airflow.

    The operator logs the reason for each stale model. See the guide "Retrain models whose data has changed".

    :param dag_ids: only models of these DAGs. The default is all DAGs. Templated.
    :param most: maximum number of runs to return. Runs with the oldest models come first.
    :param tony_conn_id: ID of the connection of the trainings. Templated.
    :param proxy_user: user of the trainings, if they do not run as the connection's user. Templated.
    """

    template_fields: Sequence[str] = ("dag_ids", "tony_conn_id", "proxy_user")

    def __init__(
        self,
        *,
        dag_ids: Sequence[str] | None = None,
        most: int = 10,
        tony_conn_id: str = DEFAULT_CONN_ID,
        proxy_user: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.dag_ids = dag_ids
        self.most = most
        self.tony_conn_id = tony_conn_id
        self.proxy_user = proxy_user

    def execute(self, context: Context) -> list[dict[str, str]]:
        """Compare the models with their data. Raises ClusterError, StorageError."""
        from tony_provider.cluster.records.staleness import stale_runs
        from tony_provider.hooks.tony import TonyHook

        with TonyHook(self.tony_conn_id, self.proxy_user) as hook:
            reports = hook.stale_models(dag_ids=self.dag_ids)
        for report in reports:
            if report.reason:
                self.log.info("%s is %s: %s", report.training, report.state.value, report.reason)
        runs = stale_runs(reports)
        ready = [run for run, before in runs.items() if not before]
        if runs and not ready:
            self.log.warning("These runs wait for each other; repeat their tasks one by one: %s", [*map(str, runs)])
        # Runs that have failed come last, so that they do not keep others from being repeated.
        ended = chain.from_iterable(self._in_state(state, ready, context) for state in ("success", "failed"))
        found = list(islice(ended, self.most))
        if left := [str(run) for run in ready if run not in found]:
            self.log.info("Not repeated now, because they are active, deleted, or more than %d: %s", self.most, left)
        return [{"trigger_dag_id": run.dag_id, "trigger_run_id": run.run_id} for run in found]

    def _in_state(self, state: str, runs: Sequence[StaleRun], context: Context) -> Iterator[StaleRun]:
        for run in runs:
            if context["ti"].get_dr_count(dag_id=run.dag_id, run_ids=[run.run_id], states=[state]):
                yield run
