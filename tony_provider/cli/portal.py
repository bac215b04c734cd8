"""``airflow tony portal rebuild``: list jobs in the portal by what they have left on the store."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import Iterator

from tony_provider.airflow_versions.capabilities import PORTAL
from tony_provider.cli.command import command
from tony_provider.cli.named import hook_of
from tony_provider.cli.printing import print_rows, say
from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.history.job_summary import JobSummary
from tony_provider.cluster.history.summarize import RunFacts, summarize
from tony_provider.cluster.identity import Identity
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.summary import submitted_by, traces
from tony_provider.operators.summary_keeper import KEPT
from tony_provider.operators.tries import TaskRun
from tony_provider.runtime.storage.errors import StorageError

LISTED, KNOWN = "listed", "listed before"


@command
def rebuild(args: Namespace) -> None:
    """The command. Reads the staging directory and writes to Airflow's database. Exits with 1 if a job is unreadable.

    Leaves the jobs alone whose end Airflow knows already.
    """
    if not PORTAL.is_here:
        PORTAL.refuse("The portal")
    rows = []
    failures = 0
    with hook_of(args) as hook:
        for identity in hook.trainings():
            for application_id, outcome, failed in _rebuilt(hook, identity):
                rows.append({"application_id": application_id, "training": identity.slug, "outcome": outcome})
                failures += failed
    shown = [row for row in rows if row["outcome"] != KNOWN]
    if shown or args.output != "table":
        print_rows(shown, args.output, whole=True)
    if args.output == "table":
        counts = Counter(row["outcome"] if row["outcome"] in (LISTED, KNOWN) else "left out" for row in rows)
        say(", ".join(f"{counts[each]} {each}" for each in (LISTED, KNOWN, "left out")))
    if failures:
        raise SystemExit(f"{failures} of {len(rows)} jobs could not be read")


def _rebuilt(hook: TonyHook, identity: Identity) -> Iterator[tuple[str, str, bool]]:
    """Yield the id, the outcome and whether it is a failure, for each of the training's newest applications."""
    for application_id in hook.application_ids(identity)[-KEPT:]:
        try:
            yield application_id, _outcome(hook, identity, application_id), False
        except (ClusterError, StorageError) as error:
            yield application_id, str(error), True


def _outcome(hook: TonyHook, identity: Identity, application_id: str) -> str:
    from tony_provider.cli.portal_table import kept_instance  # here: Airflow before 3.3 has no such table

    labels = hook.labels(identity, application_id)
    if not {"dag_id", "run_id", "task_id"} <= labels.keys():
        return "no task of a DAG has submitted it"
    index = labels.get("map_index", "-1")
    run = TaskRun(
        labels["dag_id"],
        labels["run_id"],
        labels["task_id"],
        int(index) if index.isdecimal() else -1,
        submitted_by(labels),
    )
    if run.identity(hook, labels.get("checkpoint_key")) != identity:  # a job may write its own labels
        return f"its labels name another training: {run.task_id} of {run.dag_id}"
    kept = kept_instance(run)
    if kept is None:
        return f"Airflow's database has no run {run.run_id} of {run.dag_id}"
    if kept.knows_end_of(application_id):
        return KNOWN
    summary = _summary(hook, run, kept.run_date, identity, application_id)
    if summary is None:
        return "neither the cluster nor the store knows how it went"
    kept.write(summary)
    return LISTED


def _summary(
    hook: TonyHook, run: TaskRun, run_date: str | None, identity: Identity, application_id: str
) -> JobSummary | None:
    application, history = hook.application(application_id), hook.history(identity, application_id)
    if application is None and history.status is None:
        return None
    facts = RunFacts(
        **traces(hook, identity, application_id),
        dag_id=run.dag_id,
        run_id=run.run_id,
        task_id=run.task_id,
        map_index=run.map_index,
        try_number=run.try_number,
        run_date=run_date,
        tony_conn_id=hook.tony_conn_id,
        proxy_user=hook.proxy_user,
    )
    return summarize(facts, history, application)
