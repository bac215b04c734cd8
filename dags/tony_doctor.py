"""Find what is wrong with a tony connection, from where jobs are submitted: a worker.

"Test connection" looks from the API server, `airflow tony doctor` from wherever it is typed. Workers may be elsewhere:
behind another firewall, with another Kerberos ticket, another name server. Trigger this DAG, and its task's log says
what the worker sees of every ResourceManager and NameNode, of the queue and the staging directory; the task fails when
something keeps jobs from running. With executors that tell workers apart, set the task's `queue` to look from others.
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
            "tony_default", type="string", title="Connection", section="What to look at", description="Of type tony."
        ),
        "proxy_user": Param(
            None,
            type=["null", "string"],
            title="For this user",
            section="What to look at",
            description="As the operator's argument of that name; empty: the connection's own user.",
        ),
    },
)
def tony_doctor():  # type: ignore[no-untyped-def]
    @task(execution_timeout=timedelta(minutes=1))
    def look() -> list[dict[str, str]]:
        """What was found, one finding after the other; fails with the problems."""
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

    look()


tony_doctor()
