"""GPUs dealt between containers on one machine, which has none: its devices are names, and a lock on each."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.runtime.executor.conftest import Launch, Running
from tests.runtime.executor.containers import REPOSITORY, is_alive, job, until
from tests.runtime.executor.gpus.fake_nvidia_smi import fake_nvidia_smi
from tony_provider.runtime.application import GpuDealing
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.concurrency import Cancelled
from tony_provider.runtime.executor import gpus as locks
from tony_provider.runtime.executor.gpus import ContainerGpus, NoGpusError, gpus_set_by_node
from tony_provider.runtime.jobspec.model import TaskSpec

SEE = "echo $CUDA_VISIBLE_DEVICES >seen.part; mv seen.part seen; "
WORK = SEE + "sleep 1000"


@pytest.fixture
def names() -> list[str]:
    """Two GPUs that nobody else on this machine has."""
    return [f"GPU-{uuid.uuid4()}" for _ in range(2)]


Container = Callable[..., Awaitable[Running]]


@pytest.fixture
def container(launch: Launch, names: list[str], tmp_path: Path) -> Container:
    """``await container("a")``: one with so many GPUs that begins at once."""

    async def start(name: str, command: str = WORK, *, gpus: int = 1, **more: object) -> Running:
        tasks = {"worker": TaskSpec(command=command, instances=2, gpus=gpus)}
        given = {"gpu_dealing": GpuDealing(names), **more}
        running = await launch(job("", tasks=tasks), below=tmp_path / name, **given)
        await running.begin()
        return running

    return start


async def seen(running: Running) -> str:
    await running.until_there("seen")
    return (running.container.directory / "seen").read_text().strip()


def guard_of(running: Running) -> int:
    mark = os.fsencode(f"{contract.ENV_CONTAINER}={running.container.id}")
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit() and (directory / "cmdline").read_bytes().split(b"\0")[-2:-1] == [mark]:
            return int(directory.name)
    raise AssertionError("there is no guard")


async def until_free(device: str) -> None:
    def is_free() -> bool:
        held = locks.take_gpu_lock(device)
        if held:
            held.close()
        return held is not None

    await until(is_free, f"{device} is free")


async def test_containers_see_different_devices_as_nvidia_smi_has_them(
    container: Container, names: list[str], tmp_path: Path
) -> None:
    env = {"PATH": fake_nvidia_smi(tmp_path, names)}
    both = [await container(name, gpu_dealing=GpuDealing(), env=env) for name in "ab"]
    assert sorted([await seen(running) for running in both]) == sorted(names)


async def test_a_killed_executors_device_goes_to_the_next(container: Container, names: list[str]) -> None:
    first, other = await container("a"), await container("b")
    of_first, of_other = await seen(first), await seen(other)
    waiting = await container("c")
    await until(lambda: "waiting up to 60 s for GPUs" in waiting.executor.stderr, "it says what it waits for")
    assert f"{of_first} is held by {first.executor.process.pid} (python" in waiting.executor.stderr
    assert f"; {of_other} is held by " in waiting.executor.stderr

    first.executor.process.send_signal(signal.SIGKILL)

    assert await seen(waiting) == of_first
    assert is_alive((await other.master.first("started")).pid)


async def test_a_user_process_that_outlives_executor_and_guard_keeps_its_device(
    container: Container, names: list[str]
) -> None:
    running = await container("a", gpus=2)
    assert sorted((await seen(running)).split(",")) == sorted(names)
    process = (await running.master.first("started")).pid
    os.kill(guard_of(running), signal.SIGKILL)
    running.executor.process.send_signal(signal.SIGKILL)
    await running.executor.wait()

    for name in names:
        assert locks.take_gpu_lock(name) is None
        assert locks.gpu_lock_holders(name)[0].startswith(f"{process} (")

    os.killpg(running.executor.process.pid, signal.SIGKILL)
    for name in names:
        await until_free(name)


async def test_a_device_is_free_when_what_the_program_started_is_gone(container: Container) -> None:
    """Python's subprocesses have no files of their parents', so that this one has no lock; and it left the session."""
    deaf = "trap '' TERM; echo $$ >stray.part; mv stray.part stray; while :; do sleep 1; done"
    program = f"import subprocess; subprocess.Popen(['sh', '-c', {deaf!r}], start_new_session=True)"
    running = await container("a", f"{SEE} {sys.executable} -c {shlex.quote(program)}; sleep 1000", gpus=2)
    await running.until_there("stray")
    pid = int((running.container.directory / "stray").read_text())
    guard = guard_of(running)
    os.kill(guard, signal.SIGSTOP)
    os.killpg(running.executor.process.pid, signal.SIGKILL)
    await running.executor.wait()
    device = (await seen(running)).split(",")[0]

    assert is_alive(pid)
    assert locks.take_gpu_lock(device) is None

    os.kill(guard, signal.SIGCONT)
    await until_free(device)
    assert not is_alive(pid)


async def test_a_container_keeps_its_devices_for_its_next_start(container: Container, names: list[str]) -> None:
    running = await container("a", SEE + "exit 1", gpus=2)
    before = await seen(running)
    await running.master.first("settled")
    (running.container.directory / "seen").unlink()

    assert locks.take_gpu_lock(names[0]) is None, "between two starts"
    await running.begin(generation=2)

    assert await seen(running) == before
    assert sorted(before.split(",")) == sorted(names)
    await running.end()
    await until_free(names[0])


async def test_a_node_with_too_few_cannot_prepare(container: Container, names: list[str]) -> None:
    running = await container("a", gpus=3)
    failed = await running.master.first("preparation_failed")
    assert (failed.uri, failed.damaged) == ("", False)
    assert failed.reason == f"the container was given 3 GPUs, but the node has 2: {', '.join(names)}"


async def test_what_the_node_or_the_job_chose_stays(container: Container, launch: Launch, tmp_path: Path) -> None:
    by_yarn = await container("a", env={"CUDA_VISIBLE_DEVICES": "7"})
    assert await seen(by_yarn) == "7"
    tasks = {"worker": TaskSpec(command=WORK, instances=2, gpus=1, env={"CUDA_VISIBLE_DEVICES": "5"})}
    by_job = await launch(job("", tasks=tasks), below=tmp_path / "b", gpu_dealing=GpuDealing())  # no nvidia-smi
    await by_job.begin()
    assert await seen(by_job) == "5"
    without = await container("c", gpus=0)
    assert await seen(without) == "-1"


@pytest.mark.parametrize(
    ("environ", "given"),
    [
        ({}, False),
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, False),  # as images for CUDA have it
        ({"NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-2"}, True),
        ({"NVIDIA_VISIBLE_DEVICES": "void"}, True),
        ({"CUDA_VISIBLE_DEVICES": "0"}, True),
    ],
)
def test_what_the_node_has_given(environ: dict[str, str], given: bool) -> None:
    assert gpus_set_by_node(environ) is given


@pytest.fixture
def held(names: list[str]) -> Iterator[socket.socket]:
    found = locks.take_gpu_lock(names[1])
    assert found
    yield found
    found.close()


@pytest.mark.usefixtures("held")
def test_a_shortage_says_who_has_what(names: list[str]) -> None:
    gpus = ContainerGpus(GpuDealing(names), 2, {}, wait=0)
    with pytest.raises(NoGpusError) as error:
        gpus.environment(threading.Event())
    start = f"the container was given 2 GPUs, but 1 of the node's 2 is free: {names[1]} is held by {os.getpid()} ("
    assert str(error.value).startswith(start)
    free = locks.take_gpu_lock(names[0])
    assert free, "what it could have is given back"
    free.close()


_STRANGER = """
import os, sys
from tony_provider.runtime.executor import gpus
os.setuid(4001)
held = [gpus.take_gpu_lock(name) for name in sys.argv[1:]]
print(*map(bool, held), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def stranger(names: list[str]) -> Iterator[None]:
    """Another local user, without any container, who holds the locks of all GPUs."""
    with subprocess.Popen(
        [sys.executable, "-c", _STRANGER, *names],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env={"PYTHONPATH": str(REPOSITORY)},
    ) as process:
        assert process.stdout
        assert process.stdin
        assert process.stdout.readline() == "True True\n"
        yield
        process.stdin.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be other users")
@pytest.mark.usefixtures("stranger")
def test_another_local_user_who_holds_all_locks_keeps_no_container_from_its_gpus(
    names: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    gpus = ContainerGpus(GpuDealing(names), 1, {}, wait=0)
    other = ContainerGpus(GpuDealing(names), 1, {}, wait=0)
    assert gpus.environment(threading.Event()) == {"CUDA_VISIBLE_DEVICES": names[0]}
    assert other.environment(threading.Event()) == {"CUDA_VISIBLE_DEVICES": names[1]}
    gpus.close()
    other.close()
    assert f"using GPU {names[0]}, which another user has locked: no process is known to use it" in caplog.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be other users")
@pytest.mark.usefixtures("stranger")
def test_a_gpu_that_another_user_has_locked_and_uses_stays_that_user_s(names: list[str], tmp_path: Path) -> None:
    path = fake_nvidia_smi(tmp_path, names, busy=names[:1])
    gpus = ContainerGpus(GpuDealing(), 1, {"PATH": path}, wait=0)
    assert gpus.environment(threading.Event()) == {"CUDA_VISIBLE_DEVICES": names[1]}
    with pytest.raises(NoGpusError, match=f"{names[0]} is held by user 4001"):
        ContainerGpus(GpuDealing(), 1, {"PATH": path}, wait=0).environment(threading.Event())
    gpus.close()


@pytest.mark.usefixtures("held")
def test_waiting_ends_when_it_is_told_to(names: list[str]) -> None:
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(Cancelled):
        ContainerGpus(GpuDealing(names), 2, {}).environment(cancelled)


def test_numbers_mean_the_same_to_all_programs() -> None:
    number = str(uuid.uuid4().int)
    gpus = ContainerGpus(GpuDealing([number]), 1, {})
    found = gpus.environment(threading.Event())
    gpus.close()
    assert found == {"CUDA_VISIBLE_DEVICES": number, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
