"""Content of a job's containers: TensorBoard's task type, images, Python environments, files and variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Optional

import attrs

from tony_provider.runtime.common import contract
from tony_provider.runtime.jobspec.model import (
    TENSORBOARD,
    ContainerRuntime,
    Docker,
    JobSpec,
    PythonEnv,
    Resource,
    Role,
    TaskSpec,
    TensorBoardSpec,
    unmarked,
)
from tony_provider.runtime.jobspec.problems import child, item

TENSORBOARD_TASK = f"{TENSORBOARD}:0"
TENSORBOARD_PAGE = "tensorboard/"  # address of TensorBoard's page, below the job's page


def tensorboard_task(tensorboard: TensorBoardSpec) -> TaskSpec:
    """Return the task type that the key ``tensorboard`` stands for."""
    return TaskSpec(
        command=f"exec python {contract.TENSORBOARD_PROGRAM}",
        memory=tensorboard.memory,
        vcores=tensorboard.vcores,
        node_label=tensorboard.node_label,
        docker=tensorboard.docker,
        env=tensorboard.env,
        role=Role.SIDECAR,
    )


def with_tensorboard_task(job: JobSpec) -> JobSpec:
    """Return the job with an additional task type for its key ``tensorboard``, as the runtime needs it."""
    if job.tensorboard is None:
        return job
    return attrs.evolve(job, tasks={**job.tasks, TENSORBOARD: tensorboard_task(job.tensorboard)})


def without_tensorboard_task(job: JobSpec) -> JobSpec:
    """Return the job without the task type of TensorBoard, so that users can override the key ``tensorboard``."""
    if job.tensorboard is None:
        return job
    return attrs.evolve(job, tasks={name: task for name, task in job.tasks.items() if name != TENSORBOARD})


_MASTER = "am"
MASTER_DOCKER_KEY = f"{_MASTER}.docker"  # path of the key for the application master's container
HOST_NETWORK = "host"  # Docker's name for the node's own network
NO_MASTER_NETWORK = (
    "tasks and YARN's proxy reach the application master only at its node's address; use the node's network, "
    "am: {docker: {network: host}}, or no image, am: {docker: false}"
)


def image_of(job: JobSpec, task_type: str) -> Optional[Docker]:
    """Return the image of a task type's containers, or None for plain processes. Raises KeyError for unknown types."""
    return _laid_over(job.docker, job.tasks[task_type].docker)


def image_of_master(job: JobSpec) -> Optional[Docker]:
    """Return the application master's image. Return None if the application master is a plain process."""
    return _laid_over(job.docker, job.am.docker)


def docker_keys(job: JobSpec) -> dict[str, Docker]:
    """Return every ``docker`` key of a job, by its path."""
    given = {"docker": job.docker, **{child(place, "docker"): own for place, own in _places(job).items()}}
    return {path: docker for path, docker in given.items() if docker is not None}


def images(job: JobSpec) -> dict[str, Optional[Docker]]:
    """Return the image of each kind of container, by the path of its ``docker`` key. None means plain processes."""
    return {child(place, "docker"): _laid_over(job.docker, own) for place, own in _places(job).items()}


def is_docker_image(image: Optional[Docker]) -> bool:
    """Return whether Docker starts the image."""
    return image is not None and image.runtime is not ContainerRuntime.RUNC


def _places(job: JobSpec) -> Mapping[str, Optional[Docker]]:
    """Return the value of each ``docker`` key, by path. TensorBoard's ``docker`` is below the key ``tensorboard``."""
    tasks = {child("tasks", name): task.docker for name, task in without_tensorboard_task(job).tasks.items()}
    tensorboard = {TENSORBOARD: job.tensorboard.docker} if job.tensorboard else {}
    return {_MASTER: job.am.docker, **tasks, **tensorboard}


def _laid_over(below: Optional[Docker], own: Optional[Docker]) -> Optional[Docker]:
    if below is not None and below.runtime is ContainerRuntime.NONE:
        below = None
    given = {} if own is None else attrs.asdict(own, recurse=False, filter=lambda _, value: value is not None)
    if below is None and not given:
        return None
    merged = attrs.evolve(below or Docker(), **given)
    return None if merged.runtime is ContainerRuntime.NONE else merged


ARCHIVE_ENDINGS = (".zip", ".tar.gz", ".tgz", ".tar")
PEX_ENDING = ".pex"
WHEEL_ENDING = ".whl"
PYTHON_ENV_FORMS = (
    "a directory on the nodes (an absolute path), an archive (whose name ends in "
    f"{', '.join(ARCHIVE_ENDINGS)}), a PEX ({PEX_ENDING}), or wheels ({WHEEL_ENDING}, or a directory of them)"
)
PYTHON_ENV_KEY = "python_env"  # path of the job's key; task types may have the same key
_PREFIX = "file://"


class EnvironmentKind(str, Enum):
    """Form of a ``python_env``, which determines how its Python reaches a container."""

    DIRECTORY = "directory"  # directory on the nodes, with bin/python
    ARCHIVE = "archive"  # made by venv-pack, conda-pack or `airflow tony env build`; unpacked for containers
    PEX = "pex"
    WHEELS = "wheels"  # wheel files and directories of wheel files, added to the Python on the nodes


def is_archived(source: str) -> bool:
    """Return whether a source has the file ending of an archive, which is unpacked in containers."""
    return source.lower().endswith(ARCHIVE_ENDINGS)


def python_env_parts(python_env: PythonEnv) -> list[str]:
    """Return the path or URI of an environment, or several for wheels. The prefix ``STORED`` is kept."""
    return python_env.split(",")


def without_marks(python_env: PythonEnv) -> PythonEnv:
    """Return the environment without ``STORED`` before its paths and URIs."""
    return PythonEnv(",".join(unmarked(part)[0] for part in python_env_parts(python_env)))


def python_env_kind(python_env: PythonEnv) -> Optional[EnvironmentKind]:
    """Return the kind of an environment, or None if it is invalid.

    A directory is on the nodes if its path is absolute. Otherwise, it contains wheels and is next to the DAG or on the
    store. A source with the prefix ``STORED`` is never a directory on the nodes.
    """
    named = python_env_parts(python_env)
    if len(named) > 1:
        other = any(is_archived(part) or part.lower().endswith(PEX_ENDING) for part in named)
        return None if other else EnvironmentKind.WHEELS
    if is_archived(named[0]):
        return EnvironmentKind.ARCHIVE
    if named[0].lower().endswith(PEX_ENDING):
        return EnvironmentKind.PEX
    if named[0].lower().endswith(WHEEL_ENDING):
        return EnvironmentKind.WHEELS
    return EnvironmentKind.DIRECTORY if node_directory(python_env).startswith("/") else EnvironmentKind.WHEELS


def node_directory(python_env: PythonEnv) -> str:
    """Return the path of an environment that is a directory on the nodes, without ``file://``."""
    return python_env.removeprefix(_PREFIX)


def named_environments(job: JobSpec) -> Iterator[tuple[str, Optional[str], PythonEnv]]:
    """Yield each environment of a job: its key, its task type (None for the job's environment), and its value."""
    if job.python_env is not None:
        yield PYTHON_ENV_KEY, None, job.python_env
    for name, task in job.tasks.items():
        if task.python_env is not None:
            yield child("tasks", name, PYTHON_ENV_KEY), name, task.python_env


FILES = "files"
ARCHIVES = "archives"


@attrs.frozen
class NamedResource:
    """Entry of ``files`` or ``archives``, with its level, list and index in the job."""

    level: str  # path of the level with the list, such as tasks.worker; empty for the job
    kind: str  # FILES or ARCHIVES
    index: int
    resource: Resource
    task_type: Optional[str]  # type whose containers receive the entry; None if all containers receive it

    @property
    def path(self) -> str:
        """Path of the entry, such as ``tasks.worker.files[0]``."""
        return item(child(self.level, self.kind), self.index)

    @property
    def key(self) -> str:
        """Key for comparing trainings, independent of the list's order: ``tasks.worker.files.train.py``."""
        return f"{child(self.level, self.kind)}.{self.resource.target}"


def named_resources(job: JobSpec) -> Iterator[NamedResource]:
    """Yield all entries of ``files`` and ``archives``, the job's own entries first."""
    levels: list[tuple[str, Optional[str], list[Resource], list[Resource]]] = [("", None, job.files, job.archives)]
    levels += [(child("tasks", name), name, task.files, task.archives) for name, task in job.tasks.items()]
    for level, task_type, files, archives in levels:
        for kind, resources in ((FILES, files), (ARCHIVES, archives)):
            for index, resource in enumerate(resources):
                yield NamedResource(level, kind, index, resource, task_type)


@attrs.frozen
class NamedObject:
    """A path or URI that a job names, and the key that names it."""

    key: str  # such as files[0] or inputs.clicks.paths[1]
    uri: str  # with the prefix ``STORED`` of an environment or of Docker credentials
    is_input: bool = False  # True for inputs of tasks, which are never copied from this machine


def named_objects(job: JobSpec) -> Iterator[NamedObject]:
    """Yield files, archives, environments, Docker credentials and inputs, but no directories of the nodes."""
    for resource in named_resources(job):
        yield NamedObject(resource.path, resource.resource.source)
    for key, _, environment in named_environments(job):
        if python_env_kind(environment) is not EnvironmentKind.DIRECTORY:
            yield from (NamedObject(key, part) for part in python_env_parts(environment))
    if job.docker is not None and job.docker.client_config is not None:
        yield NamedObject("docker.client_config", job.docker.client_config)
    for name, spec in job.inputs.items():
        for index, path in enumerate(spec.paths):
            yield NamedObject(item(child("inputs", name, "paths"), index), path, is_input=True)


def env_by_path(job: JobSpec) -> dict[str, Mapping[str, str]]:
    """Return the variables of the job, of each task type and of TensorBoard, by the path of their key."""
    own = {"tensorboard.env": job.tensorboard.env} if job.tensorboard else {}
    tasks = {child("tasks", name, "env"): task.env for name, task in job.tasks.items()}
    return {"env": job.env, **tasks, **own}
