"""``airflow tony submit``: run a job without a DAG."""

from __future__ import annotations

from argparse import Namespace
from datetime import UTC, datetime

from tony_provider.cli.command import command
from tony_provider.cli.given import labels_of, secrets_of
from tony_provider.cli.job_file import file_roots, read_job, search_path, written
from tony_provider.cli.named import hook_of
from tony_provider.cli.printing import say
from tony_provider.cluster.submission_request import SubmissionRequest
from tony_provider.runtime.protocol.status import JobStatus

DAG_ID = "cli"  # in the identity of trainings that no DAG has started, with whose they are after it


@command
def submit(args: Namespace) -> None:
    """The command. Starts a job and tells how to look at it; with ``--wait``, exits with 1 when it fails."""
    run_id = args.run_id or datetime.now(UTC).isoformat(timespec="microseconds")
    with hook_of(args) as hook:
        job, _ = read_job(args, hook)
        secrets = secrets_of(args.secret or [])
        hook.expect_servers()
        # Run ids of people, unlike those of one Airflow, are often the same, such as `nightly`.
        identity = hook.identity(dag_id=f"{DAG_ID}:{hook.get_conn().user}", run_id=run_id, task_id=job.name)
        given, overrides = written(args)
        request = SubmissionRequest(
            job,
            identity,
            secrets,
            labels_of(run_id),
            search_path(args),
            given=given,
            overrides=overrides,
            watched=args.wait,
            file_roots=file_roots(args),
        )
        application_id = hook.submit(request)
        _tell(args, application_id, f"Submitted {application_id} ({job.name}), of the training {identity.tag}")
        _tell(args, "", f"Its results and logs go to {hook.application_dir(identity, application_id)}")
        try:
            if args.wait:
                from tony_provider.cli.wait_for_job import wait_for
                from tony_provider.operators.waiting import deadlines_of

                limits = deadlines_of(hook, application_id, job, started=None, execution_timeout=None)
                _conclude(wait_for(hook, identity, application_id, limits))
                return
        except KeyboardInterrupt:
            _tell(args, "", "\nThe job goes on.")
        more = f" --conn-id {args.conn_id}" if args.conn_id != hook.default_conn_name else ""
        for word, what in (("status --watch", "Follow it"), ("logs --follow", "Its logs"), ("kill", "End it")):
            _tell(args, "", f"{what + ':':<11}airflow tony {word} {application_id}{more}")
        again = f"Should it fail, --run-id {run_id} goes on from its newest checkpoint, if the job stays the same."
        _tell(args, "", again)


def _tell(args: Namespace, short: str, text: str) -> None:
    """``--quiet`` leaves the application's id alone, for scripts."""
    if not args.quiet:
        say(text)
    elif short:
        say(short)


def _conclude(status: JobStatus | None) -> None:
    if status is not None and status.model_dir:
        say(f"Succeeded; the model is in {status.model_dir}")
    else:
        say("Succeeded")
