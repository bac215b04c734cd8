"""One life of an application master: from its container's files to the last word to the cluster."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Optional

import attrs

from tony_provider.runtime import clock, container_inputs, contract
from tony_provider.runtime.am import open_files
from tony_provider.runtime.am.application_records import ApplicationRecords
from tony_provider.runtime.am.backends import open_gate, open_resource_manager
from tony_provider.runtime.am.executor_launches import ExecutorLaunches, application_file
from tony_provider.runtime.am.inputs.opened_inputs import OpenedInput, close_inputs, open_inputs
from tony_provider.runtime.am.master import DismissedError, Master
from tony_provider.runtime.am.master_recovery import PreviousMasters, RecoveredState, from_store, look
from tony_provider.runtime.am.outputs.output_publisher import OutputPublisher
from tony_provider.runtime.am.own_chain import OwnChain
from tony_provider.runtime.am.owner import Ownership, SupersededError
from tony_provider.runtime.am.resource_manager import Registered, ResourceManager, ResourceManagerError
from tony_provider.runtime.am.service import ExecutorService, Server
from tony_provider.runtime.am.session import job_status
from tony_provider.runtime.am.session.actions import Verdict
from tony_provider.runtime.am.signals import Signals, write_killed
from tony_provider.runtime.am.store_access import StoreAccess
from tony_provider.runtime.am.web.token_orders import token_route
from tony_provider.runtime.am.web.web_app import WebApp
from tony_provider.runtime.am.web.yarn_tls import proxy_tls, remove_files
from tony_provider.runtime.application import ApplicationDescription
from tony_provider.runtime.application_store import open_application_store
from tony_provider.runtime.clock import epoch_ms
from tony_provider.runtime.container_inputs import ContainerError
from tony_provider.runtime.frameworks import get_framework
from tony_provider.runtime.hadoop.ids import ContainerId
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.inputs.finding import BadInputError
from tony_provider.runtime.outputs.publish_error import PublishError
from tony_provider.runtime.protocol.own_places import without_foreign_places
from tony_provider.runtime.protocol.status import Failure, FailureKind, FinalStatus, JobState, JobStatus
from tony_provider.runtime.sealed.tls_pipe import master_context
from tony_provider.runtime.spec.model import AfterSuccess
from tony_provider.runtime.storage import Storage, StorageError
from tony_provider.runtime.task_identity import secret

log = logging.getLogger(__name__)


@attrs.frozen
class MasterContext:
    """What an application master finds in its container: its job, credentials, node and attempt."""

    description: ApplicationDescription
    credentials: Credentials = attrs.field(repr=False)
    host: str  # of this node, as other nodes reach it
    attempt: int
    user: str = ""  # whom the cluster runs it as

    @classmethod
    def of_process(cls, environ: Mapping[str, str], directory: Path) -> MasterContext:
        """The context of this process, by its environment and directory. Raises ContainerError."""
        credentials = container_inputs.take_credentials(environ)
        remove_files(environ)
        description = container_inputs.description(directory, credentials.secrets)
        container_id = container_inputs.variable(environ, contract.ENV_CONTAINER_ID)
        try:
            container = ContainerId.parse(container_id)
            get_framework(description.job.framework)
        except (ValueError, LookupError) as error:
            raise ContainerError(str(error)) from error
        host = container_inputs.variable(environ, contract.ENV_NODE_HOST)
        user = environ.get(contract.ENV_USER, "")
        return cls(description, credentials, host, container.attempt.number, user)


async def run(context: MasterContext) -> FinalStatus:
    """Run an application master; returns how the application ended.

    Raises what keeps it from registering; after that it ends with a final status whatever happens.
    """
    description = context.description
    open_files.allow(description.job.size)
    with open_application_store(description, context.credentials.secrets) as storage:
        resource_manager = open_resource_manager(description, context.credentials)
        try:
            return await serve(context, storage, resource_manager)
        finally:
            await resource_manager.close()


async def serve(context: MasterContext, storage: Storage, resource_manager: ResourceManager) -> FinalStatus:
    """Run an application master with a store and a cluster that are open, and stay open. See ``run``."""
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
        connections=open_files.for_executors(tasks),
        tasks=tasks,
    )
    web_app: Optional[WebApp] = None
    try:
        authenticator = open_gate(description, context.user)
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
        log.info("registered; executors find this application master at %s", server.address)
        log.info("its page is %s", web_app.url)
        await web_app.begin()
        lifecycle = MasterLifecycle(context.credentials, resource_manager, ownership, chain, server, web_app, access)
        return await lifecycle.live(registered)
    except SupersededError as error:
        log.info("nothing is left to do here: %s", error)
        return FinalStatus.KILLED
    finally:
        chain.close()
        await server.stop()
        if web_app:
            await web_app.close()


_MOST_DIAGNOSTICS = 8192  # characters; ResourceManagers keep 64 KiB of an attempt's


@attrs.frozen
class MasterLifecycle:
    """The life of a registered application master, from what former ones have left to its last word to the cluster.

    ``live`` it once.
    """

    credentials: Credentials = attrs.field(repr=False)
    resource_manager: ResourceManager
    ownership: Ownership
    chain: OwnChain
    server: Server
    web_app: WebApp
    access: StoreAccess

    async def live(self, registered: Registered) -> FinalStatus:
        """Run the job, or end what a former master left; returns how the application ended.

        Raises SupersededError: what is on the store and in the containers is the newer application master's.
        """
        description, storage = self.ownership.description, self.ownership.storage
        try:
            await self.access.until_it_holds()
            found = await from_store(partial(look, self.ownership))
            clock.follow(storage.clock_ahead)  # because the masters of a job compare times that others have written
            legacy = found.legacy
            records = ApplicationRecords(
                storage,
                description,
                am_attempt=self.ownership.am_attempt,
                former_events=legacy.events if legacy else (),
                former_series=legacy.series if legacy else 0,
            )
            self.chain.swept = legacy.history.generation if legacy else 0
            if legacy and legacy.result:
                return await self._leave_after(legacy.result, records)
            staged = await from_store(partial(application_file, storage, description, self.credentials.secrets))
            inputs, input_problem = await self._open_inputs()
            outputs = OutputPublisher(self.ownership)
            output_problem = await self._open(outputs)
        except StorageError as error:
            log.error("%s", error)  # noqa: TRY400 - its trace tells nothing more
            return await self._leave(FinalStatus.FAILED, self.access.explained(str(error), epoch_ms()))
        launches = ExecutorLaunches(description, self.credentials, self._task_key, staged, self.server.address)
        master = Master(
            description,
            self.resource_manager,
            launches,
            records,
            self.ownership,
            self.chain,
            access=self.access,
            inputs=inputs,
            outputs=outputs,
            former=legacy,
        )
        try:
            refused = _refused(found.fenced, input_problem, output_problem)
            return await self._run(master, records, registered, found, refused)
        finally:
            close_inputs(inputs)
            outputs.close()

    async def _open_inputs(self) -> tuple[list[OpenedInput], str]:
        """The job's inputs, and what is wrong with them. Raises SupersededError, StorageError."""
        try:
            return await from_store(partial(open_inputs, self.ownership, self.server.address)), ""
        except BadInputError as error:
            return [], str(error)

    async def _open(self, outputs: OutputPublisher) -> str:
        """What is wrong with the job's outputs. Raises SupersededError, StorageError."""
        try:
            await from_store(outputs.open)
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
            # Whether the job has ended, or goes on under another master, cannot be told for certain.
            await write_killed(master, records, str(error))
            return FinalStatus.KILLED
        finally:
            await signals.ignore()
            await records.stop()
        if master.cut_off:
            await master.check_newest()
        return await self._end(verdict, _last_known(master.status(), found.legacy), records)

    # ---- the end -----------------------------------------------------------------------------------------------

    async def _end(self, verdict: Verdict, status: JobStatus, records: ApplicationRecords) -> FinalStatus:
        diagnostics = verdict.message[-_MOST_DIAGNOSTICS:]
        missing = await records.write_result(self._result(job_status.final_status(status, verdict)))
        if missing:
            diagnostics = f"{diagnostics}\n({', '.join(missing)} could not be written to the application's directory)"
        if missing or verdict.status is FinalStatus.FAILED:
            diagnostics = self.access.explained(diagnostics, epoch_ms())
        await self._clean_up(verdict.status, records)
        return await self._leave(verdict.status, diagnostics)

    async def _leave_after(self, result: JobStatus, records: ApplicationRecords) -> FinalStatus:
        """The end of a former application master, from where its own came upon it."""
        log.info("a former application master has ended the job: %s", result.message)
        status = FinalStatus(result.state.value)
        await self._clean_up(status, records)
        return await self._leave(status, (result.failure.message if result.failure else result.message))

    def _result(self, status: JobStatus) -> JobStatus:
        # The result of a former application master came from the store, where the job may write.
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
            await self.resource_manager.finish(status, diagnostics, "")
        except ResourceManagerError as error:
            log.warning("the cluster did not take the final status: %s", error)
        return status

    @property
    def _after_success(self) -> AfterSuccess:
        return self.ownership.description.job.checkpoint.after_success

    @property
    def _task_key(self) -> bytes:
        return secret(self.credentials.secrets, contract.SECRET_TASK_KEY)


def _refused(fenced: str, input_problem: str, output_problem: str) -> Optional[tuple[FailureKind, str]]:
    """Why nothing may be started, if so."""
    reasons = (
        (FailureKind.FENCED, fenced),
        (FailureKind.INPUT, input_problem),
        (FailureKind.OUTPUT, output_problem),
    )
    return next(((kind, reason) for kind, reason in reasons if reason), None)


def _last_known(status: JobStatus, legacy: Optional[PreviousMasters]) -> JobStatus:
    """What the tasks have reported, they reported to the former application master where that had begun to end them."""
    if legacy is None or legacy.history.verdict is None or legacy.status is None:
        return status
    return attrs.evolve(
        legacy.status, am_attempt=status.am_attempt, updated_ms=status.updated_ms, finished_ms=status.finished_ms
    )


def _left_undone(status: JobStatus) -> Iterator[str]:
    """Which inputs a job has left before their end, and which outputs without a file, though it has succeeded."""
    if status.state is not JobState.SUCCEEDED:
        return
    for each in status.inputs:
        if each.committed is not None and each.committed < each.shards:
            yield f"input {each.name}: {each.shards - each.committed} of {each.shards} shards were not committed"
    for output in status.outputs:
        if output.files == 0:
            yield f"output {output.name}: no task has left a file in its directory (tony_sdk.output)"


async def _verdict(running: Awaitable[Verdict]) -> Verdict:
    """A fault of the application master itself is a verdict too. Raises SupersededError, DismissedError."""
    try:
        return await running
    except (SupersededError, DismissedError):
        raise
    except Exception as error:
        log.exception("the application master failed")
        message = f"the application master failed: {type(error).__name__}: {error}; its log says more"
        return Verdict(FinalStatus.FAILED, message, Failure(FailureKind.INTERNAL, message))
