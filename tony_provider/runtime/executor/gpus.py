"""GPUs of a container: list the node's GPUs, lock the container's share, and measure their use.

``nvidia-smi`` lists the GPUs by the names that CUDA_VISIBLE_DEVICES takes. A lock on a GPU is an abstract Unix socket.
NVML reports utilization and memory.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import random
import re
import secrets
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

import attrs

from tony_provider.runtime.application import GpuDealing
from tony_provider.runtime.common.concurrency import Cancelled
from tony_provider.runtime.common.quantities import count
from tony_provider.runtime.executor import processes
from tony_provider.runtime.frameworks.base import VISIBLE_DEVICES

log = logging.getLogger(__name__)

_PROCESSES = ("--query-compute-apps=pid", "--format=csv,noheader")
_TIMEOUT = 60.0  # seconds; nvidia-smi is slow while no driver is loaded, and hangs if a driver is broken
# GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5b…), followed by a line for each of its MIG (Multi-Instance GPU) instances
_GPU_LINE = re.compile(r"\s*(GPU|MIG)\b.*\(UUID: *([^\s()]+)\)\s*")


class DevicesUnknownError(Exception):
    """The GPUs of the node cannot be listed. The message names the reason."""


def node_gpus(environ: Mapping[str, str]) -> list[str]:
    """Return the unique names of this node's GPUs, as ``nvidia-smi`` lists them.

    A GPU that is divided into MIG instances is replaced by its instances. Blocks. Raises DevicesUnknownError.
    """
    program = shutil.which("nvidia-smi", path=environ.get("PATH"))
    if program is None:
        raise DevicesUnknownError(
            "nvidia-smi, which lists the node's GPUs, is not on PATH; install it or list the GPUs in the connection "
            "(gpu_devices)"
        )
    found = parse_gpu_list(_output(program, environ, "-L"))
    if not found:
        raise DevicesUnknownError(f"{program} -L lists no GPU")
    return found


def parse_gpu_list(text: str) -> list[str]:
    """Return the GPU names in the output of ``nvidia-smi -L``."""
    found: list[str] = []
    whole = ""
    for line in text.splitlines():
        match = _GPU_LINE.fullmatch(line)
        if match is None:
            continue
        kind, name = match.groups()
        if kind == "GPU":
            whole = name
        elif whole in found:
            found.remove(whole)
        found.append(name)
    return found


def is_gpu_busy(name: str, environ: Mapping[str, str]) -> bool:
    """Return whether nvidia-smi lists a compute process on a GPU. Return False if that is unknown. Blocks."""
    program = shutil.which("nvidia-smi", path=environ.get("PATH"))
    try:
        return program is not None and bool(_output(program, environ, "-i", name, *_PROCESSES).strip())
    except DevicesUnknownError as error:
        log.info("GPU %s counts as idle, because its processes cannot be listed: %s", name, error)
        return False


def _output(program: str, environ: Mapping[str, str], *arguments: str) -> str:
    try:
        done = processes.run_program([program, *arguments], environ, _TIMEOUT)
    except OSError as error:
        raise DevicesUnknownError(f"{program} cannot be started: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise DevicesUnknownError(f"{program} {arguments[0]} did not answer within {_TIMEOUT:g} s") from error
    output = (done.stdout + done.stderr).decode("utf-8", "replace")
    if done.returncode:
        last = (output.strip().splitlines() or ["no output"])[-1]
        raise DevicesUnknownError(f"{program} {arguments[0]} failed with exit code {done.returncode}: {last}")
    return output


_LENGTH = 107  # maximum length of an abstract socket's name in bytes, see struct sockaddr_un
_FILLER = b"/"
_LISTENING = 0x10000  # __SO_ACCEPTCON, of linux/net.h
# A line of /proc/net/unix, as the kernel writes it: address, references, protocol, flags, type, state, inode, name.
# A name may contain line breaks, and so imitate a further line. The names of locks are padded to the maximum length, so
# that an imitated line is always too short.
_LINE = re.compile(
    rb"[0-9a-f]{8,16}: [0-9A-F]{8} [0-9A-F]{8} ([0-9A-F]{8}) [0-9A-F]{4} [0-9A-F]{2} +(\d+) "
    rb"@(tony-gpu/(\d+)/[0-9a-f]*/(.*))"
)


@attrs.frozen
class _Lock:
    """A lock on a GPU that a process holds."""

    inode: str
    user: int  # UID in the lock's name, which another user may have forged


def take_gpu_lock(device: str, *, respect_others: bool = True) -> Optional[socket.socket]:
    """Take the lock on a device. The lock is held until the returned socket and all its copies are closed.

    Return None if another container of this user has the lock, or if another user seems to have it and
    ``respect_others`` is set. Raises OSError.
    """
    # The second name is needed if another user listens at the first name.
    for name in (_name(device), _name(device, secrets.token_hex(4))):
        if _is_taken(device, respect_others):
            return None
        if (held := _listen(name)) is None:
            continue
        # Two containers that take the lock at the same time see each other only after both listen.
        if _is_taken(device, respect_others, but=str(os.fstat(held.fileno()).st_ino)):
            held.close()
            return None
        return held
    return None


def gpu_lock_holders(device: str) -> list[str]:
    """Return the holders of a device's lock, for messages: this user's processes as ``1234 (python)``, or other users.

    Blocks.
    """
    locks = list(_locks(device))
    own = _own_processes({each.inode for each in locks})
    found = [f"{pid} ({name})" for pid in sorted(own) if (name := _process_name(pid)) is not None]
    return found or sorted({f"user {each.user}" for each in locks})


def _is_taken(device: str, respect_others: bool, but: str = "") -> bool:
    inodes = {each.inode for each in _locks(device)} - {but}
    return bool(inodes) and (respect_others or bool(_own_processes(inodes)))


def _name(device: str, more: str = "") -> bytes:
    name = f"tony-gpu/{os.getuid()}/{more}/{device}".encode()
    if len(name) > _LENGTH:
        raise OSError(errno.ENAMETOOLONG, f"the name of GPU {device} is too long for a lock")
    return b"\0" + name.ljust(_LENGTH, _FILLER)


def _listen(name: bytes) -> Optional[socket.socket]:
    """Listen at this name. Return None if a process already listens there."""
    held = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        held.bind(name)
        held.listen(0)
    except OSError as error:
        held.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    return held


def _locks(device: str) -> Iterator[_Lock]:
    for line in Path("/proc/net/unix").read_bytes().split(b"\n"):
        match = _LINE.fullmatch(line)
        if match is None or len(match[3]) != _LENGTH or not int(match[1], 16) & _LISTENING:
            continue
        if match[5].rstrip(_FILLER) == device.encode():
            yield _Lock(match[2].decode(), int(match[4]))


def _own_processes(inodes: set[str]) -> list[int]:
    """Return the PIDs of this user's processes that have one of these sockets open."""
    if not inodes:
        return []
    pids = [name for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - only names are needed
    return [int(pid) for pid in pids if _is_own(pid) and inodes & processes.open_sockets(int(pid))]


def _is_own(process: str) -> bool:
    """Return whether a process belongs to this user. The check is needed because root can read all users' processes."""
    try:
        return Path("/proc", process).stat().st_uid == os.getuid()
    except OSError:
        return False  # the process has ended


def _process_name(pid: int) -> Optional[str]:
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return None


_WAIT = 60.0  # seconds to wait for locks, as a container's processes may still run when YARN reports it as ended
_POLL = (0.1, 0.4)  # random pause in seconds between two attempts, so that containers do not retry in step

_DEVICE_ORDER = "CUDA_DEVICE_ORDER"
_BY_NODE = "NVIDIA_VISIBLE_DEVICES"
_EVERY_DEVICE = ("", "all")  # values that select no particular devices, as in CUDA images


_MIG = "MIG-"  # start of the name of an instance of a divided GPU


def own_instance(environ: Mapping[str, str], local_rank: int, count: int) -> Optional[str]:
    """Return the MIG instance of one of a container's ``count`` processes, or None if they share the container's GPUs.

    CUDA shows at most one MIG instance to a process, so each process must see only its own. ``environ``: variables of
    the container, in which YARN or the connection's ``deal_gpus`` has selected the GPUs. Source: NVIDIA's MIG user
    guide, section CUDA Device Enumeration.
    """
    names = (environ.get(VISIBLE_DEVICES) or environ.get(_BY_NODE, "")).split(",")
    return names[local_rank] if len(names) == count and all(name.startswith(_MIG) for name in names) else None


class NoGpusError(Exception):
    """The node has fewer free GPUs than the container was given. The message names the GPUs and their holders."""


class ContainerGpus:
    """The GPUs of this container. The first call of ``environment`` locks them until ``close``.

    All processes that the container starts afterwards inherit the locks, so a GPU is free when the last of them has
    ended.
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
        """Prepare the locks. ``guarded``: the socket of ``processes.start_guard``. ``wait``: seconds."""
        self._dealing = dealing
        self._wanted = wanted
        self._environ = environ
        self._guard = guarded
        self._wait = wait
        self._held: dict[str, socket.socket] = {}

    def environment(self, cancelled: threading.Event) -> dict[str, str]:
        """Return the variables that select the GPUs of user processes.

        Return an empty dict if the node has selected the GPUs, or if the container has no GPUs. Blocks.
        Raises NoGpusError, Cancelled.
        """
        if not self._wanted or gpus_set_by_node(self._environ):
            return {}
        if not self._held:
            self._take(cancelled)
        return {VISIBLE_DEVICES: ",".join(self._held), **self._order()}

    @property
    def names(self) -> list[str]:
        """The locked GPUs by their names in CUDA_VISIBLE_DEVICES. Empty before the first call of ``environment``."""
        return list(self._held)

    def close(self) -> None:
        for held in self._held.values():
            held.close()
        self._held.clear()

    def _order(self) -> dict[str, str]:
        """If GPUs are named by number, return the variable that makes CUDA number them by PCI bus, not by speed."""
        return {_DEVICE_ORDER: "PCI_BUS_ID"} if any(name.isdecimal() for name in self._held) else {}

    def _take(self, cancelled: threading.Event) -> None:
        deadline = time.monotonic() + self._wait
        every = self._devices()
        is_logged = False
        while not self._try(every):
            if time.monotonic() >= deadline:
                if self._try(every, also_idle=True):
                    break
                raise NoGpusError(self._shortage(every))
            if not is_logged:
                log.warning("waiting up to %g s for GPUs: %s", self._wait, self._shortage(every))
                is_logged = True
            if cancelled.wait(random.uniform(*_POLL)):  # noqa: S311 - no secret
                raise Cancelled("stopped during the wait for GPUs")
        for held in self._held.values():
            held.set_inheritable(True)  # for the user process and its children
        processes.hold_with_guard(self._guard, [held.fileno() for held in self._held.values()])
        log.info("GPUs of this container: %s", ", ".join(self._held))

    def _devices(self) -> list[str]:
        try:
            every = self._dealing.devices or node_gpus(self._environ)
        except DevicesUnknownError as error:
            raise NoGpusError(f"cannot assign GPUs of this node (deal_gpus of the connection): {error}") from error
        if len(every) < self._wanted:
            raise NoGpusError(
                f"the container was given {count(self._wanted, 'GPU')}, but the node has {len(every)}: "
                f"{', '.join(every)}"
            )
        return every

    def _try(self, every: list[str], *, also_idle: bool = False) -> bool:
        """Take the wanted number of GPUs, or none. Return whether they were taken.

        With ``also_idle``, also take GPUs that another user has locked, if no process is known to use them. Any local
        user can lock a GPU without using it. YARN never assigns more GPUs than the node has, so a lock that remains on
        an idle GPU belongs to no container.
        """
        try:
            self._take_from(every)
            if also_idle and len(self._held) < self._wanted:
                idle = [each for each in every if each not in self._held and not is_gpu_busy(each, self._environ)]
                for device in self._take_from(idle, respect_others=False):
                    log.warning("using GPU %s, which another user has locked: no process is known to use it", device)
        except OSError as error:
            self.close()
            raise NoGpusError(f"cannot lock the GPUs of this container: {error}") from error
        if len(self._held) < self._wanted:
            self.close()
        return bool(self._held)

    def _take_from(self, names: list[str], *, respect_others: bool = True) -> list[str]:
        """Take GPUs of this list until the wanted number is held. Return the names of the GPUs that were taken."""
        taken = []
        for device in names:
            if (
                len(self._held) < self._wanted
                and (held := take_gpu_lock(device, respect_others=respect_others)) is not None
            ):
                self._held[device] = held
                taken.append(device)
        return taken

    def _shortage(self, every: list[str]) -> str:
        taken = {device: who for device in every if (who := _holder(device))}
        free = len(every) - len(taken)
        by_whom = "; ".join(f"{device} {who}" for device, who in taken.items())
        return (
            f"the container was given {count(self._wanted, 'GPU')}, but {free} of the node's {len(every)} "
            f"{'is' if free == 1 else 'are'} free: {by_whom}"
        )


def gpus_set_by_node(environ: Mapping[str, str]) -> bool:
    """Return whether the node has selected a container's GPUs, by YARN's GPU isolation or in a Docker container."""
    return bool(environ.get(VISIBLE_DEVICES)) or environ.get(_BY_NODE, "") not in _EVERY_DEVICE


def container_gpus(environ: Mapping[str, str], dealt: Optional[ContainerGpus]) -> Optional[list[str]]:
    """Return the names of the container's GPUs, or an empty list for all GPUs that it sees.

    Return None if no GPUs are assigned yet.
    """
    if dealt is not None and not gpus_set_by_node(environ):
        return dealt.names or None
    return [name for name in environ.get(VISIBLE_DEVICES, "").split(",") if name]


def _holder(device: str) -> str:
    held = take_gpu_lock(device)
    if held is not None:
        held.close()
        return ""
    found = gpu_lock_holders(device)
    return f"is held by {', '.join(found)}" if found else "is held by an unknown process"


LIBRARY = "libnvidia-ml.so.1"
_SUCCESS = 0
_UNCORRECTED, _SINCE_LOADED = ctypes.c_uint(1), ctypes.c_uint(0)  # nvmlMemoryErrorType_t, nvmlEccCounterType_t


class NvmlError(Exception):
    """NVML is missing, or does not answer a query. The message names the reason."""


class OwnGpusUnknownError(NvmlError):
    """The node has no NVML, or NVML does not show which GPUs the container was given. The message names the reason."""


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))  # percent of the time, over at most the last second


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


_PCI = "nvmlDeviceGetPciInfo_v3"


class _PciInfo(ctypes.Structure):
    _fields_ = (
        ("legacy_id", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("model", ctypes.c_uint),
        ("subsystem", ctypes.c_uint),
        ("id", ctypes.c_char * 32),
    )


class Nvml:
    """Queries NVML about the GPUs of one container. All calls block, and hang if a driver is broken."""

    def __init__(self, names: Sequence[str], wanted: int, library: str = LIBRARY) -> None:
        """Open NVML, and find ``wanted`` GPUs, the number that the container was given. Raises NvmlError.

        ``names``: the container's GPUs by their names in CUDA_VISIBLE_DEVICES, or an empty list for all GPUs that the
        container may use.
        """
        try:
            self._nvml: Any = ctypes.CDLL(library)
        except OSError as error:
            raise OwnGpusUnknownError(str(error)) from error
        self._call("nvmlInit_v2")
        self._names = names
        self._devices = [self._named(name) for name in names] if names else self._all()
        if not self._devices:
            raise NvmlError(f"the container was given {count(wanted, 'GPU')}, but NVML shows none")
        if len(self._devices) != wanted:
            raise OwnGpusUnknownError(
                f"the container was given {wanted} GPUs but sees {len(self._devices)}, so its own GPUs are unknown"
            )

    def use(self) -> dict[str, float]:
        """Return the present use of the container's GPUs, by fields of the message Heartbeat.

        ``gpu_percent`` is the mean over the GPUs, ``gpu_bytes`` the sum of their used memory. A value is missing if a
        GPU, such as a MIG instance, does not report it.
        """
        busy, used = _Utilization(), _Memory()
        percents, sizes = [], []
        for device in self._devices:
            if self._answers("nvmlDeviceGetUtilizationRates", device, ctypes.byref(busy)):
                percents.append(busy.gpu)
            if self._answers("nvmlDeviceGetMemoryInfo", device, ctypes.byref(used)):
                sizes.append(used.used)
        every = len(self._devices)
        found: dict[str, float] = {}
        if len(percents) == every:
            found["gpu_percent"] = sum(percents) / every
        if len(sizes) == every:
            found["gpu_bytes"] = sum(sizes)
        return found

    def faults(self) -> Iterator[str]:
        """Yield a line for each of the container's GPUs whose memory is damaged. Not all GPUs report such faults."""
        errors = ctypes.c_ulonglong()
        remaps = [ctypes.c_uint() for _ in range(4)]  # correctable, uncorrectable, pending, failed
        for number, device in enumerate(self._devices):
            name = self._names[number] if self._names else str(number)
            counted = self._has("nvmlDeviceGetTotalEccErrors") and self._answers(
                "nvmlDeviceGetTotalEccErrors", device, _UNCORRECTED, _SINCE_LOADED, ctypes.byref(errors)
            )
            remapped = self._has("nvmlDeviceGetRemappedRows") and self._answers(
                "nvmlDeviceGetRemappedRows", device, *map(ctypes.byref, remaps)
            )
            if remapped and remaps[3].value:
                yield f"its GPU {name} could not remap a damaged row of its memory"
            elif remapped and remaps[2].value:
                yield f"its GPU {name} needs a reset, which remaps a damaged row of its memory"
            elif counted and errors.value and not remapped:  # older GPUs do not remap rows
                yield f"its GPU {name} has had {count(errors.value, 'uncorrected ECC error')}"

    def addresses(self) -> list[str]:
        """Return the PCI addresses of the container's GPUs, such as 0000:3b:00, as far as NVML reports them."""
        found, place = [], _PciInfo()
        for device in self._devices:
            if self._has(_PCI) and self._answers(_PCI, device, ctypes.byref(place)):
                found.append(f"{place.domain:04x}:{place.bus:02x}:{place.device:02x}")
        return found

    def _has(self, function: str) -> bool:
        return hasattr(self._nvml, function)

    def _named(self, name: str) -> ctypes.c_void_p:
        device = ctypes.c_void_p()
        if name.isdecimal():
            self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(int(name)), ctypes.byref(device))
        else:
            self._call("nvmlDeviceGetHandleByUUID", name.encode(), ctypes.byref(device))
        return device

    def _all(self) -> list[ctypes.c_void_p]:
        """Return the GPUs that can be opened. With GPU isolation, NVML also counts GPUs of other containers."""
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
            raise NvmlError(f"NVML has no function {function}") from error

    def _call(self, function: str, *arguments: Any) -> None:
        if not self._answers(function, *arguments):
            raise NvmlError(f"{function} failed")


class GpuMeter:
    """Queries NVML in a separate thread, because a broken driver makes calls hang. ``take`` then returns None."""

    def __init__(self, open_nvml: Callable[[], Nvml]) -> None:
        """Prepare the thread, in which ``open_nvml`` is called. ``open_nvml`` may raise NvmlError."""
        self._open = open_nvml
        self._newest: Optional[dict[str, float]] = None
        self._asked = threading.Event()
        self._thread: Optional[threading.Thread] = None

    def take(self) -> Optional[dict[str, float]]:
        """Return the result of the last call's query, or None if it has not arrived yet. Start the next query."""
        newest, self._newest = self._newest, None
        if self._thread is None:
            # A pool's thread would keep the process from ending while the driver hangs.
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
            log.info("GPU utilization is unknown: %s", error)
