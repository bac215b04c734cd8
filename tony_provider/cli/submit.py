"""The commands ``airflow tony submit`` and ``airflow tony check``.

``check`` also prints the keys of a job, their values and their origins, and the plan of its tasks, inputs and outputs.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from tony_provider.cli.command import command, hook_of, say
from tony_provider.cli.job_file import (
    file_roots,
    read_job,
    search_path,
    secrets_from_environment,
    submission_labels,
)
from tony_provider.cluster.checks.job_checks import Amount, InputSizes
from tony_provider.cluster.findings import Severity
from tony_provider.cluster.settings import with_defaults
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.operators.submission import JOB, OVERRIDES
from tony_provider.runtime.common.codec import to_plain
from tony_provider.runtime.common.quantities import count, size
from tony_provider.runtime.frameworks.base import TaskAddress
from tony_provider.runtime.jobspec.container_content import without_tensorboard_task
from tony_provider.runtime.jobspec.model import (
    GrowRule,
    InputDeal,
    JobSpec,
    Milestone,
    OutputCommit,
    StartRule,
    in_cluster,
    ranks,
)
from tony_provider.runtime.jobspec.problems import leaf_keys
from tony_provider.runtime.parsing.parse import DEFAULT, Layers, dotted_key


def describe_key_origins(
    job: JobSpec, completed: JobSpec, layers: Layers, conn_id: str, *, explain: bool
) -> Iterator[str]:
    """Yield a line for each key that was set. With ``explain``, also yield lines for keys with default values.

    ``completed`` is the job with the defaults of the connection ``conn_id``.
    """
    own = dict(leaf_keys(_plain(job)))
    whole = dict(leaf_keys(_plain(completed)))
    lines = [
        (dotted_key(path), json.dumps(value), _origin(layers, path, value, own, conn_id))
        for path, value in whole.items()
    ]
    given = [line for line in lines if explain or line[2] != DEFAULT]
    width = max((len(name) for name, _, _ in given), default=0)
    yield from (f"{name:<{width}}  {value}  ({origin})" for name, value, origin in given)


def _plain(job: JobSpec) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(without_tensorboard_task(job))
    return plain


def _origin(layers: Layers, path: tuple[str, ...], value: Any, own: dict[tuple[str, ...], Any], conn_id: str) -> str:
    if own.get(path) != value:
        return f"connection {conn_id}"
    return layers.origin(path)


_FAR_ENOUGH = {
    Milestone.STARTED: "has started",
    Milestone.READY: "is ready",
    Milestone.SUCCEEDED: "has succeeded",
}
_DEALS = {
    InputDeal.STATIC: "a part for each task",
    InputDeal.QUEUE: "one shard at a time, to the next free task",
    InputDeal.NONE: "the program finds the files by itself",
}
_COMMITS = {
    OutputCommit.JOB: "all at once when the job has succeeded",
    OutputCommit.TASK: "each task's part when it has succeeded",
}


def describe_plan(job: JobSpec, figures: Mapping[str, InputSizes | str]) -> Iterator[str]:
    """Yield one line for each task type, then one for each input and output, and one for the job's ``windows``.

    ``figures`` has the size of each input, or the reason why it is unknown.
    """
    found = _ranks(job)
    for task_type, task in job.tasks.items():
        said = [f"{count(task.instances, 'container')}"]
        if task.max_instances is not None:
            by_itself = ", and uses spare capacity of the queue" if task.grow is GrowRule.SPARE else ""
            said.append(f"may be resized to {task.max_instances}{by_itself}")
        if task.process_count > 1:
            said.append(f"{task.process_count} processes in each")
        if in_cluster(job.role(task_type)):
            first, last = found[task_type]
            said.append(f"rank {first}" if first == last else f"ranks {first} to {last}")
        yield f"{task_type}: {', '.join(said)}; {_begins(job, task_type)}"
    for name, spec in job.inputs.items():
        pieces = "" if spec.split_size is None else f", in pieces of {size(spec.split_size << 20)}"
        readers = ", ".join(job.readers(name))
        by = f"; read by {readers}" if readers else ""
        yield f"input {name}: {_holds(figures[name])}; {_DEALS[spec.deal]}{pieces}{by}"
    for name, output in job.outputs.items():
        yield f"output {name}: {output.path}, {_COMMITS[output.commit]}; written by {', '.join(job.writers(name))}"
    if job.windows:
        yield f"windows: {', '.join(job.windows.open)} ({job.windows.zone}); suspended outside of these hours"


def _holds(figures: InputSizes | str) -> str:
    if isinstance(figures, str):
        return f"size unknown ({figures})"
    if figures.smallest is None or figures.largest is None:
        return _amount(figures.total)
    return f"{_amount(figures.total)}, in parts of {_amount(figures.smallest)} to {_amount(figures.largest)}"


def _amount(amount: Amount) -> str:
    return f"{count(amount.shards, 'shard')} ({size(amount.size)})"


def _ranks(job: JobSpec) -> dict[str, tuple[int, int]]:
    """Return the lowest and the highest rank of each task type whose tasks have ranks."""
    processes = [
        TaskAddress(task_type, index, job.role(task_type))
        for task_type, task in job.tasks.items()
        for index in range(task.instances * task.process_count)
    ]
    by_type: dict[str, list[int]] = {}
    for (task_type, _), rank in ranks(processes).items():
        by_type.setdefault(task_type, []).append(rank)
    return {task_type: (min(each), max(each)) for task_type, each in by_type.items()}


def _begins(job: JobSpec, task_type: str) -> str:
    after = [f"{other} {_FAR_ENOUGH[milestone]}" for other, milestone in job.waits_for(task_type).items()]
    when = f"when {' and '.join(after)}" if after else "at once"
    if job.start is StartRule.FIRST_COME:
        return f"each begins {when}, as soon as its container is granted"
    return f"begins {when}"


_LONGEST_LOOK = 30.0  # time limit in seconds for measuring all inputs


@command
def check(args: Namespace) -> None:
    """Check a job. Exits with 1 and prints all problems, if there are any.

    The cluster and the named files are checked only if the job file itself is valid.
    """
    with hook_of(args) as hook:
        job, layers = read_job(args, hook)
        findings = hook.job_findings(job, layers.of(OVERRIDES), search_path(args), file_roots(args))
        problems = [each.detail for each in findings if each.outcome is Severity.PROBLEM]
        figures = {} if problems else hook.input_figures(job, _LONGEST_LOOK)
        settings = hook.settings
    if problems:
        found = "\n".join(f"- {problem}" for problem in problems)
        raise SystemExit(f"{args.job} cannot run with the connection {args.conn_id!r}:\n{found}")
    can_run = f"{args.job}: {_said(job)} can run with the connection {args.conn_id!r}"
    say("\n  ".join([can_run, *describe_plan(job, figures)]))
    for each in findings:
        if each.outcome is not Severity.SKIPPED:
            say(f"{'warning: ' if each.outcome is Severity.WARNING else ''}{each.detail}")
    whose = describe_key_origins(job, with_defaults(job, settings), layers, args.conn_id, explain=args.explain)
    say("\n  ".join(["Keys of the job, and the origin of each value:", *whose]))


def _said(job: JobSpec) -> str:
    tasks = ", ".join(f"{task.instances} {name}" for name, task in job.tasks.items())
    return f"{job.name} ({job.framework}: {tasks})"


DAG_ID = "cli"  # without a DAG, a training's identity has the DAG ID "cli:USER"


@command
def submit(args: Namespace) -> None:
    """Start a job, and print the commands to follow it. With ``--wait``, exits with 1 if the job fails."""
    run_id = args.run_id or datetime.now(UTC).isoformat(timespec="microseconds")
    with hook_of(args) as hook:
        job, layers = read_job(args, hook)
        secrets = secrets_from_environment(args.secret or [])
        hook.expect_servers()
        # The user is part of the identity, because different users often choose the same run ID, such as `nightly`.
        identity = hook.identity(dag_id=f"{DAG_ID}:{hook.get_conn().user}", run_id=run_id, task_id=job.name)
        request = SubmissionRequest(
            job,
            identity,
            secrets,
            submission_labels(run_id),
            search_path(args),
            given=layers.of(JOB),
            overrides=layers.of(OVERRIDES),
            watched=args.wait,
            file_roots=file_roots(args),
        )
        submitted = hook.submit(request)
        _tell(args, str(submitted), f"Submitted {submitted} ({job.name}), of the training {identity.tag}")
        _tell(args, "", f"Its results and logs go to {submitted.directory}")
        try:
            if args.wait:
                from tony_provider.cli.wait_for_job import wait_for_job
                from tony_provider.watching.job_watch import deadlines_of

                limits = deadlines_of(submitted, job, started=None, execution_timeout=None)
                status = wait_for_job(submitted, limits)
                model = f"; the model is in {status.model_dir}" if status is not None and status.model_dir else ""
                say(f"Succeeded{model}")
                if (returned := submitted.returned()) is not None:
                    say(f"Returned: {json.dumps(returned)}")
                return
        except KeyboardInterrupt:
            _tell(args, "", "\nThe job continues.")
        more = f" --conn-id {args.conn_id}" if args.conn_id != hook.default_conn_name else ""
        for word, what in (("status --watch", "Follow it"), ("logs --follow", "Its logs"), ("kill", "End it")):
            _tell(args, "", f"{what + ':':<11}airflow tony {word} {submitted}{more}")
        again = f"If it fails, --run-id {run_id} resumes from its newest checkpoint, unless the job has changed."
        _tell(args, "", again)


def _tell(args: Namespace, short: str, text: str) -> None:
    """Print ``text``. With ``--quiet``, which is for scripts, print only ``short``."""
    if not args.quiet:
        say(text)
    elif short:
        say(short)
