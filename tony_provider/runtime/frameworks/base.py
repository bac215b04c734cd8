"""The Framework interface: the environment of each task, and which tasks decide the end."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Optional

import attrs

from tony_provider.runtime.common.contract import MAX_ENV_STRING
from tony_provider.runtime.common.network import Address
from tony_provider.runtime.jobspec.container_content import env_by_path
from tony_provider.runtime.jobspec.model import JobSpec, RestartScope, Role
from tony_provider.runtime.jobspec.problems import Problem, child, item
from tony_provider.runtime.jobspec.task_types import in_cluster

if TYPE_CHECKING:
    from importlib import metadata

MAIN_PORT = "main"
"""The port that the cluster spec names a task by; every task has it."""


def port_of_process(name: str, local_rank: int) -> str:
    """The name of a port among all that a container holds: each of its processes has all ports of the framework."""
    return f"{name}.{local_rank}" if local_rank else name


@attrs.frozen
class TaskAddress:
    """The address of one task of a generation, with its named ports; or of one process, where a task has several."""

    type: str
    index: int  # among the tasks, or else the processes, of its type
    role: Role
    host: str = ""  # empty: it is not there, as another that begins later, or has ended
    ports: dict[str, int] = attrs.field(factory=dict)  # by the names that Framework.ports gave
    local_rank: int = 0  # of the process in its container
    local_world_size: int = 1  # how many processes its container runs

    @property
    def task_index(self) -> int:
        """The index of the task, of a process too."""
        return self.index // self.local_world_size

    @property
    def main(self) -> str:
        """The task's main address, ``host:port``, an IPv6 address in brackets; empty for one that is not there."""
        return str(Address(self.host, self.ports[MAIN_PORT])) if self.host else ""


@attrs.frozen
class ClusterSpec:
    """The addresses of all tasks, or of all their processes, of one generation: by type as specified, then index.

    Those that are not there are listed, too, without an address: ranks are everybody's.
    """

    generation: int
    tasks: tuple[TaskAddress, ...]

    def task(self, task_type: str, index: int) -> TaskAddress:
        """The address of one task. Raises LookupError when there is no such task."""
        for task in self.tasks:
            if (task.type, task.index) == (task_type, index):
                return task
        raise LookupError(f"no task {task_type}:{index} in generation {self.generation}")


@attrs.frozen
class HelperProcess:
    """A process of ours that user processes depend on, such as the server where they meet.

    The executor starts it with one of them, in the same environment, and stops it with them. If it ends before them
    with another exit code than 0, or by a signal, the task has failed.
    """

    name: str  # for messages, such as Horovod's rendezvous
    command: str  # for /bin/sh; ends with exec, so that the process is the helper itself


@attrs.frozen
class TaskEnvironment:
    """The variables that one user process gets, and the files in its working directory, written before it starts."""

    env: dict[str, str]
    files: dict[str, str] = attrs.field(factory=dict)  # name in the working directory -> text
    paths: dict[str, str] = attrs.field(factory=dict)  # variable that holds a file's path -> its name in files
    before: str = ""  # shell commands that stand before the user's; they leave nothing running
    helpers: tuple[HelperProcess, ...] = ()  # what runs concurrently

    def __add__(self, other: TaskEnvironment) -> TaskEnvironment:
        """Both environments together; ``other``'s where they say different things."""
        return TaskEnvironment(
            {**self.env, **other.env},
            {**self.files, **other.files},
            {**self.paths, **other.paths},
            other.before or self.before,
            (*self.helpers, *other.helpers),
        )

    def placed(self, directory: str) -> TaskEnvironment:
        """The environment of a process in ``directory``: with the variables of ``paths`` in ``env``."""
        located = {variable: str(Path(directory, name)) for variable, name in self.paths.items()}
        return attrs.evolve(self, env={**self.env, **located}, paths={})


def with_file(variable: str, text: str, path_variable: str, file_name: str) -> TaskEnvironment:
    """An environment with a text in a file, and in ``variable`` as well unless it is longer than a variable may be."""
    env = {variable: text} if fits_variable(variable, text) else {}
    return TaskEnvironment(env, {file_name: text}, {path_variable: file_name})


def fits_variable(variable: str, text: str) -> bool:
    """Whether Linux would start a process with this variable."""
    return len(variable.encode()) + len(text.encode()) + 2 <= MAX_ENV_STRING


class Framework(ABC):
    """What a job's ``framework`` decides: how tasks find each other, and what their failures and ends mean."""

    name: str
    made_variables: frozenset[str] = frozenset()
    """The variables that it makes of the cluster, which no job may set."""
    local_variables: frozenset[str] = frozenset()
    """Those that tell the processes of one container apart, which no job may set whose containers run several."""

    secret_variables: frozenset[str] = frozenset()
    """Those that hold a secret of the job's, the same in all tasks of the cluster, which nobody else knows."""

    interface_variables: frozenset[str] = frozenset()
    """Those that take the network interface to listen on, alone: the one that has the address others know it by."""

    exposed: str = ""
    """What whoever reaches its ports can do, where its servers ask for no proof; empty: nothing is known of them."""

    def problems(self, job: JobSpec) -> list[Problem]:
        """What in the job this framework cannot run; empty when it can."""
        several = any(task.process_count > 1 for task in job.tasks.values())
        made = self.made_variables | (self.local_variables if several else frozenset())
        given = {
            child(path, name): value
            for path, env in env_by_path(job).items()
            for name, value in env.items()
            if name in made
        }
        given.update({item("secrets", index): name for index, name in enumerate(job.secrets) if name in made})
        return [Problem(path, value, "is made from the cluster; leave it out") for path, value in given.items()]

    def default_command(self, role: Role) -> str:
        """The command of task types of this role that give none; empty: they must give one."""
        return ""

    def ports(self, task_type: str, role: Role) -> Sequence[str]:
        """Names of the ports that a process of this type listens on, the main one first."""
        return (MAIN_PORT,)

    def shares_ports(self, role: Role) -> bool:
        """Whether held ports stay bound past exec, since such a task's server binds them with SO_REUSEPORT as well.

        Otherwise they are released just before it.
        """
        return False

    def decisive(self, job: JobSpec) -> Sequence[str]:
        """The task types that must all succeed for the job to succeed; when they have, the others are stopped.

        The chief alone where parameter servers serve it, since its workers then wait for work without end; else the
        chief and every worker.
        """
        chiefs = [name for name, role in job.roles.items() if role is Role.CHIEF]
        if chiefs and Role.PS in job.roles.values():
            return chiefs
        return [name for name, role in job.roles.items() if role.is_tracked]

    def scope(self, role: Role) -> RestartScope:
        """Which tasks must start again when one of this role fails, unless its type's ``restart`` says otherwise.

        The whole gang: collective operations and connections do not outlive one of their members.
        """
        return RestartScope.GANG if in_cluster(role) else RestartScope.TASK

    @property
    def first_come(self) -> bool:
        """Whether tasks can begin as they come, without the others: see the job's key ``start``."""
        return False

    def elastic(self, role: Role) -> bool:
        """Whether a gang of this framework can start again with fewer tasks of this role."""
        return False

    def several_processes(self, role: Role) -> bool:
        """Whether a container of this role may run several processes, each a member of the cluster with its own rank.

        True for chief and workers: a parameter server is alone in its container, and so is who is not in the cluster.
        """
        return role.is_tracked

    @abstractmethod
    def environment(self, job: JobSpec, cluster: ClusterSpec, task_type: str, index: int) -> TaskEnvironment:
        """The environment in which one user process finds the others. Called on the executor's side.

        ``cluster`` has an address for each process, and ``index`` is that of the process among those of its type: the
        task's own, where each task has one process.
        """


PYTHON_COMMAND = '"$(command -v python || command -v python3)"'  # Debian calls it python3 only


def run_module(arguments: str) -> str:
    """Return the command that becomes a module of tony_sdk's folder, with its arguments."""
    return f"exec {PYTHON_COMMAND} -m {arguments}"


def wait_until_reachable(address: Address) -> str:
    """Wait until something listens there; else fail, saying so."""
    return f"{PYTHON_COMMAND} -m tony_wait {address.host} {address.port} || exit"


GROUP = "tony_provider.frameworks"


@cache
def entry_points() -> tuple[metadata.EntryPoint, ...]:
    """Those of the group, in the order of their names. Looks at every installed distribution, once."""
    from importlib import metadata  # hundreds of kilobytes, in each container, which few jobs need

    if sys.version_info >= (3, 10):
        found = list(metadata.entry_points(group=GROUP))
    else:
        found = list(metadata.entry_points().get(GROUP, ()))
    return tuple(sorted(set(found), key=lambda point: point.name))


def plugin_names() -> tuple[str, ...]:
    """The names that other packages give their frameworks."""
    return tuple(dict.fromkeys(point.name for point in entry_points()))


@cache
def load_plugin(name: str) -> Optional[Framework]:
    """The framework that another package calls so; None where no package does. Raises LookupError, saying why not."""
    point = next((point for point in entry_points() if point.name == name), None)
    if point is None:
        return None
    try:
        framework = point.load()()
    except Exception as error:  # whatever somebody else's module may raise
        raise LookupError(f"the framework {name!r} ({point.value}) cannot be loaded: {error!r}") from error
    if not isinstance(framework, Framework):
        raise LookupError(f"the framework {name!r} ({point.value}) is no Framework of {Framework.__module__}")  # noqa: TRY004
    return framework
