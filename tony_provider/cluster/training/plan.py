"""Plan the training of a new application: continue a checkpoint chain, or open a new one.

The fingerprint of a job has a hash for each key on which its checkpoints depend: commands, environment, code and data.
If a hash changes, the job opens a new chain by default. The fingerprint omits memory, processors, queue, instances,
timeouts, priorities and labels, because they affect only the speed. It also omits sidecars, which train nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping
from enum import StrEnum
from itertools import groupby
from typing import Any

import attrs

from tony_provider.cluster.errors import SourceMissing
from tony_provider.cluster.interface import Cluster
from tony_provider.cluster.sources import Sources, in_store
from tony_provider.cluster.training.checkpoint_chains import (
    ChainState,
    CheckpointChains,
    choose_checkpoint,
    new_chain,
    read_chain,
)
from tony_provider.cluster.training.identity import Identity, Layout
from tony_provider.cluster.training.results import previous_application
from tony_provider.runtime.checkpoint.catalog import foreign_catalog
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.checkpoint.stored_checkpoint import ChainRecord, chain_named
from tony_provider.runtime.common.quantities import some
from tony_provider.runtime.jobspec.container_content import (
    EnvironmentKind,
    image_of,
    named_environments,
    python_env_kind,
)
from tony_provider.runtime.jobspec.model import ContainerRuntime, Docker, InputFormat, JobSpec, Role
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import Storage
from tony_provider.runtime.storage.errors import StorageInvalidPath, StorageNotFound

_DIGITS = 16  # hexadecimal digits of a hash, enough to make chance collisions negligible


def fingerprint(job: JobSpec, sources: Sources) -> dict[str, str]:
    """Return the hashes of a job by key of the job specification. A directory has a single hash.

    The hashes do not reveal the values.
    """
    return {key: _hash(value) for key, value in sorted({**_words(job), **_contents(job, sources)}.items())}


def differing(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the keys in which two fingerprints differ."""
    return sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))


def _words(job: JobSpec) -> dict[str, Any]:
    found: dict[str, Any] = {"framework": job.framework}
    for key, task_type, environment in named_environments(job):
        if python_env_kind(environment) is EnvironmentKind.DIRECTORY and not _is_aside(job, task_type):
            found[key] = environment
    found.update(_image("docker", job.docker))
    found.update({f"env.{name}": value for name, value in job.env.items()})
    for name, spec in job.inputs.items():
        of_table = [spec.table, spec.partitions, spec.snapshot, spec.format is InputFormat.ICEBERG]
        found[f"inputs.{name}"] = spec.paths if spec.table is None else of_table
    for name, task in job.tasks.items():
        if job.role(name) is not Role.SIDECAR:
            found[f"tasks.{name}.command"] = task.command
            found.update({f"tasks.{name}.env.{variable}": value for variable, value in task.env.items()})
            found.update(_image_of_its_own(job, name))
    return found


def _image(path: str, docker: Docker | None) -> dict[str, Any]:
    """Return the keys of a Docker entry that affect the training. For example, network and user do not."""
    if docker is None or docker.runtime is ContainerRuntime.NONE:
        return {}
    return {f"{path}.image": docker.image, f"{path}.mounts": docker.mounts or []}


def _image_of_its_own(job: JobSpec, task_type: str) -> dict[str, Any]:
    """Return the image and mounts of a task type if they differ from the job's, otherwise {}."""
    path = f"tasks.{task_type}.docker"
    own, of_job = _image(path, image_of(job, task_type)), _image(path, job.docker)
    return {} if own == of_job else own or {f"{path}.image": None}


def _contents(job: JobSpec, sources: Sources) -> dict[str, list[Any]]:
    """Return what identifies the job's files, by key of the job specification.

    Local files are identified by the hash of their content. Stored files are not read, so they are identified by URI,
    size and modification time.
    """
    found: dict[str, list[Any]] = defaultdict(list)
    for source in sources.local:
        if not _is_aside(job, source.task_type):
            found[source.key].append([source.name, [source.sha256]])
    for stored in sources.stored:
        if not _is_aside(job, stored.task_type):
            of_store = stored.resource
            found[stored.key].append([stored.name, [of_store.uri, of_store.size, of_store.modified_ms]])
    # List a file once if several task types get it from the same entry.
    return {key: [each for each, _ in groupby(sorted(contents))] for key, contents in found.items()}


def _is_aside(job: JobSpec, task_type: str | None) -> bool:
    """Return whether the task type is a sidecar."""
    return task_type is not None and job.role(task_type) is Role.SIDECAR


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:_DIGITS]


_SHOWN = 6  # changed keys in a message


class Resume(StrEnum):
    """Whether a new application uses the checkpoints of an earlier one."""

    AUTO = "auto"  # resumes after a failure if the fingerprint is unchanged
    ALWAYS = "always"  # resumes even if the fingerprint has changed or the training has succeeded
    NEVER = "never"  # starts at step 0


@attrs.frozen
class ChainChoice:
    """The decision whether a new application continues the newest checkpoint chain, and the reason."""

    goes_on: bool  # whether to continue the newest chain
    why: str  # the reason, for the Airflow task's log


def choose_chain(
    resume: Resume, newest: ChainState | None, fingerprint: Mapping[str, str], *, has_succeeded: bool
) -> ChainChoice:
    """Decide whether a new application continues the newest checkpoint chain.

    ``has_succeeded`` states whether the last application of the training has succeeded.
    """
    if newest is None:
        return ChainChoice(False, "this training has not run before")
    if newest.about is None:
        return ChainChoice(False, f"{newest.name} was never started")
    if resume is Resume.NEVER:
        return ChainChoice(False, "resume is 'never'")
    keys = differing(newest.about.fingerprint, fingerprint)
    if resume is Resume.ALWAYS:
        return ChainChoice(
            True, f"resume is 'always', although {some(keys, _SHOWN)} changed" if keys else "resume is 'always'"
        )
    if has_succeeded:
        return ChainChoice(False, f"{newest.name} has already led to a success")
    if keys:
        return ChainChoice(False, f"the training differs from {newest.name}, because {some(keys, _SHOWN)} changed")
    return ChainChoice(True, "its last application did not succeed")


@attrs.frozen
class ChainOrigin:
    """The operator's ``resume_from`` and ``warm_start``: where a new checkpoint chain starts.

    If the operator's ``resume_from`` names a DAG, run and task, this class has their Identity instead.
    """

    resume_from: Identity | str | None = None  # a training (its newest chain), or the URI of a chain or checkpoint
    snapshot: int | None = None  # number of a checkpoint of the training; None for the newest
    warm_start: str | None = None  # URI of a model's directory, or of a chain whose newest checkpoint is used


@attrs.frozen
class OriginFinder:
    """Finds the chains, checkpoints and models on the store that a ChainOrigin names.

    Methods raise StorageError, and SourceMissing with the name of the missing source.
    """

    storage: Storage
    layout: Layout

    def chain(self, origin: ChainOrigin) -> str | None:
        """Return the URI of the chain or checkpoint to resume from, or None if the origin names none."""
        wanted = origin.resume_from
        if wanted is None:
            return None
        uri = self._of_training(wanted, origin.snapshot) if isinstance(wanted, Identity) else self._given(wanted)
        if choose_checkpoint(self.storage, uri) is None:
            raise SourceMissing(f"resume_from: {uri} holds no checkpoint to resume from{self._kept(uri)}")
        return uri

    def _of_training(self, identity: Identity, snapshot: int | None) -> str:
        """Return the URI of the newest chain of a training, or of its checkpoint with this number.

        Several chains may have a checkpoint with this number, because a chain that continues another chain also
        continues its numbers. The newest of these chains is used.
        """
        chains = CheckpointChains(self.storage, self.layout, identity).all()
        if not chains:
            raise SourceMissing(
                f"resume_from: that training has never run, because it has no files in "
                f"{self.layout.job_dir(identity)}; check dag_id, run_id, task_id, and either map_index or "
                "checkpoint_key"
            )
        if snapshot is None:
            return chains[-1].uri
        for chain in reversed(chains):
            for each in reversed(foreign_catalog(self.storage, chain.uri).list()):
                if each.save == snapshot:
                    return each.uri
        newest = chains[-1].uri
        raise SourceMissing(f"resume_from: there is no snapshot {snapshot} in {newest}{self._kept(newest)}")

    def _kept(self, uri: str) -> str:
        chain = chain_named(uri)
        labels = [each.point.label for each in foreign_catalog(self.storage, chain).list()]
        return f"; the chain holds {', '.join(labels)}" if labels else ""

    def warm_start(self, origin: ChainOrigin) -> str | None:
        if origin.warm_start is None:
            return None
        uri = self._own("warm_start", origin.warm_start)
        try:
            status = self.storage.status(uri)
        except StorageNotFound as error:
            raise SourceMissing(f"warm_start: {uri} does not exist") from error
        if not status.is_directory:
            raise SourceMissing(f"warm_start: {uri} is a file; name the directory that the model is in")
        if read_chain(self.storage, uri) is not None and choose_checkpoint(self.storage, uri) is None:
            raise SourceMissing(f"warm_start: {uri} holds no checkpoint yet")
        return status.path

    def _given(self, wanted: str) -> str:
        uri = self._own("resume_from", wanted)
        chain = chain_named(uri)
        if read_chain(self.storage, chain) is None:
            raise SourceMissing(
                f"resume_from: {uri} is not the directory of a chain or checkpoint; use the `checkpoint_chain` "
                "(…/chain-0001) or the `checkpoint_dir` (…/chain-0001/checkpoints/save-…) of a result"
            )
        return uri

    def _own(self, key: str, uri: str) -> str:
        if not in_store(uri, self.layout.root):
            raise SourceMissing(f"{key}: {uri!r} is not in the store of the staging directory, {self.layout.root}")
        try:
            return str(uris.parse(uri))
        except StorageInvalidPath as error:
            raise SourceMissing(f"{key}: {error}") from error


@attrs.frozen
class TrainingPlan:
    """The plan for a new application: its checkpoint chain, and the checkpoint or model that it starts with."""

    newest: ChainState | None  # the newest chain on the store
    goes_on: bool  # whether to continue the newest chain; if not, open a new chain
    about: ChainRecord  # content of ``chain.json`` in the application's chain
    why: str  # reason for ``goes_on``, for the Airflow task's log
    resume: ResumePoint | None = None  # the checkpoint from which the training resumes; None if there is none
    saved_in: str = ""  # URI of the chain with the checkpoint ``resume``; empty without one
    not_from: str = ""  # describes newer checkpoints that are not used, and why; empty if there are none

    @property
    def begins_again(self) -> bool:
        """Whether the training has a chain, but starts at step 0 in a new chain."""
        return self.newest is not None and not self.goes_on and self.resume is None

    def __str__(self) -> str:
        where = f"continues {self.newest.uri}" if self.goes_on and self.newest else "opens a new checkpoint chain"
        if self.resume is not None:
            whence = f"from {self.resume.label} in {self.saved_in}"
            whence += f", {self.not_from}" if self.not_from else ""
        else:
            whence = "from the beginning" + (
                f", warm-started from {self.about.warm_start}" if self.about.warm_start else ""
            )
        return f"{where} ({self.why}) and trains {whence}"


def plan_training(
    cluster: Cluster, chains: CheckpointChains, fingerprint: dict[str, str], resume: Resume, origin: ChainOrigin
) -> TrainingPlan:
    """Decide from which chain, checkpoint or model a new application of a training starts. Changes nothing.

    ``chains`` are the chains of this training. Raises SourceMissing if an origin does not exist; also ClusterError and
    StorageError.
    """
    newest = chains.newest()
    before = previous_application(cluster, chains.storage, chains.layout, chains.identity)
    choice = choose_chain(resume, newest, fingerprint, has_succeeded=before is not None and before.has_succeeded)
    kept = newest if choice.goes_on else None
    about = kept.about if kept is not None and kept.about is not None else new_chain()
    finder = OriginFinder(chains.storage, chains.layout)
    saved_in = kept.uri if kept is not None else None
    chosen = choose_checkpoint(chains.storage, saved_in) if saved_in is not None else None
    if chosen is None:
        # Only a training without own checkpoints resumes from the chain of another training.
        saved_in = finder.chain(origin) or about.continues
        chosen = choose_checkpoint(chains.storage, saved_in) if saved_in is not None else None
        about = attrs.evolve(about, continues=saved_in)
    about = attrs.evolve(about, fingerprint=fingerprint, warm_start=finder.warm_start(origin))
    if chosen is None or saved_in is None:
        return TrainingPlan(newest, choice.goes_on, about, choice.why)
    point = chosen.checkpoint.point
    return TrainingPlan(newest, choice.goes_on, about, choice.why, point, saved_in, chosen.not_from)
