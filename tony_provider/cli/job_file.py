"""Job files on the command line, and the commands ``airflow tony dag`` and ``airflow tony import``.

The module reads the job file, the overrides and the secrets that a command line names. ``airflow tony dag`` writes a
DAG file around a job, in which the job's parameters are a trigger form. ``airflow tony import`` converts jobs of other
systems.
"""

from __future__ import annotations

import getpass
import os
import socket
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from tony_provider.cli.command import command, hook_of, say
from tony_provider.exceptions import TonySpecError
from tony_provider.hooks.tony import TonyHook
from tony_provider.importers.key_table import ImportedJob, NotImportable
from tony_provider.importers.read_job import imported_from
from tony_provider.job_files.parameters import TEMPLATES, Parameter, has_templates, split_parameters
from tony_provider.job_files.templates import (
    check_names,
    has_template,
    load_templated,
    rendered_job,
    templates_in,
    values_of,
)
from tony_provider.job_files.write_files import DagFile, dag_id_of, job_text, with_moved_paths
from tony_provider.macros import quote
from tony_provider.operators.submission import job_of, layers_of
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.jobspec.problems import SpecError
from tony_provider.runtime.parsing.parse import EVERYTHING, Layers, load_source, parse_job


def secrets_from_environment(names: Sequence[str]) -> dict[str, str]:
    """Read the secrets from environment variables, because command lines are public. Raises TonySpecError."""
    if missing := [name for name in names if name not in os.environ]:
        raise TonySpecError(f"--secret: the environment has no variable {', '.join(missing)} with the secret's value")
    return {name: os.environ[name] for name in names}


def submission_labels(run_id: str) -> dict[str, str]:
    """Return labels with the submitter and the run of the training."""
    return {"submitted_by": getpass.getuser(), "submitted_from": socket.gethostname(), "run_id": run_id}


def write_files(texts: Mapping[Path, str], *, force: bool) -> None:
    """Write all files. If a file exists or a directory is missing, raise TonySpecError before writing anything."""
    for path in texts:
        if path.exists() and not force:
            raise TonySpecError(f"{path} already exists; use --force to replace it")
        if not path.absolute().parent.is_dir():
            raise TonySpecError(f"{path.absolute().parent} is not a directory, so {path.name} cannot be written there")
    for path, text in texts.items():
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise TonySpecError(f"{path} cannot be written: {error.strerror or error}") from error


def print_text(text: str) -> None:
    """Print a file's text as the output of a command."""
    sys.stdout.write(text)
    sys.stdout.flush()


_ENDINGS = (".tony.yaml", ".tony.yml", ".tony.json", ".yaml", ".yml", ".json")


@attrs.frozen
class JobFile:
    """A job file before rendering: its parameters, and the job, in which texts may refer to parameters."""

    job: Mapping[str, Any]
    parameters: Mapping[str, Parameter]


def read_job_file(path: Path) -> JobFile:
    """Read a job file. Raises TonySpecError for an unreadable file and for invalid parameters."""
    try:
        plain = load_templated(_text(path))
        parameters, job = split_parameters(plain)
        if parameters:
            check_names(job, parameters)
    except SpecError as error:
        raise TonySpecError(f"{path}: {error}") from error
    if not parameters and has_templates(plain) and templates_in(job):
        raise TonySpecError(
            f"{path} contains a template, which only a DAG renders; replace it by a value, set it with --set, or "
            "declare it in the section `parameters`. If the text is not a template, write `templates: false` at the "
            "top of the file"
        )
    return JobFile(job, parameters)


def read_job(args: Namespace, hook: TonyHook) -> tuple[JobSpec, Layers]:
    """Return the job with the options of the command line, and the layers from which the job was merged.

    Raises TonySpecError if the file is unreadable, or with all problems of the job.
    """
    path = Path(args.job)
    filled = _filled(args)
    try:
        layers = layers_of(
            filled,
            default_name=name_of(path),
            name=getattr(args, "name", None),
            queue=getattr(args, "queue", None),
            env=None,
            secrets=getattr(args, "secret", None) or [],
            queue_timeout=None,
            overrides=overrides_of(getattr(args, "set", None) or []),
            allowed_overrides=EVERYTHING,  # a user who types overrides could also edit the file
            presets=lambda: hook.settings.presets,
        )
        return job_of(layers), layers
    except TonySpecError as error:
        raise TonySpecError(f"{path}: {error}") from error


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TonySpecError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _filled(args: Namespace) -> Mapping[str, Any]:
    """Return the job with the parameter values of the command line. Raises TonySpecError."""
    file = read_job_file(Path(args.job))
    try:
        values = values_of(file.parameters, args.param or [])
        return rendered_job(file.job, values, quote) if file.parameters else file.job
    except SpecError as error:
        raise TonySpecError(f"{args.job}: {error}") from error


def search_path(args: Namespace) -> list[Path]:
    """Return the directories to search for the job's files: the directory of the job file."""
    return [Path(args.job).absolute().parent]


def file_roots(args: Namespace) -> list[Path]:
    """Return more directories and files that the job may use: the current directory, and paths in options."""
    return [Path.cwd(), *typed_files(args)]


def typed_files(args: Namespace) -> list[Path]:
    """Return the absolute paths among the values of ``--set`` and ``--param``."""
    given = [*(args.set or ()), *(args.param or ())]
    values = [part.strip() for each in given for part in each.partition("=")[2].split(",")]
    return [Path(value.removeprefix("file://")) for value in values if value.removeprefix("file://").startswith("/")]


def name_of(path: Path) -> str:
    """Return the job's name according to its file name."""
    return next((path.name.removesuffix(end) for end in _ENDINGS if path.name.endswith(end)), path.name)


def overrides_of(given: Sequence[str]) -> dict[str, Any]:
    """Parse overrides such as ``tasks.worker.instances=4``. Values are parsed like texts in a job file."""
    overrides: dict[str, Any] = {}
    for each in given:
        key, separator, value = each.partition("=")
        if not separator or not all(key.split(".")):
            raise TonySpecError(f"--set: {each!r} should be key=value, such as tasks.worker.instances=4")
        *above, last = key.split(".")
        place = overrides
        for name in above:
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                raise TonySpecError(f"--set: {key!r} is below a key that also has a value")
        if isinstance(place.get(last), dict):
            raise TonySpecError(f"--set: {key!r} has a value, and so does a key below it")
        place[last] = value
    return overrides


_CONNECTION = "tony_conn_id"  # name of the operator's argument


@command
def dag(args: Namespace) -> None:
    """Check the job with the values of ``--param`` or the parameters' defaults, and write a DAG file for it."""
    path = Path(args.job)
    file = read_job_file(path)
    required = [name for name, each in file.parameters.items() if each.is_required]
    if args.schedule and required:
        raise TonySpecError(f"{path}: a DAG with a schedule needs a default for each parameter: {', '.join(required)}")
    with hook_of(args) as hook:
        read_job(args, hook)
        default = hook.default_conn_name
    text = _read_text(args, file, default)
    if not args.output:
        print_text(text)
        return
    write_files({Path(args.output): text}, force=args.force)
    say(f"Wrote {args.output}")


def _read_text(args: Namespace, file: JobFile, default: str) -> str:
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


_HEAD = "Not carried over, or changed:"


@command
def import_job(args: Namespace) -> None:
    """Convert a job. Print it if neither ``--output`` nor ``--dag`` is given. An invalid job is not written."""
    try:
        imported = imported_from(
            args.words, system=args.system, command=args.command, given=overrides_of(args.set or [])
        )
    except NotImportable as error:
        raise TonySpecError(f"Not imported: {error}") from error
    before = Path(args.words[0]).absolute().parent if len(args.words) == 1 else Path.cwd()
    texts: dict[Path, str] = {}
    if args.output:
        path = Path(args.output)
        texts[path] = _job(imported, with_moved_paths(imported.job, before, path.absolute().parent))
    if args.dag:
        path = Path(args.dag)
        texts[path] = _dag(imported, with_moved_paths(imported.job, before, path.absolute().parent), args.dag_id)
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
    if has_template(text):
        text = job_text({TEMPLATES: False, **job}, comments)  # imported text must not be rendered
    # the written file must parse to the checked job
    if parse_job(split_parameters(load_source(text))[1]) != parse_job(job):
        raise TonySpecError(f"Not imported: a job file cannot represent the values of {imported.source}")
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
        say(f"Arguments for the DAG's task: {_arguments(imported)}")
    say(_HEAD if imported.left_out else f"Everything of {imported.source} was carried over.")
    for each in imported.left_out:
        say(f"- {each}")


def _arguments(imported: ImportedJob) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in imported.arguments.items())
