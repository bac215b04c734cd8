"""SIGTERM and SIGINT to an application master, and what it does about them."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import Optional

from tony_provider.runtime.am.application_records import ApplicationRecords
from tony_provider.runtime.am.master import Master
from tony_provider.runtime.am.owner import SupersededError
from tony_provider.runtime.am.session import job_status
from tony_provider.runtime.am.session.actions import Verdict
from tony_provider.runtime.protocol.status import Failure, FailureKind, FinalStatus

log = logging.getLogger(__name__)

_SHORT_NOTICE = 10.0  # seconds: with less the tasks are left alone, their end or their next master comes by itself
_ALIVE_AFTER_ALL = 2.0  # seconds: nobody kills us, so the signal is somebody's wish that the job ends


class Signals:
    """Handles SIGTERM and SIGINT: they end the job.

    A verdict that is there already stays, and during the last steps they change nothing: those are the job's result.
    Where SIGKILL follows at once, the cluster takes only this application master away, or the whole application, and
    the master cannot know which: it leaves a result in case, and its tasks to the cluster.
    """

    def __init__(self, master: Master, records: ApplicationRecords, notice: float) -> None:
        """``notice``: see ResourceManager."""
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
        """Ignore signals from now on, once a result that one of them may have had written is there."""
        self._obeyed = False
        if self._stopping:
            self._stopping.cancel()
        if self._writing:
            await self._writing

    def _received(self, number: signal.Signals) -> None:
        if not self._obeyed:
            log.info("%s changes nothing any more", number.name)
            return
        reason = f"the application was stopped from outside ({number.name} to its application master)"
        if self._notice >= _SHORT_NOTICE:
            self._master.stop(reason)
        elif self._writing is None:
            self._writing = asyncio.ensure_future(self._write(reason))
            self._stopping = asyncio.get_running_loop().call_later(_ALIVE_AFTER_ALL, self._master.stop, reason)

    async def _write(self, reason: str) -> None:
        try:
            # A cluster that was there all the time has started no other master.
            await write_killed(self._master, self._records, reason, in_haste=not self._master.cut_off)
        except SupersededError as error:
            self._master.give_up(error)


async def write_killed(master: Master, records: ApplicationRecords, reason: str, *, in_haste: bool = False) -> None:
    """Write the result of an application master that its cluster takes away.

    Raises SupersededError, having written nothing, when a newer application master is known of.

    ``in_haste``: there is no time to ask the store about that.
    """
    if not in_haste:
        await master.check_newest()
    killed = Verdict(FinalStatus.KILLED, reason, Failure(FailureKind.KILLED, reason))
    await records.write_result_only(job_status.final_status(master.status(), master.session.verdict or killed))
