"""How much the container's GPUs do, asked for without ever waiting for a driver."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Optional

from tony_provider.runtime.executor.gpus.nvml import GpuUse, Nvml, NvmlError

log = logging.getLogger(__name__)


class GpuMeter:
    """Asks in a thread of its own, since a broken driver hangs; then there is no answer any more, and nobody waits."""

    def __init__(self, open_nvml: Callable[[], Nvml]) -> None:
        """``open_nvml`` is called in the thread; it may raise NvmlError."""
        self._open = open_nvml
        self._newest: Optional[GpuUse] = None
        self._asked = threading.Event()
        self._thread: Optional[threading.Thread] = None

    def take(self) -> Optional[GpuUse]:
        """The answer to the last call, if it has come meanwhile; and ask for the next one."""
        newest, self._newest = self._newest, None
        if self._thread is None:
            # Not one of a pool: the process must be able to end while it hangs.
            self._thread = threading.Thread(target=self._run, name="gpus", daemon=True)
            self._thread.start()
        self._asked.set()
        return newest

    def _run(self) -> None:
        try:
            nvml = self._open()
            while True:
                self._asked.wait()
                self._asked.clear()
                self._newest = nvml.use()
        except NvmlError as error:
            log.info("how much the GPUs do is not known: %s", error)
