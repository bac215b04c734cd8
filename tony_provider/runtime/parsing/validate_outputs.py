"""What the key ``outputs`` of a job must be. Whether something is at a path already, the stores tell later."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from typing import Optional

from tony_provider.runtime.frameworks.base import Framework
from tony_provider.runtime.spec.model import JobSpec, OutputCommit, OutputLayout, OutputSpec, RestartScope, Role
from tony_provider.runtime.spec.problems import Problem, child, item
from tony_provider.runtime.spec.reader import suggestion
from tony_provider.runtime.storage import StorageInvalidPath, uris
from tony_provider.runtime.storage.uris import Uri

MAX_OUTPUT_NAME = 32
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_MAGIC = re.compile(r"[*?\[]")
_HIDDEN = ("_", ".")
_WRITING = (Role.CHIEF, Role.WORKER, Role.ONCE)  # they end by themselves


def output_problems(job: JobSpec, framework: Optional[Framework]) -> Iterator[Problem]:
    """What is wrong with the outputs of a job as they are written. ``framework``: None where it is not known."""
    places: dict[str, Uri] = {}
    for name, spec in job.outputs.items():
        path = child("outputs", name)
        if not _NAME.fullmatch(name) or len(name) > MAX_OUTPUT_NAME:
            yield Problem(
                path,
                name,
                "an output's name has lower-case letters, digits and _, begins with a letter, and has at most "
                f"{MAX_OUTPUT_NAME} characters: a variable is named after it",
            )
        yield from _tasks(job, name, child(path, "tasks"))
        yield from _commit(job, framework, name, child(path, "commit"))
        problem = _path_problem(spec)
        if problem:
            yield Problem(child(path, "path"), spec.path, problem)
            continue
        place = uris.parse(spec.path)
        others = [*_inputs(job), *((child("outputs", each), at) for each, at in places.items())]
        for where, other in others:
            if relation := _relation(place, other):
                yield Problem(
                    child(path, "path"), spec.path, f"{relation} {where} ({other}); give it a path of its own"
                )
                break
        places[name] = place


def _path_problem(spec: OutputSpec) -> str:
    try:
        place = uris.parse(spec.path)
    except StorageInvalidPath as error:
        return f"must be a URI or an absolute path: {error.problem}"
    if not spec.path.isprintable():
        return "must be printable"
    if place.path == "/":
        return "must be a directory of its own, and not the root of the store"
    if _MAGIC.search(place.path):
        return "must be one directory; inputs cannot name one with *, ? or [ in its path"
    if place.name.startswith(_HIDDEN):
        return "readers leave out names that begin with _ or .; give another name"
    return ""


def _inputs(job: JobSpec) -> Iterator[tuple[str, Uri]]:
    """What inputs read."""
    for name, spec in job.inputs.items():
        for index, written in enumerate(spec.paths):
            try:
                parsed = uris.parse(written)
            except StorageInvalidPath:
                continue  # said of the input itself
            yield item(child(child("inputs", name), "paths"), index), parsed


def _relation(place: Uri, other: Uri) -> str:
    """How an output's place is mixed up with another one, which may be a pattern; empty: it is not."""
    if place.scheme != other.scheme or (place.authority and other.authority and place.authority != other.authority):
        return ""
    mine, theirs = (uri.path.strip("/").split("/") for uri in (place, other))
    for part, pattern in zip(mine, theirs):
        if pattern == "**":
            break
        if not fnmatch.fnmatchcase(part, pattern):
            return ""
    if len(mine) == len(theirs):
        return "is the same as" if mine == theirs else "is among the files of"
    return "lies in" if len(mine) > len(theirs) else "contains"


def _tasks(job: JobSpec, name: str, path: str) -> Iterator[Problem]:
    for index, task_type in enumerate(job.outputs[name].tasks):
        if task_type not in job.tasks:
            hint = suggestion(task_type, list(job.tasks)) or f"; there are {', '.join(job.tasks)}"
            yield Problem(item(path, index), task_type, f"must be a task type of the job{hint}")
        elif job.role(task_type) not in _WRITING:
            role = job.role(task_type).value
            message = f"tasks of the role {role} do not end by themselves, so that their output is never complete"
            yield Problem(item(path, index), task_type, message)
        elif not job.tasks[task_type].command:
            message = f"the tasks of {task_type} run no program of yours, which could write it; give them a command"
            yield Problem(item(path, index), task_type, message)
    if not job.writers(name) and not job.outputs[name].tasks:
        yield Problem(path, job.outputs[name].tasks, "no task would write it; name types that have a command")


def _commit(job: JobSpec, framework: Optional[Framework], name: str, path: str) -> Iterator[Problem]:
    """With ``task`` a part is to appear in one act, and for good."""
    if job.outputs[name].commit is not OutputCommit.TASK:
        return
    if job.outputs[name].layout is OutputLayout.FLAT:
        message = "files beside each other would appear one by one; use layout: tasks, or commit: job"
        yield Problem(path, OutputCommit.TASK.value, message)
    for task_type in job.writers(name) if framework else ():
        role = job.role(task_type) if task_type in job.tasks else Role.WORKER
        scope = job.tasks[task_type].restart or framework.scope(role) if framework else None
        if scope is RestartScope.GANG:
            message = f"{task_type} starts again with the others, even after it has succeeded; use commit: job"
            yield Problem(path, OutputCommit.TASK.value, message)
