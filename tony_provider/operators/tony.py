"""TonyTrainOperator: one distributed training on YARN as one task of a DAG."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from airflow.providers.common.compat.sdk import AirflowException, AirflowTaskTimeout, BaseOperator, conf, mask_secret

from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.identity import Identity
from tony_provider.exceptions import (
    TonyJobFailed,
    TonyJobRejected,
    TonyKilledExternally,
    TonyQueueTimeout,
    TonySpecError,
    TonyTaskKilled,
)
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.killing import KillSwitch, end_application
from tony_provider.operators.logs import task_log_tail
from tony_provider.operators.result import JobResult
from tony_provider.operators.verdict import failure, killed_by_airflow
from tony_provider.operators.watch import Deadlines, Ending, JobWatch, Reason
from tony_provider.runtime.spec.merge import merge
from tony_provider.runtime.spec.model import JobSpec
from tony_provider.runtime.spec.parse import parse_job
from tony_provider.runtime.spec.problems import SpecError
from tony_provider.runtime.spec.source import load_source
from tony_provider.runtime.storage.errors import StorageError
from tony_provider.triggers.tony import TonyJobTrigger

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from tony_provider.cluster.base import Application
    from tony_provider.runtime.protocol.status import JobStatus

FIRST_POLL = 0.5  # seconds; the pauses grow from there by POLL_GROWTH, up to poll_interval
POLL_GROWTH = 1.3
KILL_REASON = "the task was ended by a user, or with its worker"
DEFER_SLACK = 300.0  # seconds after the deadline, until which a triggerer that is down may come back


class TonyTrainOperator(BaseOperator):
    """Run a distributed training on YARN, or on this machine, and wait for it.

    A retry, or a try after the worker died, attaches to the application that its predecessor left running.

    :param job: the job specification: a mapping, YAML or JSON text, or the name of a file beside the DAG that ends in
        ``.tony.yaml`` or ``.tony.json``. Templated, every text in it. See docs/job-specification.md.
    :param overrides: laid over the job and over the arguments below, at last: a mapping, or text. Mappings merge key
        by key, lists replace, null deletes. Templated.
    :param tony_conn_id: a connection of type ``tony``.
    :param name: the job's name; default: the job's own, else ``<dag>.<task>``. Templated.
    :param yarn_queue: over the job's ``queue``; default: the job's, else the connection's. Templated.
    :param proxy_user: run the job as this user, whom the cluster must let the connection's user impersonate. Templated.
    :param env_vars: over the job's ``env``. Templated.
    :param secrets: name -> value; each user process finds them in its environment, and nobody else anywhere: they are
        masked in logs, and travel in the application's credentials. Templated, so that a DAG need not hold them:
        ``{"API_KEY": "{{ conn.model_store.password }}"}``; text given literally is in the DAG's file, and in Airflow's
        database too where the task is mapped.
    :param wait_for_completion: False: return as soon as the application is submitted.
    :param deferrable: wait in the triggerer, without a worker slot; default: Airflow's
        ``[operators] default_deferrable``.
    :param poll_interval: seconds between two looks at the application; more often in its first minute.
    :param queue_timeout: seconds, or a timedelta, that the whole job's containers may take from submission until they
        are there; default: the job's ``timeouts.queue``, else no limit.
    :param on_kill_action: what happens to the application when this task is marked, cleared, or its worker shuts down:
        ``kill``, or ``keep`` to let the next try attach to it. A timeout of the task kills it in any case.
    :return: see ``JobResult``: each key is an XCom of its own, as in ``train.output["model_dir"]``.

    Raises TonySpecError and TonyJobRejected, which are not retried, TonyJobFailed, TonyQueueTimeout,
    TonyKilledExternally, AirflowTaskTimeout, and ClusterError or StorageError when the cluster is out of reach.
    """

    template_fields: Sequence[str] = (
        "job",
        "overrides",
        "tony_conn_id",
        "name",
        "yarn_queue",
        "proxy_user",
        "env_vars",
    )
    template_ext: Sequence[str] = (".tony.yaml", ".tony.json")
    template_fields_renderers = {"job": "yaml", "overrides": "yaml", "env_vars": "yaml"}  # noqa: RUF012 - Airflow's form
    ui_color = "#ffdd88"

    def __init__(
        self,
        *,
        job: Mapping[str, Any] | str,
        overrides: Mapping[str, Any] | str | None = None,
        tony_conn_id: str = TonyHook.default_conn_name,
        name: str | None = None,
        yarn_queue: str | None = None,
        proxy_user: str | None = None,
        env_vars: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        wait_for_completion: bool = True,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poll_interval: float = 5.0,
        queue_timeout: timedelta | float | None = None,
        on_kill_action: Literal["kill", "keep"] = "kill",
        multiple_outputs: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(multiple_outputs=multiple_outputs, **kwargs)
        if on_kill_action not in ("kill", "keep"):
            raise ValueError(f"on_kill_action is {on_kill_action!r}: 'kill' or 'keep'")
        if poll_interval <= 0:
            raise ValueError(f"poll_interval is {poll_interval!r}: more than 0 seconds")
        self.job = job
        self.overrides = overrides
        self.tony_conn_id = tony_conn_id
        self.name = name
        self.yarn_queue = yarn_queue
        self.proxy_user = proxy_user
        self.env_vars = env_vars
        # Not a template field: Airflow keeps the values of those in its database. Rendered in execute() instead.
        self.secrets = secrets
        self.wait_for_completion = wait_for_completion
        self.deferrable = deferrable
        self.poll_interval = poll_interval
        self.queue_timeout = queue_timeout
        self.on_kill_action = on_kill_action
        self._switch = KillSwitch()

    @cached_property
    def hook(self) -> TonyHook:
        return TonyHook(self.tony_conn_id, self.proxy_user or None)

    def execute(self, context: Context) -> dict[str, Any]:
        with self._errors_and_timeouts(context):
            return self._train(context)

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Goes on where the trigger saw that there is nothing more to wait for; ``event`` is as it describes."""
        application_id = self._switch.application_id = event["application_id"]
        with self._errors_and_timeouts(context):
            if event["error"]:
                raise AirflowException(f"{application_id} could not be watched any more: {event['error']}")
            ending = Ending(Reason(event["reason"]), event["last_message"])
            if ending.reason in (Reason.FINISHED, Reason.FORGOTTEN):
                ending = self._wait(context, application_id, Deadlines())  # looks at how it ended, through outages too
            return self._conclude(context, application_id, ending, attached=event["attached"])

    def on_kill(self) -> None:
        """Called by Airflow from a signal handler, in the midst of whatever the task is doing."""
        self._switch.pull(self.hook, KILL_REASON if self.on_kill_action == "kill" else None)

    def _train(self, context: Context) -> dict[str, Any]:
        secrets = self._render_secrets(context)
        job = self._parse_job(secrets)
        self._heed_kill(context)
        application_id, attached = self._start(context, job, secrets)
        self._heed_kill(context)
        if not self.wait_for_completion:
            return self._result(context, application_id, self.hook.application(application_id), None)
        deadlines = self._deadlines(context, job, application_id)
        if self.deferrable:
            self._defer(context, application_id, deadlines, attached)
        ending = self._wait(context, application_id, deadlines)
        return self._conclude(context, application_id, ending, attached=attached)

    # -- until it is submitted ---------------------------------------------------------------------------------------

    def _render_secrets(self, context: Context) -> dict[str, str]:
        rendered: dict[str, str] = self.render_template(dict(self.secrets or {}), context)
        for name, value in rendered.items():
            if not isinstance(value, str):
                raise TonySpecError(f"secrets.{name}: must be text, not {type(value).__name__}")
            mask_secret(value)
        return rendered

    def _parse_job(self, secrets: Mapping[str, str]) -> JobSpec:
        arguments: dict[str, Any] = {"name": self.name, "queue": self.yarn_queue, "env": dict(self.env_vars or {})}
        given = {key: value for key, value in arguments.items() if value}
        if secrets:
            given["secrets"] = sorted(secrets)
        if self.queue_timeout is not None:
            # The application master keeps to it too, for jobs that nobody watches, and tells what was missing.
            given["timeouts"] = {"queue": _seconds(self.queue_timeout)}
        try:
            job = merge({"name": f"{self.dag_id}.{self.task_id}"}, load_source(self.job))
            return parse_job(merge(job, given), overrides=self.overrides or None)
        except SpecError as error:
            raise TonySpecError(str(error)) from error

    def _start(self, context: Context, job: JobSpec, secrets: Mapping[str, str]) -> tuple[str, bool]:
        """The application that a try whose worker died left running (True), else a new one (False)."""
        identity = self._identity(context)
        if running := self.hook.find(identity):
            application_id = self._switch.application_id = running[0].id
            self.log.info("Attaching to %s, which an earlier try of this task started", application_id)
            return application_id, True
        application_id = self.hook.submit(
            job,
            identity=identity,
            secrets=secrets,
            labels=_labels(context),
            search_path=self._search_path(),
            before_submit=self._switch.remember,
        )
        directory = self.hook.application_dir(identity, application_id)
        self.log.info("Submitted %s (%s); its results and logs go to %s", application_id, job.name, directory)
        return application_id, False

    def _identity(self, context: Context) -> Identity:
        ti = context["ti"]
        return self.hook.identity(dag_id=ti.dag_id, run_id=ti.run_id, task_id=ti.task_id, map_index=_map_index(context))

    def _search_path(self) -> list[Path]:
        further = self.dag.template_searchpath or []
        return [Path(self.dag.folder), *map(Path, [further] if isinstance(further, str) else further)]

    # -- while it runs -----------------------------------------------------------------------------------------------

    def _deadlines(self, context: Context, job: JobSpec, application_id: str) -> Deadlines:
        end = None
        if self.execution_timeout:
            begun = context["ti"].start_date
            end = (begun.timestamp() if begun else time.time()) + self.execution_timeout.total_seconds()
        if job.timeouts.queue is None:
            return Deadlines(end)
        application = self.hook.application(application_id)
        submitted = application.started_ms / 1000 if application and application.started_ms else time.time()
        return Deadlines(end, submitted + job.timeouts.queue)

    def _defer(self, context: Context, application_id: str, deadlines: Deadlines, attached: bool) -> NoReturn:
        identity = self._identity(context)
        self.defer(
            trigger=TonyJobTrigger(
                tony_conn_id=self.tony_conn_id,
                proxy_user=self.proxy_user or None,
                slug=identity.slug,
                digest=identity.digest,
                application_id=application_id,
                attached=attached,
                poll_interval=self.poll_interval,
                end=deadlines.end,
                queue=deadlines.queue,
                kill=self.on_kill_action == "kill",
            ),
            method_name="execute_complete",
            # An expired deferral calls nobody, so the trigger minds the deadline; this is for when there is no trigger.
            timeout=None
            if deadlines.end is None
            else timedelta(seconds=max(0.0, deadlines.end - time.time()) + DEFER_SLACK),
        )

    def _wait(self, context: Context, application_id: str, deadlines: Deadlines) -> Ending:
        watch = JobWatch(self.hook, self._identity(context), application_id, deadlines, self.log.info)
        pause = min(FIRST_POLL, self.poll_interval)
        while (ending := watch.look()) is None:
            self._switch.sleep(pause)
            self._heed_kill(context)
            pause = min(pause * POLL_GROWTH, self.poll_interval)
        return ending

    def _heed_kill(self, context: Context) -> None:
        """Airflow lets execute() go on after on_kill(), and would call its return a success."""
        if not self._switch.pulled:
            return
        application_id = self._switch.application_id
        if application_id is None:
            raise TonyTaskKilled("this try was ended before it had started anything")
        if self.on_kill_action == "keep":
            raise TonyTaskKilled(f"this try was ended; {application_id} goes on, and a next try attaches to it")
        self._end(context, KILL_REASON)
        raise TonyTaskKilled(f"this try was ended, and {application_id} with it")

    # -- when it has ended -------------------------------------------------------------------------------------------

    def _conclude(self, context: Context, application_id: str, ending: Ending, *, attached: bool) -> dict[str, Any]:
        self._heed_kill(context)
        if ending.reason is Reason.DEADLINE:
            raise AirflowTaskTimeout(f"{application_id} took longer than the task's execution_timeout")
        if ending.reason is Reason.QUEUE_TIMEOUT:
            self._end(context, "queue_timeout")
            raise TonyQueueTimeout(
                f"{application_id} did not get its containers within queue_timeout: {ending.last_message}",
                application_id=application_id,
            )
        self._clean_up(context, application_id)
        error = failure(application_id, ending.application, ending.status)
        if isinstance(error, TonyKilledExternally) and attached and killed_by_airflow(ending.application):
            self.log.info("%s was killed on behalf of the try that started it: starting anew", application_id)
            return self._train(context)
        if error is not None:
            self._log_failure(context, error)
            raise error
        return self._result(context, application_id, ending.application, ending.status)

    def _clean_up(self, context: Context, application_id: str) -> None:
        """What was left is no reason to call a training failed."""
        try:
            self.hook.cleanup(self._identity(context), application_id)
        except (ClusterError, StorageError) as error:
            self.log.warning("Not everything of %s could be removed: %s", application_id, error)

    def _result(
        self, context: Context, application_id: str, application: Application | None, status: JobStatus | None
    ) -> dict[str, Any]:
        directory = self.hook.application_dir(self._identity(context), application_id)
        result = JobResult.of(application_id, directory, application, status)
        for warning in result.warnings:
            self.log.warning("%s", warning)
        for key, value in result.to_dict().items():
            if value not in (None, [], {}):
                self.log.info("%s: %s", key, value)
        return result.to_dict()

    def _log_failure(self, context: Context, error: TonyJobFailed) -> None:
        """The end of the failed task's log, or of the application master's when it could not say what failed."""
        try:
            if error.failure is not None and error.failure.task is not None:
                directory = self.hook.application_dir(self._identity(context), error.application_id)
                title, tail = error.failure.task, task_log_tail(self.hook.storage(), directory, error.failure.task)
            else:
                title, tail = "the application master", self.hook.log_tail(error.application_id)
        except (ClusterError, StorageError) as problem:
            self.log.warning("No logs of %s: %s", error.application_id, problem)
            return
        if tail:
            self.log.error("End of the output of %s:\n%s", title, tail)

    def _end(self, context: Context, reason: str) -> None:
        if self._switch.application_id is not None:
            end_application(self.hook, self._identity(context), self._switch.application_id, reason)

    @contextmanager
    def _errors_and_timeouts(self, context: Context) -> Iterator[None]:
        """Errors in Airflow's words; no application outlives the task's timeout; no connection outlives the task."""
        try:
            yield
        except ClusterError as error:
            if error.permanent:
                raise TonyJobRejected(str(error)) from error
            raise
        except (AirflowTaskTimeout, KeyboardInterrupt) as interruption:
            timed_out = isinstance(interruption, AirflowTaskTimeout)
            try:
                self._end(context, "the task's execution_timeout is over" if timed_out else "the task was interrupted")
            except (ClusterError, StorageError) as error:
                self.log.error("%s could not be ended: %s", self._switch.application_id, error)  # noqa: TRY400
            raise
        finally:
            self.hook.close()


def _map_index(context: Context) -> int:
    index = context["ti"].map_index
    return -1 if index is None else index


def _labels(context: Context) -> dict[str, str]:
    """Where the job comes from, for its event log."""
    ti = context["ti"]
    labels = {"dag_id": ti.dag_id, "run_id": ti.run_id, "task_id": ti.task_id, "try_number": str(ti.try_number)}
    return labels if _map_index(context) < 0 else {**labels, "map_index": str(_map_index(context))}


def _seconds(time_span: timedelta | float) -> float:
    return time_span.total_seconds() if isinstance(time_span, timedelta) else time_span
