"""An application master from its registration to its leave, as far as that is its own to take."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from functools import partial
from typing import Optional

import attrs

from tony_provider.runtime import contract
from tony_provider.runtime.am import last_word
from tony_provider.runtime.am.launches import Launches, application_file
from tony_provider.runtime.am.master import DismissedError, Master
from tony_provider.runtime.am.own_lineage import OwnLineage
from tony_provider.runtime.am.owner import Ownership, SupersededError
from tony_provider.runtime.am.records import Records
from tony_provider.runtime.am.recovery import Found, Legacy, from_store, look
from tony_provider.runtime.am.resource_manager import Registered, ResourceManager, ResourceManagerError
from tony_provider.runtime.am.service import ExecutorService, Server
from tony_provider.runtime.am.session import snapshot
from tony_provider.runtime.am.session.actions import Verdict
from tony_provider.runtime.am.signals import Signals
from tony_provider.runtime.am.web.front import Front
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.protocol.status import Failure, FailureKind, FinalStatus, JobState, JobStatus
from tony_provider.runtime.spec.model import AfterSuccess
from tony_provider.runtime.storage import StorageError
from tony_provider.runtime.task_identity import secret

log = logging.getLogger(__name__)

_MOST_DIAGNOSTICS = 8192  # characters; ResourceManagers keep 64 KiB of an attempt's


@attrs.frozen
class Life:
    """``live`` it once."""

    credentials: Credentials = attrs.field(repr=False)
    resource_manager: ResourceManager
    ownership: Ownership
    lineage: OwnLineage
    server: Server
    front: Front

    async def live(self, registered: Registered) -> FinalStatus:
        """Raises SupersededError: what is on the store and in the containers is the newer application master's."""
        description, storage = self.ownership.description, self.ownership.storage
        try:
            found = await from_store(partial(look, self.ownership))
            legacy = found.legacy
            records = Records(storage, description, legacy.events if legacy else b"")
            self.lineage.swept = legacy.history.generation if legacy else 0
            if legacy and legacy.result:
                return await self._leave_after(legacy.result, records)
            staged = await from_store(partial(application_file, storage, description))
        except StorageError as error:
            log.error("%s", error)  # noqa: TRY400 - its trace tells nothing more
            return await self._leave(FinalStatus.FAILED, str(error))
        launches = Launches(description, self.credentials, self._task_key, staged, self.server.address)
        master = Master(
            description,
            self.resource_manager,
            launches,
            records,
            self.ownership,
            self.lineage,
            history=legacy.history if legacy else None,
        )
        return await self._run(master, records, registered, found)

    async def _run(self, master: Master, records: Records, registered: Registered, found: Found) -> FinalStatus:
        master.begin(registered, fenced=found.fenced)
        application_id = self.ownership.description.application_id
        await self.server.start(ExecutorService(application_id, self._task_key, master.executors))
        await self.front.serve(master)
        records.start(master.status)
        signals = Signals(master, records, self.resource_manager.notice)
        signals.obey()
        try:
            verdict = await _verdict(master.run())
        except DismissedError as error:
            # Whether the job has ended, or goes on under another master, cannot be told for certain.
            await last_word.write(master, records, str(error))
            return FinalStatus.KILLED
        finally:
            await signals.ignore()
            await records.stop()
        if master.cut_off:
            await master.check_newest()
        return await self._end(verdict, _last_known(master.status(), found.legacy), records)

    # ---- the end -----------------------------------------------------------------------------------------------

    async def _end(self, verdict: Verdict, status: JobStatus, records: Records) -> FinalStatus:
        diagnostics = verdict.message[-_MOST_DIAGNOSTICS:]
        missing = await records.write_result(self._result(snapshot.final_status(status, verdict)))
        if missing:
            diagnostics = f"{diagnostics}\n({', '.join(missing)} could not be written to the application's directory)"
        await self._clean_up(verdict.status, records)
        return await self._leave(verdict.status, diagnostics)

    async def _leave_after(self, result: JobStatus, records: Records) -> FinalStatus:
        """The end of a former application master, from where its own came upon it."""
        log.info("a former application master has ended the job: %s", result.message)
        status = FinalStatus(result.state.value)
        await self._clean_up(status, records)
        return await self._leave(status, (result.failure.message if result.failure else result.message))

    def _result(self, status: JobStatus) -> JobStatus:
        removed = self._after_success is AfterSuccess.REMOVE and status.state is JobState.SUCCEEDED
        if not removed or status.checkpoint is None:
            return status
        return attrs.evolve(status, checkpoint=attrs.evolve(status.checkpoint, uri=""))

    async def _clean_up(self, status: FinalStatus, records: Records) -> None:
        await self.lineage.conclude(self._after_success if status is FinalStatus.SUCCEEDED else None)
        await records.clear_away()

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


def _last_known(status: JobStatus, legacy: Optional[Legacy]) -> JobStatus:
    """What the tasks have reported, they reported to the former application master where that had begun to end them."""
    if legacy is None or legacy.history.verdict is None or legacy.status is None:
        return status
    return attrs.evolve(
        legacy.status, am_attempt=status.am_attempt, updated_ms=status.updated_ms, finished_ms=status.finished_ms
    )


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
