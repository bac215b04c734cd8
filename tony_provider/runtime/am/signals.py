"""What SIGTERM and SIGINT mean to an application master."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import Optional

from tony_provider.runtime.am.master import Master
from tony_provider.runtime.am.records import Records
from tony_provider.runtime.am.session import snapshot
from tony_provider.runtime.am.session.actions import Verdict
from tony_provider.runtime.protocol.status import Failure, FailureKind, FinalStatus

log = logging.getLogger(__name__)

_SHORT_NOTICE = 10.0  # seconds: with less the result is written before the tasks have ended


class Signals:
    """They end the job. A verdict that is there already stays, and during the last steps they change nothing: those are
    the job's result.
    """

    def __init__(self, master: Master, records: Records, notice: float) -> None:
        """``notice``: see ResourceManager."""
        self._master = master
        self._records = records
        self._notice = notice
        self._obeyed = False
        self._writing: Optional[asyncio.Future[bool]] = None

    def obey(self) -> None:
        self._obeyed = True
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._received, number)

    async def ignore(self) -> None:
        """From now on, once the result that a signal may have had written is."""
        self._obeyed = False
        if self._writing:
            await self._writing

    def _received(self, number: signal.Signals) -> None:
        if not self._obeyed:
            log.info("%s changes nothing any more", number.name)
            return
        reason = f"the application was stopped from outside ({number.name} to its application master)"
        self._master.stop(reason)
        if self._notice < _SHORT_NOTICE and self._writing is None:
            killed = Verdict(FinalStatus.KILLED, reason, Failure(FailureKind.KILLED, reason))
            result = snapshot.final_status(self._master.status(), self._master.session.verdict or killed)
            self._writing = asyncio.ensure_future(self._records.write_result_only(result))
