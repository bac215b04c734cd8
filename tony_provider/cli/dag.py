"""``airflow tony dag``: a DAG file around a job, with its parameters as a trigger form."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

from tony_provider.cli.command import command
from tony_provider.cli.job_file import JobFile, name_of, read_job, read_job_file
from tony_provider.cli.named import hook_of
from tony_provider.cli.printing import say
from tony_provider.cli.written import print_text, write_files
from tony_provider.exceptions import TonySpecError
from tony_provider.job_files.moved import moved
from tony_provider.job_files.write_dag import DagFile, dag_id_of

_CONNECTION = "tony_conn_id"  # of the operator


@command
def dag(args: Namespace) -> None:
    """The command. Before, the job is checked, with its parameters' defaults or what ``--param`` gives."""
    path = Path(args.job)
    file = read_job_file(path)
    required = [name for name, each in file.parameters.items() if each.is_required]
    if args.schedule and required:
        raise TonySpecError(f"{path}: a DAG with a schedule needs a default for each parameter: {', '.join(required)}")
    with hook_of(args) as hook:
        read_job(args, hook)
        default = hook.default_conn_name
    text = _text(args, file, default)
    if not args.output:
        print_text(text)
        return
    write_files({Path(args.output): text}, force=args.force)
    say(f"Wrote {args.output}")


def _text(args: Namespace, file: JobFile, default: str) -> str:
    path = Path(args.job)
    folder = path.absolute().parent
    name = str(file.job.get("name") or name_of(path))
    arguments: dict[str, Any] = {} if args.conn_id == default else {_CONNECTION: args.conn_id}
    if args.proxy_user:
        arguments["proxy_user"] = args.proxy_user
    if args.retries:
        arguments["retries"] = args.retries
    dag_file = DagFile(
        dag_id=args.dag_id or dag_id_of(name),
        job=moved(file.job, folder, Path(args.output).absolute().parent if args.output else folder),
        parameters=file.parameters,
        arguments=arguments,
        schedule=args.schedule,
        origin=f"{path.name} by `airflow tony dag`",
    )
    return dag_file.text()
