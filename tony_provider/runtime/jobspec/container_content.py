"""The task type that the key ``tensorboard`` stands for: one like others, whose command is ours."""

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
TENSORBOARD_PAGE = "tensorboard/"  # its address, below the job's page


def tensorboard_task(tensorboard: TensorBoardSpec) -> TaskSpec:
    """The task type for the key."""
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
    """The job with TensorBoard's task among the others, as everybody who runs it wants it."""
    if job.tensorboard is None:
        return job
    return attrs.evolve(job, tasks={**job.tasks, TENSORBOARD: tensorboard_task(job.tensorboard)})


def without_tensorboard_task(job: JobSpec) -> JobSpec:
    """The job without TensorBoard's task, as people write it, and lay other things over it."""
    if job.tensorboard is None:
        return job
    return attrs.evolve(job, tasks={name: task for name, task in job.tasks.items() if name != TENSORBOARD})


_MASTER = "am"
MASTER_DOCKER_KEY = f"{_MASTER}.docker"  # the path of the application master's
HOST_NETWORK = "host"  # Docker's name for the node's own
NO_MASTER_NETWORK = (
    "tasks and YARN's proxy reach an application master at its node's address only; give it the node's network, "
    "am: {docker: {network: host}}, or no image, am: {docker: false}"
)


def image_of(job: JobSpec, task_type: str) -> Optional[Docker]:
    """What the containers of a task type run in; None: they are plain processes. Raises KeyError for another type."""
    return _laid_over(job.docker, job.tasks[task_type].docker)


def image_of_master(job: JobSpec) -> Optional[Docker]:
    """What the application master runs in; None: it is a plain process."""
    return _laid_over(job.docker, job.am.docker)


def docker_keys(job: JobSpec) -> dict[str, Docker]:
    """Every ``docker`` that a job gives, by its path."""
    given = {"docker": job.docker, **{child(place, "docker"): own for place, own in _places(job).items()}}
    return {path: docker for path, docker in given.items() if docker is not None}


def images(job: JobSpec) -> dict[str, Optional[Docker]]:
    """What each kind of container runs in, by the path of the key ``docker`` that may say so for it alone."""
    return {child(place, "docker"): _laid_over(job.docker, own) for place, own in _places(job).items()}


def is_docker_image(image: Optional[Docker]) -> bool:
    """Whether Docker starts it."""
    return image is not None and image.runtime is not ContainerRuntime.RUNC


def _places(job: JobSpec) -> Mapping[str, Optional[Docker]]:
    """The task of the key ``tensorboard``, where it stands among the others, is told by the key."""
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
PYTHON_ENV_KEY = "python_env"  # the path of the job's key, which task types may have, too
_PREFIX = "file://"


class EnvironmentKind(str, Enum):
    """What a ``python_env`` is, and so how its Python comes to a container."""

    DIRECTORY = "directory"  # that the nodes have, with bin/python
    ARCHIVE = "archive"  # made by venv-pack, conda-pack or `airflow tony env build`; containers get it unpacked
    PEX = "pex"
    WHEELS = "wheels"  # files, and directories of files: laid over the nodes' own Python


def is_archived(source: str) -> bool:
    """Whether a source is an archive to be unpacked, by the ending of its name."""
    return source.lower().endswith(ARCHIVE_ENDINGS)


def parts(python_env: PythonEnv) -> list[str]:
    """Return the paths and URIs of an environment, with their marks: a single one, or several wheels."""
    return python_env.split(",")


def without_marks(python_env: PythonEnv) -> PythonEnv:
    """Return the environment without ``STORED`` before its paths and URIs."""
    return PythonEnv(",".join(unmarked(part)[0] for part in parts(python_env)))


def python_env_kind(python_env: PythonEnv) -> Optional[EnvironmentKind]:
    """The kind of an environment; None: it cannot be one.

    What is neither absolute nor ends as an archive does can be a directory of wheels, beside the DAG or on the store.
    A source with the mark ``STORED`` is never a directory on the nodes.
    """
    named = parts(python_env)
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
    """The path on the nodes of an environment that is a directory there."""
    return python_env[len(_PREFIX) :] if python_env.startswith(_PREFIX) else python_env


def named_environments(job: JobSpec) -> Iterator[tuple[str, Optional[str], PythonEnv]]:
    """Each environment that a job names: its key, the task type that it is of (None: the job's), itself."""
    if job.python_env is not None:
        yield PYTHON_ENV_KEY, None, job.python_env
    for name, task in job.tasks.items():
        if task.python_env is not None:
            yield child(child("tasks", name), PYTHON_ENV_KEY), name, task.python_env


FILES = "files"
ARCHIVES = "archives"


@attrs.frozen
class NamedResource:
    """An entry of ``files`` or ``archives``."""

    level: str  # the path of the job's level that has the list: empty, or such as tasks.worker
    kind: str  # FILES or ARCHIVES
    index: int
    resource: Resource
    task_type: Optional[str]  # whose containers get it; None: those of all

    @property
    def path(self) -> str:
        """Such as ``tasks.worker.files[0]``."""
        return item(child(self.level, self.kind), self.index)

    @property
    def key(self) -> str:
        """What a training is compared by, whatever the order of the list: such as ``tasks.worker.files.train.py``."""
        return f"{child(self.level, self.kind)}.{self.resource.target}"


def named_resources(job: JobSpec) -> Iterator[NamedResource]:
    """All of them, the job's first."""
    levels: list[tuple[str, Optional[str], list[Resource], list[Resource]]] = [("", None, job.files, job.archives)]
    levels += [(child("tasks", name), name, task.files, task.archives) for name, task in job.tasks.items()]
    for level, task_type, files, archives in levels:
        for kind, resources in ((FILES, files), (ARCHIVES, archives)):
            for index, resource in enumerate(resources):
                yield NamedResource(level, kind, index, resource, task_type)


def env_by_path(job: JobSpec) -> dict[str, Mapping[str, str]]:
    """The environments that a job gives, by their path: the job's, each task type's, that of our TensorBoard."""
    own = {"tensorboard.env": job.tensorboard.env} if job.tensorboard else {}
    tasks = {child(child("tasks", name), "env"): task.env for name, task in job.tasks.items()}
    return {"env": job.env, **tasks, **own}
