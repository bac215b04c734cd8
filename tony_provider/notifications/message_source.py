"""Create the message about a training from a callback's context, the store and the cluster.

``CallbackEvent`` has the data of Airflow's callback. ``TrainingFacts`` are data of one training. ``MessageSource``
combines both into a message, which also names the unknown data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import attrs
from airflow.providers.common.compat.sdk import conf, redact

from tony_provider.advice.case import ranked
from tony_provider.arguments import DEFAULT_CONN_ID
from tony_provider.cluster.interface import Application, Pages
from tony_provider.cluster.training.identity import Identity
from tony_provider.exceptions import REFUSALS, TonyJobFailed, TonyKilledExternally
from tony_provider.hooks.tony import TonyHook
from tony_provider.links.job_links import portal_page
from tony_provider.notifications.message import (
    LONGEST_LINE,
    MOST_METRICS,
    MOST_WARNINGS,
    Metrics,
    TrainingMessage,
    cleaned,
    last_lines,
    line,
)
from tony_provider.operators.outcome import task_log_tail
from tony_provider.operators.submission import render_secrets
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.run_dates import known_run_date, run_field
from tony_provider.runtime.common.codec import to_plain
from tony_provider.runtime.common.concurrency import run_in_threads
from tony_provider.runtime.common.text import first_line
from tony_provider.runtime.protocol.status import Failure, JobState, JobStatus

if TYPE_CHECKING:
    from airflow.sdk.types import Logger

_SUCCESS, _RETRY, _RUNNING = "success", "up_for_retry", "running"


@attrs.frozen(kw_only=True)
class CallbackEvent:
    """The data that Airflow passes to a callback of any kind."""

    dag_id: str
    run_id: str
    task_id: str | None = None  # None for an event of the DAG run
    map_index: int = -1  # -1 if not mapped
    map_label: str | None = None  # label from ``map_index_template``; None if the task has no label
    try_number: int | None = None
    tries: int | None = None  # number of tries that Airflow allows
    state: str | None = None  # Airflow's state of the task or the run; None for a missed deadline
    date: str = ""  # date of the run; empty if unknown
    exception: BaseException | None = None
    reason: str = ""  # Airflow's reason for the end, unless it is an exception; empty if unknown
    address: str = ""  # address of Airflow's page about the task or run; empty if unknown

    @classmethod
    def of(cls, context: Mapping[str, Any]) -> CallbackEvent:
        """Return the event for the context of a callback of a task, a DAG or a deadline."""
        ti, run = context.get("ti"), context.get("dag_run")
        dag_id = getattr(ti, "dag_id", None) or run_field(run, "dag_id") or getattr(context.get("dag"), "dag_id", "")
        run_id = context.get("run_id") or run_field(run, "run_id") or run_field(run, "dag_run_id") or ""
        about: dict[str, Any] = {"dag_id": str(dag_id), "run_id": str(run_id), "date": _date(known_run_date(run))}
        if ti is None or "reason" in context:
            return cls(
                **about,
                state=None if "deadline" in context else _SUCCESS if context.get("reason") == _SUCCESS else "failed",
                reason=str(context.get("reason") or ""),
                address=_address(dag_id, run_id),
            )
        error = context.get("exception")
        return cls(
            **about,
            task_id=ti.task_id,
            map_index=-1 if ti.map_index is None else ti.map_index,
            map_label=getattr(ti, "rendered_map_index", None),
            try_number=ti.try_number,
            tries=None if getattr(ti, "max_tries", None) is None else ti.max_tries + 1,
            # Airflow gives no state for a task whose process died, because another process runs its callbacks.
            state=_value(getattr(ti, "state", None)) or "failed",
            exception=error if isinstance(error, BaseException) else None,
            reason="" if isinstance(error, BaseException) else str(error or ""),
            address=str(ti.log_url),
        )

    @property
    def has_succeeded(self) -> bool:
        return self.state == _SUCCESS

    @property
    def has_failed(self) -> bool:
        return self.state not in (None, _SUCCESS, _RUNNING)

    @property
    def name(self) -> str:
        """The DAG and task, and the run's date, for messages."""
        what = f"{self.dag_id}.{self.task_id}" if self.task_id else self.dag_id
        if self.map_index >= 0:
            what += f"[{self.map_label or self.map_index}]"
        return f"{what} of {self.date or self.run_id}"


def _value(state: Any) -> str:
    return str(getattr(state, "value", state) or "")


def _date(date: datetime | None) -> str:
    """Format a date with its time. Omit the time if it is midnight."""
    text = date.isoformat() if date is not None else ""
    day, _, time = text.partition("T")
    return day if time.startswith("00:00:00") else text[:16]


def _address(dag_id: str, run_id: str) -> str:
    base = conf.get("api", "base_url", fallback="") or ""
    return f"{base.rstrip('/')}/dags/{quote(dag_id)}/runs/{quote(run_id)}" if base else ""


@attrs.define(kw_only=True)
class TrainingData:
    """Data of one training for the message, as far as it is known."""

    task_id: str
    former_run: str = ""  # ID of the previous run; empty if there is none or it is unknown
    application_id: str | None = None
    status: JobStatus | None = None
    application: Application | None = None
    pages: Pages | None = None
    log_tail: str = ""
    former_metrics: dict[str, float] | None = None
    missing: list[str] = attrs.field(factory=list)


@attrs.define(kw_only=True)
class TrainingFacts(TrainingData):
    """Reads the data of one training. ``fill`` sets the fields one by one; fields that are not set in time are unknown.

    ``application_id`` is None for the training's newest application.
    """

    identity: Identity
    former: Identity | None = None  # identity of this training in the previous run; None without one
    reads_log: bool = False  # whether the message may contain output of the tasks

    def fill(self, hook: TonyHook) -> None:
        """Read the store, and query the cluster unless the job has a result. Raises ClusterError, StorageError."""
        self.application_id = self.application_id or hook.newest_application(self.identity)
        if self.application_id is None:
            self.missing.append("the training has started no application")
            return
        job = hook.job(self.application_id, self.identity)
        self.pages = job.pages()
        self.status = job.status()
        failure = self.status.failure if self.status else None
        if failure is not None and failure.task is not None and self.reads_log:
            self.log_tail = task_log_tail(job, failure.task)
        self._fill_former(hook)
        if self.status is None or not self.status.state.is_final:
            self.application = job.application()

    def _fill_former(self, hook: TonyHook) -> None:
        before = hook.newest_application(self.former) if self.former is not None else None
        if self.former is not None and before is not None:
            status = hook.job_status(self.former, before)
            self.former_metrics = status.metrics if status else None


def collect_facts(hook: TonyHook, at: TrainingFacts, seconds: float, tell: Callable[[str], None]) -> None:
    """Fill ``at`` within ``seconds``. Handles all exceptions, and adds problems to ``missing``.

    ``tell`` is called with each problem, for the log.
    """
    hook.get_conn()  # not in a thread that may be abandoned, because this loads modules and queries Airflow
    [call] = run_in_threads([lambda: at.fill(hook)], seconds, "tony-news")
    if not call.done():
        problem = f"the cluster and its store did not answer within {seconds:g} s"
    elif error := call.exception():  # the message must be sent after any exception
        problem = f"{type(error).__name__}: {error}"
    else:
        return
    at.missing.append(problem)
    tell(problem)


MOST_MISSING = 5
_VERDICTS = {JobState.SUCCEEDED: "succeeded", JobState.FAILED: "failed", JobState.KILLED: "killed"}


def compose_message(occasion: CallbackEvent, data: TrainingData, lines: int, missing: list[str]) -> TrainingMessage:
    """Return the message, of bounded length, with secrets masked like in Airflow's logs."""
    status = data.status
    failure = _failure(occasion, status)
    verdict = _verdict(occasion, status)
    has_failed = verdict in ("failed", "killed")
    below_first_line = failure.message.strip().partition("\n")[2] if failure else ""
    tail = data.log_tail or below_first_line
    return TrainingMessage(
        title=_line(_title(occasion, verdict)),
        verdict=verdict,
        cause=_line(_cause(occasion, data, failure, shows_output=lines > 0)) if has_failed else "",
        problems=_problems(occasion.exception),
        tail=last_lines(_masked(tail), lines) if has_failed and lines > 0 else "",
        tail_of=failure.task or "" if failure else "",
        metrics=_metrics(status.metrics) if status else {},
        former_metrics=_metrics(data.former_metrics) if data.former_metrics is not None else None,
        former_run=data.former_run,
        step=status.step if status else None,
        total_steps=status.total_steps if status else None,
        warnings=[_line(each) for each in status.warnings[:MOST_WARNINGS]] if status else [],
        links=_links(occasion, data),
        missing=[_line(each) for each in [*missing, *data.missing][:MOST_MISSING]],
        dag_id=occasion.dag_id,
        run_id=occasion.run_id,
        task_id=data.task_id,
        map_index=occasion.map_index,
        try_number=occasion.try_number,
        application_id=data.application_id,
    )


def _masked(text: str) -> str:
    """Mask secrets before text is cut, because no masker recognizes half of a secret."""
    return str(redact(text))


def _line(text: str) -> str:
    return line(_masked(text))


def _metrics(metrics: Mapping[str, float | str]) -> Metrics:
    """Return the most interesting metrics, in the order of ``ranked``."""
    plain = to_plain(metrics)
    return {_line(name): plain[name] for name in ranked(plain)[:MOST_METRICS]}


def _verdict(occasion: CallbackEvent, status: JobStatus | None) -> str:
    """Return the verdict: Airflow's state, or the job's if Airflow has none."""
    if occasion.has_succeeded:
        return "succeeded"
    if occasion.has_failed:
        return "killed" if isinstance(occasion.exception, TonyKilledExternally) else "failed"
    if status is None:
        return "unknown"
    return _VERDICTS.get(status.state, "running")


def _title(occasion: CallbackEvent, verdict: str) -> str:
    if occasion.state is None:
        return f"{occasion.name} has missed a deadline; its training: {verdict}"
    said = f"{occasion.name} {'was killed' if verdict == 'killed' else verdict}"
    if occasion.has_failed and occasion.tries is not None and occasion.tries > 1:
        again = "; will be retried" if occasion.state == _RETRY else ""
        return f"{said} (try {occasion.try_number} of {occasion.tries}{again})"
    return said


def _failure(occasion: CallbackEvent, status: JobStatus | None) -> Failure | None:
    error = occasion.exception
    if isinstance(error, TonyJobFailed) and error.failure is not None:
        return error.failure
    return status.failure if status else None


def _cause(occasion: CallbackEvent, data: TrainingData, failure: Failure | None, *, shows_output: bool) -> str:
    """Return the first line of the cause: an exception from Airflow, the job's failure, or another known reason."""
    error = occasion.exception
    if error is not None and not isinstance(error, TonyJobFailed):
        return f"{type(error).__name__}: {first_line(_said(error))}"
    if failure is not None:
        return first_line((failure.full_message if shows_output else failure.message).strip())
    if error is not None:
        return first_line(_said(error))
    if data.application is not None and data.application.diagnostics:
        return first_line(data.application.diagnostics.strip())
    return occasion.reason


def _problems(error: BaseException | None) -> str:
    """Return the lines below the first line of an error that refused a job, or all of it if the first line is long."""
    text = cleaned(_masked(_said(error))) if isinstance(error, REFUSALS) else ""
    first, _, rest = text.partition("\n")
    return rest if len(first) < LONGEST_LINE // 2 else text


def _said(error: BaseException) -> str:
    try:
        return str(error).strip()
    except Exception as problem:  # noqa: BLE001 - a program's class may raise anything; the message must be sent
        return f"(the error has no readable message: {type(problem).__name__})"


def _links(occasion: CallbackEvent, data: TrainingData) -> dict[str, str]:
    pages = data.pages
    links = {
        "Task in Airflow" if occasion.task_id else "Run in Airflow": occasion.address,
        "Training job": _portal(data.application_id),
        "YARN application": pages.application if pages else None,
        "Logs and files": pages.files if pages else None,
    }
    return {name: address for name, address in links.items() if address}


def _portal(application_id: str | None) -> str | None:
    """Return the address of the portal's page, or None if it is only a path: mails need a complete address."""
    page = portal_page(application_id) if application_id else ""
    return page if "://" in page else None


MOST_TRAININGS = 10  # maximum number of trainings of a DAG that are checked


@attrs.frozen(kw_only=True)
class MessageSource:
    """Creates the message about a training from a callback's context.

    :param task_id: the training task; None for the callback's own task, or for the first failed training of a DAG.
    :param tony_conn_id: the training's connection; None for the connection of its task.
    :param lines: maximum number of last lines of the failed task.
    :param seconds: time limit for cluster and store.
    """

    log: Logger
    task_id: str | None = None
    tony_conn_id: str | None = None
    lines: int = 20
    seconds: float = 20.0

    def news(self, context: Mapping[str, Any]) -> TrainingMessage:
        """Return the message with all available data, and the names of missing data. Handles all exceptions."""
        occasion = CallbackEvent.of(context)
        missing: list[str] = []
        looks: list[TrainingFacts] = []
        try:
            looks = self._looked(context, occasion, missing)
        except Exception as error:  # noqa: BLE001 - the message must be sent after any exception
            self._tell(f"{type(error).__name__}: {error}")
            missing.append(str(error))
        foremost = _foremost(looks) or TrainingData(task_id=occasion.task_id or "")
        return compose_message(occasion, foremost, self.lines, missing)

    def _looked(self, context: Mapping[str, Any], occasion: CallbackEvent, missing: list[str]) -> list[TrainingFacts]:
        if isinstance(occasion.exception, REFUSALS):  # no application was started
            return []
        tasks = self._tasks(context, occasion)
        looks = []
        for task_id, task in tasks.items():
            with TonyHook(*self._connection(context, task)) as hook:
                each = self._begun(hook, context, occasion, task_id, task, missing)
                collect_facts(hook, each, self.seconds / len(tasks), self._tell)
            looks.append(each)
        return looks

    def _tasks(self, context: Mapping[str, Any], occasion: CallbackEvent) -> dict[str, TonyTrainOperator | None]:
        """Return the DAG's tasks that may be trainings, by ID. A value is None if the task's object is unavailable."""
        dag = context.get("dag")
        if self.task_id is not None and self.task_id != occasion.task_id:
            return {self.task_id: _training(dag.get_task(self.task_id)) if dag is not None else None}
        if occasion.task_id is not None:
            own = _training(context.get("task"))
            return {occasion.task_id: own} if own is not None else {}
        found = {each.task_id: _training(each) for each in getattr(dag, "tasks", [])}
        return dict([(task_id, task) for task_id, task in found.items() if task is not None][:MOST_TRAININGS])

    def _connection(self, context: Mapping[str, Any], task: TonyTrainOperator | None) -> tuple[str, str | None]:
        if task is None:
            return self.tony_conn_id or DEFAULT_CONN_ID, None
        return self.tony_conn_id or _rendered(task, task.tony_conn_id, context), (
            _rendered(task, task.proxy_user, context) or None
        )

    def _begun(
        self,
        hook: TonyHook,
        context: Mapping[str, Any],
        occasion: CallbackEvent,
        task_id: str,
        task: TonyTrainOperator | None,
        missing: list[str],
    ) -> TrainingFacts:
        """Return the facts that are known from Airflow, without a query to the cluster or the store."""
        key = _rendered(task, task.checkpoint_key, context) or None if task is not None else None
        which: dict[str, Any] = {
            "dag_id": occasion.dag_id,
            "task_id": task_id,
            "map_index": occasion.map_index if task_id == occasion.task_id else -1,
            "checkpoint_key": key,
        }
        former = self._former_run(context, occasion, task_id, missing)
        error = occasion.exception
        return TrainingFacts(
            task_id=task_id,
            identity=hook.identity(**which, run_id=occasion.run_id),
            former_run=former or "",
            former=hook.identity(**which, run_id=former) if former else None,
            application_id=error.application_id if isinstance(error, TonyJobFailed) else None,
            reads_log=self._knows_secrets(task, context),
        )

    def _former_run(
        self, context: Mapping[str, Any], occasion: CallbackEvent, task_id: str, missing: list[str]
    ) -> str | None:
        """Return the ID of the last earlier run in which the training succeeded, or None if there is none.

        In a callback of another task, only earlier runs that succeeded as a whole count.
        """
        ti = context.get("ti")
        if ti is None or getattr(context.get("dag_run"), "logical_date", None) is None:  # Airflow orders runs by it
            missing.append("the previous run: this run has no logical date" if ti is not None else "the previous run")
            return None
        try:
            if ti.task_id == task_id:
                before = ti.get_previous_ti(state="success", map_index=occasion.map_index)
            else:
                before = ti.get_previous_dagrun(state="success")
        except Exception as error:  # noqa: BLE001 - Airflow may raise anything, and the message must be sent
            self._tell(f"{type(error).__name__}: {error}")
            missing.append(f"the previous run: {error}")
            return None
        return before.run_id if before is not None else None

    def _knows_secrets(self, task: TonyTrainOperator | None, context: Mapping[str, Any]) -> bool:
        """Whether this process knows the training's secrets, and thus can mask them in the training's output.

        Not every process that runs callbacks knows the secrets. The last lines in a failure's message need no masking,
        because the training's own processes have masked these lines.
        """
        if task is None:
            return False
        try:
            render_secrets(task, context)  # type: ignore[arg-type]
        except Exception as error:  # noqa: BLE001 - a template may raise anything
            self._tell(f"the training's secrets are not known here, so its log is not read: {type(error).__name__}")
            return False
        return True

    def _tell(self, problem: str) -> None:
        self.log.warning("Data is missing for the notification: %s", problem)


def _training(task: Any) -> TonyTrainOperator | None:
    return task if isinstance(task, TonyTrainOperator) else None


def _rendered(task: TonyTrainOperator, text: str | None, context: Mapping[str, Any]) -> Any:
    """Return the rendered value of a template field.

    In a running task, ``text`` is already rendered; in a DAG's callback, it is still a template. A rendered value is
    not rendered again, because it may come from a trigger form.
    """
    is_template = text and "{" in text and not task.is_rendered
    return task.render_template(text, context) if is_template else text  # type: ignore[arg-type]


def _foremost(looks: list[TrainingFacts]) -> TrainingFacts | None:
    """Return the first training that has failed or still runs, as far as known, otherwise the last training."""
    for each in looks:
        if each.status is not None and each.status.state is not JobState.SUCCEEDED:
            return each
    return looks[-1] if looks else None
