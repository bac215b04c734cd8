"""HTTP API of the portal: job lists, one job's history, live state and logs, comparisons, and results by date.

A FastAPI app of a plugin has no authentication by default. So each route depends on ``ReaderDep``, which logs the user
in through Airflow and checks Airflow's permissions for each DAG.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Annotated, Any, Literal

import attrs
from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import ConnectionDetails, DagAccessEntity, DagDetails
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.configuration import conf
from airflow.models.connection import Connection
from airflow.models.dag import DagModel
from airflow.models.log import Log
from airflow.utils.state import State
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Query, Request
from itsdangerous import BadData, URLSafeTimedSerializer
from pydantic import BaseModel, Field
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, PlainTextResponse, Response

from tony_provider.cluster.records.staleness import ModelReport, ModelState, stale_runs
from tony_provider.cluster.records.summary import JobSummary, reason, verdict
from tony_provider.hooks.job import TonyJob
from tony_provider.hooks.tony import TonyHook
from tony_provider.portal.job_views import (
    MASTER_SECONDS,
    METRICS,
    JobUnavailable,
    UserOrder,
    differences,
    end_of_output,
    has_event_files,
    live_state,
    offered_orders,
    plain_in_order,
    read_from_connection,
    read_from_job,
    resizable_types,
    sample_columns,
    specification_of,
    tensorboard_commands,
    without_output,
)
from tony_provider.portal.pages import PortalFiles
from tony_provider.portal.store_jobs import CONNECTION_LISTINGS, RUNNING_JOBS, ConnectionJobs
from tony_provider.portal.stored_jobs import (
    COLUMN,
    ORDERS,
    ROW_CACHE,
    RUNNING,
    UNSEEN,
    JobFilter,
    Row,
    StoredJobs,
    columns_of,
    dates_of,
    describe_retries,
    ordered,
    previous_of,
    runs_of,
    states_of_runs,
    with_columns,
    with_gaps,
)
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.bounds import printable_json
from tony_provider.runtime.common.codec import to_plain
from tony_provider.runtime.common.text import first_line, printable
from tony_provider.runtime.jobspec.problems import flattened
from tony_provider.runtime.protocol.job_orders import JOB_ORDERS


@attrs.frozen
class PortalReader:
    """A logged-in user, and the jobs that the user may read.

    All methods query Airflow's auth manager and may block. Jobs without a DAG are read through ``conn_id``, and the
    user's permission for this connection decides. ``conn_id`` is None for jobs of DAGs.
    """

    user: BaseUser
    conn_id: str | None = None

    def may_use(self, conn_id: str) -> bool:
        """Return whether the user may read the connection."""
        return attrs.evolve(self, conn_id=conn_id).may_read("")

    def readable_dags(self) -> frozenset[str]:
        """Return the ids of the DAGs whose jobs the user may read: those whose task instances Airflow would list."""
        manager = get_auth_manager()
        if not manager.is_authorized_dag(method="GET", access_entity=DagAccessEntity.TASK_INSTANCE, user=self.user):
            return frozenset()
        return frozenset(manager.get_authorized_dag_ids(user=self.user, method="GET"))

    def may_read(self, dag_id: str) -> bool:
        """Return whether the user may read the DAG and its task instances. Return False if the DAG does not exist."""
        return self._may(dag_id, None) and self._may(dag_id, DagAccessEntity.TASK_INSTANCE)

    def may_edit(self, dag_id: str) -> bool:
        """Return whether the user may edit the DAG and its task instances, and so change its jobs."""
        return all(self._may(dag_id, entity, "PUT") for entity in (None, DagAccessEntity.TASK_INSTANCE))

    def permission_subject(self, row: Row) -> str:
        """Return the name of the DAG or connection whose permissions apply to the job."""
        return f"the connection {self.conn_id}" if self.conn_id is not None else f"the DAG {row['dag_id']}"

    def may_read_logs(self, dag_id: str) -> bool:
        return self.may_read(dag_id) and self._may(dag_id, DagAccessEntity.TASK_LOGS)

    def may_read_xcoms(self, dag_id: str) -> bool:
        return self._may(dag_id, DagAccessEntity.XCOM)

    def _may(self, dag_id: str, entity: DagAccessEntity | None, method: Literal["GET", "PUT"] = "GET") -> bool:
        manager = get_auth_manager()
        if self.conn_id is not None:
            which = ConnectionDetails(conn_id=self.conn_id, team_name=Connection.get_team_name(self.conn_id))
            return manager.is_authorized_connection(method=method, details=which, user=self.user)
        details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
        return manager.is_authorized_dag(method=method, access_entity=entity, details=details, user=self.user)


def _reader(user: GetUserDep, conn_id: str | None = None) -> PortalReader:
    return PortalReader(user, conn_id or None)


ReaderDep = Annotated[PortalReader, Depends(_reader)]


def _dag_reader(user: GetUserDep) -> PortalReader:
    return PortalReader(user)


DagReaderDep = Annotated[PortalReader, Depends(_dag_reader)]

_TASKS = 50  # tasks whose samples are returned if the request names no tasks
_MODELS = 1000  # newest models with another state than current that are returned
_EVENTS = 10_000  # newest events of a job that are returned
_COMPARED = 8
_ENTRIES = 10_000  # maximum values in a specification that is compared
_MOST_TAIL = 4 << 20  # maximum bytes of the end of a log
_TASK = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*:\d+")
# Matches escapes, in ASCII JSON, of characters that may be unprintable. Few answers contain any, and cleaning a large
# answer is slow.
_ODD = re.compile(r"\\(?:[bfr]|u(?:00[0189]|007f|00ad|061c|180e|200[b-f]|202[89a-e]|206|d[89a-f]|feff|fff[9ab]))")
_FIGURES = ("state", "task_state", "duration_s", "waiting_s", "memory_gb_hours", "vcore_hours", "gpu_hours")


class PlainJson(JSONResponse):
    """JSON response in ASCII, also for NaN, infinity and lone surrogates, which JSON or UTF-8 cannot represent.

    Jobs, clusters and tasks supply the texts of an answer, pages show them, and users copy them. So the response
    contains no terminal control characters and no invisible characters.
    """

    def render(self, content: Any) -> bytes:
        plain = to_plain(content)
        text = _ascii(plain)
        return (_ascii(printable_json(plain)) if _ODD.search(text) else text).encode()


def _ascii(plain: Any) -> str:
    return json.dumps(plain, allow_nan=False, separators=(",", ":"))


# Synchronous routes run in threads, so that store access and JSON encoding do not block the event loop, which serves
# all users.
router = APIRouter(default_response_class=PlainJson)


def _no_such(what: str) -> HTTPException:
    return HTTPException(404, f"No such {what}")


def _jobs_of_dags(reader: DagReaderDep, session: SessionDep) -> StoredJobs:
    return StoredJobs(session, reader.readable_dags())


DagJobsDep = Annotated[StoredJobs, Depends(_jobs_of_dags)]


def _jobs(reader: ReaderDep, of_dags: DagJobsDep) -> StoredJobs | ConnectionJobs:
    if reader.conn_id is None:
        return of_dags
    if printable(reader.conn_id) != reader.conn_id or not reader.may_use(reader.conn_id):  # no database has such an id
        raise _no_such("connection")
    return CONNECTION_LISTINGS.jobs(reader.conn_id)


JobsDep = Annotated[StoredJobs | ConnectionJobs, Depends(_jobs)]


def _found(application_id: str, jobs: JobsDep, reader: ReaderDep) -> Row:
    row = jobs.row(application_id)
    if row is None or not reader.may_read(row["dag_id"]):
        raise _no_such("job")
    jobs.close()
    return row


FoundDep = Annotated[Row, Depends(_found)]


def _found_with_logs(row: FoundDep, reader: ReaderDep) -> Row:
    if not reader.may_read_logs(row["dag_id"]):
        raise _no_such("job")
    return row


LoggedDep = Annotated[Row, Depends(_found_with_logs)]


def _readable(reader: PortalReader, row: Row, plain: Any) -> Any:
    """Return ``plain``, without program output if the user may not read task logs."""
    return plain if reader.may_read_logs(row["dag_id"]) else without_output(plain)


def _row_without_output(row: Row) -> Row:
    shown = {name: without_output(row[name]) for name in ("reason", "warnings")}  # the only long texts: lists are large
    return {**row, **shown, "cause": ""}


def _summary(reader: PortalReader, row: Row, summary: JobSummary) -> Any:
    """Return the readable part of a summary. The returned value is an XCom of the task."""
    own = summary if reader.may_read_xcoms(row["dag_id"]) else attrs.evolve(summary, returned=None)
    return _readable(reader, row, plain_in_order(own))


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
    order: Annotated[str, Query(pattern=f"^-?({'|'.join(ORDERS)}|{COLUMN})$")] = "-submitted",
    columns: Annotated[list[Annotated[str, Query(pattern=f"^{COLUMN}$")]], Query(max_length=20)] = [],  # noqa: B006
) -> Response:
    submitted, dates = {"after": after, "before": before}, {"date_after": date_after, "date_before": date_before}
    wanted = JobFilter(user=user, verdict=verdict, text=text, **submitted, **dates)
    found = stored.rows(dag_id=dag_id or None, task_id=task_id or None, run_id=run_id or None, map_index=map_index)
    stored.close()
    found = RUNNING_JOBS.completed(found)
    printed = {row["dag_id"] for row in found if row["cause"] or row["warnings"] or "\n" in row["reason"]}
    hidden = {dag_id for dag_id in printed if not reader.may_read_logs(dag_id)}
    rows = wanted.chosen(_row_without_output(row) if row["dag_id"] in hidden else row for row in found)
    shown = [with_columns(row, columns) for row in ordered(rows, order)[offset : offset + limit]]
    problem = stored.problem or None
    return PlainJson({"jobs": shown, "total": len(rows), "columns": columns_of(rows), "problem": problem})


@router.get("/connections")
def connections(stored: DagJobsDep, reader: DagReaderDep) -> Response:
    """Return the connections whose jobs without a DAG the user may list."""
    query = select(Connection.conn_id).where(Connection.conn_type == TonyHook.conn_type)
    known = {
        *stored.session.scalars(query),
        *(row["tony_conn_id"] for row in stored.rows()),
        TonyHook.default_conn_name,
    }
    return PlainJson(
        {"connections": sorted(each for each in known if each and printable(each) == each and reader.may_use(each))}
    )


@router.get("/refusal")
def refusal(
    stored: DagJobsDep,
    reader: DagReaderDep,
    dag_id: str,
    run_id: str,
    task_id: str,
    map_index: Annotated[int, Query(ge=-1, lt=1 << 31)] = -1,
) -> Response:
    found = stored.refusal(dag_id, run_id, task_id, map_index) if reader.may_read(dag_id) else None
    return PlainJson({"refusal": found and _readable(reader, {"dag_id": dag_id}, to_plain(found))})


@router.get("/jobs/{application_id}")
def job(row: FoundDep, stored: JobsDep, reader: ReaderDep) -> Response:
    summary, problems = stored.summary(row)
    siblings = [each["application_id"] for each in stored.siblings(row)]
    previous = previous_of(row, stored.rows(dag_id=row["dag_id"], task_id=row["task_id"]))
    stored.close()
    [row] = RUNNING_JOBS.completed([row])
    return PlainJson(
        {
            "summary": _summary(reader, row, summary),
            **{name: row[name] for name in _FIGURES},
            "previous": previous,
            "others": [each for each in siblings if each != row["application_id"]],
            "tensorboard": tensorboard_commands([row]),
            "problems": list(dict.fromkeys([*row["problems"], *problems])),
        }
    )


@router.get("/jobs/{application_id}/history")
async def history(row: FoundDep, reader: ReaderDep, tasks: str = "") -> Response:
    wanted = [each.strip() for each in tasks.split(",") if each.strip()]

    def read(job: TonyJob) -> Response:
        found = job.history()
        samples, left_out = sample_columns(found.samples, wanted, _TASKS)
        told = found.specification
        events = found.events[-_EVENTS:]
        if (older := len(found.events) - len(events)) > 0:
            found.missing.append(f"events: {older} older events are not shown")
        return PlainJson(
            {
                "specification": told.job if told else None,
                "given": told.given if told else None,
                "overrides": told.overrides if told else None,
                "events": _readable(reader, row, events),
                "metrics": METRICS,
                "samples": samples,
                "left_out": left_out,
                "status": _readable(reader, row, to_plain(found.status)) if found.status else None,
                "event_files": has_event_files(job, found.missing),
                "missing": found.missing,
            }
        )

    return await read_from_job(row, read, large=True)


@router.get("/jobs/{application_id}/specification")
async def specification(row: FoundDep) -> Response:
    def read(job: TonyJob) -> Response:
        missing: list[str] = []
        told = job.specification(missing)
        return PlainJson({"specification": told.job if told else None, "missing": missing})

    return await read_from_job(row, read)


@router.get("/jobs/{application_id}/live")
async def live(row: FoundDep, reader: ReaderDep) -> Response:
    def read(job: TonyJob) -> Response:
        found = live_state(job)
        application, status = found.application, found.status
        if application is None and status is None and found.missing:
            raise JobUnavailable("; ".join(found.missing))
        told = {
            "status": to_plain(status) if status else None,
            "verdict": verdict(application, status),
            "reason": reason(application, status),
            "missing": found.missing,
        }
        state = application.state if application else None
        return PlainJson({"application_state": state, "metrics": METRICS, **_readable(reader, row, told)})

    return await read_from_job(row, read)


@router.get("/jobs/{application_id}/logs")
async def logs(row: LoggedDep) -> Response:
    def read(job: TonyJob) -> Response:
        files = job.stored_logs()
        return PlainJson({"logs": [{**_named(f.name), "bytes": f.size, "modified_ms": f.modified_ms} for f in files]})

    return await read_from_job(row, read)


def _named(file: str) -> dict[str, Any]:
    task, attempt = contract.task_of_log(file)
    return {"task": task, "attempt": attempt, "file": file}


@router.get("/jobs/{application_id}/logs/{task}")
async def log(row: LoggedDep, task: str, tail: Annotated[int, Query(ge=1, le=_MOST_TAIL)] = 65536) -> Response:
    if not _TASK.fullmatch(task):
        raise _no_such("log")

    def read(job: TonyJob) -> str | None:
        data = job.logs(task, tail + 1, seconds=MASTER_SECONDS)
        return None if data is None else end_of_output(data, tail)

    text = await read_from_job(row, read)
    if text is None:
        raise _no_such("log")
    return PlainTextResponse(text, headers={"X-Content-Type-Options": "nosniff"})


_TOKEN_SECONDS = 24 * 3600  # maximum age of a token


_NOT_PERMITTED = "You may not change this job: Airflow does not permit you to edit {}."


def _order_tokens() -> URLSafeTimedSerializer:
    """Return the signer of form tokens. They protect against other sites, whose pages cannot read a token."""
    return URLSafeTimedSerializer(conf.get_mandatory_value("api", "secret_key"), salt="tony-job-orders")


def _offered(row: FoundDep, reader: ReaderDep, session: SessionDep) -> dict[str, Any]:
    if not reader.may_edit(row["dag_id"]):
        return {"actions": [], "token": None, "reason": _NOT_PERMITTED.format(reader.permission_subject(row))}
    retries = describe_retries(session, row) if row["state"] in (RUNNING, UNSEEN) else ""
    session.close()
    token = _order_tokens().dumps([reader.user.get_id(), row["application_id"]])
    return {"actions": offered_orders(row), "retries": retries, "token": token, "reason": None}


@router.get("/jobs/{application_id}/actions")
async def orders(row: FoundDep, offered: Annotated[dict[str, Any], Depends(_offered)]) -> Response:
    """Return the orders that the user may send to the job, and a token that an order needs."""
    missing: list[str] = []
    resizable: dict[str, tuple[int, int]] = {}
    if offered["actions"]:
        try:
            resizable = await read_from_job(row, resizable_types)
        except JobUnavailable as error:
            missing.append(str(error))
    return PlainJson({**offered, "resizable": resizable, "missing": missing})


class OrderBody(BaseModel):
    """Body of ``POST /jobs/ID/actions/NAME``."""

    token: str  # from ``GET /jobs/ID/actions``
    grace: Annotated[float, Field(ge=0, le=86400)] | None = None  # seconds, for the order ``stop``
    # new number of tasks by type, for the order ``resize``
    tasks: Annotated[dict[str, int], Field(max_length=100)] = {}


def _sent(name: str, body: OrderBody, row: FoundDep, reader: ReaderDep, session: SessionDep) -> UserOrder:
    """Return an order that the user may send, after recording it in Airflow's audit log."""
    if name not in {each.name for each in JOB_ORDERS}:
        raise _no_such("action")
    if not reader.may_edit(row["dag_id"]):
        raise HTTPException(403, _NOT_PERMITTED.format(reader.permission_subject(row)))
    try:
        signed = _order_tokens().loads(body.token, max_age=_TOKEN_SECONDS)
    except BadData:
        signed = None
    if signed != [reader.user.get_id(), row["application_id"]]:
        raise HTTPException(403, "The page has expired: reload the page, and send the action again")
    user = printable(reader.user.get_name())
    order = UserOrder(order=name, user=user, grace=body.grace, counts=body.tasks)
    details: dict[str, Any] = {
        "application_id": row["application_id"],
        **body.model_dump(exclude={"token"}, exclude_defaults=True),
    }
    which: dict[str, Any] = {each: row[each] for each in ("run_id", "task_id", "map_index", "try_number")}
    which |= {"owner": user, "owner_display_name": user, "dag_id": row["dag_id"] or None}
    session.add(Log(f"tony_{name}", extra=json.dumps(details), **which))
    session.commit()
    return order


@router.post("/jobs/{application_id}/actions/{name}")
async def send_order(row: FoundDep, order: Annotated[UserOrder, Depends(_sent)]) -> Response:
    try:
        return PlainJson({"lines": await read_from_job(row, order.send)})
    except JobUnavailable as error:
        raise HTTPException(409, str(error)) from error


def _compared(ids: str, stored: JobsDep, reader: ReaderDep) -> tuple[list[Row], list[JobSummary], list[str]]:
    wanted = list(dict.fromkeys(each.strip() for each in ids.split(",") if each.strip()))
    if len(wanted) > _COMPARED:
        raise HTTPException(422, f"ids: {len(wanted)} jobs are named, but at most {_COMPARED} can be compared")
    found = {each: row for each in wanted if (row := stored.row(each)) and reader.may_read(row["dag_id"])}
    if not found:
        raise _no_such("job")
    summaries = [stored.summary(row)[0] for row in found.values()]
    stored.close()
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
    """Compare jobs; ``read`` has the specification of each job, or the reason it cannot be read."""
    problems = [
        f"{row['application_id']}: {each}" for row, each in zip(rows, read, strict=True) if isinstance(each, str)
    ]
    documents = [each for each in read if isinstance(each, dict)]
    if problems:
        documents = [each.fingerprint for each in summaries]
    return PlainJson(
        {
            "jobs": [_summary(reader, *each) for each in zip(rows, summaries, strict=True)],
            "states": [row["state"] for row in rows],
            "missing": missing,
            "differences": differences(documents),
            "differences_of": "fingerprints" if problems else "specifications",
            "reason": "; ".join(problems) or None,
            "tensorboard": tensorboard_commands(rows),
        }
    )


def _specification(job: TonyJob) -> dict[str, Any]:
    found = specification_of(job)
    if len(flattened(found)) > _ENTRIES:
        raise JobUnavailable(f"the job's specification has more than {_ENTRIES} entries")
    return found


async def _read_specification(row: Row) -> dict[str, Any] | str:
    """Return the specification, or the reason it cannot be read."""
    try:
        return await read_from_job(row, _specification)
    except JobUnavailable as error:
        return str(error)


def _jobs_and_runs(dag_id: str, stored: DagJobsDep, reader: DagReaderDep) -> tuple[list[Row], dict[str, str]]:
    """Return the jobs of a DAG, and the states of its runs."""
    if dag_id not in stored.dags or not reader.may_read(dag_id):
        raise _no_such("DAG")
    found = stored.rows(dag_id=dag_id), states_of_runs(stored.session, dag_id)
    stored.close()
    return found


@router.get("/dags/{dag_id}/dates")
def dates(dag_id: str, stored: DagJobsDep, reader: DagReaderDep, task_id: str | None = None) -> Response:
    if dag_id not in stored.dags or not reader.may_read(dag_id):
        raise _no_such("DAG")
    runs = with_gaps(stored.session, dag_id, runs_of(stored.session, dag_id))
    rows = stored.rows(dag_id=dag_id, task_id=task_id or None)
    stored.close()
    return PlainJson({"tasks": dates_of(RUNNING_JOBS.completed(rows), runs)})


@router.get("/jobs/{application_id}/data")
async def data(row: FoundDep) -> Response:
    def read(job: TonyJob) -> Response:
        reports = job.hook.stale_models(model=job.directory)
        whole = [to_plain(each) for each in reports if each.lineage and each.lineage.application_id == str(job)]
        return PlainJson({"report": whole[0] if whole else None})

    return await read_from_job(row, read, large=True)


@router.get("/dags/{dag_id}/stale")
async def stale(
    dag_id: str, jobs_and_runs: Annotated[tuple[list[Row], dict[str, str]], Depends(_jobs_and_runs)]
) -> Response:
    rows, run_states = jobs_and_runs

    def read(hook: TonyHook) -> list[ModelReport]:
        return hook.stale_models(dag_ids=[dag_id])

    by_connection: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["submitted_ms"], reverse=True):
        by_connection.setdefault((row["tony_conn_id"], row["proxy_user"]), []).append(row)
    reports: list[ModelReport] = []
    missing = []
    for rows in by_connection.values():
        try:
            reports += await read_from_connection(rows, read)
        except JobUnavailable as error:
            missing.append(str(error))
    runs = stale_runs(reports)
    return PlainJson(
        {
            "missing": missing,
            "states": Counter(each.state.value for each in reports),
            "models": [to_plain(each) for each in reports if each.state is not ModelState.CURRENT][-_MODELS:],
            "runs": [
                {
                    "run_id": run.run_id,
                    "waits_for": len(before),
                    "active": run_states[run.run_id] in State.unfinished_dr_states,
                }
                for run, before in runs.items()
                if run.run_id in run_states
            ],
        }
    )


_read_ahead_log = logging.getLogger(__name__)

_PATIENCE = 5.0  # seconds to wait at shutdown for the preloading thread, if the database does not answer


@asynccontextmanager
async def preloading_rows(_: FastAPI) -> AsyncIterator[None]:
    """Lifespan of the portal's app: read the newest rows into the cache, in a thread.

    Airflow enters this context together with its own lifespan.
    """
    over = threading.Event()
    thread = threading.Thread(target=_read, args=[over], name="tony-portal-read-ahead", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        await run_in_threadpool(thread.join, _PATIENCE)


def _read(over: threading.Event) -> None:
    try:
        for _ in ROW_CACHE.read_ahead():
            if over.is_set():
                return
    except SQLAlchemyError as error:
        _read_ahead_log.warning(
            "The portal could not preload the jobs; the first request for the list loads them: %s",
            first_line(str(error)),
        )


def portal_app() -> FastAPI:
    """Return a new FastAPI app. It does not serve its OpenAPI description, because that needs no login."""
    app = FastAPI(title="TonY portal", openapi_url=None, docs_url=None, redoc_url=None, lifespan=preloading_rows)
    app.include_router(router, prefix="/api")
    files = PortalFiles()
    app.mount("/static/version-{version}", files)
    app.mount("/static", files)
    app.add_exception_handler(JobUnavailable, _out_of_reach)
    return app


async def _out_of_reach(_: Request, error: Exception) -> Response:
    return PlainJson({"reason": str(error)}, status_code=503)
