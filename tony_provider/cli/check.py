"""``airflow tony check``: check a job file against a cluster, without starting anything."""

from __future__ import annotations

from argparse import Namespace

from tony_provider.cli.command import command
from tony_provider.cli.job_file import file_roots, read_job, search_path, written
from tony_provider.cli.job_origins import origins
from tony_provider.cli.job_plan import plan
from tony_provider.cli.named import hook_of
from tony_provider.cli.printing import say
from tony_provider.cluster.errors import JobRejected, SourceMissing
from tony_provider.cluster.prepared_submission import with_defaults
from tony_provider.runtime.spec.model import JobSpec

_LONGEST_LOOK = 30.0  # seconds at all that the inputs hold


@command
def check(args: Namespace) -> None:
    """The command. Exits with 1 and every problem: of the file itself, else of the cluster and the files it names."""
    problems: list[str] = []
    with hook_of(args) as hook:
        job, layers = read_job(args, hook)
        _, overrides = written(args)
        try:
            hook.check(job, overrides)
        except JobRejected as error:
            problems += error.problems
        try:
            hook.check_sources(job, search_path(args), file_roots(args))
        except JobRejected as error:
            problems += error.problems
        except SourceMissing as error:
            problems.append(str(error))
        figures = {} if problems else hook.input_figures(job, _LONGEST_LOOK)
        settings = hook.settings
    if problems:
        found = "\n".join(f"- {problem}" for problem in problems)
        raise SystemExit(f"{args.job} cannot run with the connection {args.conn_id!r}:\n{found}")
    can_run = f"{args.job}: {_said(job)} can run with the connection {args.conn_id!r}"
    say("\n  ".join([can_run, *plan(job, figures)]))
    whose = origins(job, with_defaults(job, settings), layers, args.conn_id, explain=args.explain)
    say("\n  ".join(["Its keys, and whose word each is:", *whose]))


def _said(job: JobSpec) -> str:
    tasks = ", ".join(f"{task.instances} {name}" for name, task in job.tasks.items())
    return f"{job.name} ({job.framework}: {tasks})"
