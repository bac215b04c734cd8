"""The job of an application that was submitted before, as its history and the staging directory keep it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from tony_provider.cluster.checkpoint_chains import CheckpointChains, choose_checkpoint
from tony_provider.cluster.errors import SourceMissing, Unconfirmed
from tony_provider.cluster.history.job_specification import KeptResource
from tony_provider.cluster.history.read_history import read_specification
from tony_provider.cluster.identity import Identity
from tony_provider.cluster.layout import Layout
from tony_provider.cluster.notebook.named_objects import NamedObject, named_objects
from tony_provider.cluster.sources import in_store
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.codec import CodecError, from_plain
from tony_provider.runtime.spec.model import JobSpec, PythonEnv, Resource, TaskSpec
from tony_provider.runtime.spec.named_resources import ARCHIVES, FILES
from tony_provider.runtime.spec.problems import child
from tony_provider.runtime.spec.python_env import JOBS_OWN, EnvironmentKind, kind_of, named_environments
from tony_provider.runtime.spec.tensorboard import without_its_task
from tony_provider.runtime.storage.base import Storage
from tony_provider.runtime.text import one_line

_MASKED = "***"  # as Airflow writes it


@attrs.frozen
class KeptJob:
    """A job as it can be run again: its files are those that the store keeps."""

    job: JobSpec
    masked: list[str]  # variables whose values were not kept: the job is without them
    left_out: list[str] = attrs.field(factory=list)  # keys that the job lacks, because they named files of this machine


@attrs.frozen
class TrainedSoFar:
    """The newest whole checkpoint of a training, and the chain that it is in."""

    chain: str  # URI
    newest: ResumePoint


def kept_job(storage: Storage, application_dir: str, layout: Layout, *, confirmed: bool = False) -> KeptJob:
    """Return the job that an application's history records, with the files that the store keeps.

    Every user who may write to the application's directory can change the record. So this function reads no file of
    this machine that the record names, and uses objects outside of the staging directory's cache only if ``confirmed``.
    Raises SourceMissing, Unconfirmed, StorageError.
    """
    missing: list[str] = []
    specification = read_specification(storage, application_dir, missing)
    if specification is None:
        raise SourceMissing(_how(f"what the application ran is not known ({'; '.join(missing)})"))
    try:
        job = without_its_task(from_plain(specification.job, JobSpec, ignore_unknown=True))
    except CodecError as error:
        raise SourceMissing(_how(f"what the application ran is of another release ({error})")) from error
    if specification.resources is None and _has_files(job):
        raise SourceMissing(_how("its history does not say where the store keeps the job's files"))
    job, left_out = _without_client_config(with_kept_files(job, specification.resources or []), layout)
    _check_objects(job, layout, confirmed=confirmed)
    masked = sorted({name for each in _environments(job) for name, value in each.items() if _MASKED in value})
    return KeptJob(_without(job, masked), masked, left_out)


def _check_objects(job: JobSpec, layout: Layout, *, confirmed: bool) -> None:
    outside = [each for each in named_objects(job) if not layout.is_cached(each.uri)]
    if local := [each for each in outside if not each.is_input and _is_local(each.uri, layout)]:
        raise SourceMissing(_how(f"its history names files of this machine, which are not read: {_listed(local)}"))
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
    """Leave out a ``docker.client_config`` of this machine, because it holds the caller's credentials."""
    docker = job.docker
    if docker is None or docker.client_config is None or not _is_local(docker.client_config, layout):
        return job, []
    return attrs.evolve(job, docker=attrs.evolve(docker, client_config=None)), ["docker.client_config"]


def _how(why: str) -> str:
    return f"{why}; give the job file, too: `airflow tony notebook JOB.tony.yaml --of …`"


def with_kept_files(job: JobSpec, resources: list[KeptResource]) -> JobSpec:
    """The job, whose files, archives and environments are those of the store."""

    def level(path: str, own: Any) -> Any:
        return attrs.evolve(
            own,
            files=_of(resources, child(path, FILES)),
            archives=_of(resources, child(path, ARCHIVES)),
            python_env=_environment(resources, child(path, JOBS_OWN), own.python_env),
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
    """The job's own environment may be listed for several task types."""
    yield from {(each.key, each.name): each for each in resources}.values()


def _has_files(job: JobSpec) -> bool:
    levels: list[JobSpec | TaskSpec] = [job, *job.tasks.values()]
    named = any(level.files or level.archives for level in levels)
    return named or any(kind_of(each) is not EnvironmentKind.DIRECTORY for _, _, each in named_environments(job))


def _environments(job: JobSpec) -> list[dict[str, str]]:
    return [job.env, *(task.env for task in job.tasks.values())]


def _without(job: JobSpec, names: list[str]) -> JobSpec:
    def left(env: dict[str, str]) -> dict[str, str]:
        return {name: value for name, value in env.items() if name not in names or _MASKED not in value}

    tasks = {name: attrs.evolve(task, env=left(task.env)) for name, task in job.tasks.items()}
    return attrs.evolve(job, env=left(job.env), tasks=tasks)


def trained_so_far(storage: Storage, layout: Layout, identity: Identity, application_id: str) -> TrainedSoFar | None:
    """Return the newest checkpoint of the chain that the application owns, or otherwise of the newest chain.

    Return None if there is no chain or no checkpoint in it. Raises StorageError.
    """
    chains = CheckpointChains(storage, layout, identity)
    chain = chains.used_by(application_id)
    chosen = choose_checkpoint(storage, chain.uri) if chain is not None else None
    return TrainedSoFar(chain.uri, chosen.checkpoint.point) if chain is not None and chosen is not None else None
