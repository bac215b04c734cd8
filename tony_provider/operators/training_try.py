"""One try of a training task: starts or attaches to an application, waits for it, and concludes the task.

``ApplicationStarter`` attaches to the application of an earlier try, or submits a new one. ``TrainingTry`` contains the
whole try, in the worker and around its deferrals.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import attrs
from airflow.providers.common.compat.sdk import AirflowTaskTimeout, XCom
from airflow.sdk.exceptions import AirflowRuntimeError

from tony_provider.arguments import empty_to_none
from tony_provider.cluster.errors import ClusterError, ClusterUnreachable
from tony_provider.cluster.interface import Application
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.cluster.training.checkpoint_chains import TakenOverError
from tony_provider.cluster.training.identity import Identity
from tony_provider.cluster.training.results import PreviousApplication
from tony_provider.compat import TaskDeferralTimeout, TaskDeferred
from tony_provider.exceptions import (
    TonyJobRejected,
    TonyKilledExternally,
    TonyQueueTimeout,
    TonySpecError,
    TonyTaskKilled,
)
from tony_provider.hooks.job import TonyJob
from tony_provider.hooks.tony import TonyHook
from tony_provider.links.job_links import push_links, withdraw_links
from tony_provider.operators import try_state
from tony_provider.operators.advice import Adviser
from tony_provider.operators.job_summaries import Summaries
from tony_provider.operators.outcome import JobResult, Outcome, RemainingOutput, failure, with_own_outputs
from tony_provider.operators.submission import ParsedJob, check_shown, render_secrets, request_of
from tony_provider.operators.telemetry import Telemetry
from tony_provider.operators.try_state import (
    StateStore,
    TaskInstanceInfo,
    TrainingNotes,
    TryInfo,
    instance_exists,
    is_of_dag_test,
    may_defer_again,
    may_resubmit,
    remember,
    remembered,
)
from tony_provider.runtime.checkpoint.stored_checkpoint import Owner
from tony_provider.runtime.common.codec import from_plain, to_plain
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.protocol.status import JobStatus
from tony_provider.triggers.tony import DeferredJob, TonyJobTrigger, WatchEvent, earliest_wake_up
from tony_provider.watching.job_watch import (
    JobWatch,
    Looker,
    WatchEnd,
    WatchLimits,
    WatchResult,
    deadlines_of,
    deferral_timeout,
    limit_lifetime,
    wait_in_worker,
)
from tony_provider.watching.kill_switch import KILL_REASON
from tony_provider.watching.task_output import OutputSelection, ShownPositions, output_display
from tony_provider.watching.termination import (
    KillOrder,
    clean_up,
    end_job,
    killed_by_airflow,
    killed_for,
    logging_end_errors,
)

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context
    from airflow.sdk.types import Logger

    from tony_provider.operators.tony import TonyTrainOperator


@attrs.frozen
class StartedApplication:
    """The application that a try waits for: submitted by this try, or found from an earlier one."""

    job: TonyJob
    attached: bool = False  # whether an earlier try started the application
    has_ended: bool = False  # True if it has succeeded, and only its result must still be delivered to Airflow


@attrs.frozen
class ApplicationStarter:
    """Starts the application of one try, or finds the application that an earlier try started."""

    hook: TonyHook
    this_try: TryInfo
    remember: Callable[[TonyJob], None]  # called with the job when the try attaches to it
    before_submit: Callable[[TonyJob], None]  # called with the job before submission; raises if the try was killed
    completed: Callable[[SubmissionRequest], SubmissionRequest]  # adds data that only a new application needs
    instance_exists: Callable[[int], bool]  # whether the mapped instance with this index exists
    log: Logger

    def attach_or_submit(self, request: SubmissionRequest, remembered: str | None) -> StartedApplication:
        """Attach to the application of an earlier try, or submit the job.

        Attach also if the application has succeeded and its result was not delivered to Airflow.
        ``PreviousApplication`` describes the possible states. ``remembered`` is an application ID from Airflow's store.
        Raises StorageError, the exceptions of ``TonyHook.submit``, and TonySpecError for an application of another
        mapped instance.
        """
        if "map_index" in request.labels and (found := self.hook.previous_application(request.identity)):
            self._check_instance(request, found)  # checked before this try becomes the owner of the training
        owner = self._begin(request)
        before = self.hook.previous_application(request.identity, remembered=remembered)
        if before is not None and before.is_live and owner.stop is not None:
            self.log.info("Stopping %s, as an earlier try requested", before.application_id)
            end_job(self._job(request, before.application_id), KillOrder(owner.stop.reason, self.this_try.name))
            return self.submit(request)
        if before is not None and (before.is_live or self._is_undelivered(before)):
            self._check_instance(request, before)
            job = self._job(request, before.application_id)
            self.remember(job)
            if before.is_live:
                self.log.info("Attaching to %s, which an earlier try of this task started", job)
            else:
                self.log.info(
                    "%s succeeded in an earlier try of this task, which could not pass the result to Airflow: "
                    "returning that result",
                    job,
                )
            return StartedApplication(job, attached=True, has_ended=not before.is_live)
        if before is not None:
            self.log.info("The previous application: %s", before)
            # If the application's master and its try both died, its temporary files still exist.
            clean_up(self._job(request, before.application_id), self.log.warning)
        return self.submit(request)

    def end_and_submit(self, request: SubmissionRequest) -> StartedApplication:
        """End all applications of this training and submit the job, without using results of earlier tries.

        Raises StorageError, and the exceptions of ``TonyHook.submit``.
        """
        self._begin(request)
        for application in self.hook.find(request.identity):
            self.log.info("Ending %s, which an earlier try of this task started", application.id)
            kill = KillOrder("a new try of its task submits a new application", self.this_try.name)
            end_job(self._job(request, application.id), kill)
        return self.submit(request)

    def _begin(self, request: SubmissionRequest) -> Owner:
        """Register this try as the training's owner, so that earlier tries lose ownership. Return the new owner."""
        owners = self.hook.owners(request.identity)
        return owners.begin(self.this_try.waiting).owner

    def submit(self, request: SubmissionRequest) -> StartedApplication:
        epoch = self.hook.owners(request.identity).still(self.this_try.waiting)
        request = attrs.evolve(request, after_owner=epoch.number, whose=self.this_try.waiting)
        job = self.hook.submit(self.completed(request), before_submit=self.before_submit)
        self.log.info("Submitted %s (%s); its results and logs go to %s", job, request.job.name, job.directory)
        return StartedApplication(job)

    def _job(self, request: SubmissionRequest, application_id: str) -> TonyJob:
        return self.hook.job(application_id, request.identity)

    def _check_instance(self, request: SubmissionRequest, before: PreviousApplication) -> None:
        """Reject two mapped instances that share a ``checkpoint_key``: the second would return the first one's model.

        If the mapped list has changed, one training may have had another index before. So two different indexes are an
        error only if both instances exist now.
        """
        mine = request.labels.get("map_index")
        if mine is None:
            return
        theirs = self._job(request, before.application_id).labels().get("map_index", mine)
        if theirs != mine and self.instance_exists(int(theirs)):
            first, second = sorted((theirs, mine), key=int)
            raise TonySpecError(
                f"checkpoint_key: the mapped instances {first} and {second} of this task have the same key, so "
                f"both would be the training of {before.application_id}; give each instance its own key"
            )

    def _is_undelivered(self, before: PreviousApplication) -> bool:
        if not before.has_succeeded:
            return False
        return before.delivered is None or not self.this_try.was_cleared_after(before.delivered)


_FRESH_SECONDS = 120.0  # a trigger that starts later is a replacement, so earlier output is already in the log

# Optional template fields, in which an empty rendered value means None.
OPTIONAL = ("overrides", "name", "yarn_queue", "proxy_user", "resume_from", "warm_start", "checkpoint_key", "mlflow")


class TrainingTry:
    """One try of a training task, in one of its processes: a deferred task resumes in another process."""

    _job: TonyJob  # the job that this try has started, or attached to

    def __init__(self, task: TonyTrainOperator, context: Context) -> None:
        empty_to_none(task, OPTIONAL)
        self._task = task
        self._context = context
        self._hook = task.hook
        self._log = task.log
        self._run = TaskInstanceInfo.of(context)
        self._try = TryInfo.of(context)
        self._switch = task.switch = task.switch.of(self._try.name)
        self._store = StateStore(context, task.log, TrainingNotes(self._hook, lambda: self._identity))
        # Summaries are only cached in Airflow's store, because the records on the job's store are authoritative.
        cache = StateStore(context, task.log)
        self._summary = Summaries(
            task, context, self._run, lambda: self._parsed.specification, cache if cache.is_airflows else None
        )
        self._telemetry = Telemetry(task, self._run, lambda: self._identity, self._store)
        self._told: ShownPositions = {}
        self._secrets: Collection[str] = ()

    @cached_property
    def _identity(self) -> Identity:
        return self._run.identity(self._hook, self._task.checkpoint_key)

    @cached_property
    def _parsed(self) -> ParsedJob:
        """The task's job. Raises TonySpecError."""
        return self._task.parse_job(self._task.secrets or {})

    @property
    def _adviser(self) -> Adviser:
        return Adviser(self._hook, self._identity, self._log)

    def run(self) -> Any:
        """Run the whole try, or its part before the deferral. Return the task's return value, or raise TaskDeferred."""
        secrets = self._render_secrets()
        job = self._parsed.specification
        if isinstance(self._task.show_output, list):
            check_shown(self._task.show_output, job)
        self._end_if_killed()
        mine = try_state.BeginningTry(self._hook, self._run, self._try, self._task.checkpoint_key)
        try_state.end_abandoned_application(self._store, mine, self._log)
        with self._task.sent(job) as sent:
            started = self._start(request_of(self._task, self._run, self._parsed, sent, secrets))
        self._push_xcoms(tensorboard=job.tensorboard is not None)
        self._summary.begin(self._job)
        self._end_if_killed()
        if not self._task.wait_for_completion and not started.has_ended:
            return self._deliver(self._job.application(), None)
        deadlines = self._deadlines(job)
        if deadlines.end is not None and not started.has_ended:
            limit_lifetime(self._job, job, deadlines.end, attached=started.attached, log=self._log)
        if self._task.deferrable and not started.has_ended:
            self._defer(deadlines, fresh=True)
        return self._conclude(self._wait(deadlines, self._wish(fresh=True)))

    def continue_after_trigger(self, event: Mapping[str, Any]) -> Any:
        """Continue after the trigger has ended the wait; ``event`` is its WatchEvent."""
        told = from_plain(event, WatchEvent, ignore_unknown=True)
        self._told = told.told
        self._adopt_application(told.job.application_id)
        try_state.delete_deferral_note(self._store)
        self._render_secrets()
        if told.reason is None:
            raise ClusterUnreachable(f"the trigger stopped watching {self._job}: {told.error}")
        ending = WatchResult(told.reason, told.last_message)
        if ending.reason in (WatchEnd.FINISHED, WatchEnd.FORGOTTEN) or self._has_ended():
            # Observe how the application ended, and retry during outages.
            is_logged = ending.reason is WatchEnd.FINISHED  # by the trigger
            ending = self._wait(WatchLimits(), say=self._log.debug if is_logged else self._log.info)
        return self._conclude(ending)

    def continue_without_trigger(self, failure: Exception) -> Any:
        """Continue after the trigger failed: wait in the triggerer again, or in the worker after too many failures.

        The job is not affected by a failed trigger.
        """
        known = remembered(self._store)
        if known is not None and self._is_mine(known):
            self._adopt_application(known)
        try_state.delete_deferral_note(self._store)
        before = self._hook.previous_application(self._identity, remembered=known)
        if before is None:
            raise failure
        self._job = self._switch.job = self._hook.job(before.application_id, self._identity)
        self._render_secrets()
        deadlines = self._deadlines(self._parsed.specification)
        if isinstance(failure, TaskDeferralTimeout) and not self._has_ended():
            if deadlines.end is None or self._hook.now() >= deadlines.end:
                raise AirflowTaskTimeout(f"{self._job} took longer than execution_timeout, and no triggerer noticed")
            self._log.warning(
                "Airflow ended the wait for %s before execution_timeout, because the clocks of its machines differ",
                self._job,
            )
        self._end_if_killed()
        if may_defer_again(self._store, self._try, self._log) and not self._has_ended():
            self._log.info("Waiting for %s with a new trigger", self._job)
            self._defer(deadlines, fresh=False)
        self._log.warning("Waiting for %s in this worker", self._job)
        return self._conclude(self._wait(deadlines, self._wish(fresh=False)))

    @contextmanager
    def ending_cleanly(self) -> Iterator[None]:
        """Context manager around each part of a try, which applies the rules for its end.

        The rules: errors are raised as Airflow's exceptions, a timeout of the task ends the application, and the hook
        is closed.
        """
        try:
            with self._telemetry.reporting(), self._ending_application():
                yield
        except BaseException as error:
            # If a user marked the task as success, the result must stay.
            if not isinstance(error, TaskDeferred) and not self._switch.pulled:
                self._withdraw_result()
            raise
        finally:
            self._summary.record_refusal(sys.exception())
            self._record_exit()
            self._hook.close()

    @contextmanager
    def _ending_application(self) -> Iterator[None]:
        try:
            yield
        except ClusterError as error:
            if error.permanent:
                # A kill of this task may have caused the rejection. Then the next try can succeed, so the failure must
                # be retryable.
                kind = TonyTaskKilled if self._switch.pulled else TonyJobRejected
                raise kind(str(error)) from error
            raise
        except (AirflowTaskTimeout, KeyboardInterrupt) as interruption:
            timed_out = isinstance(interruption, AirflowTaskTimeout)
            reason = "the task's execution_timeout is over" if timed_out else "the task was interrupted"
            if (job := self._switch.job) is not None:
                with logging_end_errors(job, self._log):
                    self._end_despite_alarm(job, reason)
                if timed_out and self._task.apply_advice:
                    self._adviser.timed_out(job)
            raise

    def _record_exit(self) -> None:
        """Report the application's state to Airflow, unless the try only continues in another process."""
        if self._switch.job is not None and not isinstance(sys.exception(), TaskDeferred):
            self._summary.record_exit(self._switch.job)

    def _render_secrets(self) -> Mapping[str, str]:
        secrets = render_secrets(self._task, self._context)
        self._secrets = list(secrets.values())
        return secrets

    def _adopt_application(self, application_id: str) -> None:
        """Register an application of this try, started by another process, so that the kill switch can end it."""
        self._hook.get_conn()  # import now: a kill's thread would block on an import that the main thread has begun
        self._job = self._switch.job = self._hook.job(application_id, self._identity)
        self._summary.begun = True

    def _is_mine(self, application_id: str) -> bool:
        """Return whether the application has this training's tag; False if the cluster does not answer."""
        try:
            application = self._hook.application(application_id)
        except ClusterError as error:
            self._log.warning("Cannot check whether %s belongs to this training: %s", application_id, error)
            return False
        return application is not None and self._identity.tag in application.tags

    # -- until it is submitted ---------------------------------------------------------------------------------------

    def _start(self, request: SubmissionRequest) -> StartedApplication:
        known = remembered(self._store)
        if known is None:  # without a running application, fail early instead of waiting through an outage
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
        """Add data that only a new application needs: advised changes of the job, and data for reports."""
        if self._task.apply_advice:
            from tony_provider.advice.sizing import Limits  # here: few tasks use it

            if (limits := Limits.parse(self._task.apply_advice)) is not None:
                request = self._adviser.advised(request, limits)
        return self._telemetry.completed(request)

    def _remember(self, job: TonyJob) -> None:
        self._job = self._switch.job = job
        if self._task.durable:
            remember(self._store, job.application_id)

    def _before_submit(self, job: TonyJob) -> None:
        """Make the job known to the kill switch. If the switch was already pulled, prevent the submission."""
        self._remember(job)
        if self._switch.pulled:
            self._switch.job = None  # it will not be submitted
            self._end_if_killed()

    def _push_xcoms(self, *, tensorboard: bool) -> None:
        """Push the links, and the result so far, which tasks downstream get if a user marks this task as success."""
        ti = self._context["ti"]
        try:
            pages = self._job.pages()
            self._task.has_links = True
            push_links(ti, self._job.application_id, pages, tensorboard=tensorboard)
            if self._task.do_xcom_push:
                so_far = JobResult.of(self._job.application_id, self._job.directory, None, None)
                ti.xcom_push("return_value", self._task.answer(self._context, so_far.to_dict()))
        except (ClusterError, AirflowRuntimeError) as error:
            self._log.warning("Cannot add links for %s to Airflow's pages: %s", self._job, error)

    def _withdraw_result(self) -> None:
        """Delete the result so far, so that tasks downstream get the results of successful tasks only."""
        ti = self._context["ti"]
        if not self._task.do_xcom_push or self._switch.job is None:
            return
        try:
            XCom.delete("return_value", ti.task_id, ti.dag_id, ti.run_id, ti.map_index)
        except AirflowRuntimeError as error:
            self._log.warning("Cannot delete the result of %s from Airflow's XComs: %s", self._job, error)

    def _withdraw_links(self) -> None:
        try:
            withdraw_links(self._context["ti"])
        except AirflowRuntimeError as error:
            self._log.warning("Cannot remove outdated links from Airflow's pages: %s", error)

    # -- while it runs -----------------------------------------------------------------------------------------------

    def _deadlines(self, specification: JobSpec) -> WatchLimits:
        return deadlines_of(
            self._job,
            specification,
            started=self._context["ti"].start_date,
            execution_timeout=self._task.execution_timeout,
        )

    def _wish(self, *, fresh: bool) -> OutputSelection | None:
        """Return the tasks whose output to show. Without ``fresh``, skip earlier output: the log already has it."""
        wanted = self._task.show_output
        if wanted is False:
            return None
        tasks = [] if isinstance(wanted, str) else list(wanted)
        return OutputSelection(tasks, self._hook.now() + _FRESH_SECONDS if fresh else 0.0)

    def _defer(self, deadlines: WatchLimits, *, fresh: bool) -> NoReturn:
        task = self._task
        job = DeferredJob(
            tony_conn_id=task.tony_conn_id,
            proxy_user=task.proxy_user or None,
            slug=self._identity.slug,
            digest=self._identity.digest,
            application_id=self._job.application_id,
            kill=task.on_kill_action == "kill",
            output=self._wish(fresh=fresh),
            mlflow=self._telemetry.open_run,
        )
        left = try_state.DeferralNote(self._try.id, self._try.max_tries, job.application_id, job.kill)
        try_state.write_deferral_note(self._store, left)
        # dag.test() runs the trigger itself. A triggerer with the same database would also run it, and would end the
        # application, because it mistakes the next events for a user's action. So in dag.test(), disable this kill.
        # ``earliest`` is not needed either, because no scheduler fails a task of dag.test().
        is_test = is_of_dag_test(self._context)
        watched = attrs.evolve(job, kill=job.kill and not is_test)
        task.defer(
            trigger=TonyJobTrigger(
                job=to_plain(watched),
                poll_interval=task.poll_interval,
                end=deadlines.end,
                queue=deadlines.queue,
                whose=self._try.name,
                earliest=None if is_test else earliest_wake_up(),
            ),
            method_name="execute_complete",
            timeout=None if deadlines.end is None else deferral_timeout(deadlines.end, self._hook.now()),
        )

    def _has_ended(self) -> bool:
        """Return whether the application has already ended; False if the cluster does not answer."""
        try:
            application = self._job.application()
        except ClusterError as error:
            self._log.warning("Cannot check whether %s has ended: %s", self._job, error)
            return False
        return application is not None and application.is_final

    def _wait(
        self, deadlines: WatchLimits, wish: OutputSelection | None = None, say: Callable[..., None] | None = None
    ) -> WatchResult:
        """Wait for the application's end. ``say`` logs its progress; default: as information."""
        watch = JobWatch(self._job.application_id, deadlines, say or self._log.info)
        output = output_display(wish)
        looker = Looker(self._job, watch, self._log.info, output)
        result = wait_in_worker(looker, self._switch, self._task.poll_interval, self._end_if_killed)
        if output is not None:
            self._told = output.told()
        return result

    def _end_if_killed(self) -> None:
        """If the kill switch was pulled, end the application, unless it must be kept, and raise TonyTaskKilled.

        After on_kill(), Airflow continues execute(). If execute() returned, Airflow would record success.
        """
        if not self._switch.pulled:
            return
        job = self._switch.job
        if job is None:
            raise TonyTaskKilled("this try was ended before it started an application")
        if self._task.on_kill_action == "keep":
            raise TonyTaskKilled(f"this try was ended; {job} continues, and the next try attaches to it")
        self._summary.record_exit(job, hurried=True)
        self._telemetry.close_mlflow_run_in_background(job.application_id, KILL_REASON)
        has_ended = False
        with logging_end_errors(job, self._log):
            self._end(job, KILL_REASON)
            has_ended = True
        what = f"and {job} with it" if has_ended else f"but {job} may still run"
        raise TonyTaskKilled(f"this try was ended, {what}")

    def _end(self, job: TonyJob, reason: str) -> None:
        end_job(job, KillOrder(reason, self._try.name))

    def _end_despite_alarm(self, job: TonyJob, reason: str) -> None:
        """End the application. If Airflow's timeout alarm interrupts the call, repeat it.

        The alarm occurs once, perhaps during this call.
        """
        try:
            self._end(job, reason)
        except AirflowTaskTimeout:
            self._end(job, reason)

    # -- when it has ended -------------------------------------------------------------------------------------------

    def _conclude(self, ending: WatchResult) -> Any:
        job = self._job
        self._telemetry.ended = ending
        self._end_if_killed()
        if ending.reason is WatchEnd.DEADLINE:
            raise AirflowTaskTimeout(f"{job} took longer than the task's execution_timeout")
        if ending.reason is WatchEnd.QUEUE_TIMEOUT:
            with logging_end_errors(job, self._log):
                self._end(job, "queue_timeout")
            raise TonyQueueTimeout(
                f"{job} did not get its containers within queue_timeout: {ending.last_message}",
                application_id=job.application_id,
            )
        outcome = self._outcome()
        clean_up(job, self._log.warning)
        self._withdraw_links()
        error = failure(job.application_id, ending.application, ending.status)
        if isinstance(error, TonyKilledExternally) and self._was_killed_for_another_try(ending):
            self._log.info("%s was killed on behalf of an earlier try: submitting the job again", job)
            self._summary.end(job, ending.application, ending.status)
            return self.run()
        judged = self._adviser.conclude(job)
        self._telemetry.history = judged.history
        self._telemetry.summary = self._summary.end(
            job, ending.application, ending.status, judged.history, judged.advice
        )
        if error is not None:
            outcome.log_failure(error, ending.status, self._rest_of_output())
            raise error
        if ending.status is not None:
            outcome.log_output(ending.status, self._rest_of_output())
        return self._deliver(ending.application, ending.status)

    def _rest_of_output(self) -> RemainingOutput:
        of_store = list(self._hook.settings.object_store.values())
        secrets = [*self._secrets, *self._telemetry.secrets, *of_store]
        return RemainingOutput(self._wish(fresh=False), self._told, secrets)

    def _was_killed_for_another_try(self, ending: WatchResult) -> bool:
        """Return whether the application was killed for an earlier try, which was deferred when its task was cleared.

        After such a clearing, this try may start, and attach to the application, before the application is killed.
        """
        if not killed_by_airflow(ending.application) or killed_for(ending.application) == self._try.name:
            return False
        try:
            self._hook.owners(self._identity).still(self._try.waiting)
        except TakenOverError:
            return False
        return may_resubmit(self._store, self._try)

    def _deliver(self, application: Application | None, status: JobStatus | None) -> Any:
        if status is not None and status.outputs:
            status = with_own_outputs(status, self._parsed.specification, self._log)
        self._task.told = self._outcome().deliver(application, status)
        return self._task.answer(self._context, self._task.told)

    def _outcome(self) -> Outcome:
        return Outcome(self._job, self._try, self._log)
