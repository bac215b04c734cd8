"""Notebook jobs: a Jupyter server in a container that is configured like a task of a recorded job.

The module reads the recorded job and its newest checkpoint, derives the notebook's job from it, checks its environment
for Jupyter, and keeps the notebook's access token.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from tony_provider.cluster.checks.job_checks import suitable_environments
from tony_provider.cluster.environments.inspection import (
    has_staged_environments,
    packages_of_archive,
    packages_of_directory,
)
from tony_provider.cluster.errors import JobRejected, SourceMissing, Unconfirmed
from tony_provider.cluster.open_cluster import OpenCluster
from tony_provider.cluster.records.history import EnvironmentContent, KeptResource, read_specification
from tony_provider.cluster.settings import Backend, FileRoots, with_defaults
from tony_provider.cluster.sources import LocalSource, SourceFinder, Sources, in_store
from tony_provider.cluster.training.checkpoint_chains import ChainState, choose_checkpoint
from tony_provider.cluster.training.identity import Layout, read_record
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.codec import CodecError, dump_json, from_plain, to_plain
from tony_provider.runtime.common.python_packages import normalized
from tony_provider.runtime.common.text import MASK, one_line
from tony_provider.runtime.jobspec.container_content import (
    ARCHIVES,
    FILES,
    PYTHON_ENV_KEY,
    EnvironmentKind,
    NamedObject,
    named_objects,
    named_resources,
    node_directory,
    python_env_kind,
    without_tensorboard_task,
)
from tony_provider.runtime.jobspec.model import CheckpointFormat, JobSpec, PythonEnv, Resource, leading_type
from tony_provider.runtime.jobspec.problems import child
from tony_provider.runtime.notebook.serving import NotebookOptions
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import Storage, write_atomically


@attrs.frozen
class KeptJob:
    """A recorded job that can run again with the files that the store keeps."""

    job: JobSpec
    masked: list[str]  # removed variables of the job, because the record masks their values
    left_out: list[str] = attrs.field(factory=list)  # removed keys of the job, because they name files of this machine


@attrs.frozen
class NewestCheckpoint:
    """The newest complete checkpoint of a training, and its chain."""

    chain: str  # URI of the chain
    newest: ResumePoint


def kept_job(storage: Storage, application_dir: str, layout: Layout, *, confirmed: bool = False) -> KeptJob:
    """Return the job that an application's history records, with the files that the store keeps.

    Every user who may write to the application's directory can change the record. So this function reads no file of
    this machine that the record names. It uses objects outside of the staging directory's cache only if ``confirmed``.
    Raises SourceMissing, Unconfirmed, StorageError.
    """
    missing: list[str] = []
    specification = read_specification(storage, application_dir, missing)
    if specification is None:
        raise SourceMissing(_how(f"the application's job is unknown ({'; '.join(missing)})"))
    try:
        job = without_tensorboard_task(from_plain(specification.job, JobSpec, ignore_unknown=True))
    except CodecError as error:
        raise SourceMissing(_how(f"another release wrote the application's specification ({error})")) from error
    if specification.resources is None and (any(named_resources(job)) or has_staged_environments(job)):
        raise SourceMissing(_how("its history does not contain the URIs of the job's files on the store"))
    job, left_out = _without_client_config(with_kept_files(job, specification.resources or []), layout)
    _check_objects(job, layout, confirmed=confirmed)
    environments = (job.env, *(task.env for task in job.tasks.values()))
    masked = sorted({name for each in environments for name, value in each.items() if MASK in value})
    return KeptJob(_without(job, masked), masked, left_out)


def _check_objects(job: JobSpec, layout: Layout, *, confirmed: bool) -> None:
    outside = [each for each in named_objects(job) if not layout.is_cached(each.uri)]
    if local := [each for each in outside if not each.is_input and _is_local(each.uri, layout)]:
        raise SourceMissing(_how(f"its history names files on this machine, which are not used: {_listed(local)}"))
    if outside and not confirmed:
        raise Unconfirmed(
            "the application's history names objects outside of the staging directory's cache, and every user who may "
            f"write the history can choose them: {_listed(outside)}; check them, then repeat the command with --yes"
        )


def _is_local(source: str, layout: Layout) -> bool:
    """Return whether a submission would look for the source on this machine."""
    return not in_store(source, layout.root) and ("://" not in source or source.lower().startswith("file://"))


def _listed(objects: list[NamedObject]) -> str:
    return ", ".join(one_line(f"{each.key}: {each.uri}") for each in objects)


def _without_client_config(job: JobSpec, layout: Layout) -> tuple[JobSpec, list[str]]:
    """Return the job without a ``docker.client_config`` on this machine, and the removed keys.

    This file has the credentials of the caller.
    """
    docker = job.docker
    if docker is None or docker.client_config is None or not _is_local(docker.client_config, layout):
        return job, []
    return attrs.evolve(job, docker=attrs.evolve(docker, client_config=None)), ["docker.client_config"]


def _how(why: str) -> str:
    return f"{why}; also pass the job file: `airflow tony notebook JOB.tony.yaml --of …`"


def with_kept_files(job: JobSpec, resources: list[KeptResource]) -> JobSpec:
    """Return the job with its files, archives and environments replaced by their copies on the store."""

    def level(path: str, own: Any) -> Any:
        return attrs.evolve(
            own,
            files=_of(resources, child(path, FILES)),
            archives=_of(resources, child(path, ARCHIVES)),
            python_env=_environment(resources, child(path, PYTHON_ENV_KEY), own.python_env),
        )

    tasks = {name: level(child("tasks", name), task) for name, task in job.tasks.items()}
    kept: JobSpec = attrs.evolve(level("", job), tasks=tasks)
    return kept


def _of(resources: list[KeptResource], path: str) -> list[Resource]:
    return [Resource(each.uri, each.name) for each in _once(resources) if each.key.startswith(f"{path}.")]


def _environment(resources: list[KeptResource], path: str, named: PythonEnv | None) -> PythonEnv | None:
    found = [each.uri for each in _once(resources) if each.key == path]
    return PythonEnv(",".join(found)) if found else named


def _once(resources: list[KeptResource]) -> Iterator[KeptResource]:
    """Yield each resource once, because the job's own environment may be listed for several task types."""
    yield from {(each.key, each.name): each for each in resources}.values()


def _without(job: JobSpec, names: list[str]) -> JobSpec:
    def left(env: dict[str, str]) -> dict[str, str]:
        return {name: value for name, value in env.items() if name not in names or MASK not in value}

    tasks = {name: attrs.evolve(task, env=left(task.env)) for name, task in job.tasks.items()}
    return attrs.evolve(job, env=left(job.env), tasks=tasks)


def newest_checkpoint(storage: Storage, chain: ChainState | None) -> NewestCheckpoint | None:
    """Return the newest checkpoint of the chain, or None without a chain or a checkpoint. Raises StorageError."""
    if chain is None or (chosen := choose_checkpoint(storage, chain.uri)) is None:
        return None
    return NewestCheckpoint(chain.uri, chosen.checkpoint.point)


TASK_TYPE = "notebook"
_FRAMEWORK = "standalone"
TASK = f"{TASK_TYPE}:0"
TOKEN = "JUPYTER_TOKEN"  # the secret that Jupyter reads from its environment
_OF_JOB = (
    *("queue", "priority", "node_label", "tags", "files", "archives", "python_env", "docker", "env", "logs"),
    *("hadoop", "network", "port_range"),
)
_OF_TASK = (
    *("memory", "vcores", "gpus", "resources", "node_label", "docker", "env", "python_env", "files", "archives"),
)
_OF_PLACEMENT = ("nodes", "racks", "required", "attributes")  # inherited keys, without rules about training containers
_GRACE = 60.0  # seconds for Jupyter to end and to pack the notebook's files
_LAST_COPY = 600.0  # seconds to copy the packed files to the store
_SAVES = 2  # number of these copies that stay on the store


@attrs.frozen
class NotebookRequest:
    """The user's options for a notebook, in addition to the recorded job."""

    name: str
    options: NotebookOptions
    lifetime: float  # of the notebook's application, in seconds
    task_type: str | None = None  # task type whose container to copy; None for the leading one
    queue: str | None = None  # replaces the job's queue; None keeps it
    secrets: frozenset[str] = frozenset()  # names of the job's secrets for which the user gives values


def notebook_job(job: JobSpec, wish: NotebookRequest, overrides: Mapping[str, Any]) -> JobSpec:
    """Return the notebook's job with ``overrides`` merged over it. Raises JobRejected, SpecError."""
    job = without_tensorboard_task(job)
    task_type = notebook_task_type(job, wish.task_type)
    whole = to_plain(job)
    task = whole["tasks"][task_type]
    known = {each: whole[each] for each in _OF_JOB}
    plain = {
        **known,
        "framework": _FRAMEWORK,
        "name": f"notebook {wish.name}",
        "queue": wish.queue or known["queue"],
        "am": {each: whole["am"][each] for each in ("vcores", "node_label", "docker")},
        "secrets": sorted({TOKEN, *(wish.secrets - job.secrets_withheld(task_type))}),
        "acls": {"view": whole["acls"]["view"]},  # modify access gives a shell, so it is not inherited
        "timeouts": {
            "queue": job.timeouts.queue if (job.timeouts.queue or wish.lifetime) < wish.lifetime else None,
            "lifetime": wish.lifetime,
            "grace": _GRACE,
            "checkpoint": _LAST_COPY,
        },
        "checkpoint": {"format": CheckpointFormat.MANIFEST.value, "keep": _SAVES},
        "inputs": {
            name: {**whole["inputs"][name], "tasks": [TASK_TYPE]}
            for name in job.inputs
            if task_type in job.readers(name)
        },
        "tasks": {
            TASK_TYPE: {
                **{each: task[each] for each in _OF_TASK},
                "placement": _placement(task["placement"]),
                "command": f"exec python -m {contract.NOTEBOOK_MODULE} {wish.options.arguments}",
            }
        },
    }
    return parse_job(plain, overrides=overrides)


def notebook_task_type(job: JobSpec, wanted: str | None) -> str:
    """Return the task type whose container the notebook copies, by default the leading one. Raises JobRejected."""
    if wanted is None:
        leader = leading_type({name: job.role(name) for name in job.tasks})
        return leader if leader is not None else next(iter(job.tasks))
    if wanted not in job.tasks:
        raise JobRejected([f"the job has no task type {wanted!r}; it has {', '.join(job.tasks)}"])
    return wanted


def secrets_left_out(job: JobSpec, wish: NotebookRequest) -> list[str]:
    """Return the job's secrets that the notebook does not get because the user gave no values for them."""
    task_type = notebook_task_type(job, wish.task_type)
    return sorted({*job.secrets} - job.secrets_withheld(task_type) - wish.secrets - {TOKEN})


def _placement(placement: Mapping[str, Any] | None) -> dict[str, Any] | None:
    kept = {each: placement[each] for each in _OF_PLACEMENT} if placement is not None else {}
    return kept if any(kept.values()) else None


@attrs.frozen
class NotebookAccess:
    """The token with which the owner of a notebook logs in."""

    token: str = attrs.field(repr=False)
    version: int = 1


def write_access(storage: Storage, application_dir: str, access: NotebookAccess) -> None:
    """Write the notebook's access token to the store. Raises StorageError."""
    write_atomically(storage, _uri(application_dir), dump_json(access))


def read_access(storage: Storage, application_dir: str) -> NotebookAccess | None:
    """Return the notebook's access token, or None if the application is not a notebook or has ended.

    Raises StorageError, RecordUnreadable.
    """
    without = "the notebook cannot be reached again"
    return read_record(storage, _uri(application_dir), NotebookAccess, without=without)


def _uri(application_dir: str) -> str:
    return uris.join(application_dir, contract.LAUNCH_DIR, contract.NOTEBOOK_FILE)


_SERVER = "jupyter-server"  # JupyterLab and Notebook 7 require this package
_KERNELS = ("ipykernel", "xeus")  # prefixes of kernel packages; other kernel packages contain "kernel"


def expect_kernel(opened: OpenCluster, job: JobSpec, search_path: Sequence[Path], roots: FileRoots) -> None:
    """Check the environments of all tasks for a Jupyter server and a kernel.

    Raises JobRejected if an environment is known to lack one of them. If its packages are unknown, the container checks
    them. Also raises SourceMissing and StorageError.
    """
    job = with_defaults(job, opened.settings)
    sources = SourceFinder(opened.storage, opened.staging_dir, search_path, roots).find(job)
    contents = suitable_environments(opened, job, sources)
    problems = []
    for name, task in job.tasks.items():
        named = job.python_env_of(name)
        if named is None:
            continue
        key = PYTHON_ENV_KEY if task.python_env is None else child("tasks", name, PYTHON_ENV_KEY)
        packages = _known(contents.get(key), sources, key)
        if python_env_kind(named) is EnvironmentKind.DIRECTORY and opened.settings.backend is Backend.LOCAL:
            packages = packages_of_directory(Path(node_directory(named)))  # this machine is the node
        if packages is not None and (missing := missing_notebook_packages(packages)):
            problems.append(
                f"{key}: {named} has {missing}; build an environment with `airflow tony env build`, from requirements "
                f"that include jupyterlab, or set one for the notebook only: --set tasks.{name}.python_env=…"
            )
    if problems:
        raise JobRejected(problems)


def _known(content: EnvironmentContent | None, sources: Sources, key: str) -> Collection[str] | None:
    """Return the packages of an environment. Return None if they are unknown, as for wheels on top of a Python."""
    if content is None or content.kind is EnvironmentKind.WHEELS:
        return None
    if content.packages is not None:
        return content.packages
    local = _local(sources, key) if content.kind is EnvironmentKind.ARCHIVE else iter(())
    try:
        return next((packages_of_archive(each.path) for each in local), None)
    except OSError as error:
        raise SourceMissing(f"{key}: {content.python_env} cannot be read: {error}") from error


def _local(sources: Sources, key: str) -> Iterator[LocalSource]:
    return (each for each in sources.local if each.key == key)


def missing_notebook_packages(packages: Collection[str]) -> str:
    """Describe which of a notebook's required packages are missing. Return an empty string if none is."""
    names = {normalized(each) for each in packages}
    if _SERVER not in names:
        return "no Jupyter server (jupyterlab)"
    kernel = any("kernel" in each or each.startswith(_KERNELS) for each in names)
    return "" if kernel else "a Jupyter server and no kernel (ipykernel)"
