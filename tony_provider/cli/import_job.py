"""``airflow tony import``: a job of another system, written as ours, with a list of what could not be carried over."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tony_provider.cli.command import command
from tony_provider.cli.job_file import overrides_of
from tony_provider.cli.printing import say
from tony_provider.cli.written import print_text, write_files
from tony_provider.exceptions import TonySpecError
from tony_provider.importing.imported import Imported, NotImportable
from tony_provider.importing.read import imported_from
from tony_provider.job_files.moved import moved
from tony_provider.job_files.parameters import TEMPLATES, parted
from tony_provider.job_files.templated_text import MARKS
from tony_provider.job_files.write_dag import DagFile, dag_id_of
from tony_provider.job_files.write_job import job_text
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.spec.source import load_source

_HEAD = "Not carried over, or otherwise:"


@command
def import_job(args: Namespace) -> None:
    """The command. Without ``--output`` and ``--dag`` the job is its answer. What is no valid job is not written."""
    try:
        imported = imported_from(
            args.words, system=args.system, command=args.command, given=overrides_of(args.set or [])
        )
    except NotImportable as error:
        raise TonySpecError(f"Not imported: {error}") from error
    before = Path(args.words[0]).absolute().parent if len(args.words) == 1 else Path.cwd()
    texts: dict[Path, str] = {}
    if args.output:
        texts[Path(args.output)] = _job(imported, moved(imported.job, before, Path(args.output).absolute().parent))
    if args.dag:
        texts[Path(args.dag)] = _dag(
            imported, moved(imported.job, before, Path(args.dag).absolute().parent), args.dag_id
        )
    if not texts:
        print_text(_job(imported, imported.job))
        return
    write_files(texts, force=args.force)
    for path in texts:
        say(f"Wrote {path}")
    _tell(imported)


def _job(imported: Imported, job: Mapping[str, Any]) -> str:
    comments = [f"From {imported.system} ({imported.source}), by `airflow tony import`."]
    if imported.arguments:
        comments.append(f"The task of a DAG that runs it has {_arguments(imported)}.")
    if imported.left:
        comments += [_HEAD, *(f"- {each}" for each in imported.left)]
    text = job_text(job, comments)
    if any(mark in text for mark in MARKS):
        text = job_text({TEMPLATES: False, **job}, comments)  # no foreign text or comment is a template
    if parse_job(parted(load_source(text))[1]) != parse_job(job):  # the written file must give the checked job
        raise TonySpecError(f"Not imported: no job file can hold the values of {imported.source}")
    return text


def _dag(imported: Imported, job: Mapping[str, Any], dag_id: str | None) -> str:
    file = DagFile(
        dag_id=dag_id or dag_id_of(str(job.get("name") or Path(imported.source).stem)),
        job=job,
        arguments=imported.arguments,
        origin=f"{imported.system} ({imported.source}) by `airflow tony import`",
        notes=[str(each) for each in imported.left],
    )
    return file.text()


def _tell(imported: Imported) -> None:
    if imported.arguments:
        say(f"For the task of a DAG: {_arguments(imported)}")
    say(_HEAD if imported.left else f"Everything of {imported.source} was carried over.")
    for each in imported.left:
        say(f"- {each}")


def _arguments(imported: Imported) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in imported.arguments.items())
