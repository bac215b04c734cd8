"""Validate the keys ``inputs``, ``outputs``, ``export`` and ``acls`` of a job.

Stores report later whether the paths of inputs exist.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from typing import Optional

from tony_provider.runtime.common import contract
from tony_provider.runtime.frameworks.base import Framework
from tony_provider.runtime.jobspec.model import (
    EVERYBODY,
    AccessNames,
    InputDeal,
    InputFormat,
    InputSpec,
    JobSpec,
    MirrorScope,
    OutputCommit,
    OutputLayout,
    OutputSpec,
    RestartScope,
    Role,
)
from tony_provider.runtime.jobspec.problems import Problem, child, item
from tony_provider.runtime.jobspec.task_types import in_cluster, leading_type
from tony_provider.runtime.parsing.reader import suggestion
from tony_provider.runtime.storage import StorageInvalidPath, uris
from tony_provider.runtime.storage.uris import Uri

MAX_INPUT_NAME = 32
_TAKEN = (contract.ENV_INPUT_QUEUES, contract.ENV_INPUT_SOCKET)
_NAME = re.compile(r"[a-z][a-z0-9_]*")


def input_problems(job: JobSpec) -> Iterator[Problem]:
    """Yield problems of a job's inputs, as written."""
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
    """Return the scheme of a path, or an empty string if the path is invalid, which another problem reports."""
    try:
        return uris.scheme(written)
    except StorageInvalidPath:
        return ""


def _parts(job: JobSpec, name: str, path: str) -> Iterator[Problem]:
    """Yield problems of static parts: a part belongs to a task, so several processes would all read the same part."""
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


MAX_OUTPUT_NAME = 32
_MAGIC = re.compile(r"[*?\[]")
_HIDDEN = ("_", ".")
_WRITING = (Role.CHIEF, Role.WORKER, Role.ONCE)  # they end by themselves


def output_problems(job: JobSpec, framework: Optional[Framework]) -> Iterator[Problem]:
    """Yield problems of a job's outputs, as written. ``framework`` is None if it is unknown."""
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
        yield from _output_tasks(job, name, child(path, "tasks"))
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
    """Yield the key and the place of each path that inputs read."""
    for name, spec in job.inputs.items():
        for index, written in enumerate(spec.paths):
            try:
                parsed = uris.parse(written)
            except StorageInvalidPath:
                continue  # reported for the input itself
            yield item(child(child("inputs", name), "paths"), index), parsed


def _relation(place: Uri, other: Uri) -> str:
    """Return how an output's place overlaps another place, which may be a pattern; an empty string if it does not."""
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


def _output_tasks(job: JobSpec, name: str, path: str) -> Iterator[Problem]:
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
    """Yield problems of ``commit: task``, by which a part must appear atomically and stay."""
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


def export_problems(job: JobSpec) -> Iterator[Problem]:
    """Yield problems of when exports are made, and how many are kept."""
    if job.export.keep_last < 1:
        yield Problem("export.keep_last", job.export.keep_last, "must be at least 1")
    every = job.export.every
    if every is None:
        return
    if every < 1:
        yield Problem("export.every", every, "must be at least 1")
    if job.checkpoint.mirror is MirrorScope.OFF:
        message = "counts checkpoints on the store, and none come there with checkpoint.mirror: off"
        yield Problem("export.every", every, message)
    if leading_type(job.roles) is None:
        yield Problem("export.every", every, "the chief or the first worker exports the model, and there is neither")


_ACL_NAME = re.compile(r"[^\s,:*@/\x00-\x1f\x7f]{1,255}")  # YARN separates names by commas and a blank, HDFS by colons


def acl_problems(job: JobSpec) -> Iterator[Problem]:
    """Yield problems of the key ``acls``."""
    for kind, names in (("view", job.acls.view), ("modify", job.acls.modify)):
        yield from _names(names, child("acls", kind))


def _names(names: AccessNames, path: str) -> Iterator[Problem]:
    for what, given in (("users", names.users), ("groups", names.groups)):
        for index, name in enumerate(given):
            if what == "users" and name == EVERYBODY:
                continue
            where = item(child(path, what), index)
            if name == EVERYBODY:
                yield Problem(where, name, f"everybody is {EVERYBODY} as the only user: users: ['{EVERYBODY}']")
            elif not _ACL_NAME.fullmatch(name) or not name.isprintable():
                yield Problem(where, name, _how(what, name))
            elif name in given[:index]:
                yield Problem(where, name, "is there twice")
    if EVERYBODY in names.users and (len(names.users) > 1 or names.groups):
        yield Problem(child(path, "users"), names.users, f"{EVERYBODY} means everybody: leave out all other names")


def _how(what: str, name: str) -> str:
    if "@" in name or "/" in name:
        return "must be the cluster's short name, such as alice, and no Kerberos principal"
    return f"must be one name of the cluster's {what}, without blanks, commas, colons and slashes, and not empty"
