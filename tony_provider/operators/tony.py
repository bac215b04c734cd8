"""TonyTrainOperator: one distributed training on YARN as one task of a DAG."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from airflow.providers.common.compat.sdk import AirflowTaskTimeout, BaseOperator, conf, mask_secret

from tony_provider.cluster.errors import ClusterError, ClusterUnreachable
from tony_provider.cluster.identity import Identity
from tony_provider.cluster.lineage_choice import Resume
from tony_provider.exceptions import (
    TonyJobRejected,
    TonyKilledExternally,
    TonyQueueTimeout,
    TonySpecError,
    TonyTaskKilled,
)
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.conclusion import Conclusion
from tony_provider.operators.killing import KillSwitch, end_application
from tony_provider.operators.origin import origin_of, resume_of
from tony_provider.operators.start import Started, Starter
from tony_provider.operators.submission import identity_of, job_of, labels_of, search_path
from tony_provider.operators.tries import Try, remember, remembered
from tony_provider.operators.verdict import failure, is_permanent, killed_by_airflow
from tony_provider.operators.waiting import deadlines_of, wait
from tony_provider.operators.watch import Deadlines, Ending, JobWatch, Reason
from tony_provider.runtime.spec.model import JobSpec
from tony_provider.runtime.storage.errors import StorageError
from tony_provider.triggers.tony import TonyJobTrigger

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

KILL_REASON = "the task was ended by a user, or with its worker"
DEFER_SLACK = 300.0  # seconds after the deadline, until which a triggerer that is down may come back


class TonyTrainOperator(BaseOperator):
    """Run a distributed training on YARN, or on this machine, and wait for it.

    A try after the worker died attaches to the application that its predecessor left running, or returns the result
    that it left. A try after a failure starts a new application, which goes on from the newest verified checkpoint of
    the one before, as long as nothing has changed that checkpoints depend on. A task that is cleared after a success
    trains anew. See docs/how-it-works.md, "Retry is resume".

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
    :param resume: what a new application does with the checkpoints of the one before: ``auto`` goes on from the newest
        after a failure, unless the commands, the environment or the files have changed; ``always`` goes on whatever
        has changed, and after a success; ``never`` begins at step 0. Templated.
    :param resume_from: what this training begins with while it has no checkpoint of its own: the newest checkpoint of
        another one, given as a mapping of ``run_id`` and, where they are not this task's own, ``dag_id``, ``task_id``
        and ``map_index`` or ``checkpoint_key``; or the URI of a lineage, as in a result's ``lineage``. Nothing when
        ``run_id`` or the text is empty. Templated.
    :param warm_start: URI of the directory of a model on the job's store that the training code may take its initial
        weights from, at step 0: it finds the files in ``TONY_WARM_START``. Nothing when empty. Templated; for an
        earlier period's model see ``macros.tony.newest_model``.
    :param checkpoint_key: the author's name for this training among the mapped instances of the task, in place of the
        map index, whose meaning changes with the list. Templated.
    :param durable: False: look at nothing that earlier tries have started or reached; end it, and start an application
        of this try's own. What ``resume`` says of its checkpoints holds all the same.
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
        "resume",
        "resume_from",
        "warm_start",
        "checkpoint_key",
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
        resume: str = Resume.AUTO.value,
        resume_from: Mapping[str, Any] | str | None = None,
        warm_start: str | None = None,
        checkpoint_key: str | None = None,
        durable: bool = True,
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
        self.resume = resume
        self.resume_from = resume_from
        self.warm_start = warm_start
        self.checkpoint_key = checkpoint_key
        self.durable = durable
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
                raise ClusterUnreachable(f"{application_id} could not be watched any more: {event['error']}")
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
        started = self._start(context, job, secrets)
        self._heed_kill(context)
        application_id = started.application_id
        if not self.wait_for_completion and not started.has_ended:
            return self._conclusion(context, application_id).deliver(self.hook.application(application_id), None)
        deadlines = deadlines_of(
            self.hook,
            application_id,
            job,
            started=context["ti"].start_date,
            execution_timeout=self.execution_timeout,
        )
        if self.deferrable and not started.has_ended:
            self._defer(context, application_id, deadlines, started.attached)
        ending = self._wait(context, application_id, deadlines)
        return self._conclude(context, application_id, ending, attached=started.attached)

    # -- until it is submitted ---------------------------------------------------------------------------------------

    def _render_secrets(self, context: Context) -> dict[str, str]:
        rendered: dict[str, str] = self.render_template(dict(self.secrets or {}), context)
        for name, value in rendered.items():
            if not isinstance(value, str):
                raise TonySpecError(f"secrets.{name}: must be text, not {type(value).__name__}")
            mask_secret(value)
        return rendered

    def _parse_job(self, secrets: Mapping[str, str]) -> JobSpec:
        return job_of(
            self.job,
            default_name=f"{self.dag_id}.{self.task_id}",
            name=self.name,
            queue=self.yarn_queue,
            env=self.env_vars,
            secrets=list(secrets),
            queue_timeout=self.queue_timeout,
            overrides=self.overrides,
        )

    def _start(self, context: Context, job: JobSpec, secrets: Mapping[str, str]) -> Started:
        starter = Starter(
            hook=self.hook,
            identity=self._identity(context),
            this_try=Try.of(context),
            resume=resume_of(self.resume),
            origin=origin_of(
                self.hook,
                context,
                resume_from=self.resume_from,
                warm_start=self.warm_start,
                checkpoint_key=self.checkpoint_key,
            ),
            secrets=secrets,
            labels=labels_of(context),
            search_path=search_path(self.dag),
            remember=lambda application_id: self._remember(context, application_id),
            before_submit=lambda application_id: self._before_submit(context, application_id),
            log=self.log,
        )
        if not self.durable:
            return starter.end_and_submit(job)
        return starter.attach_or_submit(job, remembered(context, self.log))

    def _remember(self, context: Context, application_id: str) -> None:
        self._switch.remember(application_id)
        if self.durable:
            remember(context, application_id, self.log)

    def _before_submit(self, context: Context, application_id: str) -> None:
        """From here on a kill finds the application by its id; one that came before keeps it from being submitted."""
        self._remember(context, application_id)
        if self._switch.pulled:
            self._switch.forget()
            self._heed_kill(context)

    def _identity(self, context: Context) -> Identity:
        return identity_of(self.hook, context, self.checkpoint_key)

    # -- while it runs -----------------------------------------------------------------------------------------------

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
        return wait(watch, self._switch, self.poll_interval, lambda: self._heed_kill(context))

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
        conclusion = self._conclusion(context, application_id)
        conclusion.clean_up()
        error = failure(application_id, ending.application, ending.status)
        if isinstance(error, TonyKilledExternally) and attached and killed_by_airflow(ending.application):
            self.log.info("%s was killed on behalf of the try that started it: starting anew", application_id)
            return self._train(context)
        if error is not None:
            error.permanent = is_permanent(error.failure, self._parse_job(self.secrets or {}))
            conclusion.tell_failure(error, ending.status)
            raise error
        return conclusion.deliver(ending.application, ending.status)

    def _conclusion(self, context: Context, application_id: str) -> Conclusion:
        return Conclusion(self.hook, self._identity(context), application_id, Try.of(context), self.log)

    def _end(self, context: Context, reason: str) -> None:
        if self._switch.application_id is not None:
            end_application(self.hook, self._identity(context), self._switch.application_id, reason)

    def _end_despite_alarm(self, context: Context, reason: str) -> None:
        """Airflow's alarm, which rings once, may do so while the job is already ended as its deadline has passed."""
        try:
            self._end(context, reason)
        except AirflowTaskTimeout:
            self._end(context, reason)

    @contextmanager
    def _errors_and_timeouts(self, context: Context) -> Iterator[None]:
        """Errors in Airflow's words; no application outlives the task's timeout; no connection outlives the task."""
        try:
            yield
        except ClusterError as error:
            if error.permanent:
                # That very kill may have had a killed try's submission refused: it says nothing of the next one.
                kind = TonyTaskKilled if self._switch.pulled else TonyJobRejected
                raise kind(str(error)) from error
            raise
        except (AirflowTaskTimeout, KeyboardInterrupt) as interruption:
            timed_out = isinstance(interruption, AirflowTaskTimeout)
            reason = "the task's execution_timeout is over" if timed_out else "the task was interrupted"
            try:
                self._end_despite_alarm(context, reason)
            except (ClusterError, StorageError) as error:
                self.log.error("%s could not be ended: %s", self._switch.application_id, error)  # noqa: TRY400
            raise
        finally:
            self.hook.close()
