"""Validate the keys that determine when tasks start, and the keys ``inputs``, ``outputs``, ``export`` and ``acls``."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import combinations
from typing import Optional
from zoneinfo import ZoneInfo

import attrs

from tony_provider.runtime.common import contract
from tony_provider.runtime.common.network import HIGHEST_PORT
from tony_provider.runtime.frameworks.base import Framework
from tony_provider.runtime.frameworks.task_type_rules import types_that_end_the_job_before
from tony_provider.runtime.jobspec.model import (
    EVERYBODY,
    AccessNames,
    InputDeal,
    InputFormat,
    InputSpec,
    JobSpec,
    Milestone,
    MirrorScope,
    OutputCommit,
    OutputLayout,
    OutputSpec,
    ReadinessProbe,
    RestartScope,
    Role,
    StartRule,
    in_cluster,
    leading_type,
)
from tony_provider.runtime.jobspec.opening_hours import read_hours
from tony_provider.runtime.jobspec.problems import Problem, child, item, must_be_among
from tony_provider.runtime.storage import StorageInvalidPath, uris
from tony_provider.runtime.storage.object_store import SCHEMES as OBJECT_STORES
from tony_provider.runtime.storage.uris import Uri

_SERVES = (Role.PS, Role.EVALUATOR, Role.SIDECAR)
"""Roles whose tasks are stopped when the tasks of all other roles have ended."""


def dependency_problems(job: JobSpec, framework: Framework) -> Iterator[Problem]:
    """Yield problems of ``after`` and ``ready``: waits that never end, and waits between tasks that start together."""
    for task_type in job.tasks:
        waits = job.waits_for(task_type).items()
        found = [each for wait in waits for each in _wait(job, framework, task_type, *wait)]
        if waits:
            yield from found or _too_late(job, framework, task_type)
    for task_type, task in job.tasks.items():
        if task.ready is not None:
            yield from _probe(task.ready, child("tasks", task_type, "ready"))
    yield from _cycle(job)
    yield from _one_gang(job, framework)


def _path(task_type: str, other: str) -> str:
    return child("tasks", task_type, "after", other)


def _wait(job: JobSpec, framework: Framework, task_type: str, other: str, milestone: Milestone) -> Iterator[Problem]:
    path = _path(task_type, other)
    if other not in job.tasks:
        hint = must_be_among(other, list(job.tasks))
        yield Problem(path, milestone.value, f"there is no task type {other}{hint}")
        return
    if milestone is Milestone.READY and job.tasks[other].ready is None:
        where = child("tasks", other, "ready")
        yield Problem(path, milestone.value, f"the job does not define when {other} is ready; add {where}")
    role, other_role = job.role(task_type), job.role(other)
    if milestone is Milestone.SUCCEEDED:
        if other_role in _SERVES:
            message = f"a {other_role.value} does not end by itself; wait for it to be started or ready"
            yield Problem(path, milestone.value, message)
        elif role in _SERVES and other_role is not Role.ONCE:
            message = f"a {role.value} is stopped when the others have succeeded; give {task_type} the role once"
            yield Problem(path, milestone.value, message)
    if {task_type, other} <= set(_gang(job, framework)) and task_type != other:
        message = f"{task_type} and {other} {_together(framework)} and start together, unless one has the role once"
        yield Problem(path, milestone.value, message)


def _too_late(job: JobSpec, framework: Framework, task_type: str) -> Iterator[Problem]:
    """Yield a problem if the job may end before this type can start, because of direct or indirect dependencies."""
    if ending := types_that_end_the_job_before(job, framework, task_type):
        waits = job.waits_for(task_type)
        other = next((name for name in waits if name in ending), next(iter(waits)))
        rule = f" (success: {job.success.value})" if job.success else ""
        of_these = " and ".join(name for name in job.tasks if name in ending)
        message = f"the job ends with the success of {of_these}{rule}, so {task_type} never starts"
        remedy = "" if job.success or job.role(task_type) is Role.ONCE else "; give it the role once"
        yield Problem(_path(task_type, other), waits[other].value, f"{message}{remedy}")


def _gang(job: JobSpec, framework: Framework) -> list[str]:
    """Return the types that train together or restart together."""
    takes_along = [
        name
        for name, task in job.tasks.items()
        if (task.restart or framework.scope(job.role(name))) is RestartScope.GANG
        and job.role(name) not in (Role.SIDECAR, Role.ONCE)
    ]
    if framework.first_come and not takes_along:
        return []
    return [name for name in job.tasks if in_cluster(job.role(name)) or name in takes_along]


def _together(framework: Framework) -> str:
    return "restart together (restart: gang)" if framework.first_come else "train together"


def _probe(probe: ReadinessProbe, path: str) -> Iterator[Problem]:
    given = [name for name, value in attrs.asdict(probe).items() if value is not None]
    if len(given) != 1:
        yield Problem(path, attrs.asdict(probe), "must have exactly one of command, port and file")
    if probe.port is not None and not 0 <= probe.port <= HIGHEST_PORT:
        yield Problem(child(path, "port"), probe.port, "must be a port, or 0 for the task's own port (TONY_PORT)")
    for name in ("command", "file"):
        value = getattr(probe, name)
        if value is not None and not value.strip():
            yield Problem(child(path, name), value, "must not be empty")


def _cycle(job: JobSpec) -> Iterator[Problem]:
    try:
        TopologicalSorter({task_type: job.waits_for(task_type) for task_type in job.tasks}).prepare()
    except CycleError as error:
        way: list[str] = error.args[1][::-1]  # each waits for the next; the last equals the first
        message = f"would wait for itself: {' waits for '.join(way)}"
        yield Problem(_path(way[0], way[1]), job.waits_for(way[0])[way[1]].value, message)


def _one_gang(job: JobSpec, framework: Framework) -> Iterator[Problem]:
    """Yield problems of types that train together but wait for different types, because they start together."""
    gang = _gang(job, framework)
    outside = [
        {name: milestone for name, milestone in job.waits_for(task_type).items() if name not in gang}
        for task_type in gang
    ]
    for task_type, after in zip(gang, outside):
        if after != outside[0]:
            path = child("tasks", task_type, "after")
            message = f"must equal the value of {gang[0]}, because both {_together(framework)} and start together"
            yield Problem(path, {name: each.value for name, each in after.items()}, message)


_ALONE = "only independent tasks can use this key, such as those of the framework standalone"


def start_problems(job: JobSpec, framework: Framework) -> Iterator[Problem]:
    """Yield problems of ``start``, ``after`` and ``tolerated_failures``, and of other keys in combination with them."""
    yield from dependency_problems(job, framework)
    for task_type, task in job.tasks.items():
        if job.role(task_type) is Role.ONCE and task.restart is RestartScope.GANG:
            path = child("tasks", task_type, "restart")
            yield Problem(path, task.restart.value, "a task type with the role once does not restart with the others")
    if job.start is StartRule.FIRST_COME:
        yield from _first_come(job, framework)
    if job.tolerated_failures != "0":
        yield from _tolerated(job, framework)


def _first_come(job: JobSpec, framework: Framework) -> Iterator[Problem]:
    if not framework.first_come:
        message = f"tasks of the framework {job.framework} start together; {_ALONE}"
        yield Problem("start", job.start.value, message)
        return
    for task_type, task in job.tasks.items():
        if task.restart is RestartScope.GANG:
            path = child("tasks", task_type, "restart")
            yield Problem(path, task.restart.value, "with start: first-come, each task restarts by itself")
    if job.checkpoint.mirror is MirrorScope.ALL:
        message = "needs all ranks at the same time, which start: first-come does not ensure; use leader or off"
        yield Problem("checkpoint.mirror", job.checkpoint.mirror.value, message)


def _tolerated(job: JobSpec, framework: Framework) -> Iterator[Problem]:
    workers = {name: task for name, task in job.tasks.items() if job.role(name) is Role.WORKER}
    if not workers:
        yield Problem("tolerated_failures", job.tolerated_failures, "applies to workers, but the job has none")
    for task_type, task in workers.items():
        scope = task.restart or framework.scope(Role.WORKER)
        if scope is RestartScope.GANG:
            message = f"the failure of a {task_type} restarts the others (restart: gang); {_ALONE}"
            yield Problem("tolerated_failures", job.tolerated_failures, message)


def windows_problems(job: JobSpec) -> Iterator[Problem]:
    """Yield problems of the hours in which the job may have containers."""
    if job.windows is None:
        return
    if not job.windows.open:
        yield Problem("windows.open", [], "never opens: name hours, such as 22:00-06:00, or leave out windows")
    if not _is_zone(job.windows.zone):
        message = "is not a time zone that this machine knows; use an IANA name, such as Europe/Berlin or UTC"
        yield Problem("windows.zone", job.windows.zone, message)
    # An unreadable value is empty here, and is already reported.
    hours = [(index, text, read_hours(text)) for index, text in enumerate(job.windows.open) if text]
    for (_, one, first), (index, two, second) in combinations(hours, 2):
        if first.overlap(second):
            yield Problem(item("windows.open", index), two, f"overlaps with {one!r}; name each hour of the week once")


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ValueError, OSError, LookupError):  # the zone names no file, leads to another directory, or is unknown
        return False
    return True


MAX_NAME = 32
_TAKEN = (contract.ENV_INPUT_QUEUES, contract.ENV_INPUT_SOCKET)
_NAME = re.compile(r"[a-z][a-z0-9_]*")


def name_problem(what: str, name: str) -> str:
    """Return the problem of the name of a task type, an input or an output, or an empty string if it is valid."""
    if _NAME.fullmatch(name) and len(name) <= MAX_NAME:
        return ""
    form = "lower-case letters, digits and _, begins with a letter, and has at most"
    return f"{what}'s name has {form} {MAX_NAME} characters"


_OF_VARIABLE = "; it becomes part of an environment variable's name"


def input_problems(job: JobSpec) -> Iterator[Problem]:
    """Yield problems of a job's inputs, as written."""
    for name, spec in job.inputs.items():
        path = child("inputs", name)
        if problem := name_problem("an input", name):
            yield Problem(path, name, problem + _OF_VARIABLE)
        elif contract.ENV_INPUT_PREFIX + name.upper() in _TAKEN:
            yield Problem(
                path, name, f"the variable {contract.ENV_INPUT_PREFIX + name.upper()} is reserved; give another name"
            )
        yield from _paths(spec, child(path, "paths"))
        yield from _table(spec, path)
        yield from _task_types(job, spec.tasks, child(path, "tasks"), verb="read", role_problem=_no_reader)
        yield from _pieces(spec, path)
        yield from _undistributed(spec, path)
        if spec.deal is InputDeal.STATIC:
            yield from _parts(job, name, child(path, "deal"))


def _paths(spec: InputSpec, path: str) -> Iterator[Problem]:
    if not spec.paths and spec.table is None:
        yield Problem(path, spec.paths, "at least one path is needed, or the key `table`")
    if spec.paths and spec.table is not None:
        yield Problem(path, spec.paths, "is not used with `table`; remove one of them")
    for index, written in enumerate(spec.paths):
        if problem := _uri_problem(written):
            yield Problem(item(path, index), written, problem)


_TABLE = re.compile(r"\w+\.\w+")


def _table(spec: InputSpec, path: str) -> Iterator[Problem]:
    is_iceberg = spec.format is InputFormat.ICEBERG
    if not _TABLE.fullmatch(spec.table or "") and (spec.table is not None or is_iceberg):
        yield Problem(child(path, "table"), spec.table, "must be a database and a table, such as sales.clicks")
    if spec.partitions is not None and (spec.table is None or is_iceberg):
        yield Problem(child(path, "partitions"), spec.partitions, "is for Hive tables only; remove it")
    if spec.snapshot is not None and not is_iceberg:
        yield Problem(child(path, "snapshot"), spec.snapshot, "is for Iceberg tables: also set `format: iceberg`")


def _uri_problem(written: str) -> str:
    try:
        uris.parse(written)
    except StorageInvalidPath as error:
        return f"must be a URI or an absolute path: {error.problem}"
    return "" if written.isprintable() else "must be printable"


def _pieces(spec: InputSpec, path: str) -> Iterator[Problem]:
    if spec.split_size is not None and spec.format is InputFormat.FILES:
        known = " or ".join(f"`format: {each.value}`" for each in InputFormat if each is not InputFormat.FILES)
        message = f"files can be split only where a record begins: also set {known}"
        yield Problem(child(path, "split_size"), f"{spec.split_size}MiB", message)
    if spec.checksum and any(_scheme(written) == "file" for written in spec.paths):
        message = "files on a disk have no checksums, and size and time identify them; leave out checksum"
        yield Problem(child(path, "checksum"), True, message)


def _undistributed(spec: InputSpec, path: str) -> Iterator[Problem]:
    for key in ("tasks", "fetch", "split_size") if spec.deal is InputDeal.NONE else ():
        if value := getattr(spec, key):
            yield Problem(child(path, key), value, "has no effect with `deal: none`; remove it")


def _scheme(written: str) -> str:
    """Return the scheme of a path, or an empty string if the path is invalid, which another problem reports."""
    try:
        return uris.scheme(written)
    except StorageInvalidPath:
        return ""


def _parts(job: JobSpec, name: str, path: str) -> Iterator[Problem]:
    """Yield a problem if several processes of a task would read the same shards of an input with ``deal: static``."""
    for task_type in job.readers(name):
        if task_type in job.tasks and job.tasks[task_type].process_count > 1:
            message = f"every process of a {task_type} would read the same part; use deal: queue or more instances"
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
            message = f"the tasks of {task_type} run no user program that could {verb} the files; give them a command"
            yield Problem(where, task_type, message)


def _no_reader(role: Role) -> str:
    return "" if in_cluster(role) else f"inputs are distributed to tasks with a rank, not to the role {role.value}"


def _no_writer(role: Role) -> str:
    if role in _WRITING:
        return ""
    return f"tasks of the role {role.value} do not end by themselves, so their output is never complete"


_MAGIC = re.compile(r"[*?\[]")
_HIDDEN = ("_", ".")
_WRITING = (Role.CHIEF, Role.WORKER, Role.ONCE)  # roles whose tasks end by themselves


def output_problems(job: JobSpec, framework: Optional[Framework]) -> Iterator[Problem]:
    """Yield problems of a job's outputs, as written. ``framework`` is None if it is unknown."""
    places: dict[str, Uri] = {}
    for name, spec in job.outputs.items():
        path = child("outputs", name)
        if problem := name_problem("an output", name):
            yield Problem(path, name, problem + _OF_VARIABLE)
        yield from _task_types(job, spec.tasks, child(path, "tasks"), verb="write", role_problem=_no_writer)
        if not job.writers(name) and not spec.tasks:
            yield Problem(child(path, "tasks"), [], "no task would write this output; name types that have a command")
        yield from _commit(job, framework, name, child(path, "commit"))
        if problem := _path_problem(spec):
            yield Problem(child(path, "path"), spec.path, problem)
            continue
        place = uris.parse(spec.path)
        others = [*_inputs(job), *((child("outputs", each), at) for each, at in places.items())]
        for where, other in others:
            if relation := _relation(place, other):
                yield Problem(child(path, "path"), spec.path, f"{relation} {where} ({other}); use a separate path")
                break
        places[name] = place


def _path_problem(spec: OutputSpec) -> str:
    if problem := _uri_problem(spec.path):
        return problem
    place = uris.parse(spec.path)
    if place.path == "/":
        return "must be a directory below the root of the store"
    if _MAGIC.search(place.path):
        return "must be a directory without *, ? or [ in its path, because inputs cannot name such a directory"
    if place.name.startswith(_HIDDEN):
        return "readers skip names that begin with _ or .; give another name"
    return ""


def _inputs(job: JobSpec) -> Iterator[tuple[str, Uri]]:
    """Yield the key and the parsed value of each path that inputs read."""
    for name, spec in job.inputs.items():
        for index, written in enumerate(spec.paths):
            try:
                parsed = uris.parse(written)
            except StorageInvalidPath:
                continue  # reported for the input itself
            yield item(child("inputs", name, "paths"), index), parsed


def _relation(place: Uri, other: Uri) -> str:
    """Return how an output's path overlaps ``other``, which may be a pattern, or an empty string if it does not."""
    one_store = {place.scheme, other.scheme} == {*OBJECT_STORES} or place.scheme == other.scheme
    if not one_store or (place.authority and other.authority and place.authority != other.authority):
        return ""
    mine, theirs = (uri.path.strip("/").split("/") for uri in (place, other))
    for part, pattern in zip(mine, theirs):
        if pattern == "**":
            break
        if not fnmatch.fnmatchcase(part, pattern):
            return ""
    if len(mine) == len(theirs):
        return "is the same as" if mine == theirs else "is among the files of"
    return "is inside" if len(mine) > len(theirs) else "contains"


def _commit(job: JobSpec, framework: Optional[Framework], name: str, path: str) -> Iterator[Problem]:
    """Yield problems of ``commit: task``: a task's files must appear together and must not change afterwards."""
    if job.outputs[name].commit is not OutputCommit.TASK:
        return
    if job.outputs[name].layout is OutputLayout.FLAT:
        message = "with layout: flat, files would appear one by one; use layout: tasks or commit: job"
        yield Problem(path, OutputCommit.TASK.value, message)
    for task_type in job.writers(name) if framework else ():
        role = job.role(task_type) if task_type in job.tasks else Role.WORKER
        scope = job.tasks[task_type].restart or framework.scope(role) if framework else None
        if scope is RestartScope.GANG:
            message = f"{task_type} restarts with the others, even after success; use commit: job"
            yield Problem(path, OutputCommit.TASK.value, message)


def export_problems(job: JobSpec) -> Iterator[Problem]:
    """Yield problems of the key ``export.every``."""
    every = job.export.every
    if every is None:
        return
    if job.checkpoint.mirror is MirrorScope.OFF:
        message = "counts checkpoints on the store, but checkpoint.mirror: off stores none"
        yield Problem("export.every", every, message)
    if leading_type(job.roles) is None:
        yield Problem("export.every", every, "the chief or the first worker exports the model, but the job has neither")


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
                yield Problem(where, name, f"for everybody, write {EVERYBODY} as the only user: users: ['{EVERYBODY}']")
            elif not _ACL_NAME.fullmatch(name) or not name.isprintable():
                yield Problem(where, name, _how(what, name))
            elif name in given[:index]:
                yield Problem(where, name, "is listed twice")
    if EVERYBODY in names.users and (len(names.users) > 1 or names.groups):
        yield Problem(child(path, "users"), names.users, f"{EVERYBODY} means everybody: leave out all other names")


def _how(what: str, name: str) -> str:
    if "@" in name or "/" in name:
        return "must be the short name on the cluster, such as alice, not a Kerberos principal"
    return f"must be the name of one of the cluster's {what}, without blanks, commas, colons and slashes, and not empty"
