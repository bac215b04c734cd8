"""The life of an application master: start in its container, registration, recovery, the job, and the final status.

The module also chooses the backend (YARN or the local cluster) and handles SIGTERM and SIGINT.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Optional

import attrs

from tony_provider.runtime import application
from tony_provider.runtime.am import message_limits
from tony_provider.runtime.am.checkpoint_chain import OwnChain, Ownership, SupersededError
from tony_provider.runtime.am.executor_server import ExecutorService, Server
from tony_provider.runtime.am.input_shards import OpenedInput, close_inputs, open_inputs
from tony_provider.runtime.am.lineage_writer import keep_lineage
from tony_provider.runtime.am.master import DismissedError, ExecutorLaunches, JobData, Master
from tony_provider.runtime.am.output_publisher import OutputPublisher
from tony_provider.runtime.am.records import (
    ApplicationRecords,
    PreviousMasters,
    RecoveredState,
    read_recovered_state,
    retry_until_reachable,
)
from tony_provider.runtime.am.resource_manager import Registered, ResourceManager, ResourceManagerError
from tony_provider.runtime.am.session import job_status
from tony_provider.runtime.am.session.actions import Verdict
from tony_provider.runtime.am.session.session_events import StopOrder
from tony_provider.runtime.am.token_replacement import StoreAccess
from tony_provider.runtime.am.web.authentication import Authenticator, proxy_tls, remove_files
from tony_provider.runtime.am.web.control import token_route
from tony_provider.runtime.am.web.web_app import WebApp
from tony_provider.runtime.application import ApplicationDescription, ContainerError, YarnAccess, open_application_store
from tony_provider.runtime.common import clock, contract
from tony_provider.runtime.common.clock import epoch_ms
from tony_provider.runtime.common.concurrency import wait_with_timeout
from tony_provider.runtime.common.helper_processes import keep_memory_private
from tony_provider.runtime.frameworks.base import get_framework
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.hadoop.yarn_records import ContainerId
from tony_provider.runtime.inputs.finding import BadInputError
from tony_provider.runtime.jobspec.container_content import images
from tony_provider.runtime.jobspec.model import AfterSuccess
from tony_provider.runtime.outputs.publication import PublishError
from tony_provider.runtime.protocol import master_files
from tony_provider.runtime.protocol.http_messages import master_context
from tony_provider.runtime.protocol.limits import without_foreign_places
from tony_provider.runtime.protocol.status import Failure, FailureKind, FinalStatus, JobState, JobStatus
from tony_provider.runtime.protocol.task_identity import secret
from tony_provider.runtime.storage import Storage, StorageError

log = logging.getLogger(__name__)


@attrs.frozen
class MasterContext:
    """The data that an application master reads from its container: job, credentials, node and attempt."""

    description: ApplicationDescription
    credentials: Credentials = attrs.field(repr=False)
    host: str  # name by which other nodes reach this node
    attempt: int
    user: str = ""  # user account in which the cluster runs this process

    @classmethod
    def of_process(cls, environ: Mapping[str, str]) -> MasterContext:
        """Read the context from this process's environment and credentials. Raises ContainerError."""
        credentials = application.take_credentials(environ)
        remove_files(environ)
        description = application.read_description(credentials.secrets)
        container_id = application.required_variable(environ, contract.ENV_CONTAINER_ID)
        try:
            container = ContainerId.parse(container_id)
            get_framework(description.job.framework)
        except (ValueError, LookupError) as error:
            raise ContainerError(str(error)) from error
        host = application.required_variable(environ, contract.ENV_NODE_HOST)
        user = environ.get(contract.ENV_USER, "")
        return cls(description, credentials, host, container.attempt.number, user)


async def run(context: MasterContext) -> FinalStatus:
    """Run an application master and return how the application ended.

    Raises errors that occur before the registration. Later errors end the application with a final status.
    """
    description = context.description
    message_limits.raise_open_files_limit(description.job.size)
    with open_application_store(description, context.credentials.secrets) as storage:
        resource_manager = open_resource_manager(description, context.credentials)
        try:
            return await serve(context, storage, resource_manager)
        finally:
            await resource_manager.close()


async def serve(context: MasterContext, storage: Storage, resource_manager: ResourceManager) -> FinalStatus:
    """Run an application master with an open store and cluster, without closing them. See ``run``."""
    description, secrets = context.description, context.credentials.secrets
    address_key = secret(secrets, contract.SECRET_ADDRESS_KEY)
    ownership = Ownership(storage, description, context.attempt, address_key)
    chain = OwnChain(ownership)
    access = StoreAccess(description, context.credentials, storage)
    tasks = description.job.size
    server = Server.bind(
        secrets,
        context.host,
        description.job.port_range,
        connections=message_limits.executor_connection_limit(tasks),
        tasks=tasks,
    )
    web_app: Optional[WebApp] = None
    try:
        authenticator = open_authenticator(description, context.user)
        user_secrets = list(contract.user_secrets(secrets).values())
        sealed = await asyncio.to_thread(master_context, secrets)
        tokens = token_route(access, sealed)
        tls = await asyncio.to_thread(proxy_tls, secrets)
        web_app = await WebApp.open(
            description, storage, context.host, authenticator, sealed, tokens=tokens, secrets=user_secrets, tls=tls
        )
        registered = await resource_manager.register(
            host=server.address.host, port=server.address.port, tracking_url=web_app.url
        )
        web_app.authenticator.learn(registered.access_lists)
        log.info("registered with the cluster; executors connect to this application master at %s", server.address)
        log.info("the job page is at %s", web_app.url)
        await web_app.begin()
        lifecycle = MasterLifecycle(context.credentials, resource_manager, ownership, chain, server, web_app, access)
        return await lifecycle.live(registered)
    except SupersededError as error:
        log.info("exiting: %s", error)
        return FinalStatus.KILLED
    finally:
        chain.close()
        await server.stop()
        if web_app:
            await web_app.close()


_LAST_LOGS = 10.0  # seconds at most to store the last logs, and to replace records by files
_MOST_DIAGNOSTICS = 8192  # characters; ResourceManagers keep 64 KiB of an attempt's diagnostics


@attrs.frozen
class MasterLifecycle:
    """The life of a registered application master, from recovery to the final status. ``live`` may be called once."""

    credentials: Credentials = attrs.field(repr=False)
    resource_manager: ResourceManager
    ownership: Ownership
    chain: OwnChain
    server: Server
    web_app: WebApp
    access: StoreAccess

    async def live(self, registered: Registered) -> FinalStatus:
        """Run the job, or only complete its end if a former master has ended it. Return how the application ended.

        Raises SupersededError if a newer application master has taken over the job.
        """
        description, storage = self.ownership.description, self.ownership.storage
        try:
            await self.access.until_it_holds()
            found = await retry_until_reachable(partial(read_recovered_state, self.ownership))
            clock.follow(storage.clock_ahead)  # all masters use one clock, because they compare each other's times
            previous = found.previous
            records = ApplicationRecords(self.ownership, previous)
            self.chain.swept = previous.history.generation if previous else 0
            if previous and previous.result:
                return await self._leave_after(previous.result, records)
            inputs, input_problem = await self._open_inputs()
            outputs = OutputPublisher(self.ownership)
            output_problem = await self._open(outputs)
        except StorageError as error:
            log.error("%s", error)  # noqa: TRY400 - the trace adds nothing
            return await self._leave(FinalStatus.FAILED, self.access.explained(str(error), epoch_ms()))
        launches = ExecutorLaunches(description, self.credentials, self._task_key, self.server.address)
        data = JobData(inputs, outputs)
        master = Master(self.resource_manager, launches, records, self.chain, self.access, data)
        try:
            refused = _refused(found.fenced, input_problem, output_problem)
            return await self._run(master, records, registered, found, refused)
        finally:
            await self.server.stop()
            with suppress(asyncio.TimeoutError):
                await wait_with_timeout(records.end(), _LAST_LOGS)
            close_inputs(inputs)
            outputs.close()

    async def _open_inputs(self) -> tuple[list[OpenedInput], str]:
        """Return the job's inputs, and the problem with them if any. Raises SupersededError, StorageError."""
        try:
            return await retry_until_reachable(partial(open_inputs, self.ownership, self.server.address)), ""
        except BadInputError as error:
            return [], str(error)

    async def _open(self, outputs: OutputPublisher) -> str:
        """Return the problem with the job's outputs if any. Raises SupersededError, StorageError."""
        try:
            await retry_until_reachable(outputs.open)
        except PublishError as error:
            return str(error)
        return ""

    async def _run(
        self,
        master: Master,
        records: ApplicationRecords,
        registered: Registered,
        found: RecoveredState,
        refused: Optional[tuple[FailureKind, str]],
    ) -> FinalStatus:
        master.begin(registered, refused=refused)
        application_id = self.ownership.description.application_id
        await self.server.start(ExecutorService(application_id, self._task_key, master.executors))
        await self.web_app.serve(master)
        records.start(master.status)
        signals = Signals(master, records, self.resource_manager.notice)
        signals.obey()
        try:
            verdict = await _verdict(master.run())
        except DismissedError as error:
            # It is not certain whether the job has ended or continues under another master.
            await write_killed(master, records, str(error))
            return FinalStatus.KILLED
        finally:
            await signals.ignore()
            records.stop()
        if master.cut_off:
            await master.check_newest()
        return await self._end(verdict, _last_known(master.status(), found.previous), records)

    # ---- the end -----------------------------------------------------------------------------------------------

    async def _end(self, verdict: Verdict, status: JobStatus, records: ApplicationRecords) -> FinalStatus:
        diagnostics = verdict.message[-_MOST_DIAGNOSTICS:]
        result = self._result(job_status.final_status(status, verdict))
        if result.state is JobState.SUCCEEDED:
            problem = await asyncio.to_thread(keep_lineage, self.ownership, result)
            result = attrs.evolve(result, warnings=[*result.warnings, problem]) if problem else result
        if missing := await records.write_result(result):
            diagnostics = f"{diagnostics}\n({', '.join(missing)} could not be written to the application's directory)"
        if missing or verdict.status is FinalStatus.FAILED:
            diagnostics = self.access.explained(diagnostics, epoch_ms())
        await self._clean_up(verdict.status, records)
        return await self._leave(verdict.status, diagnostics)

    async def _leave_after(self, result: JobStatus, records: ApplicationRecords) -> FinalStatus:
        """Complete the end of a job from the point where a former application master stopped."""
        log.info("a former application master has ended the job: %s", result.message)
        status = FinalStatus(result.state.value)
        await self._clean_up(status, records)
        final = await self._leave(status, (result.failure.message if result.failure else result.message))
        await records.settle()
        return final

    def _result(self, status: JobStatus) -> JobStatus:
        # The status may come from the store, where the job's programs could have added foreign URIs.
        status = without_foreign_places(status, self.ownership.description.application_dir)
        status = attrs.evolve(status, warnings=[*status.warnings, *_left_undone(status)])
        removed = self._after_success is AfterSuccess.REMOVE and status.state is JobState.SUCCEEDED
        if not removed or status.checkpoint is None:
            return status
        return attrs.evolve(status, checkpoint=attrs.evolve(status.checkpoint, uri=""))

    async def _clean_up(self, status: FinalStatus, records: ApplicationRecords) -> None:
        await self.chain.conclude(self._after_success if status is FinalStatus.SUCCEEDED else None)
        await records.clean_up()

    async def _leave(self, status: FinalStatus, diagnostics: str) -> FinalStatus:
        try:
            await self.resource_manager.finish(status, diagnostics)
        except ResourceManagerError as error:
            log.warning("the cluster did not accept the final status: %s", error)
        return status

    @property
    def _after_success(self) -> AfterSuccess:
        return self.ownership.description.job.checkpoint.after_success

    @property
    def _task_key(self) -> bytes:
        return secret(self.credentials.secrets, contract.SECRET_TASK_KEY)


def _refused(fenced: str, input_problem: str, output_problem: str) -> Optional[tuple[FailureKind, str]]:
    """Return the kind and reason if no task may be started, otherwise None."""
    reasons = (
        (FailureKind.FENCED, fenced),
        (FailureKind.INPUT, input_problem),
        (FailureKind.OUTPUT, output_problem),
    )
    return next(((kind, reason) for kind, reason in reasons if reason), None)


def _last_known(status: JobStatus, previous: Optional[PreviousMasters]) -> JobStatus:
    """Return the former application master's status if that master was ending the job, otherwise ``status``.

    The tasks sent their last reports only to the former master.
    """
    if previous is None or previous.history.verdict is None or previous.status is None:
        return status
    return attrs.evolve(
        previous.status, am_attempt=status.am_attempt, updated_ms=status.updated_ms, finished_ms=status.finished_ms
    )


def _left_undone(status: JobStatus) -> Iterator[str]:
    """Yield warnings of a succeeded job: inputs with uncommitted shards, and outputs without files."""
    if status.state is not JobState.SUCCEEDED:
        return
    for each in status.inputs:
        if each.committed is not None and each.committed < each.shards:
            yield f"input {each.name}: {each.shards - each.committed} of {each.shards} shards were not committed"
    for output in status.outputs:
        if output.files == 0:
            yield f"output {output.name}: no task has written a file to its directory (tony_sdk.output)"


async def _verdict(running: Awaitable[Verdict]) -> Verdict:
    """Return the verdict of ``running``, or a verdict of failure after an internal error.

    Raises SupersededError, DismissedError.
    """
    try:
        return await running
    except (SupersededError, DismissedError):
        raise
    except Exception as error:
        log.exception("the application master failed")
        message = f"the application master failed: {type(error).__name__}: {error}; see its log"
        return Verdict(FinalStatus.FAILED, message, Failure(FailureKind.INTERNAL, message))


_SHORT_NOTICE = 10.0  # seconds; with a shorter notice, the master leaves its tasks to the cluster or to the next master
_ALIVE_AFTER_ALL = 2.0  # seconds without SIGKILL after which the signal counts as a request to end the job


class Signals:
    """Handles SIGTERM and SIGINT, which end the job.

    A signal does not change an existing verdict. While the master writes the job's result, it ignores signals.

    If the cluster sends SIGKILL soon after SIGTERM, the master cannot stop its tasks in time. It also cannot know
    whether the cluster ends only this master or the whole application. So it writes a result, and leaves its tasks to
    the cluster or to the next master.
    """

    def __init__(self, master: Master, records: ApplicationRecords, notice: float) -> None:
        """``notice``: seconds between SIGTERM and SIGKILL; see ResourceManager."""
        self._master = master
        self._records = records
        self._notice = notice
        self._obeyed = False
        self._writing: Optional[asyncio.Future[None]] = None
        self._stopping: Optional[asyncio.TimerHandle] = None

    def obey(self) -> None:
        self._obeyed = True
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._received, number)

    async def ignore(self) -> None:
        """Ignore signals from now on. Wait first for a result that a signal handler is writing."""
        self._obeyed = False
        if self._stopping:
            self._stopping.cancel()
        if self._writing:
            await self._writing

    def _received(self, number: signal.Signals) -> None:
        if not self._obeyed:
            log.info("ignoring %s: the job is already ending", number.name)
            return
        reason = f"the application was stopped from outside ({number.name} to its application master)"
        order = StopOrder(reason)
        if self._notice >= _SHORT_NOTICE:
            self._master.post(order)
        elif self._writing is None:
            self._writing = asyncio.ensure_future(self._write(reason))
            self._stopping = asyncio.get_running_loop().call_later(_ALIVE_AFTER_ALL, self._master.post, order)

    async def _write(self, reason: str) -> None:
        try:
            # As long as the cluster was reachable, it has started no other master, so the check is unnecessary.
            await write_killed(self._master, self._records, reason, in_haste=not self._master.cut_off)
            await self._records.settle()  # this process may be killed before ``MasterLifecycle`` does it
        except SupersededError as error:
            self._master.give_up(error)


async def write_killed(master: Master, records: ApplicationRecords, reason: str, *, in_haste: bool = False) -> None:
    """Write the result of an application master that its cluster is removing.

    Raises SupersededError, without writing, if a newer application master exists. ``in_haste``: skip this check of the
    store, because there is no time for it.
    """
    if not in_haste:
        await master.check_newest()
    killed = Verdict(FinalStatus.KILLED, reason, Failure(FailureKind.KILLED, reason))
    records.logs.changed()
    await records.write_result_only(job_status.final_status(master.status(), master.session.verdict or killed))


def open_resource_manager(description: ApplicationDescription, credentials: Credentials) -> ResourceManager:
    """Return the ResourceManager of the application's cluster. The caller closes it.

    Call it within a running event loop. Only the backend in use is imported, to save memory in the application master.
    Raises ResourceManagerError, CredentialsError, OSError.
    """
    if description.yarn:
        from tony_provider.runtime.am.yarn.yarn_resource_manager import YarnResourceManager

        # Containers of the user's other jobs may run on this node, and could read the memory of this process. The local
        # cluster cannot have this protection, because it finds its masters in /proc.
        keep_memory_private()
        return YarnResourceManager(description, description.yarn, credentials)
    if description.local is None:
        raise ResourceManagerError("the application's description names neither a YARN nor a local cluster")
    if named := [path for path, image in images(description.job).items() if image is not None]:
        raise ResourceManagerError(f"{named[0]}: the local cluster cannot run images; remove this key, or use YARN")
    from tony_provider.runtime.am.local_resource_manager import LocalResourceManager

    return LocalResourceManager(description, description.local)


def open_authenticator(description: ApplicationDescription, user: str) -> Authenticator:
    """Return the Authenticator for the application's cluster. Raises OSError.

    ``user``: the account in which the cluster runs this process. Its spelling may differ from ``description.user``.
    """
    if description.local:
        from tony_provider.runtime.am.web.authentication import LocalAuthenticator

        return LocalAuthenticator(master_files.make_tracking_secret(Path(description.local.root)), description.user)
    from tony_provider.runtime.am.web.authentication import YarnAuthenticator

    return YarnAuthenticator(description.yarn or YarnAccess([]), {description.user, user} - {""})
