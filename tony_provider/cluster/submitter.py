"""One submission, from a job to a started application, or to an error that leaves nothing behind."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs

from tony_provider.cluster.chain_choice import Resume
from tony_provider.cluster.chain_origin import ChainOrigin
from tony_provider.cluster.description import Resources
from tony_provider.cluster.errors import JobRejected, SourceMissing, StagingFailed
from tony_provider.cluster.fingerprint import fingerprint
from tony_provider.cluster.identity import Identity
from tony_provider.cluster.layout import Layout
from tony_provider.cluster.open import OpenCluster
from tony_provider.cluster.runtime_archive import worker_archive
from tony_provider.cluster.settings import Settings
from tony_provider.cluster.sources import LocalSource, SourceFinder, Sources, in_store, local_source, stored_resource
from tony_provider.cluster.staging import Stager
from tony_provider.cluster.submission_attempt import SubmissionAttempt
from tony_provider.cluster.training_plan import TrainingPlan, TrainingPlanner
from tony_provider.runtime import contract
from tony_provider.runtime.application import LocalizedResource, ResourceKind
from tony_provider.runtime.frameworks.base import fits
from tony_provider.runtime.spec.model import JobSpec
from tony_provider.runtime.storage.errors import StorageError, StorageNotFound
from tony_provider.runtime.text import is_writable

log = logging.getLogger(__name__)


@attrs.frozen
class Submitter:
    """Submits jobs to one cluster: checks, stages, plans and starts, or leaves nothing behind."""

    opened: OpenCluster

    @property
    def _layout(self) -> Layout:
        return Layout(self.opened.staging_dir)

    def submit(
        self,
        job: JobSpec,
        *,
        identity: Identity,
        secrets: Mapping[str, str],
        labels: Mapping[str, str],
        search_path: Sequence[Path],
        resume: Resume,
        origin: ChainOrigin,
        before_submit: Callable[[str], None] | None = None,
    ) -> str:
        """Submit the job; returns the application id. See ``TonyHook.submit``."""
        job = self.checked(job, secrets)
        sources = self.sources(job, search_path)
        planner = TrainingPlanner(self.opened.cluster, self.opened.storage, self._layout, identity)
        trained = fingerprint(job, sources)

        def plan() -> TrainingPlan:
            try:
                return planner.plan(trained, resume, origin)
            except StorageError as error:
                raise StagingFailed(f"the job could not be staged: {error}") from error

        plan()  # an origin that is not there is told before anything is done
        runtime = self.runtime()
        application_id = self.opened.cluster.new_application()
        attempt = SubmissionAttempt(self.opened, self._layout, identity, application_id)
        try:
            resources = self._stage(runtime, sources)
            attempt.start(job, resources, secrets, labels, plan, before_submit)
        except BaseException:
            # Also when the task is timed out or killed meanwhile: nobody else knows of what was made.
            attempt.undo()
            raise
        return application_id

    def checked(self, job: JobSpec, secrets: Mapping[str, str]) -> JobSpec:
        """The job with the connection's defaults, checked against the cluster. Raises JobRejected."""
        job = with_defaults(job, self.opened.settings)
        if found := _secret_problems(job, secrets):
            raise JobRejected(found)
        self.opened.cluster.check(job)
        return job

    def sources(self, job: JobSpec, search_path: Sequence[Path]) -> Sources:
        """The files that the job names, found. Raises SourceMissing."""
        return SourceFinder(self.opened.storage, self.opened.staging_dir, search_path).find(job)

    def runtime(self) -> LocalSource | LocalizedResource:
        archive = self.opened.settings.runtime_archive
        if archive is not None and in_store(archive, self.opened.staging_dir):
            try:
                status = self.opened.storage.status(archive)
            except StorageNotFound as error:
                raise SourceMissing(f"the tony connection's runtime_archive is not there: {error}") from error
            return stored_resource(status, contract.RUNTIME_DIR, ResourceKind.ARCHIVE)
        path = worker_archive() if archive is None else Path(archive.removeprefix("file://"))
        try:
            return local_source(path, contract.RUNTIME_DIR, ResourceKind.ARCHIVE)
        except OSError as error:
            raise SourceMissing(f"the tony connection's runtime_archive cannot be read: {error}") from error

    def _stage(self, runtime: LocalSource | LocalizedResource, sources: Sources) -> Resources:
        stager = Stager(self.opened.storage, self._layout)
        staged = stager.stage(with_runtime(runtime, sources))
        log.info("Staged the job's files: %s", stager.counts)
        return resources_of(runtime, sources, staged)


def with_runtime(runtime: LocalSource | LocalizedResource, sources: Sources) -> list[LocalSource]:
    """All files that are to be staged: the runtime archive, if it is not on the store, and the job's."""
    return [runtime, *sources.local] if isinstance(runtime, LocalSource) else sources.local


def resources_of(
    runtime: LocalSource | LocalizedResource, sources: Sources, staged: list[LocalizedResource]
) -> Resources:
    """The files of containers, now that all are on the store.

    :param staged: what ``with_runtime`` gave, in its order.
    """
    if isinstance(runtime, LocalSource):
        runtime, staged = staged[0], staged[1:]
    return Resources(runtime, [*staged, *sources.stored])


def with_defaults(job: JobSpec, settings: Settings) -> JobSpec:
    """The job with what the connection says where the job says nothing."""
    if job.queue is None:
        job = attrs.evolve(job, queue=settings.queue)
    if job.logs.max_size is None:
        job = attrs.evolve(job, logs=attrs.evolve(job.logs, max_size=settings.log_size))
    return job


def _secret_problems(job: JobSpec, secrets: Mapping[str, str]) -> list[str]:
    """The values are not shown."""
    missing = [name for name in job.secrets if name not in secrets]
    advice = "give it to the operator, in its argument secrets"
    found = [f"secrets: no value was given for {name!r}; {advice}" for name in missing]
    for name, value in secrets.items():
        if "\0" in value:
            found.append(f"secrets.{name}: its value holds a NUL character, which no environment variable can")
        elif not is_writable(value):
            found.append(f"secrets.{name}: its value is no text that UTF-8 can write")
        elif not fits(name, value):
            found.append(f"secrets.{name}: its value is too long: Linux takes at most 128 KiB; use a file")
    return found
