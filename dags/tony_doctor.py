"""
### Check a connection from a worker

"Test connection" runs on the API server, and `airflow tony doctor` on the machine of its user. Jobs are submitted by
workers, which may have another firewall, another Kerberos ticket or another name server.

The log of the task shows the state of each ResourceManager and NameNode, of the queue and of the staging directory, as
the worker finds them. The task fails if a problem prevents jobs. To check other workers, set the `queue` of the task.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import Param, dag, get_current_context, task


@dag(
    schedule=None,
    tags=["tony", "example"],
    doc_md=__doc__,
    params={
        "tony_conn_id": Param(
            "tony_default",
            type="string",
            title="Connection",
            section="Connection",
            description="ID of a connection of type tony.",
        ),
        "proxy_user": Param(
            None,
            type=["null", "string"],
            title="Proxy user",
            section="Connection",
            description="User to act for, as the operator's argument proxy_user. Default: the connection's user.",
        ),
    },
)
def tony_doctor():  # type: ignore[no-untyped-def]
    @task(execution_timeout=timedelta(minutes=1))
    def diagnose() -> list[dict[str, str]]:
        """Log all findings, and return their subjects and outcomes. Fail if there are problems."""
        from airflow.sdk.exceptions import AirflowFailException

        from tony_provider.hooks.tony import TonyHook

        params = get_current_context()["params"]
        with TonyHook(params["tony_conn_id"], params["proxy_user"]) as hook:
            report = hook.diagnose()
        for finding in report.findings:
            print(f"[{finding.outcome.value}] {finding}")
        if not report.is_good:
            raise AirflowFailException(str(report))
        return [{"what": finding.what, "outcome": finding.outcome.value} for finding in report.findings]

    diagnose()


tony_doctor()
