"""The commands ``airflow tony gc``, ``renew``, ``portal rebuild``, ``env build`` and ``runtime build``.

``gc`` removes files of old trainings from the staging directory. ``renew`` sends newer HDFS tokens to running jobs.
``portal rebuild`` adds jobs to the portal's list again. ``env build`` builds a Python environment for jobs, and
``runtime build`` builds a runtime archive for the Python versions of the nodes.
"""

from __future__ import annotations

import re
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import track

from tony_provider.cli.command import (
    Row,
    command,
    hook_of,
    iso_time,
    jobs_of,
    names_a_job,
    print_rows,
    say,
    seconds_of,
)
from tony_provider.cluster.environments.built_environments import BuildFailed, BuildTarget, build_environment
from tony_provider.cluster.environments.requirements import read_requirements
from tony_provider.cluster.environments.runtime_archive import PLATFORMS
from tony_provider.cluster.environments.runtime_archive import build as build_archive
from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.garbage import Garbage, GarbageItem, RemovedGarbage
from tony_provider.cluster.records.summary import JobSummary, summarize
from tony_provider.cluster.training.identity import Identity, labelled_identity
from tony_provider.compat import PORTAL
from tony_provider.hooks.job import TonyJob
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.job_summaries import KEPT, begun_summary, submitted_by
from tony_provider.operators.try_state import TaskInstanceInfo
from tony_provider.runtime.common.clock import moment
from tony_provider.runtime.common.python_packages import Version
from tony_provider.runtime.common.quantities import count, size
from tony_provider.runtime.storage.errors import StorageError
from tony_provider.watching.observation import observe
from tony_provider.watching.token_refresher import TokenRefresher


@command
def gc(args: Namespace) -> None:
    """List unused files, or remove them with ``--yes``. Exits with 1 if some could not be removed."""
    before_ms = _before("--older-than", args.older_than)
    history_ms = _before("--keep-history", args.keep_history) if args.keep_history else None
    with hook_of(args) as hook:
        garbage = hook.garbage(args.models or [], history_ms=history_ms)
        items = garbage.old_items(before_ms)
        going = [item for item in items if not item.kept_because]
        if args.dry_run or not args.yes:
            stay = len(items) - len(going)
            _show(args, hook, [_row(item) for item in items])
            if not items:
                _say(args, f"Nothing in the staging directory has been unchanged for {args.older_than}")
            _say(args, f"{_sum(going)} would be removed with --yes, and {count(stay, 'old item')} kept")
            return
        removed, error = _remove(args, garbage, going, before_ms)
    _show(args, hook, [{**_row(each.item), "outcome": each.problem or "removed"} for each in removed])
    _say(args, f"{_sum([each.item for each in removed if not each.problem])} removed")
    if error:
        raise error
    if left := sum(1 for each in removed if each.problem):
        raise SystemExit(f"{left} of {len(removed)} items could not be removed, or stay after a second check")


def _before(option: str, text: str) -> int:
    """Subtract the duration ``text`` from the current time. Return epoch milliseconds."""
    return int((time.time() - seconds_of(option, text)) * 1000)


def _show(args: Namespace, hook: TonyHook, rows: Sequence[Row]) -> None:
    """Print the rows. A table contains paths relative to the staging directory."""

    def cells(row: Row) -> Row:
        path, day = row["directory"].removeprefix(f"{hook.layout.root}/"), row["changed"][:10]
        return {**row, "directory": path, "size": size(row["size"]), "changed": day}

    if rows or args.output != "table":
        print_rows(rows, args.output, table=cells, whole=True)


def _remove(
    args: Namespace, garbage: Garbage, going: Sequence[GarbageItem], before_ms: int
) -> tuple[list[RemovedGarbage], BaseException | None]:
    """Return the removed items, and the error that stopped the removal, if any."""
    removing: Iterable[RemovedGarbage] = garbage.remove(going, before_ms)
    if args.output == "table":
        console = Console(stderr=True)
        removing = track(removing, "Removing", total=len(going), console=console, disable=not console.is_terminal)
    removed: list[RemovedGarbage] = []
    try:
        removed.extend(removing)
    except (ClusterError, StorageError, KeyboardInterrupt) as error:
        return removed, error
    return removed, None


def _row(item: GarbageItem) -> Row:
    return {
        "what": f"{item.kind.value}, not its history" if item.keeps_history else item.kind.value,
        "directory": item.uri,
        "size": item.size,
        "changed": iso_time(item.newest_ms),
        "stays_because": item.kept_because or None,
    }


def _sum(items: Sequence[GarbageItem]) -> str:
    return f"{len(items)} ({size(sum(each.size for each in items))})"


def _say(args: Namespace, text: str) -> None:
    if args.output == "table":
        say(text)


@command
def renew(args: Namespace) -> None:
    """Send a newer token to each application that needs one: the named ones, or by default all running ones.

    With ``--now``, an application receives a token even if it does not need one yet. Exits with 1 if an application
    needs a token and does not receive it.
    """
    with hook_of(args) as hook:
        named = [job for job, _ in jobs_of(hook, args)] if names_a_job(args) else []
        live = [] if named else [hook.job(each.id) for each in hook.live()]
        wanted = named or [job for job in live if job.identity]
        failed = [job.application_id for job in wanted if not _renew(job, now=args.now)]
    if failed:
        raise SystemExit(f"no new token was sent to {', '.join(failed)}")


def _renew(job: TonyJob, *, now: bool) -> bool:
    """Send a token if the application needs it, and print the result. Return False if a needed token was not sent."""
    seen = observe(job)
    if seen.outage:
        say(f"{job}: {seen.outage}")
        return False
    life = seen.newest.store_token if seen.newest else None
    renewal = TokenRefresher()
    if not seen.runs:
        say(f"{job} does not run")
    elif life is None:
        say(f"{job} has no HDFS token, or has not reported it yet")
    elif not (now or renewal.is_due(seen)):
        say(f"{job} has an HDFS token until {moment(life.until_ms)}: no newer token is needed yet")
    else:
        renewed = renewal.renew(job, seen)
        say("\n".join(renewal.lines()))
        return renewed
    return True


LISTED, KNOWN = "listed", "listed before"


@command
def rebuild(args: Namespace) -> None:
    """Write job summaries from the staging directory to Airflow's database. Exits with 1 if a job is unreadable.

    Skips jobs whose end Airflow already knows.
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
    """For each of the training's newest applications, yield the ID, the outcome, and whether reading failed."""
    for application_id in hook.application_ids(identity)[-KEPT:]:
        try:
            yield application_id, _outcome(hook.job(application_id, identity)), False
        except (ClusterError, StorageError) as error:
            yield application_id, str(error), True


def _outcome(job: TonyJob) -> str:
    from tony_provider.cli.portal_table import kept_instance  # imported here: Airflow before 3.3 has no such table

    labels = job.labels()
    if not {"dag_id", "run_id", "task_id"} <= labels.keys():
        return "no task of a DAG submitted this job"
    index = labels.get("map_index", "-1")
    run = TaskInstanceInfo(
        labels["dag_id"],
        labels["run_id"],
        labels["task_id"],
        int(index) if index.isdecimal() else -1,
        submitted_by(labels),
    )
    if labelled_identity(job.hook.settings.namespace, labels) != job.identity:  # a job may forge its labels
        return f"its labels name another training: {run.task_id} of {run.dag_id}"
    kept = kept_instance(run)
    if not kept:
        return f"Airflow's database has no run {run.run_id} of {run.dag_id}"
    if kept.knows_end_of(job.application_id):
        return KNOWN
    summary = _summary(job, run, kept.run_date)
    if not summary:
        return "neither the cluster nor the store has a state of the job"
    kept.write(summary)
    return LISTED


def _summary(job: TonyJob, run: TaskInstanceInfo, run_date: str | None) -> JobSummary | None:
    application, history = job.application(), job.history()
    if application is None and history.status is None:
        return None
    return summarize(begun_summary(job, run, run_date), history, application)


_PYTHON = re.compile(r"3\.(\d{1,2})")
_OLDEST = 9


@command
def build_env(args: Namespace) -> None:
    """Build an environment. Prints the URI to stdout for use in scripts, and everything else to stderr."""
    python = None if args.python is None else _version(args.python, "3.12")
    target = BuildTarget.of(python, args.platform)
    requirements = read_requirements(Path(args.requirements))
    with hook_of(args) as hook:
        own, shared = hook.built_environments(), hook.shared_environments()
        if args.shared and shared is None:
            raise BuildFailed(f"--shared: the connection {args.conn_id!r} names no `shared_cache`")
        kept = shared if args.shared and shared is not None else own
        others = [] if args.shared or shared is None else [shared]
        try:
            built = build_environment(kept, requirements, target, args.installer, others)
        except OSError as error:
            raise BuildFailed(f"the environment could not be built: {error}") from error
    if built.was_there:
        print("The environment already exists: nothing was built", file=sys.stderr)  # noqa: T201
    say(built.uri)


def _version(text: str, example: str) -> Version:
    match = _PYTHON.fullmatch(text)
    if not match or int(match[1]) < _OLDEST:
        raise BuildFailed(f"--python: {text!r} is not a version of Python; write 3.9 or newer, such as {example}")
    return 3, int(match[1])


def build_runtime(args: Namespace) -> None:
    """Build a runtime archive. Exits with a message if that fails."""
    pythons = [version.strip() for version in ",".join(args.python).split(",") if version.strip()]
    platforms = args.platform.split(",") if args.platform else list(PLATFORMS)
    output = Path(args.output)
    try:
        for version in pythons:
            _version(version, "3.9,3.12")
        build_archive(pythons, output, platforms, object_stores=args.object_stores)
    except (ClusterError, OSError) as error:
        raise SystemExit(str(error)) from error
    say(f"{output.absolute()}: {size(output.stat().st_size)}, for Python {', '.join(pythons)}")
