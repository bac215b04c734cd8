"""The portal's HTTP API: JSON for its pages, below ``/tony/api``. All of it is GET, and nothing changes anything.

Times ending in ``_ms`` are milliseconds since the epoch, in ``_s`` seconds; numbers that JSON lacks are the texts
"NaN", "Infinity" and "-Infinity". What is not known is null.

Whoever has not logged in gets 401. A job or DAG that somebody may not read is one that does not exist: 404, with the
same words. Arguments that make no sense: 422. Errors have ``{"detail": …}``.

``/jobs?dag_id=&task_id=&run_id=&map_index=&user=&verdict=&text=&after=&before=
&date_after=&date_before=&limit=50&offset=0&order=-submitted``
    ``{"jobs": [row], "total": n}``. ``verdict``: states, with commas between them. ``text``: words that are all
    somewhere in the job's names, user, queue, state or reason. ``map_index``: -1 for what is not mapped. ``after`` and
    ``before``: ISO 8601, of the submission; with ``date_``, of the run's date. ``order``: a name of
    ``job_filter.ORDERS``, downwards after a minus. ``limit``: at most 500.
    A row: the fields of ``JobSummary`` but ``curves``, ``use``, ``advice``, ``fingerprint`` and ``links``; and
    ``state``: the verdict, else one of ``job_row``: RUNNING, UNSEEN, UNWATCHED, LOST; ``task_state``: without a verdict
    that of its task instance in Airflow;
    ``duration_s``, ``waiting_s``, ``memory_gb_hours``, ``vcore_hours``, ``gpu_hours``;
    ``problems``: what of it could not be read, a line each.
``/jobs/{application_id}``
    ``{"summary": JobSummary, "state", "task_state", "duration_s", "waiting_s", "memory_gb_hours", "vcore_hours",
    "gpu_hours", "previous": application_id or null, "others": [application_id], "tensorboard": [command],
    "problems": […]}``. ``previous``: the newest of the same task in the run before, by date, else by
    submission. ``others``: of the same task instance, newest first. ``tensorboard``: what draws its event files, to be
    typed.
``/jobs/{application_id}/history?tasks=worker:0,worker:1``
    ``{"specification", "given", "overrides", "events": […], "samples": {"worker:0": {"time_ms": […], "rss_bytes": […],
    …, "metrics": {"loss": […]}}}, "left_out": [task], "status": JobStatus, "missing": [line]}``. Without ``tasks``
    samples of the first 50; at most 1000 of each. From the store.
``/jobs/{application_id}/specification``
    ``{"specification", "missing": [line]}``, of the same; one small file.
``/jobs/{application_id}/live``
    ``{"application_state", "status": JobStatus or null, "verdict", "reason", "missing": [line]}``: the cluster's word,
    and the status from the master, else from the store; how it has ended by both, null where neither says that.
``/jobs/{application_id}/logs``
    ``{"logs": [{"task", "attempt", "file", "bytes", "modified_ms"}]}``, those that were kept.
``/jobs/{application_id}/logs/{task}?tail=65536``
    text/plain, of the last so many bytes the lines as a terminal shows them, below ``printed.CUT`` where there was
    more; of a running task what its master has. Both need the permission to read task logs.
``/compare?ids=a,b,c``
    ``{"jobs": [JobSummary], "states": […], "missing": [id], "differences": {path: [value of each job]},
    "differences_of": "specifications" or "fingerprints", "reason", "tensorboard": [command]}``, at most 8.
    ``reason``: why it is not the specifications. ``tensorboard``: one for the jobs of each connection and user.
``/dags/{dag_id}/dates?task_id=``
    ``{"tasks": [{"task_id", "map_index", "metrics": [name], "points": [{"date", "run_id", "application_id", "state",
    "metrics", "duration_s", "waiting_s", "restarts", "memory_gb_hours", "vcore_hours", "gpu_hours"}]}]}``: of each run
    the newest job; a gap has null for everything but date and run. The newest 1000 runs, oldest first.

Where the store, the cluster or the connection does not answer within 15 s: 503, ``{"reason": …}``.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

from airflow.api_fastapi.common.db.common import SessionDep
from fastapi import APIRouter, Depends, HTTPException, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, PlainTextResponse, Response

from tony_provider.cluster.history.job_summary import JobSummary
from tony_provider.cluster.history.summarize import reason, verdict
from tony_provider.plugins.portal.access import PortalReader, ReaderDep
from tony_provider.plugins.portal.comparison import differences, entries
from tony_provider.plugins.portal.dates import dates_of, runs_of, with_gaps
from tony_provider.plugins.portal.job_filter import ORDERS, JobFilter, ordered
from tony_provider.plugins.portal.job_row import Row
from tony_provider.plugins.portal.metric_order import plain_in_order
from tony_provider.plugins.portal.previous_job import previous_of
from tony_provider.plugins.portal.printed import end_of_output, first_lines
from tony_provider.plugins.portal.series import columns
from tony_provider.plugins.portal.store import OpenJob, OutOfReach, ask
from tony_provider.plugins.portal.stored_jobs import StoredJobs
from tony_provider.plugins.portal.tensorboard import tensorboard_commands
from tony_provider.runtime.codec import to_plain
from tony_provider.runtime.foreign_json import made_printable
from tony_provider.runtime.text import first_line

_TASKS = 50  # whose samples are given unasked
_EVENTS = 10_000  # the newest, of a job
_COMPARED = 8
_ENTRIES = 10_000  # of a specification that is compared
_MOST_TAIL = 4 << 20  # bytes
_TASK = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*:\d+")
# What may be a character that is not printable, in JSON in ASCII; few answers have any, and large ones take their time.
_ODD = re.compile(r"\\(?:[bfr]|u(?:00[0189]|007f|00ad|061c|180e|200[b-f]|202[89a-e]|206|d[89a-f]|feff|fff[9ab]))")
_FIGURES = ("state", "task_state", "duration_s", "waiting_s", "memory_gb_hours", "vcore_hours", "gpu_hours")


class PlainJson(JSONResponse):
    """JSON in ASCII, of what may hold numbers that JSON lacks, and halves of characters that UTF-8 lacks.

    Its texts are those of jobs, clusters and anybody's tasks, and without what terminals obey, or nothing shows: all
    that the pages show, and people copy, comes by here.
    """

    def render(self, content: Any) -> bytes:
        plain = to_plain(content)
        text = _ascii(plain)
        return (_ascii(made_printable(plain)) if _ODD.search(text) else text).encode()


def _ascii(plain: Any) -> str:
    return json.dumps(plain, allow_nan=False, separators=(",", ":"))


# What is asked of the store, and what becomes JSON of it, is done in threads: one loop answers everybody.
router = APIRouter(default_response_class=PlainJson)


def _no_such(what: str) -> HTTPException:
    return HTTPException(404, f"No such {what}")


def _jobs(reader: ReaderDep, session: SessionDep) -> StoredJobs:
    return StoredJobs(session, reader.readable_dags())


JobsDep = Annotated[StoredJobs, Depends(_jobs)]


def _found(application_id: str, jobs: JobsDep, reader: ReaderDep) -> Row:
    row = jobs.row(application_id)
    if row is None or not reader.may_read(row["dag_id"]):
        raise _no_such("job")
    jobs.session.close()  # whoever goes on to the store needs no connection to the database meanwhile
    return row


FoundDep = Annotated[Row, Depends(_found)]


def _found_with_logs(row: FoundDep, reader: ReaderDep) -> Row:
    if not reader.may_read_logs(row["dag_id"]):
        raise _no_such("job")
    return row


LoggedDep = Annotated[Row, Depends(_found_with_logs)]


def _readable(reader: PortalReader, row: Row, plain: Any) -> Any:
    """What this reader may know of what is told of a job."""
    return plain if reader.may_read_logs(row["dag_id"]) else first_lines(plain)


@router.get("/jobs")
def jobs(
    stored: JobsDep,
    reader: ReaderDep,
    dag_id: str | None = None,
    task_id: str | None = None,
    run_id: str | None = None,
    map_index: Annotated[int | None, Query(ge=-1, lt=1 << 31)] = None,
    user: str = "",
    verdict: str = "",
    text: str = "",
    after: datetime | None = None,
    before: datetime | None = None,
    date_after: datetime | None = None,
    date_before: datetime | None = None,
    limit: Annotated[int, Query(ge=0, le=500)] = 50,
    offset: Annotated[int, Query(ge=0)] = 0,
    order: str = "-submitted",
) -> Response:
    if order.removeprefix("-") not in ORDERS:
        raise HTTPException(422, f"order: should be one of {', '.join(ORDERS)}, with a minus before it or not")
    submitted, dates = {"after": after, "before": before}, {"date_after": date_after, "date_before": date_before}
    wanted = JobFilter(user=user, verdict=verdict, text=text, **submitted, **dates)
    found = stored.rows(dag_id=dag_id or None, task_id=task_id or None, run_id=run_id or None, map_index=map_index)
    printed = {row["dag_id"] for row in found if "\n" in row["reason"]}
    hidden = {dag_id for dag_id in printed if not reader.may_read_logs(dag_id)}
    rows = wanted.chosen(
        {**row, "reason": first_line(row["reason"])} if row["dag_id"] in hidden else row for row in found
    )
    return PlainJson({"jobs": ordered(rows, order)[offset : offset + limit], "total": len(rows)})


@router.get("/jobs/{application_id}")
def job(row: FoundDep, stored: JobsDep, reader: ReaderDep) -> Response:
    summary, problems = stored.summary(row)
    siblings = [each["application_id"] for each in stored.siblings(row)]
    return PlainJson(
        {
            "summary": _readable(reader, row, plain_in_order(summary)),
            **{name: row[name] for name in _FIGURES},
            "previous": previous_of(row, stored.rows(dag_id=row["dag_id"], task_id=row["task_id"])),
            "others": [each for each in siblings if each != row["application_id"]],
            "tensorboard": tensorboard_commands([row]),
            "problems": list(dict.fromkeys([*row["problems"], *problems])),
        }
    )


@router.get("/jobs/{application_id}/history")
async def history(row: FoundDep, reader: ReaderDep, tasks: str = "") -> Response:
    wanted = [each.strip() for each in tasks.split(",") if each.strip()]

    def read(opened: OpenJob) -> Response:
        found = opened.history()
        samples, left_out = columns(found.samples, wanted, _TASKS)
        told = found.specification
        events = found.events[-_EVENTS:]
        if (older := len(found.events) - len(events)) > 0:
            found.missing.append(f"events: {older} older ones are not shown")
        return PlainJson(
            {
                "specification": told.job if told else None,
                "given": told.given if told else None,
                "overrides": told.overrides if told else None,
                "events": _readable(reader, row, events),
                "samples": samples,
                "left_out": left_out,
                "status": _readable(reader, row, to_plain(found.status)) if found.status else None,
                "missing": found.missing,
            }
        )

    return await ask(row, read, large=True)


@router.get("/jobs/{application_id}/specification")
async def specification(row: FoundDep) -> Response:
    def read(opened: OpenJob) -> Response:
        told, missing = opened.specification()
        return PlainJson({"specification": told.job if told else None, "missing": missing})

    return await ask(row, read)


@router.get("/jobs/{application_id}/live")
async def live(row: FoundDep, reader: ReaderDep) -> Response:
    def read(opened: OpenJob) -> Response:
        found = opened.live()
        application, status = found.application, found.status
        if application is None and status is None and found.missing:
            raise OutOfReach("; ".join(found.missing))
        told = {
            "status": to_plain(status) if status else None,
            "verdict": verdict(application, status),
            "reason": reason(application, status),
            "missing": found.missing,
        }
        state = application.state if application else None
        return PlainJson({"application_state": state, **_readable(reader, row, told)})

    return await ask(row, read)


@router.get("/jobs/{application_id}/logs")
async def logs(row: LoggedDep) -> Response:
    def read(opened: OpenJob) -> Response:
        files = opened.log_files()
        return PlainJson({"logs": [{**_named(f.name), "bytes": f.size, "modified_ms": f.modified_ms} for f in files]})

    return await ask(row, read)


def _named(file: str) -> dict[str, Any]:
    """Which task and container a log is of, as ``contract.log_file`` has named it: worker-0.attempt-2.log."""
    task, _, rest = file.partition(".")
    kind, _, index = task.rpartition("-")
    attempt = re.match(r"attempt-(\d+)\.", rest)
    return {"task": f"{kind}:{index}", "attempt": int(attempt[1]) if attempt else 1, "file": file}


@router.get("/jobs/{application_id}/logs/{task}")
async def log(row: LoggedDep, task: str, tail: Annotated[int, Query(ge=1, le=_MOST_TAIL)] = 65536) -> Response:
    if not _TASK.fullmatch(task):
        raise _no_such("log")

    def read(opened: OpenJob) -> str | None:
        data = opened.log_tail(task, tail + 1)
        return None if data is None else end_of_output(data, tail)

    text = await ask(row, read)
    if text is None:
        raise _no_such("log")
    return PlainTextResponse(text, headers={"X-Content-Type-Options": "nosniff"})


def _compared(ids: str, stored: JobsDep, reader: ReaderDep) -> tuple[list[Row], list[JobSummary], list[str]]:
    wanted = list(dict.fromkeys(each.strip() for each in ids.split(",") if each.strip()))
    if len(wanted) > _COMPARED:
        raise HTTPException(422, f"ids: {len(wanted)} are named, and at most {_COMPARED} can be compared")
    found = {each: row for each in wanted if (row := stored.row(each)) and reader.may_read(row["dag_id"])}
    if not found:
        raise _no_such("job")
    summaries = [stored.summary(row)[0] for row in found.values()]
    stored.session.close()
    return list(found.values()), summaries, [each for each in wanted if each not in found]


@router.get("/compare")
async def compare(
    found: Annotated[tuple[list[Row], list[JobSummary], list[str]], Depends(_compared)], reader: ReaderDep
) -> Response:
    rows, summaries, missing = found
    read = await asyncio.gather(*(_read_specification(row) for row in rows))
    return await run_in_threadpool(_comparison, reader, rows, summaries, missing, read)


def _comparison(
    reader: PortalReader,
    rows: list[Row],
    summaries: list[JobSummary],
    missing: list[str],
    read: Sequence[dict[str, Any] | str],
) -> Response:
    """``read``: the specification of each, or why it cannot be read."""
    problems = [
        f"{row['application_id']}: {each}" for row, each in zip(rows, read, strict=True) if isinstance(each, str)
    ]
    documents = [each for each in read if isinstance(each, dict)]
    if problems:
        documents = [each.fingerprint for each in summaries]
    told = zip(rows, [plain_in_order(each) for each in summaries], strict=True)
    return PlainJson(
        {
            "jobs": [_readable(reader, row, each) for row, each in told],
            "states": [row["state"] for row in rows],
            "missing": missing,
            "differences": differences(documents),
            "differences_of": "fingerprints" if problems else "specifications",
            "reason": "; ".join(problems) or None,
            "tensorboard": tensorboard_commands(rows),
        }
    )


def _specification(opened: OpenJob) -> dict[str, Any]:
    found, missing = opened.specification()
    if found is None:
        raise OutOfReach("; ".join(missing))
    if entries(found.job) > _ENTRIES:
        raise OutOfReach(f"its specification has more than {_ENTRIES} entries")
    return found.job


async def _read_specification(row: Row) -> dict[str, Any] | str:
    """It, or why it cannot be read."""
    try:
        return await ask(row, _specification)
    except OutOfReach as error:
        return str(error)


@router.get("/dags/{dag_id}/dates")
def dates(dag_id: str, stored: JobsDep, reader: ReaderDep, task_id: str | None = None) -> Response:
    if not _may_see(reader, stored, dag_id):
        raise _no_such("DAG")
    runs = with_gaps(stored.session, dag_id, runs_of(stored.session, dag_id))
    return PlainJson({"tasks": dates_of(stored.rows(dag_id=dag_id, task_id=task_id or None), runs)})


def _may_see(reader: PortalReader, stored: StoredJobs, dag_id: str) -> bool:
    return dag_id in stored.dags and reader.may_read(dag_id)
