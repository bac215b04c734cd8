"""The commands ``airflow tony dag`` and ``airflow tony import``.

They write a DAG file around a job, with its parameters as a trigger form, and convert jobs of other systems.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tony_provider.cli.command import command, hook_of, say
from tony_provider.cli.job_file import JobFile, name_of, overrides_of, print_text, read_job, read_job_file, write_files
from tony_provider.exceptions import TonySpecError
from tony_provider.importers.key_table import ImportedJob, NotImportable
from tony_provider.importers.read_job import imported_from
from tony_provider.job_files.parameters import TEMPLATES, split_parameters
from tony_provider.job_files.templates import MARKS
from tony_provider.job_files.write_dag import DagFile, dag_id_of
from tony_provider.job_files.write_job import job_text, with_moved_paths
from tony_provider.runtime.parsing.parse import load_source, parse_job

_CONNECTION = "tony_conn_id"  # argument of the operator


@command
def dag(args: Namespace) -> None:
    """Write a DAG. Checks the job before, with the defaults of its parameters or the values of ``--param``."""
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
        job=with_moved_paths(file.job, folder, Path(args.output).absolute().parent if args.output else folder),
        parameters=file.parameters,
        arguments=arguments,
        schedule=args.schedule,
        origin=f"{path.name} by `airflow tony dag`",
    )
    return dag_file.text()


_HEAD = "Not carried over, or otherwise:"


@command
def import_job(args: Namespace) -> None:
    """Convert a job. Prints the job without ``--output`` and ``--dag``. Does not write an invalid job."""
    try:
        imported = imported_from(
            args.words, system=args.system, command=args.command, given=overrides_of(args.set or [])
        )
    except NotImportable as error:
        raise TonySpecError(f"Not imported: {error}") from error
    before = Path(args.words[0]).absolute().parent if len(args.words) == 1 else Path.cwd()
    texts: dict[Path, str] = {}
    if args.output:
        texts[Path(args.output)] = _job(
            imported, with_moved_paths(imported.job, before, Path(args.output).absolute().parent)
        )
    if args.dag:
        texts[Path(args.dag)] = _dag(
            imported, with_moved_paths(imported.job, before, Path(args.dag).absolute().parent), args.dag_id
        )
    if not texts:
        print_text(_job(imported, imported.job))
        return
    write_files(texts, force=args.force)
    for path in texts:
        say(f"Wrote {path}")
    _tell(imported)


def _job(imported: ImportedJob, job: Mapping[str, Any]) -> str:
    comments = [f"From {imported.system} ({imported.source}), by `airflow tony import`."]
    if imported.arguments:
        comments.append(f"The task of a DAG that runs it has {_arguments(imported)}.")
    if imported.left_out:
        comments += [_HEAD, *(f"- {each}" for each in imported.left_out)]
    text = job_text(job, comments)
    if any(mark in text for mark in MARKS):
        text = job_text({TEMPLATES: False, **job}, comments)  # foreign text and comments are not templates
    if parse_job(split_parameters(load_source(text))[1]) != parse_job(
        job
    ):  # the written file must give the checked job
        raise TonySpecError(f"Not imported: no job file can hold the values of {imported.source}")
    return text


def _dag(imported: ImportedJob, job: Mapping[str, Any], dag_id: str | None) -> str:
    file = DagFile(
        dag_id=dag_id or dag_id_of(str(job.get("name") or Path(imported.source).stem)),
        job=job,
        arguments=imported.arguments,
        origin=f"{imported.system} ({imported.source}) by `airflow tony import`",
        notes=[str(each) for each in imported.left_out],
    )
    return file.text()


def _tell(imported: ImportedJob) -> None:
    if imported.arguments:
        say(f"For the task of a DAG: {_arguments(imported)}")
    say(_HEAD if imported.left_out else f"Everything of {imported.source} was carried over.")
    for each in imported.left_out:
        say(f"- {each}")


def _arguments(imported: ImportedJob) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in imported.arguments.items())
