"""The command ``airflow tony stale``: list models whose data has changed, and clear their DAG runs.

The command clears DAG runs through Airflow's REST API, with the permissions of the user of the token.
"""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import attrs
import requests
from airflow.providers.common.compat.sdk import conf

from tony_provider.cli.command import Row, command, hook_of, iso_time, print_rows, say, seconds_of, until_interrupted
from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.records.staleness import ModelReport, ModelState, StaleRun, stale_runs
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.common.contract import CALL_SECONDS
from tony_provider.runtime.common.quantities import count
from tony_provider.runtime.common.text import first_line

_TOKEN_VARIABLE = "AIRFLOW_CLI_TOKEN"  # as for airflowctl
_POLL = 5.0  # seconds
_DELETED = "deleted"


@command
def stale(args: Namespace) -> None:
    """List models that do not match their data, or repeat their DAG runs with ``--retrain``."""
    with hook_of(args) as hook:
        reports = _reports(hook, args)
        if args.retrain:
            api = AirflowApi.of(args.api_url)
            _retrain(api, reports, args)
            return
    shown = [each for each in reports if args.all or each.state is not ModelState.CURRENT]
    if shown or args.output != "table":
        print_rows([_row(each) for each in shown], args.output, table=_cells, whole=True)
    if args.output == "table":
        counts = Counter(each.state for each in reports)
        say(", ".join(f"{counts[state]} {state.value}" for state in ModelState) if reports else "No training matches")


def _reports(hook: TonyHook, args: Namespace) -> list[ModelReport]:
    after_ms = int((time.time() - seconds_of("--since", args.since)) * 1000) if args.since else 0
    return hook.stale_models(dag_ids=args.dag_id, after_ms=after_ms, model=args.model)


def _row(report: ModelReport) -> Row:
    lineage = report.lineage
    labels = lineage.labels if lineage else {}
    return {
        "dag_id": labels.get("dag_id"),
        "run_id": labels.get("run_id"),
        "task_id": labels.get("task_id"),
        "map_index": labels.get("map_index"),
        "training": report.training,
        "application_id": lineage.application_id if lineage else None,
        "trained": iso_time(lineage.finished_ms) if lineage else None,
        "model": lineage.model_dir if lineage else None,
        "state": report.state.value,
        "reason": report.reason or None,
        "files": [
            {"input": each.input, "uri": each.uri, "change": each.kind.value, "modified": iso_time(each.modified_ms)}
            for each in report.changes
        ],
    }


_SHOWN = 3  # files of a row in a table


def _cells(row: Row) -> Row:
    shown = ("dag_id", "run_id", "task_id", "map_index", "trained", "state", "reason")
    files = [f"{each['uri']} ({each['change']})" for each in row["files"]]
    more = [f"and {len(files) - _SHOWN} more; see --output json"] if len(files) > _SHOWN else []
    training = {} if row["dag_id"] else {"training": row["training"]}
    return {**training, **{key: row[key] for key in shown}, "files": ", ".join([*files[:_SHOWN], *more])}


class ApiProblem(ClusterError):  # noqa: N818 - named for what is wrong
    """Airflow's REST API has refused a request, or is unreachable."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status  # HTTP status of the answer


@attrs.frozen
class AirflowApi:
    """Airflow's REST API, with the permissions of the user of a token. Methods raise ApiProblem."""

    url: str  # of the API server
    session: requests.Session

    @classmethod
    def of(cls, url: str | None) -> AirflowApi:
        """Open the API at ``url``, by default the server of Airflow's configuration."""
        url = url or conf.get("api", "base_url", fallback="")
        token = os.environ.get(_TOKEN_VARIABLE)
        if not url:
            raise ApiProblem("the address of Airflow's API server is unknown; give --api-url")
        if not token:
            raise ApiProblem(
                f"{_TOKEN_VARIABLE} must contain a token of Airflow's API, as for airflowctl; see the guide "
                '"Retrain models whose data has changed"'
            )
        session = requests.Session()
        session.headers["Authorization"] = f"Bearer {token}"
        return cls(url.rstrip("/"), session)

    def state(self, run: StaleRun) -> str:
        """Return the state of a DAG run, such as success, or ``deleted``."""
        try:
            return str(self._ask("GET", run, "")["state"])
        except ApiProblem as problem:
            if problem.status == requests.codes.not_found and "DagRun" in str(problem):  # not because of a wrong URL
                return _DELETED
            raise

    def clear(self, run: StaleRun) -> None:
        """Clear all tasks of a DAG run."""
        self._ask("POST", run, "/clear", json={"dry_run": False, "only_failed": False})

    def _ask(self, method: str, run: StaleRun, what: str, **more: Any) -> Any:
        path = f"/api/v2/dags/{quote(run.dag_id, safe='')}/dagRuns/{quote(run.run_id, safe='')}{what}"
        try:
            answer = self.session.request(method, self.url + path, timeout=CALL_SECONDS, **more)
            if not answer.ok:
                text = first_line(answer.text)[:300]
                message = f"Airflow's API server returned {answer.status_code} for {path}: {text}"
                raise ApiProblem(message, answer.status_code)
            return answer.json()
        except (requests.RequestException, ValueError) as error:
            raise ApiProblem(f"{self.url}: {error}; check --api-url") from error


@attrs.define
class Retraining:
    """Repeats DAG runs, each after the runs of its ancestors have succeeded."""

    api: AirflowApi
    waiting: dict[StaleRun, set[StaleRun]]  # runs that are not cleared yet, each with its unfinished ancestors
    most: int  # maximum number of runs at a time
    active: set[StaleRun] = attrs.field(factory=set)
    failed: list[StaleRun] = attrs.field(factory=list)
    done: int = 0

    def step(self) -> None:
        """Clear the runs that can begin, and check the active runs. Raises ApiProblem."""
        for run in list(self.active):
            state = self.api.state(run)
            if state == "success":
                self.done += 1
                for before in self.waiting.values():
                    before.discard(run)
            elif state in ("failed", _DELETED):
                self.failed.append(run)
            else:
                continue
            self.active.discard(run)
            say(f"{run}: {state}")
        for run in [run for run, before in self.waiting.items() if not before][: self.most - len(self.active)]:
            del self.waiting[run]
            self.active.add(run)
            state = self.api.state(run)
            if state in ("queued", "running"):  # of an interrupted command
                say(f"{run}: already running")
            elif state != _DELETED:
                self.api.clear(run)
                say(f"{run}: cleared")


def _retrain(api: AirflowApi, reports: Sequence[ModelReport], args: Namespace) -> None:
    if args.max_active_runs < 1:
        raise SystemExit("--max-active-runs: should be at least 1")
    work = Retraining(api, stale_runs(reports), args.max_active_runs)
    total = len(work.waiting)
    if not total:
        say("No DAG run has a stale model")
        return
    with until_interrupted() as over:
        while not over.is_set():
            work.step()
            if not work.active:
                break
            over.wait(_POLL)
    left = f"{count(len(work.waiting), 'run')} not started"
    if over.is_set():
        raise SystemExit(
            f"Interrupted: {len(work.active)} runs continue in Airflow, {left}. Run the command again to continue"
        )
    if work.failed or work.waiting:
        names = ", ".join(map(str, work.waiting))
        why = "" if work.failed else f", because they wait for each other; repeat their tasks one by one: {names}"
        raise SystemExit(f"{work.done} of {count(total, 'run')} succeeded, {len(work.failed)} failed, {left}{why}")
    say(f"{count(total, 'run')} succeeded")
