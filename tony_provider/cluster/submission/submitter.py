"""Build an application's description and its submission, submit a job to the cluster, and preview a submission.

A SubmissionAttempt writes the application's files, becomes the owner of a checkpoint chain, and submits the
application. On an error, it undoes these steps. The job's viewers get read access to its records if the store supports
access lists.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import attrs

from tony_provider.cluster.application_secrets import application_secrets, registry_tokens
from tony_provider.cluster.checks.job_checks import shared_cache
from tony_provider.cluster.environments.built_environments import BuiltEnvironments, note_uses
from tony_provider.cluster.errors import (
    ClusterError,
    ClusterUnreachable,
    JobRejected,
    StagingFailed,
    SubmissionRefused,
    logging_errors,
    staging_errors,
)
from tony_provider.cluster.interface import Application, Submission, wait_for_end
from tony_provider.cluster.lifetime import zone_offsets
from tony_provider.cluster.open_cluster import OpenCluster
from tony_provider.cluster.records.history import Mask, SpecificationRecord, specification_record, suspect_nodes
from tony_provider.cluster.sources import LocalSource, Source
from tony_provider.cluster.submission.preparation import (
    PreparedSubmission,
    Stager,
    SubmissionRequest,
    places,
    prepare,
)
from tony_provider.cluster.token_refresh import check_token_life, warn_of_short_ticket
from tony_provider.cluster.training.checkpoint_chains import TakenOverError
from tony_provider.cluster.training.identity import Identity, Layout
from tony_provider.cluster.training.plan import TrainingPlan
from tony_provider.cluster.training.results import ApplicationFinder
from tony_provider.runtime.application import (
    SHARED_DIRECTORIES,
    ApplicationDescription,
    LocalAccess,
    LocalizedResource,
    YarnAccess,
    packed_description,
    readers_of,
)
from tony_provider.runtime.checkpoint.stored_checkpoint import Epoch, Owner
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.clock import epoch_ms
from tony_provider.runtime.common.codec import dump_json, to_plain
from tony_provider.runtime.common.python_packages import version_text
from tony_provider.runtime.common.quantities import count
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.jobspec.container_content import PYTHON_ENV_KEY, image_of_master
from tony_provider.runtime.jobspec.model import InputFormat, JobSpec
from tony_provider.runtime.parsing.parse import merge
from tony_provider.runtime.protocol.store_tokens import KEY_SERVER_PREFIX, METASTORE_PREFIX, StoreToken, other_tokens
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import (
    FileStatus,
    Readers,
    Right,
    Storage,
)
from tony_provider.runtime.storage.errors import StorageError, StorageExists, StorageNotEmpty

log = logging.getLogger(__name__)


@attrs.frozen
class Resources:
    """The files and archives that containers get from the store."""

    runtime: LocalizedResource
    runtime_pythons: list[str]
    of_tasks: list[LocalizedResource]  # for the tasks of every type
    by_type: dict[str, list[LocalizedResource]]  # additional resources for tasks of one type, by task type
    of_master: list[LocalizedResource]


_MOST_DESCRIPTION = 256 << 10  # bytes, compressed; YARN's store limits all data of an application to 1 MiB
_OPENING_TRIES = 5  # how often to try to open a chain if other tries of the Airflow task open chains concurrently


@attrs.define
class SubmissionBuilder(ABC):
    """Builds the submission of one application.

    A subclass changes the store, or only returns the files that a submission would write. The methods of subclasses
    raise StorageError.
    """

    prepared: PreparedSubmission = attrs.field(repr=False)
    application_id: str

    @property
    def directory(self) -> str:
        """URI of the application's directory."""
        return self.prepared.layout.application_dir(self.prepared.request.identity, self.application_id)

    @abstractmethod
    def stage(self, sources: Sequence[LocalSource]) -> list[LocalizedResource]:
        """Stage the sources; return the resources in the same order."""

    @abstractmethod
    def add_store_tokens(self, credentials: Credentials) -> None:
        """On clusters with Kerberos, add the tokens for the store and for other servers that the application names."""

    @abstractmethod
    def take(self, plan: TrainingPlan, description: ApplicationDescription) -> None:
        """Become the owner of the chain.

        Raises StorageExists if another try of the Airflow task has just opened the chain. The caller then makes a new
        plan.
        """

    @staging_errors()
    def build(self) -> Submission:
        """Stage the files, plan the training, become the owner of its checkpoint chain, and return the submission.

        Raises StagingFailed, SourceMissing, JobRejected, ClusterError.
        """
        prepared = self.prepared
        credentials = Credentials(
            registry_tokens(prepared.registries, self.application_id),
            application_secrets(self.application_id, prepared.request.secrets),
        )
        with ThreadPoolExecutor(1, thread_name_prefix="tony-staging") as beside:
            staging = beside.submit(self.stage, prepared.local_sources)
            self.add_store_tokens(credentials)
            plan = prepared.training.plan()
            resources = resources_of(prepared, staging.result())
        for _ in range(_OPENING_TRIES):
            description = self._describe(plan, resources, credentials)
            credentials.secrets[contract.SECRET_DESCRIPTION] = _packed(description)
            try:
                self.take(plan, description)
            except StorageExists:
                plan = prepared.training.plan()  # another try of this training was faster
                continue
            tags = [prepared.request.identity.tag, *(tag.lower() for tag in description.job.tags)]
            return Submission(description, resources.of_master, credentials, list(dict.fromkeys(tags)))
        raise StagingFailed("other tries of this training keep opening new checkpoint chains; retry the task")

    def _describe(self, plan: TrainingPlan, resources: Resources, credentials: Credentials) -> ApplicationDescription:
        """Return the description, without secrets, that all containers of the application read. Raises ClusterError."""
        opened, request = self.prepared.opened, self.prepared.request
        job, cluster, settings = self._with_tables(plan), opened.cluster, opened.settings
        access = cluster.access(self.application_id, job)
        return ApplicationDescription(
            application_id=self.application_id,
            user=cluster.user,
            job=job,
            application_dir=self.directory,
            webhdfs=opened.nodes_webhdfs,
            resources=resources.of_tasks,
            resources_by_type=resources.by_type,
            runtime=resources.runtime,
            runtime_pythons=resources.runtime_pythons,
            python=settings.python,
            yarn=access if isinstance(access, YarnAccess) else None,
            local=access if isinstance(access, LocalAccess) else None,
            master_lost_after=cluster.master_lost_after(),
            shared_checkpoints=self._shared_checkpoints(),
            chain_dir=self.prepared.training.chain_uri(plan),
            epoch=self.prepared.before.number + 1,
            continues=plan.about.continues,
            warm_start=plan.about.warm_start,
            hadoop=cluster.client_configuration() if job.hadoop else {},
            gpu_dealing=settings.gpu_dealing,
            training=request.identity.name,
            labels=dict(request.labels),
            submitted_ms=epoch_ms(),
            environment=dict(request.environment),
            other_hdfs=opened.other_hdfs,
            zone_offsets=zone_offsets(job.windows.zone, time.time()) if job.windows else [],
            key_server=_token_name(credentials, KEY_SERVER_PREFIX),
            hive_metastore=_token_name(credentials, METASTORE_PREFIX),
            lost_nodes_dir=self.prepared.layout.lost_nodes_dir,
            fingerprint=self.prepared.fingerprint,
            lineage_file=self.prepared.layout.lineage_file(request.identity),
            avoided_nodes=self._avoided_nodes(),
            authority=credentials.secrets[contract.SECRET_CA].decode(),
        )

    def _avoided_nodes(self) -> list[str]:
        least = self.prepared.opened.settings.avoid_nodes_after
        if least is None:
            return []
        try:
            found = suspect_nodes(self.prepared.opened.storage, self.prepared.layout.lost_nodes_dir, epoch_ms())
        except StorageError as error:
            log.warning("The job avoids no nodes (avoid_nodes_after), because their records cannot be read: %s", error)
            return []
        return [each.node for each in found if each.is_avoided(least)]

    def _with_tables(self, plan: TrainingPlan) -> JobSpec:
        """Return the job with the list of each table's files as the path of its input."""
        job, training = self.prepared.request.job, self.prepared.training
        lists = training.table_list_uris(training.chain_uri(plan))
        listed = {name: attrs.evolve(job.inputs[name], paths=[uri]) for name, uri in lists.items()}
        return attrs.evolve(job, inputs={**job.inputs, **listed})

    def _shared_checkpoints(self) -> str:
        opened, request = self.prepared.opened, self.prepared.request
        if opened.settings.shared_dir is None or not request.job.checkpoint.shared:
            return ""
        return str(opened.settings.shared_dir / f"tony-{opened.cluster.user}" / request.identity.name)


def _token_name(credentials: Credentials, prefix: str) -> str:
    """Return the name of the token whose name has this prefix, or an empty string if there is none."""
    return next((name for name in other_tokens(credentials.secrets) if name.startswith(prefix)), "")


def _packed(description: ApplicationDescription) -> bytes:
    packed = packed_description(description)
    if len(packed) > _MOST_DESCRIPTION:
        raise JobRejected(
            [
                f"its description has {len(packed)} bytes (compressed), and the limit is {_MOST_DESCRIPTION}. It names "
                f"{count(len(description.resources), 'file')}: pack them into an archive"
            ]
        )
    return packed


def resources_of(prepared: PreparedSubmission, staged: list[LocalizedResource]) -> Resources:
    """Return the resources of the containers. ``staged`` has the resources of ``local_sources``, in their order."""
    runtime = prepared.runtime
    if isinstance(runtime, LocalSource):
        runtime, staged = staged[0], staged[1:]
    local = zip(prepared.sources.local, staged, strict=True)
    uses: list[tuple[Source, LocalizedResource]] = [
        *local,
        *((each, each.resource) for each in prepared.sources.stored),
    ]
    by_type = {
        task_type: own
        for task_type in prepared.request.job.tasks
        if (own := [resource for source, resource in uses if source.task_type == task_type])
    }
    of_tasks = [resource for source, resource in uses if source.task_type is None]
    pythons = [version_text(each) for each in sorted(prepared.nodes.versions)]
    return Resources(runtime, pythons, of_tasks, by_type, _of_master(prepared, uses))


def _of_master(
    prepared: PreparedSubmission, uses: Sequence[tuple[Source, LocalizedResource]]
) -> list[LocalizedResource]:
    """Return the job's Python environment for the application master, or [] if another Python can run the master.

    The environment can be large, so the master gets it only if it may need its Python. It may need this Python if the
    connection names no Python on the nodes, or if the master runs in an image.
    """
    content = prepared.environments.get(PYTHON_ENV_KEY)
    named_for_nodes = prepared.opened.settings.python and image_of_master(prepared.request.job) is None
    if named_for_nodes or (content is not None and not content.brings_python):
        return []
    return [resource for source, resource in uses if source.key == PYTHON_ENV_KEY][:1]


_OTHERS_PASS = 0o001


def share_records(storage: Storage, layout: Layout, identity: Identity, application_id: str, job: JobSpec) -> None:
    """Give the job's viewers read access to the existing records. Containers share the records that they write. Blocks.

    If the store does not support access lists, only log a warning, because the job still works.
    """
    readers = readers_of(job)
    if not readers:
        return
    directory = layout.application_dir(identity, application_id)
    way = [layout.root, layout.jobs_dir, layout.job_dir(identity), layout.applications_dir(identity)]
    try:
        for uri in way:
            if not _others_pass(status := storage.status(uri)):
                storage.let_pass(status, readers)
        storage.share(directory, readers, Right.PASS)
        for name in SHARED_DIRECTORIES:
            storage.make_directories(uris.join(directory, name))
            storage.share(uris.join(directory, name), readers, Right.LIST)
        storage.share(uris.join(directory, contract.HISTORY_DIR, contract.SPECIFICATION_FILE), readers, Right.READ)
        _warn_of_closed_directories(storage, layout.root, readers)
    except StorageError as error:
        log.warning("acls: only the job's owner can read its logs, status and history on the store: %s", error)


def _warn_of_closed_directories(storage: Storage, root: str, readers: Readers) -> None:
    """Warn about directories above the staging directory that viewers cannot enter. Only their owners can open them."""
    above = uris.parse(root).parent
    while above.path != "/":
        if not _others_pass(storage.status(str(above))):
            log.warning(
                "acls: not all users can pass through %s; users with view access reach the job's files only if "
                "the access list of that directory includes them: hdfs dfs -setfacl -m %s %s",
                above,
                ",".join(readers.named(Right.PASS)) or "other::--x",
                above.path,
            )
        above = above.parent


def _others_pass(status: FileStatus) -> bool:
    return status.permission is None or bool(status.permission & _OTHERS_PASS)


_END_SECONDS = 60.0  # time limit for an application's end after its kill


@attrs.define
class SubmissionAttempt(SubmissionBuilder):
    """Starts one application under a new id: becomes the owner of its chain, writes its files, and submits it.

    Records its changes so that ``undo`` can revert them on any error.
    """

    _chain_uri: str = ""
    _chain_opened: bool = False  # whether this attempt has opened the chain
    _taken: Epoch | None = None  # the owner that this attempt has added; None until then
    _token: StoreToken | None = attrs.field(default=None, repr=False)  # secret
    _handed_over: bool = False  # whether the cluster may have started the application

    @property
    def _opened(self) -> OpenCluster:
        return self.prepared.opened

    def keep(self, specification: SpecificationRecord) -> None:
        """Write the specification for the job's history, and give the job's viewers access. Raises StagingFailed."""
        self._note_environments()
        uri = uris.join(self.directory, contract.HISTORY_DIR, contract.SPECIFICATION_FILE)
        with staging_errors():
            self._opened.storage.write_record(uri, dump_json(specification))
        request = self.prepared.request
        share_records(self._opened.storage, self.prepared.layout, request.identity, self.application_id, request.job)

    def _note_environments(self) -> None:
        """Record that the job uses its built environments.

        Also record that environments of the shared cache were verified, so that later jobs need not read them again.
        """
        built = [each for each in self.prepared.environments.values() if each.built]
        note_uses(BuiltEnvironments(self._opened.storage, self.prepared.layout), [each.python_env for each in built])
        shared = shared_cache(self._opened)
        for each in built:
            if shared is not None and each.shared:
                shared.note_checked(self._opened.storage.status(each.python_env))

    def hand_over(self, submission: Submission, before_submit: Callable[[str], object] | None) -> None:
        """Submit the application. Raises SubmissionRefused, and the errors of ``before_submit``."""
        if before_submit is not None:
            # Called last, because the steps above take time and the caller can still cancel the submission here.
            before_submit(self.application_id)
        self._handed_over = True
        try:
            self._opened.cluster.submit(submission)
        except SubmissionRefused:
            self._handed_over = False
            raise

    # -- the changes of the store ------------------------------------------------------------------------------------

    def stage(self, sources: Sequence[LocalSource]) -> list[LocalizedResource]:
        stager = Stager(self._opened.storage, self.prepared.layout)
        staged = stager.stage(sources)
        log.info("Staged the job's files: %s", stager.counts)
        return staged

    def add_store_tokens(self, credentials: Credentials) -> None:
        if self._opened.tokens is not None:
            hadoop = self.prepared.request.job.hadoop
            self._token = self._opened.tokens.fetch(credentials, hive=hadoop is not None and hadoop.hive)
            yarn = self._opened.settings.yarn
            if yarn is None or yarn.master_keytab is not None:
                return
            if self.prepared.request.watched:
                warn_of_short_ticket(self._opened.tokens.ticket_until(), self._token, self.prepared.request.job)
            elif not yarn.renews_tokens:
                check_token_life(self._token, self.prepared.request.job)

    def take(self, plan: TrainingPlan, description: ApplicationDescription) -> None:
        """See SubmissionBuilder. Afterwards, no other application of the training can commit checkpoints."""
        self._chain_uri = description.chain_dir
        self._open(plan)
        self._own()
        self._keep_tables()
        # Log a warning if the training starts at step 0 although it has checkpoints, because users easily miss this.
        log.log(logging.WARNING if plan.begins_again else logging.INFO, "%s %s", self.application_id, plan)

    def _open(self, plan: TrainingPlan) -> None:
        if not plan.goes_on or plan.newest is None:
            self.prepared.training.chains.open(self._chain_uri, plan.about)
            self._chain_opened = True
        elif plan.about != plan.newest.about:
            self.prepared.training.chains.rewrite(self._chain_uri, plan.about)

    def _keep_tables(self) -> None:
        """Write the list of each table, unless an earlier application of the chain has written it."""
        job, storage = self.prepared.request.job, self._opened.storage
        for name, uri in self.prepared.training.table_list_uris(self._chain_uri).items():
            listed = self.prepared.tables.get(name)
            if listed is not None:
                with suppress(StorageExists):
                    storage.write(uri, b"".join(each.line() for each in listed))
                    what = "file" if job.inputs[name].format is InputFormat.ICEBERG else "partition"
                    log.info("The input %s reads %s of its table: %s", name, count(len(listed), what), uri)
                    continue
            elif not storage.exists(uri):
                raise StagingFailed(f"the list of the table of inputs.{name} was removed meanwhile; retry the task")
            log.info("The input %s reads the partitions or the snapshot of the chain's first try: %s", name, uri)

    def _own(self) -> None:
        owner = Owner(self.application_id, uris.name(self._chain_uri), self.prepared.request.whose)
        owners, before = self.prepared.training.chains.owners, self.prepared.before
        try:
            self._taken = owners.add(before.number, owner)
        except TakenOverError:
            newest = owners.newest()  # continue if the only change is a request to end the former application
            if newest.owner != attrs.evolve(before.owner, stop=newest.owner.stop):
                raise
            self._taken = owners.add(newest.number, owner)

    @staging_errors()
    def keep_description(self, description: ApplicationDescription) -> None:
        """Write the description for clients of the application. Raises StagingFailed."""
        uri = self.prepared.description_uri(self.application_id)
        self._opened.storage.write_record(uri, dump_json(description))

    # -- one application of the training ------------------------------------------------------------------------------

    def end_others(self) -> None:
        """End the training's other applications, so that only one works. The new owner must already be written.

        This method finds the applications that were submitted before the owner was written. An application that is
        submitted later ends itself, because its master finds that another application is the owner.
        """
        for application in self._living():
            if application.id != self.application_id:
                self._check_owner()  # an application that has taken over must not be killed
                log.warning("Ending %s, another application of this training", application.id)
                self._opened.cluster.kill(application.id, f"{self.application_id} takes over its training")
                self._await_end(application.id)
        self._check_owner()

    @staging_errors()
    def _living(self) -> list[Application]:
        finder = ApplicationFinder(self._opened.cluster, self._opened.storage, self.prepared.layout)
        return finder.live_of(self.prepared.request.identity)

    def _check_owner(self) -> None:
        with staging_errors():
            owned = self.prepared.training.chains.owners.newest() == self._taken
        if not owned:
            raise TakenOverError(f"another try of this training has taken over {self._chain_uri}")

    def _await_end(self, application_id: str) -> None:
        left = wait_for_end(lambda: self._opened.cluster.application(application_id), _END_SECONDS)
        if left is not None:
            raise ClusterUnreachable(f"{application_id} was killed and is still {left.state}")

    def _is_wanted(self) -> bool:
        """Return whether another try of the Airflow task waits for this application, which YARN may have started.

        Return False if the owner cannot be read, because then perhaps no try waits for the application.
        """
        try:
            owner = self.prepared.training.chains.owners.newest().owner
        except (ClusterError, StorageError) as error:
            log.warning("Cannot read the owner of the training of %s: %s", self.application_id, error)
            return False
        return owner.application_id == self.application_id and owner.whose != self.prepared.request.whose

    # -- undo --------------------------------------------------------------------------------------------------------

    def undo(self) -> None:
        """Revert the attempt's changes. Failures are only logged, because another error is being raised."""
        with logging_errors(log.warning, "%s may have been started, and may still run", self.application_id):
            if self._handed_over and self._is_wanted():
                log.warning(
                    "leaving %s running, because another try of the Airflow task waits for it", self.application_id
                )
                return
            if self._handed_over:
                self._opened.cluster.kill(self.application_id, "its submission failed before it was complete")
                self._await_end(self.application_id)  # it may still write into directories that are removed below
            self._opened.cluster.forget(self.application_id)
        if self._token is not None and self._opened.tokens is not None:
            self._opened.tokens.cancel(self._token)
        with (
            logging_errors(log.warning, "Cannot remove the files and records of %s", self.application_id),
            suppress(StorageNotEmpty),  # another application of this training has left something there
        ):
            self._opened.storage.remove(self.directory, recursive=True)
            if not self._handed_over:  # otherwise the application master may already use the chain
                if self._taken is not None:
                    self.prepared.training.chains.owners.give_back(self._taken, self.prepared.before)
                if self._chain_opened:
                    self.prepared.training.chains.abandon(self._chain_uri)
            for parent in (uris.parent(self.directory), self.prepared.layout.job_dir(self.prepared.request.identity)):
                self._opened.storage.remove(parent)


def submit(
    opened: OpenCluster,
    request: SubmissionRequest,
    before_submit: Callable[[str], object] | None = None,
    *,
    mask: Mask,
) -> str:
    """Submit the job; return the application id. See ``TonyHook.submit``."""
    prepared = prepare(opened, request)
    application_id = opened.cluster.new_application()
    attempt = SubmissionAttempt(prepared, application_id)
    try:
        laid_over = merge(request.overrides or {}, request.advice or {})
        specification = specification_record(
            prepared.request.job, request.given, laid_over, mask, prepared.environments, prepared.kept_resources
        )
        with ThreadPoolExecutor(2, thread_name_prefix="tony-records") as beside:
            kept = beside.submit(attempt.keep, specification)
            submission = attempt.build()
            described = beside.submit(attempt.keep_description, submission.description)
            kept.result()
            described.result()
            attempt.end_others()
        attempt.hand_over(submission, before_submit)
    except BaseException:
        # BaseException: also undo if the task times out or is killed, because only this attempt knows its changes.
        attempt.undo()
        raise
    return application_id


# Placeholder in previews for the id, which the cluster assigns at the submission.
APPLICATION_ID = "application_0_0000"
_NOT_WRITTEN = 0  # modification time of a file that is not on the store yet


@attrs.frozen
class Preview:
    """The files, description and request of a submission, as plain JSON."""

    staged: dict[str, str]  # file of this machine -> its URI in the cache, uploaded if it is missing
    description: dict[str, Any]  # read by every container
    request: dict[str, Any]  # sent to the cluster; secrets are masked


def preview(opened: OpenCluster, request: SubmissionRequest) -> Preview:
    """Return the files and requests of a submission without submitting. Raises the errors of ``submit``.

    Changes nothing, and uses the same code as ``submit``.
    """
    prepared = prepare(opened, request)
    submission = _PreviewBuilder(prepared, APPLICATION_ID).build()
    staged = {str(source.path): uri for source, uri in places(prepared.layout, prepared.local_sources)}
    return Preview(staged, to_plain(submission.description), opened.cluster.request(submission))


class _PreviewBuilder(SubmissionBuilder):
    """Builds a submission without changes on the store, from the values that staging would return."""

    def stage(self, sources: Sequence[LocalSource]) -> list[LocalizedResource]:
        return [
            LocalizedResource(source.name, uri, source.size, _NOT_WRITTEN, source.kind, source.sha256)
            for source, uri in places(self.prepared.layout, sources)
        ]

    def add_store_tokens(self, credentials: Credentials) -> None:
        if (tokens := self.prepared.opened.tokens) is not None:
            tokens.pretend(credentials)

    def take(self, plan: TrainingPlan, description: ApplicationDescription) -> None:
        """Do nothing."""
