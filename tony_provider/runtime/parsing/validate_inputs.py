"""What the key ``inputs`` of a job must be. Whether there is anything at its paths, the stores tell later."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tony_provider.runtime import contract
from tony_provider.runtime.ranks import in_cluster
from tony_provider.runtime.spec.model import InputDeal, InputFormat, InputSpec, JobSpec
from tony_provider.runtime.spec.problems import Problem, child, item
from tony_provider.runtime.spec.reader import suggestion
from tony_provider.runtime.storage import StorageInvalidPath, uris

MAX_INPUT_NAME = 32
_TAKEN = (contract.ENV_INPUT_QUEUES, contract.ENV_INPUT_SOCKET)
_NAME = re.compile(r"[a-z][a-z0-9_]*")


def input_problems(job: JobSpec) -> Iterator[Problem]:
    """What is wrong with the inputs of a job as they are written."""
    for name, spec in job.inputs.items():
        path = child("inputs", name)
        if not _NAME.fullmatch(name) or len(name) > MAX_INPUT_NAME:
            yield Problem(
                path,
                name,
                "an input's name has lower-case letters, digits and _, begins with a letter, and has at most "
                f"{MAX_INPUT_NAME} characters: a variable is named after it",
            )
        elif contract.ENV_INPUT_PREFIX + name.upper() in _TAKEN:
            yield Problem(
                path, name, f"another variable is named {contract.ENV_INPUT_PREFIX + name.upper()}; give another name"
            )
        yield from _paths(spec, child(path, "paths"))
        yield from _tasks(job, spec, child(path, "tasks"))
        yield from _pieces(spec, path)
        if spec.deal is InputDeal.STATIC:
            yield from _parts(job, name, child(path, "deal"))


def _paths(spec: InputSpec, path: str) -> Iterator[Problem]:
    if not spec.paths:
        yield Problem(path, spec.paths, "at least one path is needed")
    for index, written in enumerate(spec.paths):
        try:
            uris.parse(written)
        except StorageInvalidPath as error:
            yield Problem(item(path, index), written, f"must be a URI or an absolute path: {error.problem}")
        else:
            if not written.isprintable():
                yield Problem(item(path, index), written, "must be printable")


def _pieces(spec: InputSpec, path: str) -> Iterator[Problem]:
    if spec.split_size is not None and spec.format is InputFormat.FILES:
        known = " or ".join(f"`format: {each.value}`" for each in InputFormat if each is not InputFormat.FILES)
        message = f"a file can be cut only where its records begin: write {known} too"
        yield Problem(child(path, "split_size"), f"{spec.split_size}MiB", message)
    if spec.checksum and any(_scheme(written) == "file" for written in spec.paths):
        message = "a disk has no checksums of its files, which are known by size and time; leave it out"
        yield Problem(child(path, "checksum"), True, message)


def _scheme(written: str) -> str:
    """Empty where the path is no URI, which another problem says."""
    try:
        return uris.scheme(written)
    except StorageInvalidPath:
        return ""


def _parts(job: JobSpec, name: str, path: str) -> Iterator[Problem]:
    """A part is a task's, so that several processes of it would all read the same."""
    for task_type in job.readers(name):
        if task_type in job.tasks and job.tasks[task_type].process_count > 1:
            message = f"every process of a {task_type} would read the same part; deal: queue, or more instances"
            yield Problem(path, InputDeal.STATIC.value, message)


def _tasks(job: JobSpec, spec: InputSpec, path: str) -> Iterator[Problem]:
    for index, task_type in enumerate(spec.tasks):
        if task_type not in job.tasks:
            hint = suggestion(task_type, list(job.tasks)) or f"; there are {', '.join(job.tasks)}"
            yield Problem(item(path, index), task_type, f"must be a task type of the job{hint}")
        elif not in_cluster(job.role(task_type)):
            role = job.role(task_type).value
            yield Problem(
                item(path, index), task_type, f"inputs are dealt to tasks with a rank, and not to the role {role}"
            )
        elif not job.tasks[task_type].command:
            message = f"the tasks of {task_type} run no program of yours, which could read it; give them a command"
            yield Problem(item(path, index), task_type, message)
