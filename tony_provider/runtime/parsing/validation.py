"""Validate the values of a specification beyond their types, including the framework's rules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Optional

from tony_provider.runtime.common import contract, quantities
from tony_provider.runtime.common.network import HIGHEST_PORT
from tony_provider.runtime.frameworks.base import (
    Framework,
    UnknownFrameworkError,
    fits_variable,
    framework_names,
    get_framework,
)
from tony_provider.runtime.frameworks.task_type_rules import takes_gang_along
from tony_provider.runtime.jobspec.container_content import (
    PYTHON_ENV_FORMS,
    env_by_path,
    named_environments,
    python_env_kind,
    python_env_parts,
    tensorboard_task,
)
from tony_provider.runtime.jobspec.model import (
    PER_GPU,
    TENSORBOARD,
    GrowRule,
    JobSpec,
    MirrorScope,
    Resource,
    Role,
    SuccessRule,
    TaskSpec,
    role_of,
    saves_checkpoints,
    unmarked,
)
from tony_provider.runtime.jobspec.problems import NOT_GIVEN, Problem, child, item, suggestion
from tony_provider.runtime.jobspec.units import ENV_NAME, NODE_LABEL, QUEUE, TAG
from tony_provider.runtime.parsing.validate_containers import docker_problems, placement_problems
from tony_provider.runtime.parsing.validate_data import (
    acl_problems,
    export_problems,
    input_problems,
    name_problem,
    output_problems,
    start_problems,
    windows_problems,
)

MAX_NAME = 512  # characters; the longest dag.task in Airflow has 501
MAX_TAGS = 8  # YARN accepts 10, and the runtime needs two
MAX_TAG = 100  # YARN's limit
LOWEST_PORT = 1024
_LARGEST_EXIT_CODE = 255
_MOST_TASKS = 10_000  # tested with one application master, see docs/reference/limitations.md
_STORED = "is marked as stored, so it must be a URI of the job's store, such as hdfs:///data/model"
AM_PORTS = 2  # one for gRPC, and one reserved for a page of the master

_RESOURCE_NAME = re.compile(r"(?:[0-9A-Za-z.-]+/)?\w[\w.-]*", re.ASCII)  # YARN's ResourceUtils

_OWN_RESOURCES = {
    "memory": "memory",
    quantities.MEMORY: "memory",
    quantities.VCORES: "vcores",
    "cpu": "vcores",
    quantities.GPU: "gpus",
    "gpu": "gpus",
}
# Names that YARN, the local backend and the runtime use in a container's working directory.
_TAKEN_NAMES = {
    contract.RUNTIME_DIR,
    contract.PYTHON_ENV_DIR,
    "container_pid",
    "container_tokens",
    "default_container_executor.sh",
    "default_container_executor_session.sh",
    "docker_container_executor.sh",
    "launch_container.sh",
    "sysfs",
    "tmp",
}
_OWN_FILES = "tony-"
_NOT_UNPACKED = (".bz2", ".tbz2", ".xz", ".txz", ".zst", ".squashfs")  # conda-pack also writes these
_ANOTHER = "another package can add one by an entry point in the group tony_provider.frameworks"


_LOWEST = {
    "priority": 0,
    "am.vcores": 1,
    "am.attempts": 1,
    "restart.budget": 0,
    "restart.node_losses": 0,
    "restart.same_failure": 1,
    "checkpoint.keep": 1,
    "checkpoint.keep_every": 1,
    "export.keep_last": 1,
    "export.every": 1,
    "tensorboard.vcores": 1,
}
_LOWEST_OF_TASKS = {"instances": 1, "vcores": 1, "gpus": 0, "min_instances": 1}
_MORE_THAN_ZERO = (
    "am.attempts_window",
    "restart.window",
    "timeouts.queue",
    "timeouts.dependency",
    "timeouts.allocation",
    "timeouts.registration",
    "timeouts.lifetime",
    "timeouts.replacement",
    "timeouts.spare",
    "timeouts.stall",
)


def validate(job: JobSpec) -> list[Problem]:
    """Return all problems of ``job``, including those of its framework. The job can run if the list is empty."""
    framework, unknown = _find_framework(job)
    return [
        *unknown,
        *(framework.problems(job) if framework else ()),
        *(start_problems(job, framework) if framework else ()),
        *_tasks(job, framework),
        *_bounds(job),
        *_names(job),
        *_tags(job),
        *_node_labels(job),
        *placement_problems(job),
        *_localized(job),
        *docker_problems(job),
        *_environment(job),
        *acl_problems(job),
        *_timeouts(job),
        *windows_problems(job),
        *_restart(job),
        *_sizes(job, framework),
        *_checkpoint(job, framework),
        *export_problems(job),
        *_tensorboard(job),
        *input_problems(job),
        *output_problems(job, framework),
        *_port_range(job, framework),
    ]


def _find_framework(job: JobSpec) -> tuple[Optional[Framework], list[Problem]]:
    try:
        return get_framework(job.framework), []
    except UnknownFrameworkError:
        known = framework_names()
        hint = suggestion(job.framework, list(known)) or f"; {_ANOTHER}"
        return None, [Problem("framework", job.framework, f"must be one of {', '.join(known)}{hint}")]
    except LookupError as error:
        return None, [Problem("framework", job.framework, str(error))]


def _bounds(job: JobSpec) -> Iterator[Problem]:
    for path, lowest in _LOWEST.items():
        yield from _at_least(lowest, path, _value(job, path))
    for path in _MORE_THAN_ZERO:
        value = _value(job, path)
        if value is not None and value <= 0:
            yield Problem(path, value, "must be more than zero")


def _value(job: JobSpec, path: str) -> Any:
    """Return the value of a key, or None if the key above it is not given."""
    found: Any = job
    for name in path.split("."):
        found = None if found is None else getattr(found, name)
    return found


def _tasks(job: JobSpec, framework: Optional[Framework]) -> Iterator[Problem]:
    if not job.tasks:
        yield Problem("tasks", job.tasks, "at least one task type is needed")
        return
    if job.size > _MOST_TASKS:
        largest = max(job.tasks, key=lambda each: job.tasks[each].instances)
        what = f"the job has {job.size} tasks, but one application master serves at most {_MOST_TASKS}; use fewer"
        yield Problem(
            child("tasks", largest, "instances"),
            job.tasks[largest].instances,
            f"{what} with several processes in each (processes), or several jobs",
        )
    chiefs = []
    for task_type, task in job.tasks.items():
        path = child("tasks", task_type)
        if problem := name_problem("a task type", task_type):
            yield Problem(path, task_type, problem)
        yield from _command(framework, task_type, task)
        yield from _amounts(task, path)
        yield from _processes(job, framework, task_type, task)
        if role_of(task_type, task) is Role.CHIEF:
            chiefs.append(path)
            if not task.decides:
                yield Problem(child(path, "decides"), False, "must be true for a chief")
            if task.instances > 1:
                yield Problem(child(path, "instances"), task.instances, "must be 1 for a chief")
    if job.success is SuccessRule.CHIEF and not chiefs:
        yield Problem("success", job.success.value, "the job has no chief; name a type chief or give one that role")
    for path in chiefs[1:]:
        yield Problem(path, "chief", f"a job has at most one task type with the role chief; {chiefs[0]} also has it")
    if not any(role_of(task_type, task).is_tracked and task.decides for task_type, task in job.tasks.items()):
        yield Problem("tasks", sorted(job.tasks), "no task would end the job; add a chief or a worker that decides")


def _command(framework: Optional[Framework], task_type: str, task: TaskSpec) -> Iterator[Problem]:
    path = child("tasks", task_type, "command")
    if task.command and not task.command.strip():
        yield Problem(path, task.command, "must not be empty")
    if not task.command and not (framework and framework.default_command(role_of(task_type, task))):
        yield Problem(path, NOT_GIVEN, "is required")


def _amounts(task: TaskSpec, path: str) -> Iterator[Problem]:
    for name, lowest in _LOWEST_OF_TASKS.items():
        yield from _at_least(lowest, child(path, name), getattr(task, name))
    for name, amount in task.resources.items():
        where = child(path, "resources", name)
        yield from _at_least(1, where, amount.value)
        if name in _OWN_RESOURCES:
            yield Problem(where, amount.plain, f"must be given as {child(path, _OWN_RESOURCES[name])}")
        elif not _RESOURCE_NAME.fullmatch(name):
            yield Problem(where, amount.plain, "use YARN's name: name or domain/name, such as yarn.io/fpga")


def _processes(job: JobSpec, framework: Optional[Framework], task_type: str, task: TaskSpec) -> Iterator[Problem]:
    path = child("tasks", task_type, "processes")
    if task.processes == PER_GPU and task.gpus == 0:
        yield Problem(path, task.processes, "means one process for each GPU, but gpus is 0; set gpus, or give a number")
    role = role_of(task_type, task)
    if task.process_count > 1 and framework is not None and not framework.several_processes(role):
        what = f"{job.framework} runs one process in each container of the role {role.value}"
        yield Problem(path, task.processes, f"{what}; leave out processes, and increase instances")


def _at_least(least: int, path: str, value: Optional[int]) -> Iterator[Problem]:
    if value is not None and value < least:
        yield Problem(path, value, f"must be at least {least}")


def _node_labels(job: JobSpec) -> Iterator[Problem]:
    given = {path: _value(job, path) for path in ("node_label", "am.node_label", "tensorboard.node_label")}
    given.update({child("tasks", name, "node_label"): task.node_label for name, task in job.tasks.items()})
    for path, label in given.items():
        if label is not None and not NODE_LABEL.fullmatch(label):
            yield Problem(path, label, "must be one node label of letters, digits, - and _, not an expression")


def _names(job: JobSpec) -> Iterator[Problem]:
    if not job.name.strip() or len(job.name) > MAX_NAME or not job.name.isprintable():
        yield Problem("name", job.name, f"must be 1 to {MAX_NAME} printable characters in one line")
    if job.queue is not None and not QUEUE.fullmatch(job.queue):
        yield Problem("queue", job.queue, "must be a queue's name or path, such as ml or root.ml, without blanks")
    if job.docker is not None and job.docker.client_config is not None:
        yield from _marks("docker.client_config", unmarked(job.docker.client_config))
    for path, _, environment in named_environments(job):
        yield from _marks(path, *map(unmarked, python_env_parts(environment)))
        if python_env_kind(environment) is None:
            yield Problem(path, environment, f"a list may contain only wheels; one source must be {PYTHON_ENV_FORMS}")
        elif environment.lower().endswith(_NOT_UNPACKED):
            yield Problem(path, environment, f"has a format that YARN does not unpack; use {PYTHON_ENV_FORMS}")


def _marks(path: str, *sources: tuple[str, bool]) -> Iterator[Problem]:
    """Yield problems of sources that are marked as stored but are not URIs. Each source comes with a flag, the mark."""
    for source, stored in sources:
        if stored and "://" not in source:
            yield Problem(path, source, _STORED)


def _tags(job: JobSpec) -> Iterator[Problem]:
    if len(job.tags) > MAX_TAGS:
        yield Problem("tags", job.tags, f"at most {MAX_TAGS} tags: YARN allows 10, and two are reserved")
    seen: set[str] = set()
    for index, tag in enumerate(job.tags):
        path = item("tags", index)
        if len(tag) > MAX_TAG or not TAG.fullmatch(tag):
            yield Problem(path, tag, f"a tag has 1 to {MAX_TAG} printable ASCII characters, no blank and no comma")
        if tag.lower().startswith(contract.TAG_PREFIX):
            yield Problem(path, tag, f"tags that begin with {contract.TAG_PREFIX} are reserved")
        if tag.lower() in seen:
            yield Problem(path, tag, "is listed twice (YARN converts tags to lower case)")
        seen.add(tag.lower())


def _localized(job: JobSpec) -> Iterator[Problem]:
    of_all, above_all = dict[str, str](), dict[str, str]()
    yield from _targets({"files": job.files, "archives": job.archives}, of_all, above_all)
    for name, task in job.tasks.items():
        path = child("tasks", name)
        lists = {child(path, "files"): task.files, child(path, "archives"): task.archives}
        yield from _targets(lists, {**of_all}, {**above_all})


def _targets(
    lists: Mapping[str, Sequence[Resource]], taken: dict[str, str], above: dict[str, str]
) -> Iterator[Problem]:
    """Yield problems of the names of files and archives, such as names used twice by the same containers.

    ``taken`` maps each name in these containers to the path of its key. ``above`` maps each directory of these names to
    the first name in the directory. Both are extended by the names in ``lists``.
    """
    for key, resources in lists.items():
        for index, resource in enumerate(resources):
            path = item(key, index)
            if not resource.source.strip() or not resource.source.isprintable():
                yield Problem(path, resource.source, "the source must be a path or URI")
                continue
            yield from _marks(path, (resource.source, resource.stored))
            target = resource.target
            if problem := _bad_target(target):
                yield Problem(path, target, problem)
                continue
            parents = [str(each) for each in PurePosixPath(target).parents][:-1]
            other = next((each for each in [target, *parents] if each in taken), above.get(target))
            if other is not None:
                yield Problem(path, target, f"the name equals, or is inside, the name of {taken[other]} ({other})")
            taken.setdefault(target, path)
            for each in parents:
                above.setdefault(each, target)


def _bad_target(target: str) -> str:
    parts = target.split("/")
    if not target or not target.isprintable() or any(part in ("", ".", "..") for part in parts):
        return "the name in the working directory must be relative and without '..'; give one with SRC::NAME"
    if parts[0] in _TAKEN_NAMES or parts[0].startswith(_OWN_FILES):
        return "YARN or this provider uses this name in the working directory; give another with SRC::NAME"
    return ""


def _environment(job: JobSpec) -> Iterator[Problem]:
    by_path = env_by_path(job)
    for path, env in by_path.items():
        for name, value in env.items():
            yield from _env_name(name, child(path, name), value)
            if not fits_variable(name, value):
                yield Problem(child(path, name), value, "too long: Linux allows at most 128 KiB; use a file")
    for index, name in enumerate(job.secrets):
        path = item("secrets", index)
        yield from _env_name(name, path, name)
        if name in job.secrets[:index]:
            yield Problem(path, name, "is listed twice")
        if also := [where for where, env in by_path.items() if name in env]:
            yield Problem(path, name, f"is a secret, but is also set in {also[0]}")
    for task_type, task in job.tasks.items():
        for index, name in enumerate(task.secrets):
            if name not in job.secrets:
                path = item(child("tasks", task_type, "secrets"), index)
                known = ", ".join(job.secrets) or "none"
                yield Problem(path, name, f"is not among the job's secrets, which are: {known}")


def _env_name(name: str, path: str, value: object) -> Iterator[Problem]:
    if not ENV_NAME.fullmatch(name):
        yield Problem(path, value, "a variable's name has letters, digits and _, and no leading digit")
    elif name.startswith(contract.OWN_ENV_PREFIX):
        yield Problem(path, value, f"variables that begin with {contract.OWN_ENV_PREFIX} are reserved")


def _timeouts(job: JobSpec) -> Iterator[Problem]:
    timeouts = job.timeouts
    if timeouts.queue is not None and timeouts.lifetime is not None and timeouts.queue >= timeouts.lifetime > 0:
        yield Problem(
            "timeouts.queue", timeouts.queue, f"must be less than timeouts.lifetime ({timeouts.lifetime:g} s)"
        )


def _restart(job: JobSpec) -> Iterator[Problem]:
    policy = job.restart
    if policy.max_backoff < policy.backoff:
        yield Problem("restart.max_backoff", policy.max_backoff, f"must be at least backoff ({policy.backoff:g} s)")
    for index, code in enumerate(policy.permanent_exit_codes):
        if not 1 <= code <= _LARGEST_EXIT_CODE:
            yield Problem(item("restart.permanent_exit_codes", index), code, "must be 1 to 255")
    if policy.memory_limit is not None and policy.memory_step is None:
        yield Problem("restart.memory_limit", policy.memory_limit, "has no effect without memory_step")


def _sizes(job: JobSpec, framework: Optional[Framework]) -> Iterator[Problem]:
    for task_type, task in job.tasks.items():
        yield from _min_instances(job, framework, task_type, task)
        yield from _max_instances(job, framework, task_type, task)
        yield from _grow(task_type, task)


def _min_instances(job: JobSpec, framework: Optional[Framework], task_type: str, task: TaskSpec) -> Iterator[Problem]:
    if task.min_instances is None:
        return
    path = child("tasks", task_type, "min_instances")
    if task.min_instances > task.instances:
        yield Problem(path, task.min_instances, f"must not be more than instances ({task.instances})")
    if framework is not None and not framework.elastic(role_of(task_type, task)):
        role = role_of(task_type, task).value
        yield Problem(path, task.min_instances, f"{job.framework} cannot continue with fewer tasks of the role {role}")


def _max_instances(job: JobSpec, framework: Optional[Framework], task_type: str, task: TaskSpec) -> Iterator[Problem]:
    if task.max_instances is None:
        return
    path, role = child("tasks", task_type, "max_instances"), role_of(task_type, task)
    if task.max_instances < task.instances:
        yield Problem(path, task.max_instances, f"must not be less than instances ({task.instances})")
    if framework is None:
        return
    if not framework.elastic(role):
        message = f"{job.framework} cannot continue with a different number of tasks of the role {role.value}"
        yield Problem(path, task.max_instances, message)
    elif not takes_gang_along(job, role, task.restart or framework.scope(role)):
        message = "only types that restart with the whole gang can be resized; leave out `restart`"
        yield Problem(path, task.max_instances, message)


def _grow(task_type: str, task: TaskSpec) -> Iterator[Problem]:
    """Yield a problem if ``grow`` has no effect. Other problems of resizing are reported for ``max_instances``."""
    if task.grow is GrowRule.SPARE and task.most_instances <= task.instances:
        path = child("tasks", task_type, "grow")
        yield Problem(path, task.grow.value, f"needs a max_instances greater than instances ({task.instances})")


def _checkpoint(job: JobSpec, framework: Optional[Framework]) -> Iterator[Problem]:
    for index, pattern in enumerate(job.checkpoint.exclude):
        if problem := _bad_exclusion(pattern):
            yield Problem(item("checkpoint.exclude", index), pattern, problem)
    if job.checkpoint.shared:
        yield from _shared_checkpoints(job, framework)


def _bad_exclusion(pattern: str) -> str:
    if not pattern.isprintable() or any(part in ("", ".", "..") for part in pattern.split("/")):
        return "must be a name or a path below the checkpoint directory, such as *.log or cache/*, without . and .."
    if not pattern.strip("*/"):
        return "excludes everything; to store no checkpoints at all, set checkpoint.mirror to off"
    return ""


def _shared_checkpoints(job: JobSpec, framework: Optional[Framework]) -> Iterator[Problem]:
    if job.checkpoint.mirror is MirrorScope.OFF:
        yield Problem("checkpoint.shared", True, "the leader stores shared checkpoints; remove checkpoint.mirror: off")
    savers = {name: task for name, task in job.tasks.items() if saves_checkpoints(job.role(name))}
    if framework is None or sum(task.most_instances for task in savers.values()) <= 1:
        return
    for name, task in savers.items():
        if not takes_gang_along(job, job.role(name), task.restart or framework.scope(job.role(name))):
            path = child("tasks", name, "restart")
            message = "checkpoint.shared needs tasks that restart together; use gang"
            yield Problem(path, task.restart.value if task.restart else NOT_GIVEN, message)


def _tensorboard(job: JobSpec) -> Iterator[Problem]:
    if job.tensorboard is None:
        return
    own = child("tasks", TENSORBOARD)
    if job.tasks.get(TENSORBOARD, tensorboard_task(job.tensorboard)) != tensorboard_task(job.tensorboard):
        yield Problem("tensorboard", True, f"adds a task type, but the job also has {own}; remove one of them")


def _port_range(job: JobSpec, framework: Optional[Framework]) -> Iterator[Problem]:
    ports, needed = job.port_range, AM_PORTS + _most_ports(job, framework)
    written = f"{ports.first}-{ports.last}"
    if not LOWEST_PORT <= ports.first <= ports.last <= HIGHEST_PORT:
        yield Problem(
            "port_range",
            written,
            f"must be FIRST-LAST within {LOWEST_PORT}-{HIGHEST_PORT}, and FIRST must not exceed LAST",
        )
    elif ports.last - ports.first + 1 < needed:  # the application master and a task may share a node
        yield Problem(
            "port_range", written, f"must have at least {needed} ports, for the application master and a task"
        )


def _most_ports(job: JobSpec, framework: Optional[Framework]) -> int:
    if framework is None:
        return 0
    return max(
        (len(framework.ports(name, role_of(name, task))) * task.process_count for name, task in job.tasks.items()),
        default=0,
    )
