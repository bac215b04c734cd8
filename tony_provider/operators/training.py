"""What one try of a training task does with its application, from the start to the result."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import attrs
from airflow.providers.common.compat.sdk import AirflowTaskTimeout
from airflow.sdk.exceptions import AirflowRuntimeError

from tony_provider.airflow_versions.deferral_errors import TaskDeferralTimeout, TaskDeferred
from tony_provider.arguments import empty_to_none
from tony_provider.cluster.base import Application
from tony_provider.cluster.errors import ClusterError, ClusterUnreachable
from tony_provider.cluster.identity import Identity
from tony_provider.cluster.submission_request import SubmissionRequest
from tony_provider.cluster.training_owners import TakenOverError
from tony_provider.exceptions import (
    TonyJobRejected,
    TonyKilledExternally,
    TonyQueueTimeout,
    TonyTaskKilled,
)
from tony_provider.links.tony import push_links, withdraw_links
from tony_provider.operators import deferral
from tony_provider.operators.advice import Adviser
from tony_provider.operators.application_starter import ApplicationStarter, StartedApplication
from tony_provider.operators.outcome import Outcome, RestOfOutput, failure, with_own_outputs
from tony_provider.operators.submission import check_shown, request_of
from tony_provider.operators.summary import Summaries
from tony_provider.operators.summary_keeper import SummaryKeeper
from tony_provider.operators.task_secrets import render_secrets
from tony_provider.operators.telemetry.telemetry import Telemetry
from tony_provider.operators.training_notes import TrainingNotes
from tony_provider.operators.training_task import TrainingTask
from tony_provider.operators.tries import (
    TaskRun,
    TaskTry,
    gets_another_trigger,
    instance_exists,
    is_of_dag_test,
    may_start_anew,
    remember,
    remembered,
)
from tony_provider.operators.waiting import bound, deadlines_of, wait
from tony_provider.runtime.codec import from_plain, to_plain
from tony_provider.runtime.protocol.status import JobStatus
from tony_provider.runtime.spec.model import JobSpec
from tony_provider.state_store import StateStore
from tony_provider.triggers.deferred_job import DeferredJob, WatchEvent
from tony_provider.triggers.earliest_event import earliest_event
from tony_provider.triggers.tony import TonyJobTrigger
from tony_provider.watching.kill_switch import KILL_REASON
from tony_provider.watching.observation import Observation, observe
from tony_provider.watching.shown_output import OutputWish, Told, shown_output
from tony_provider.watching.termination import Kill, end_application, end_or_tell, killed_by_airflow, killed_for
from tony_provider.watching.token_renewal import TokenRenewal
from tony_provider.watching.watch import JobWatch
from tony_provider.watching.watch_result import Reason, WatchLimits, WatchResult, deferral_timeout

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

_FRESH_SECONDS = 120.0  # after which a trigger that begins is not the first one of its deferral

# Templated, and not needed.
OPTIONAL = ("overrides", "name", "yarn_queue", "proxy_user", "resume_from", "warm_start", "checkpoint_key", "mlflow")


class Training:
    """One try of a training task, in one of its processes: a task that was deferred goes on in another one."""

    def __init__(self, task: TrainingTask, context: Context) -> None:
        empty_to_none(task, OPTIONAL)
        self._task = task
        self._context = context
        self._hook = task.hook
        self._log = task.log
        self._run = TaskRun.of(context)
        self._try = TaskTry.of(context)
        self._switch = task.switch = task.switch.of(self._try.name)
        self._store = StateStore(context, task.log, TrainingNotes(self._hook, lambda: self._identity))
        summed = task, context, self._run
        # The truth about summaries is what the job has left on its store, not the training's notes.
        cache = StateStore(context, task.log)
        self._summary = SummaryKeeper(*summed, cache) if cache.is_airflows else Summaries(*summed)
        self._telemetry = Telemetry(task, self._run, lambda: self._identity, self._store)
        self._told: Told = {}
        self._secrets: Collection[str] = ()

    @cached_property
    def _identity(self) -> Identity:
        return self._run.identity(self._hook, self._task.checkpoint_key)

    @property
    def _adviser(self) -> Adviser:
        return Adviser(self._hook, self._identity, self._log)

    def run(self) -> Any:
        """Do the whole try, or its part before it is deferred. Returns what the task returns; raises TaskDeferred."""
        secrets = self._render_secrets()
        job = self._task.parse_job(secrets)
        if isinstance(self._task.show_output, list):
            check_shown(self._task.show_output, job)
        self._heed_kill()
        mine = deferral.TaskOfTry(self._hook, self._run, self._try, self._task.checkpoint_key)
        deferral.end_what_was_left(self._store, mine, self._log)
        with self._task.sent(job) as sent:
            started = self._start(request_of(self._task, self._run, job, sent, secrets))
        application_id = started.application_id
        self._show_links(application_id, job)
        self._summary.begin(application_id)
        self._heed_kill()
        if not self._task.wait_for_completion and not started.has_ended:
            return self._deliver(application_id, self._hook.application(application_id), None)
        deadlines = self._deadlines(application_id, job)
        if deadlines.end is not None and not started.has_ended:
            attached = started.attached
            bound(self._hook, self._identity, application_id, job, deadlines.end, attached=attached, log=self._log)
        if self._task.deferrable and not started.has_ended:
            self._defer(application_id, deadlines, fresh=True)
        return self._conclude(application_id, self._wait(application_id, deadlines, self._wish(fresh=True)))

    def go_on(self, event: Mapping[str, Any]) -> Any:
        """Where the trigger has seen that there is nothing more to wait for; ``event`` is its WatchEvent."""
        told = from_plain(event, WatchEvent, ignore_unknown=True)
        application_id = told.job.application_id
        self._told = told.told
        self._take_over(application_id)
        deferral.forget(self._store)
        self._render_secrets()
        if told.reason is None:
            raise ClusterUnreachable(f"{application_id} could not be watched any more: {told.error}")
        ending = WatchResult(told.reason, told.last_message)
        if ending.reason in (Reason.FINISHED, Reason.FORGOTTEN) or self._has_ended(application_id):
            ending = self._wait(application_id, WatchLimits())  # looks at how it ended, through outages too
        return self._conclude(application_id, ending)

    def go_on_without_trigger(self, failure: Exception) -> Any:
        """Go on after the trigger failed: wait in the triggerer again, and at last in the worker.

        The job runs on undisturbed when a trigger fails.
        """
        known = remembered(self._store)
        if known is not None and self._is_mine(known):
            self._take_over(known)
        deferral.forget(self._store)
        before = self._hook.previous_application(self._identity, remembered=known)
        if before is None:
            raise failure
        application_id = before.application_id
        self._switch.remember(self._identity, application_id)
        self._render_secrets()
        deadlines = self._deadlines(application_id, self._task.parse_job(self._task.secrets or {}))
        if isinstance(failure, TaskDeferralTimeout) and not self._has_ended(application_id):
            if deadlines.end is None or self._hook.now() >= deadlines.end:
                raise AirflowTaskTimeout(
                    f"{application_id} took longer than execution_timeout, and no triggerer noticed"
                )
            self._log.warning(
                "Airflow ended the wait for %s before execution_timeout: the clocks of its machines differ",
                application_id,
            )
        self._heed_kill()
        if gets_another_trigger(self._store, self._try, self._log) and not self._has_ended(application_id):
            self._log.info("Waiting for %s with a new one", application_id)
            self._defer(application_id, deadlines, fresh=False)
        self._log.warning("Waiting for %s in this worker", application_id)
        return self._conclude(application_id, self._wait(application_id, deadlines, self._wish(fresh=False)))

    @contextmanager
    def ending_cleanly(self) -> Iterator[None]:
        """Context manager around every part of a try, for what must hold however it ends.

        Errors are raised in Airflow's words; no application outlives the task's timeout; no connection outlives the
        task.
        """
        try:
            with self._telemetry.telling(), self._ending_application():
                yield
        finally:
            self._leave()
            self._hook.close()

    @contextmanager
    def _ending_application(self) -> Iterator[None]:
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
            with end_or_tell(self._switch.application_id or "", self._log):
                self._end_despite_alarm(reason)
            if timed_out and self._task.apply_advice and self._switch.application_id is not None:
                self._adviser.timed_out(self._switch.application_id)
            raise

    def _leave(self) -> None:
        """Tell Airflow what has become of the application, unless the try only goes on elsewhere."""
        if self._switch.application_id is not None and not isinstance(sys.exception(), TaskDeferred):
            self._summary.leave(self._switch.application_id)

    def _render_secrets(self) -> Mapping[str, str]:
        secrets = render_secrets(self._task, self._context)
        self._secrets = list(secrets.values())
        return secrets

    def _take_over(self, application_id: str) -> None:
        """Let a kill find an application that another process of this try has started."""
        self._hook.get_conn()  # loads the backend first: a kill's thread would wait for us to end that import
        self._switch.remember(self._identity, application_id)

    def _is_mine(self, application_id: str) -> bool:
        """Return whether the cluster knows the application as this training's; False if the cluster does not answer."""
        try:
            application = self._hook.application(application_id)
        except ClusterError as error:
            self._log.warning("Whether %s is this training's cannot be told: %s", application_id, error)
            return False
        return application is not None and self._identity.tag in application.tags

    # -- until it is submitted ---------------------------------------------------------------------------------------

    def _start(self, request: SubmissionRequest) -> StartedApplication:
        known = remembered(self._store)
        if known is None:  # nothing runs that an outage would have to be outlasted for
            self._hook.expect_servers()
        starter = ApplicationStarter(
            self._hook,
            self._try,
            remember=self._remember,
            before_submit=self._before_submit,
            completed=self._completed,
            instance_exists=lambda index: instance_exists(self._context, index),
            log=self._log,
        )
        return starter.attach_or_submit(request, known) if self._task.durable else starter.end_and_submit(request)

    def _completed(self, request: SubmissionRequest) -> SubmissionRequest:
        """With what only a new application needs: what advice changes about the job, and what others are told of it."""
        return self._telemetry.completed(self._advised(request) if self._task.apply_advice else request)

    def _advised(self, request: SubmissionRequest) -> SubmissionRequest:
        from tony_provider.advice.limits import Limits  # here: few tasks have it

        limits = Limits.parse(self._task.apply_advice)
        return request if limits is None else self._adviser.advised(request, limits)

    def _remember(self, application_id: str) -> None:
        self._switch.remember(self._identity, application_id)
        if self._task.durable:
            remember(self._store, application_id)

    def _before_submit(self, application_id: str) -> None:
        """From here on a kill finds the application by its id; one that came before keeps it from being submitted."""
        self._remember(application_id)
        if self._switch.pulled:
            self._switch.forget()
            self._heed_kill()

    def _show_links(self, application_id: str, job: JobSpec) -> None:
        try:
            pages = self._hook.pages(self._identity, application_id)
            self._task.has_links = True
            push_links(self._context["ti"], application_id, pages, tensorboard=job.tensorboard is not None)
        except (ClusterError, AirflowRuntimeError) as error:
            self._log.warning("%s gets no links in Airflow's pages: %s", application_id, error)

    def _withdraw_links(self) -> None:
        try:
            withdraw_links(self._context["ti"])
        except AirflowRuntimeError as error:
            self._log.warning("Links to pages that are no longer there stay on Airflow's pages: %s", error)

    # -- while it runs -----------------------------------------------------------------------------------------------

    def _deadlines(self, application_id: str, job: JobSpec) -> WatchLimits:
        return deadlines_of(
            self._hook,
            application_id,
            job,
            started=self._context["ti"].start_date,
            execution_timeout=self._task.execution_timeout,
        )

    def _wish(self, *, fresh: bool) -> OutputWish | None:
        """Whose output is shown; not ``fresh``: what was printed before is in this try's log already."""
        wanted = self._task.show_output
        if wanted is False:
            return None
        tasks = [] if isinstance(wanted, str) else list(wanted)
        return OutputWish(tasks, self._hook.now() + _FRESH_SECONDS if fresh else 0.0)

    def _defer(self, application_id: str, deadlines: WatchLimits, *, fresh: bool) -> NoReturn:
        task = self._task
        job = DeferredJob(
            tony_conn_id=task.tony_conn_id,
            proxy_user=task.proxy_user or None,
            slug=self._identity.slug,
            digest=self._identity.digest,
            application_id=application_id,
            kill=task.on_kill_action == "kill",
            output=self._wish(fresh=fresh),
            mlflow=self._telemetry.open_run,
        )
        left = deferral.Deferral(self._try.id, self._try.max_tries, application_id, job.kill)
        deferral.note(self._store, left)
        # A triggerer beside ``dag.test()``, which runs the trigger itself, would take what comes next for a user's
        # action; and no scheduler fails the task there.
        is_test = is_of_dag_test(self._context)
        watched = attrs.evolve(job, kill=job.kill and not is_test)
        task.defer(
            trigger=TonyJobTrigger(
                job=to_plain(watched),
                poll_interval=task.poll_interval,
                end=deadlines.end,
                queue=deadlines.queue,
                whose=self._try.name,
                earliest=None if is_test else earliest_event(),
            ),
            method_name="execute_complete",
            timeout=None if deadlines.end is None else deferral_timeout(deadlines.end, self._hook.now()),
        )

    def _has_ended(self, application_id: str) -> bool:
        """Whether its end was only not seen in time. Not so where the cluster does not tell."""
        try:
            application = self._hook.application(application_id)
        except ClusterError as error:
            self._log.warning("Whether %s has ended cannot be told: %s", application_id, error)
            return False
        return application is not None and application.is_final

    def _wait(self, application_id: str, deadlines: WatchLimits, wish: OutputWish | None = None) -> WatchResult:
        watch = JobWatch(application_id, deadlines, self._log.info)
        output = shown_output(application_id, wish)
        renewal = TokenRenewal(self._identity, application_id)

        def look() -> Observation:
            ask_master = watch.silence.wants_master
            seen = observe(self._hook, self._identity, application_id, contact=watch.contact, ask_master=ask_master)
            if output is not None and seen.runs and seen.newest is not None and output.is_due(seen.newest):
                output.look(self._hook, seen.newest)
            if renewal.is_due(seen):
                renewal.renew(self._hook, seen)
            return seen

        def tell(_: Observation | None) -> None:
            for line in renewal.lines():
                self._log.info("%s", line)
            for line in output.lines() if output is not None else ():
                self._log.info("%s", line)

        result = wait(look, watch, self._switch, self._task.poll_interval, self._heed_kill, tell)
        if output is not None:
            self._told = output.told()
        return result

    def _heed_kill(self) -> None:
        """Airflow lets execute() go on after on_kill(), and would call its return a success."""
        if not self._switch.pulled:
            return
        application_id = self._switch.application_id
        if application_id is None:
            raise TonyTaskKilled("this try was ended before it had started anything")
        if self._task.on_kill_action == "keep":
            raise TonyTaskKilled(f"this try was ended; {application_id} goes on, and a next try attaches to it")
        self._summary.leave(application_id, hurried=True)
        self._telemetry.hurry(application_id, KILL_REASON)
        has_ended = False
        with end_or_tell(application_id, self._log):
            self._end(KILL_REASON)
            has_ended = True
        what = f"and {application_id} with it" if has_ended else f"but {application_id} may still run"
        raise TonyTaskKilled(f"this try was ended, {what}")

    def _end(self, reason: str) -> None:
        if self._switch.application_id is not None:
            end_application(self._hook, self._identity, self._switch.application_id, Kill(reason, self._try.name))

    def _end_despite_alarm(self, reason: str) -> None:
        """Airflow's alarm, which rings once, may do so while the job is already ended as its deadline has passed."""
        try:
            self._end(reason)
        except AirflowTaskTimeout:
            self._end(reason)

    # -- when it has ended -------------------------------------------------------------------------------------------

    def _conclude(self, application_id: str, ending: WatchResult) -> Any:
        self._telemetry.saw(ending)
        self._heed_kill()
        if ending.reason is Reason.DEADLINE:
            raise AirflowTaskTimeout(f"{application_id} took longer than the task's execution_timeout")
        if ending.reason is Reason.QUEUE_TIMEOUT:
            with end_or_tell(application_id, self._log):
                self._end("queue_timeout")
            raise TonyQueueTimeout(
                f"{application_id} did not get its containers within queue_timeout: {ending.last_message}",
                application_id=application_id,
            )
        outcome = self._outcome(application_id)
        outcome.clean_up()
        self._withdraw_links()
        error = failure(application_id, ending.application, ending.status)
        if isinstance(error, TonyKilledExternally) and self._was_killed_for_another_try(ending):
            self._log.info("%s was killed on behalf of an earlier try: starting anew", application_id)
            self._summary.end(application_id, ending.application, ending.status)
            return self.run()
        judged = self._adviser.conclude(application_id)
        self._telemetry.history = judged.history
        self._telemetry.summary = self._summary.end(
            application_id, ending.application, ending.status, judged.history, judged.advice
        )
        if error is not None:
            outcome.tell_failure(error, ending.status, self._rest_of_output())
            raise error
        if ending.status is not None:
            outcome.tell_output(ending.status, self._rest_of_output())
        return self._deliver(application_id, ending.application, ending.status)

    def _rest_of_output(self) -> RestOfOutput:
        return RestOfOutput(self._wish(fresh=False), self._told, [*self._secrets, *self._telemetry.secrets])

    def _was_killed_for_another_try(self, ending: WatchResult) -> bool:
        """A task that is cleared while it is deferred starts its next try before the last one's job is killed."""
        if not killed_by_airflow(ending.application) or killed_for(ending.application) == self._try.name:
            return False
        try:
            self._hook.owners(self._identity).still(self._try.waiting)
        except TakenOverError:
            return False
        return may_start_anew(self._store, self._try)

    def _deliver(self, application_id: str, application: Application | None, status: JobStatus | None) -> Any:
        if status is not None and status.outputs:
            status = with_own_outputs(status, self._task.parse_job(self._task.secrets or {}), self._log)
        self._task.told = self._outcome(application_id).deliver(application, status)
        return self._task.answer(self._context, self._task.told)

    def _outcome(self, application_id: str) -> Outcome:
        return Outcome(self._hook, self._identity, application_id, self._try, self._log)
