"""Validate the keys ``inputs``, ``outputs``, ``export`` and ``acls`` of a job.

Stores report later whether the paths of inputs exist.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator
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
from tony_provider.runtime.jobspec.problems import Problem, child, item, must_be_among
from tony_provider.runtime.jobspec.task_types import in_cluster, leading_type
from tony_provider.runtime.storage import StorageInvalidPath, uris
from tony_provider.runtime.storage.uris import Uri

MAX_NAME = 32
_TAKEN = (contract.ENV_INPUT_QUEUES, contract.ENV_INPUT_SOCKET)
_NAME = re.compile(r"[a-z][a-z0-9_]*")


def name_problem(what: str, name: str) -> str:
    """Return what is wrong with the name of a task type, an input or an output; an empty string if nothing is."""
    if _NAME.fullmatch(name) and len(name) <= MAX_NAME:
        return ""
    form = "lower-case letters, digits and _, begins with a letter, and has at most"
    return f"{what}'s name has {form} {MAX_NAME} characters"


_OF_VARIABLE = ": a variable is named after it"


def input_problems(job: JobSpec) -> Iterator[Problem]:
    """Yield problems of a job's inputs, as written."""
    for name, spec in job.inputs.items():
        path = child("inputs", name)
        if problem := name_problem("an input", name):
            yield Problem(path, name, problem + _OF_VARIABLE)
        elif contract.ENV_INPUT_PREFIX + name.upper() in _TAKEN:
            yield Problem(
                path, name, f"another variable is named {contract.ENV_INPUT_PREFIX + name.upper()}; give another name"
            )
        yield from _paths(spec, child(path, "paths"))
        yield from _task_types(job, spec.tasks, child(path, "tasks"), verb="read", role_problem=_no_reader)
        yield from _pieces(spec, path)
        if spec.deal is InputDeal.STATIC:
            yield from _parts(job, name, child(path, "deal"))


def _paths(spec: InputSpec, path: str) -> Iterator[Problem]:
    if not spec.paths:
        yield Problem(path, spec.paths, "at least one path is needed")
    for index, written in enumerate(spec.paths):
        if problem := _uri_problem(written):
            yield Problem(item(path, index), written, problem)


def _uri_problem(written: str) -> str:
    try:
        uris.parse(written)
    except StorageInvalidPath as error:
        return f"must be a URI or an absolute path: {error.problem}"
    return "" if written.isprintable() else "must be printable"


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


def _task_types(
    job: JobSpec, task_types: list[str], path: str, *, verb: str, role_problem: Callable[[Role], str]
) -> Iterator[Problem]:
    """Yield problems of the task types that read an input or write an output (``verb``)."""
    for index, task_type in enumerate(task_types):
        where = item(path, index)
        if task_type not in job.tasks:
            hint = must_be_among(task_type, list(job.tasks))
            yield Problem(where, task_type, f"must be a task type of the job{hint}")
        elif problem := role_problem(job.role(task_type)):
            yield Problem(where, task_type, problem)
        elif not job.tasks[task_type].command:
            message = f"the tasks of {task_type} run no program of yours, which could {verb} it; give them a command"
            yield Problem(where, task_type, message)


def _no_reader(role: Role) -> str:
    return "" if in_cluster(role) else f"inputs are dealt to tasks with a rank, and not to the role {role.value}"


def _no_writer(role: Role) -> str:
    if role in _WRITING:
        return ""
    return f"tasks of the role {role.value} do not end by themselves, so that their output is never complete"


_MAGIC = re.compile(r"[*?\[]")
_HIDDEN = ("_", ".")
_WRITING = (Role.CHIEF, Role.WORKER, Role.ONCE)  # they end by themselves


def output_problems(job: JobSpec, framework: Optional[Framework]) -> Iterator[Problem]:
    """Yield problems of a job's outputs, as written. ``framework`` is None if it is unknown."""
    places: dict[str, Uri] = {}
    for name, spec in job.outputs.items():
        path = child("outputs", name)
        if problem := name_problem("an output", name):
            yield Problem(path, name, problem + _OF_VARIABLE)
        yield from _task_types(job, spec.tasks, child(path, "tasks"), verb="write", role_problem=_no_writer)
        if not job.writers(name) and not spec.tasks:
            yield Problem(child(path, "tasks"), [], "no task would write it; name types that have a command")
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
    if problem := _uri_problem(spec.path):
        return problem
    place = uris.parse(spec.path)
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
            yield item(child("inputs", name, "paths"), index), parsed


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
    """Yield problems of when exports are made."""
    every = job.export.every
    if every is None:
        return
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
