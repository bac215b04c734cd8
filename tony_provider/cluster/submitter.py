"""One submission, from a job to a started application, or to an error that leaves nothing behind."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs

from tony_provider.cluster.base import Submission
from tony_provider.cluster.credentials import application_secrets
from tony_provider.cluster.errors import ClusterError, JobRejected, SourceMissing, StagingFailed, SubmissionRefused
from tony_provider.cluster.identity import Identity
from tony_provider.cluster.layout import Layout
from tony_provider.cluster.open import OpenCluster
from tony_provider.cluster.runtime_archive import worker_archive
from tony_provider.cluster.sources import (
    LocalSource,
    SourceFinder,
    Sources,
    in_store,
    is_archived,
    local_source,
    stored_resource,
)
from tony_provider.cluster.staging import Stager
from tony_provider.runtime import contract
from tony_provider.runtime.application import (
    ApplicationDescription,
    LocalAccess,
    LocalizedResource,
    ResourceKind,
    YarnAccess,
)
from tony_provider.runtime.codec import dump_json
from tony_provider.runtime.frameworks.base import fits
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.spec.model import JobSpec
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.errors import StorageError, StorageNotEmpty, StorageNotFound
from tony_provider.runtime.storage.helpers import write_atomically
from tony_provider.runtime.text import is_writable

log = logging.getLogger(__name__)


@attrs.frozen
class Submitter:
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
        before_submit: Callable[[str], None] | None = None,
    ) -> str:
        """See ``TonyHook.submit``."""
        job = with_defaults(job, self.opened.settings.queue)
        if found := _secret_problems(job, secrets):
            raise JobRejected(found)
        self.opened.cluster.check(job)
        sources = SourceFinder(self.opened.storage, self.opened.staging_dir, search_path).find(job)
        runtime = self._runtime()
        application_id = self.opened.cluster.new_application()
        attempt = _Attempt(self.opened, self._layout, identity, application_id)
        try:
            resources = self._stage(runtime, sources)
            attempt.start(job, resources, secrets, labels, before_submit)
        except BaseException:
            # Also when the task is timed out or killed meanwhile: nobody else knows of what was made.
            attempt.undo()
            raise
        return application_id

    def _runtime(self) -> LocalSource | LocalizedResource:
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

    def _stage(self, runtime: LocalSource | LocalizedResource, sources: Sources) -> _Resources:
        stager = Stager(self.opened.storage, self._layout)
        local = [runtime, *sources.local] if isinstance(runtime, LocalSource) else sources.local
        staged = stager.stage(local)
        log.info("Staged the job's files: %s", stager.counts)
        if isinstance(runtime, LocalSource):
            runtime, staged = staged[0], staged[1:]
        return _Resources(runtime, [*staged, *sources.stored])


@attrs.frozen
class _Resources:
    runtime: LocalizedResource
    of_tasks: list[LocalizedResource]


@attrs.define
class _Attempt:
    """What is made for one application id, so that it can be undone."""

    opened: OpenCluster
    layout: Layout
    identity: Identity
    application_id: str
    _token: str | None = attrs.field(default=None, repr=False)  # whoever has it reads and writes as its user
    _handed_over: bool = False  # the cluster may have started it

    def start(
        self,
        job: JobSpec,
        resources: _Resources,
        secrets: Mapping[str, str],
        labels: Mapping[str, str],
        before_submit: Callable[[str], None] | None,
    ) -> None:
        description = self._description(job, resources, labels)
        credentials = Credentials(secrets=application_secrets(self.application_id, secrets))
        if before_submit is not None:
            before_submit(self.application_id)
        try:
            if self.opened.tokens is not None:
                self._token = self.opened.tokens.fetch(credentials)
            description_file = self._write(description)
        except StorageError as error:
            raise StagingFailed(f"the job could not be staged: {error}") from error
        submission = Submission(
            description=description,
            description_file=description_file,
            am_resources=[resources.runtime, description_file, *_am_environment(description)],
            credentials=credentials,
            tags=list(dict.fromkeys([self.identity.tag, *(tag.lower() for tag in job.tags)])),
        )
        self._handed_over = True
        try:
            self.opened.cluster.submit(submission)
        except SubmissionRefused:
            self._handed_over = False
            raise

    def _description(self, job: JobSpec, resources: _Resources, labels: Mapping[str, str]) -> ApplicationDescription:
        access = self.opened.cluster.access(self.application_id)
        return ApplicationDescription(
            application_id=self.application_id,
            user=self.opened.cluster.user,
            job=job,
            application_dir=self.layout.application_dir(self.identity, self.application_id),
            webhdfs=self.opened.nodes_webhdfs,
            resources=resources.of_tasks,
            runtime=resources.runtime,
            python=_interpreters(job, self.opened.settings.python),
            yarn=access if isinstance(access, YarnAccess) else None,
            local=access if isinstance(access, LocalAccess) else None,
            master_lost_after=self.opened.cluster.master_lost_after(),
            labels=dict(labels),
        )

    def _write(self, description: ApplicationDescription) -> LocalizedResource:
        directory = self.layout.staging_dir(self.identity, self.application_id)
        uri = uris.join(directory, contract.APPLICATION_FILE)
        status = write_atomically(self.opened.storage, uri, dump_json(description))
        return stored_resource(status, contract.APPLICATION_FILE)

    def undo(self) -> None:
        """Remove what was made; what cannot be removed is logged, since another error is on its way."""
        try:
            if self._handed_over:
                self.opened.cluster.kill(self.application_id, "its submission failed half-way")
            self.opened.cluster.forget(self.application_id)
        except ClusterError as error:
            log.warning("%s may have been started and could not be killed: %s", self.application_id, error)
        if self._token is not None and self.opened.tokens is not None:
            self.opened.tokens.cancel(self._token)
        directory = self.layout.application_dir(self.identity, self.application_id)
        try:
            self.opened.storage.remove(directory, recursive=True)
            for parent in (uris.parent(directory), self.layout.job_dir(self.identity)):
                self.opened.storage.remove(parent)
        except StorageNotEmpty:
            pass  # another application of this training has left something there
        except StorageError as error:
            log.warning("%s could not be removed: %s", directory, error)


def with_defaults(job: JobSpec, queue: str | None) -> JobSpec:
    return attrs.evolve(job, queue=queue) if job.queue is None else job


def _interpreters(job: JobSpec, configured: Sequence[str]) -> list[str]:
    """The Pythons that the launcher tries first: the job's environment, then the connection's."""
    if job.python_env is None:
        return list(configured)
    environment = contract.PYTHON_ENV_DIR if is_archived(job.python_env) else job.python_env.removeprefix("file://")
    return [f"{environment}/bin/python", *configured]


def _am_environment(description: ApplicationDescription) -> list[LocalizedResource]:
    """The job's environment for the application master too, unless the connection names a Python on the nodes.

    It can be large; but where the nodes have no Python of their own, nothing else could run the master.
    """
    found = [resource for resource in description.resources if resource.name == contract.PYTHON_ENV_DIR]
    return found if len(description.python) == 1 else []


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
