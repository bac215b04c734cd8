"""What NVIDIA's management library (NVML) says of GPUs; it comes with the driver, and nothing else is needed."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Optional

import attrs

LIBRARY = "libnvidia-ml.so.1"
_SUCCESS = 0


class NvmlError(Exception):
    """NVML is not there, or does not say what was asked; the text says why."""


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))  # percent of the last second or less


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


@attrs.frozen
class GpuUse:
    """How much of some GPUs is in use at this moment. None: the GPUs do not say, as parts of one (MIG) do not."""

    percent: Optional[float]  # mean over the GPUs, 100: busy all the time
    bytes: Optional[int]  # of all of them together


class Nvml:
    """NVML, and the GPUs of one container. All calls block, and hang where a driver is broken."""

    def __init__(self, names: Sequence[str], wanted: int, library: str = LIBRARY) -> None:
        """``names``: of the container's GPUs, as CUDA_VISIBLE_DEVICES has them; empty: all that it may use.

        ``wanted``: how many the container was given. Raises NvmlError.
        """
        try:
            self._nvml: Any = ctypes.CDLL(library)
        except OSError as error:
            raise NvmlError(str(error)) from error
        self._call("nvmlInit_v2")
        self._devices = [self._named(name) for name in names] if names else self._all()
        if len(self._devices) != wanted:
            raise NvmlError(f"the container was given {wanted} GPUs and sees {len(self._devices)}: which are its own?")

    def use(self) -> GpuUse:
        """How much of the container's GPUs is in use now."""
        busy, used = _Utilization(), _Memory()
        percents, sizes = [], []
        for device in self._devices:
            if self._answers("nvmlDeviceGetUtilizationRates", device, ctypes.byref(busy)):
                percents.append(busy.gpu)
            if self._answers("nvmlDeviceGetMemoryInfo", device, ctypes.byref(used)):
                sizes.append(used.used)
        every = len(self._devices)
        return GpuUse(
            sum(percents) / every if len(percents) == every else None, sum(sizes) if len(sizes) == every else None
        )

    def _named(self, name: str) -> ctypes.c_void_p:
        device = ctypes.c_void_p()
        if name.isdecimal():
            self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(int(name)), ctypes.byref(device))
        else:
            self._call("nvmlDeviceGetHandleByUUID", name.encode(), ctypes.byref(device))
        return device

    def _all(self) -> list[ctypes.c_void_p]:
        """Where the node isolates GPUs, others are listed and may not be opened."""
        number = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(number))
        found = []
        for index in range(number.value):
            device = ctypes.c_void_p()
            if self._answers("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(device)):
                found.append(device)
        return found

    def _answers(self, function: str, *arguments: Any) -> bool:
        try:
            return bool(getattr(self._nvml, function)(*arguments) == _SUCCESS)
        except AttributeError as error:
            raise NvmlError(f"it has no {function}") from error

    def _call(self, function: str, *arguments: Any) -> None:
        if not self._answers(function, *arguments):
            raise NvmlError(f"{function} failed")
