"""The local cluster from inside: what a container finds, what it is given, and that nothing of it is left."""

from __future__ import annotations

import asyncio
import stat
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import attrs
import pytest

from tony_provider.runtime.am import local_resource_manager
from tony_provider.runtime.am.local_resource_manager import LocalResourceManager
from tony_provider.runtime.am.resource_manager import (
    Allocated,
    Completed,
    ContainerExit,
    ContainerRequest,
    Event,
    ExitReason,
    Launch,
    LaunchFailed,
    NodesCounted,
    ResourceManagerError,
    Room,
)
from tony_provider.runtime.application import (
    ApplicationDescription,
    LocalAccess,
    LocalizedResource,
    ResourceKind,
)
from tony_provider.runtime.common.files import remove_tree
from tony_provider.runtime.common.quantities import GPU
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.launch.launch_context import TOKEN_FILE, materialise, write_tokens
from tony_provider.runtime.protocol import master_files
from tony_provider.runtime.protocol.master_files import FinalReport, read_report
from tony_provider.runtime.protocol.status import FinalStatus

DEADLINE = 30


def resource(path: Path, name: str, kind: ResourceKind = ResourceKind.FILE) -> LocalizedResource:
    status = path.stat()
    return LocalizedResource(name, path.as_uri(), status.st_size, int(status.st_mtime * 1000), kind)


def describe(tmp_path: Path, access: LocalAccess | None = None) -> ApplicationDescription:
    return ApplicationDescription(
        "application_1_0001",
        "me",
        JobSpec("standalone", {}),
        (tmp_path / "application").as_uri(),
        None,
        [],
        LocalizedResource("tony-runtime.zip", "file:///nowhere", 0, 0),
        local=access,
    )


# ---- what a container finds ----------------------------------------------------------------------------------------


def test_files_get_their_names_with_folders(tmp_path: Path) -> None:
    source = tmp_path / "x.py"
    source.write_text("print(1)")
    materialise(tmp_path / "container", {"tony-files/7": resource(source, "lib/deep/y.py")})
    assert (tmp_path / "container" / "tony-files" / "7").read_text() == "print(1)"


# ---- what it is given ----------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Inside:
    manager: LocalResourceManager
    root: Path
    events: AsyncIterator[Event]

    async def next(self) -> Event:
        return await asyncio.wait_for(self.events.__anext__(), DEADLINE)

    async def allocated(self) -> Allocated:
        event = await self.next()
        assert isinstance(event, Allocated)
        return event

    async def completed(self) -> Completed:
        event = await self.next()
        assert isinstance(event, Completed)
        return event

    async def launch(self, script: str, *resources: LocalizedResource) -> str:
        """Start a script in a container of its own."""
        self.manager.request([ask(1000)])
        container = (await self.allocated()).container
        await self.manager.launch(
            container, Launch(["/bin/sh", "-c", script], {"A": "b"}, {each.name: each for each in resources}, b"HDTS")
        )
        return container.id


def ask(key: int, memory: int = 100, gpus: int = 0, priority: int = 1) -> ContainerRequest:
    return ContainerRequest(key, priority, memory, 1, {GPU: gpus} if gpus else {})


@pytest.fixture
async def inside(tmp_path: Path) -> AsyncIterator[Inside]:
    access = LocalAccess(str(tmp_path / "cluster"), memory=1000, vcores=8, gpus=2)
    (tmp_path / "cluster").mkdir()
    description = describe(tmp_path, access)
    manager = LocalResourceManager(description, access)
    await manager.register(host="127.0.0.1", port=1, tracking_url="http://127.0.0.1:2/")
    inside = Inside(manager, Path(access.root), manager.events().__aiter__())
    assert await inside.next() == NodesCounted(1)
    yield inside
    await manager.close()


async def test_where_the_master_is_asked_is_kept_for_its_owner_alone(inside: Inside) -> None:
    secret = master_files.make_tracking_secret(inside.root)
    assert master_files.read_tracking_url(inside.root) == "http://127.0.0.1:2/"
    assert master_files.read_tracking_secret(inside.root) == secret
    modes = {path.stat().st_mode & 0o777 for path in inside.root.glob("tracking-*")}
    assert modes == {0o600}
    assert master_files.make_tracking_secret(inside.root) != secret


def exited(code: int) -> ContainerExit:
    return ContainerExit(ExitReason.EXITED, code)


async def test_container_finds_its_surroundings(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", "not for containers")
    container_id = await inside.launch(
        "exec > $TONY_LOG_DIR/said; echo $CONTAINER_ID $NM_HOST $A; stat -c %a $HADOOP_TOKEN_FILE_LOCATION;"
        "env | grep -c AIRFLOW; exit 0"
    )
    assert await inside.completed() == Completed(container_id, exited(0))
    said = (inside.root / "logs" / container_id / "said").read_text().splitlines()
    assert said == [f"{container_id} 127.0.0.1 b", "600", "0"]
    assert not (inside.root / "containers" / container_id).exists()


async def test_exit_status_and_last_words(inside: Inside) -> None:
    container_id = await inside.launch("echo too bad >&2; exit 3")
    assert await inside.completed() == Completed(container_id, exited(3), "too bad\n")


async def test_signal_becomes_an_exit_status_as_on_yarn(inside: Inside) -> None:
    await inside.launch("kill -9 $$")
    assert (await inside.completed()).exit == exited(137)


async def test_what_a_process_leaves_in_its_group_is_killed(inside: Inside) -> None:
    container_id = await inside.launch("sleep 1000 & echo $! > $TONY_LOG_DIR/pid; exit 0")
    await inside.completed()
    pid = int((inside.root / "logs" / container_id / "pid").read_text())
    async with asyncio.timeout(DEADLINE):
        while running(pid):  # noqa: ASYNC110 - the kernel ends it
            await asyncio.sleep(0.01)


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_nothing_of_a_container_is_left_at_the_end_also_if_its_removal_is_slow(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()

    def remove(directory: Path) -> None:
        """The first removal, which is that of the container's watch, waits for the end."""
        if not removals:
            removals.append(directory)
            ended.wait(DEADLINE)
        remove_tree(directory)

    removals: list[Path] = []
    monkeypatch.setattr(local_resource_manager, "remove_tree", remove)
    container_id = await inside.launch("exec sleep 1000")
    inside.manager.release([container_id])
    async with asyncio.timeout(DEADLINE):
        while not removals:  # noqa: ASYNC110 - in another thread
            await asyncio.sleep(0.01)
    await inside.manager.finish(FinalStatus.SUCCEEDED, "")
    there = [path.name for path in (inside.root / "containers").iterdir()]
    ended.set()
    assert there == []


async def test_released_container_is_stopped(inside: Inside) -> None:
    container_id = await inside.launch("exec sleep 1000")
    inside.manager.release([container_id])
    assert (await inside.completed()).exit.reason is ExitReason.GIVEN_BACK


async def test_container_given_back_before_its_launch_makes_room(inside: Inside) -> None:
    inside.manager.request([ask(1, memory=800)])
    first = (await inside.allocated()).container
    inside.manager.release([first.id])
    completed = await inside.completed()
    assert (completed.container_id, completed.exit.reason) == (first.id, ExitReason.LOST)
    inside.manager.request([ask(2, memory=800)])
    assert (await inside.allocated()).key == 2
    await inside.manager.launch(first, Launch(["/bin/true"], {}, {}, b""))
    assert not (inside.root / "containers").exists()


async def test_there_is_room_for_what_fits_beside_what_is_held_and_asked_for(inside: Inside) -> None:
    looks = [(ask(7, memory=300), 9), (ask(8, memory=300), 2), (ask(9, memory=10, gpus=1), 9), (ask(10, 1001), 1)]
    found = []
    inside.manager.request([ask(1, memory=100, gpus=1)])
    await inside.allocated()
    for request, most in looks:
        inside.manager.look_for_room(request, most)
        found.append(await inside.next())
    assert found == [Room(7, 3), Room(8, 2), Room(9, 1), Room(10, 0)]
    inside.manager.request([ask(2, memory=900)])
    assert (await inside.allocated()).key == 2


async def test_smaller_priority_numbers_first(inside: Inside) -> None:
    inside.manager.request([ask(1, priority=2), ask(2, priority=1), ask(3, priority=2)])
    assert [(await inside.allocated()).key for _ in range(3)] == [2, 1, 3]


async def test_what_waits_for_those_that_still_end_is_no_more_than_may_be_had(inside: Inside) -> None:
    """As when a job is resumed while the executors of before keep their logs."""
    container_id = await inside.launch("exec sleep 1000")
    inside.manager.request([ask(1, 950)])
    inside.manager.release([container_id])
    assert (await inside.completed()).container_id == container_id
    assert (await inside.allocated()).key == 1


@pytest.mark.parametrize("wanted", [[ask(1, 600), ask(2, 600)], [ask(1, gpus=2), ask(2, gpus=1)]])
async def test_what_can_never_fit_is_refused(inside: Inside, wanted: list[ContainerRequest]) -> None:
    inside.manager.request(wanted)
    with pytest.raises(ResourceManagerError, match="the local cluster's limit per job is 1000 MiB, 8 vcores, 2 GPUs"):
        await inside.next()


async def test_missing_resource_is_a_failed_launch(inside: Inside, tmp_path: Path) -> None:
    await inside.launch("true", LocalizedResource("x", (tmp_path / "gone").as_uri(), 1, 1))
    event = await inside.next()
    assert isinstance(event, LaunchFailed)
    assert "gone" in event.reason


async def test_a_container_finds_nothing_that_another_one_has_put_there(inside: Inside) -> None:
    """Seen: a link in the directory of a later container had its credentials written to a file of the program."""
    later = "../container_1_0001_01_000003"
    plant = f"ln -s {inside.root}/taken {later}/{TOKEN_FILE} && touch {later}/sitecustomize.py"
    first = await inside.launch(f"mkdir {later} && {plant} && chmod 500 {later}")
    assert (await inside.completed()).exit == exited(0)
    second = await inside.launch("ls -A > ../../found")
    assert (await inside.completed()).exit == exited(0)
    assert (first, f"../{second}") == ("container_1_0001_01_000002", later)
    assert not (inside.root / "taken").exists()
    assert "sitecustomize.py" not in (inside.root / "found").read_text()


async def test_finish_stops_everything_and_leaves_the_report(inside: Inside) -> None:
    container_id = await inside.launch("exec sleep 1000")
    await inside.manager.finish(FinalStatus.FAILED, "it was no good")
    report = read_report(inside.root)
    assert isinstance(report, FinalReport)
    assert (report.final_status, report.diagnostics) == (FinalStatus.FAILED, "it was no good")
    assert (await inside.completed()).container_id == container_id


def test_token_file_is_ours_alone(tmp_path: Path) -> None:
    write_tokens(tmp_path, b"secret")
    assert stat.S_IMODE((tmp_path / TOKEN_FILE).stat().st_mode) == 0o600
