"""The GPUs of one container on a node that does not isolate them: taken by locks, and held to its end."""

from __future__ import annotations

import logging
import random
import socket
import threading
import time
from collections.abc import Mapping
from typing import Optional

from tony_provider.runtime.application import GpuDealing
from tony_provider.runtime.cancellation import Cancelled
from tony_provider.runtime.executor import guard
from tony_provider.runtime.executor.gpus import devices, locks
from tony_provider.runtime.frameworks.task_environment import VISIBLE_DEVICES
from tony_provider.runtime.quantities import count

log = logging.getLogger(__name__)

_WAIT = 60.0  # seconds for a container that YARN takes for ended: its processes may need some to end
_POLL = (0.1, 0.4)  # seconds between two tries, at random: those who try at the same time are not to go on so

_DEVICE_ORDER = "CUDA_DEVICE_ORDER"
_BY_NODE = "NVIDIA_VISIBLE_DEVICES"
_EVERY_DEVICE = ("", "all")  # what images for CUDA have in it, where nobody has said which ones


class NoGpusError(Exception):
    """The node has not as many free GPUs as the container was given; the text names them, and who has them."""


class DealtGpus:
    """The GPUs of this container. ``environment`` takes them when it is called first; they are held until ``close``.

    Also all processes that the container starts afterwards hold them, so that they are free when the last of those is
    gone and not before.
    """

    def __init__(
        self,
        dealing: GpuDealing,
        wanted: int,
        environ: Mapping[str, str],
        guarded: Optional[socket.socket] = None,
        *,
        wait: float = _WAIT,
    ) -> None:
        """``guarded``: see ``guard.post``. ``wait`` in seconds."""
        self._dealing = dealing
        self._wanted = wanted
        self._environ = environ
        self._guard = guarded
        self._wait = wait
        self._held: dict[str, socket.socket] = {}

    def environment(self, cancelled: threading.Event) -> dict[str, str]:
        """The variables by which user processes find their GPUs; none where the node has chosen them.

        Blocks. Raises NoGpusError, Cancelled.
        """
        if not self._wanted or is_given(self._environ):
            return {}
        if not self._held:
            self._take(cancelled)
        return {VISIBLE_DEVICES: ",".join(self._held), **self._order()}

    @property
    def names(self) -> list[str]:
        """Those that are held, as CUDA_VISIBLE_DEVICES has them; empty before ``environment`` was called."""
        return list(self._held)

    def close(self) -> None:
        for held in self._held.values():
            held.close()
        self._held.clear()

    def _order(self) -> dict[str, str]:
        """Numbers mean the same devices to every program; CUDA's own default is by speed."""
        return {_DEVICE_ORDER: "PCI_BUS_ID"} if any(name.isdecimal() for name in self._held) else {}

    def _take(self, cancelled: threading.Event) -> None:
        deadline = time.monotonic() + self._wait
        every = self._devices()
        told = False
        while not self._try(every):
            if time.monotonic() >= deadline:
                if self._try(every, also_idle=True):
                    break
                raise NoGpusError(self._shortage(every))
            if not told:
                log.warning("waiting up to %g s for GPUs: %s", self._wait, self._shortage(every))
                told = True
            if cancelled.wait(random.uniform(*_POLL)):  # noqa: S311 - no secret
                raise Cancelled("stopped while it waited for GPUs")
        for held in self._held.values():
            held.set_inheritable(True)  # the user process gets it, and whatever that starts
        guard.keep_open(self._guard, [held.fileno() for held in self._held.values()])
        log.info("GPUs of this container: %s", ", ".join(self._held))

    def _devices(self) -> list[str]:
        try:
            every = self._dealing.devices or devices.of_node(self._environ)
        except devices.DevicesUnknownError as error:
            raise NoGpusError(f"its GPUs cannot be dealt (deal_gpus of the connection): {error}") from error
        if len(every) < self._wanted:
            raise NoGpusError(
                f"the container was given {count(self._wanted, 'GPU')}, and the node has {len(every)}: "
                f"{', '.join(every)}"
            )
        return every

    def _try(self, every: list[str], *, also_idle: bool = False) -> bool:
        """Take the wanted number of GPUs, or none. Return whether they were taken.

        With ``also_idle`` also take GPUs that another user has locked, if no process is known to use them. YARN has
        given this container its GPUs, so a lock that stays on an idle GPU is no container's: any local user can take
        locks.
        """
        try:
            self._take_from(every)
            if also_idle and len(self._held) < self._wanted:
                idle = [each for each in every if each not in self._held and not devices.is_busy(each, self._environ)]
                for device in self._take_from(idle, heed_others=False):
                    log.warning(
                        "Taking GPU %s although another user has locked it: no process is reported on it", device
                    )
        except OSError as error:
            self.close()
            raise NoGpusError(f"its GPUs cannot be locked: {error}") from error
        if len(self._held) < self._wanted:
            self.close()
        return bool(self._held)

    def _take_from(self, names: list[str], *, heed_others: bool = True) -> list[str]:
        """Take GPUs of this list until the wanted number is held. Return the names of the GPUs that were taken."""
        taken = []
        for device in names:
            if len(self._held) < self._wanted and (held := locks.take(device, heed_others=heed_others)) is not None:
                self._held[device] = held
                taken.append(device)
        return taken

    def _shortage(self, every: list[str]) -> str:
        taken = {device: who for device in every if (who := _holder(device))}
        free = len(every) - len(taken)
        by_whom = "; ".join(f"{device} {who}" for device, who in taken.items())
        return (
            f"the container was given {count(self._wanted, 'GPU')}, and {free} of the node's {len(every)} "
            f"{'is' if free == 1 else 'are'} free: {by_whom}"
        )


def is_given(environ: Mapping[str, str]) -> bool:
    """Whether the node has chosen a container's GPUs already: by YARN's isolation, or in a Docker container."""
    return bool(environ.get(VISIBLE_DEVICES)) or environ.get(_BY_NODE, "") not in _EVERY_DEVICE


def _holder(device: str) -> str:
    held = locks.take(device)
    if held is not None:
        held.close()
        return ""
    found = locks.holders(device)
    return f"is held by {', '.join(found)}" if found else "is held by a process that does not show"
