"""What the chief leaves as the job's model, and what it returns."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from tests.runtime.executor.conftest import Launch, Running
from tests.runtime.executor.containers import job
from tests.runtime.executor.master import address
from tests.runtime.executor.test_mirror import kinds
from tony_provider.runtime.artifacts.upload import publish_directory
from tony_provider.runtime.frameworks.base import MAIN_PORT
from tony_provider.runtime.jobspec.model import Duration, TaskSpec, Timeouts
from tony_provider.runtime.storage import LocalStorage, StorageUnreachable

_SAVE = 'cd "$TONY_MODEL_DIR" && mkdir -p variables assets && echo weights > variables/data && echo graph > saved.pb'


def stored(directory: Path) -> list[str]:
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*"))


async def test_the_model_is_committed_before_the_end_is_told(launch: Launch) -> None:
    running = await launch(_SAVE)
    await running.begin()
    ended = await running.master.first("exited")
    model = running.container.application_dir / "model"
    assert stored(running.container.application_dir) == [
        "model",
        "model/assets",
        "model/saved.pb",
        "model/variables",
        "model/variables/data",
    ]
    assert ended.model_dir == f"file://{model}"
    assert (model.stat().st_mode & 0o777, (model / "saved.pb").stat().st_mode & 0o777) == (0o700, 0o600)
    assert await running.end() == 0


async def test_a_later_generation_replaces_it(launch: Launch) -> None:
    running = await launch('echo $TONY_GENERATION > "$TONY_MODEL_DIR/only-$TONY_GENERATION"')
    await running.begin()
    await running.master.first("exited")
    await running.begin(generation=2)
    ends = await running.master.all_of("exited", 2)
    assert [end.error for end in ends] == ["", ""]
    assert stored(running.container.application_dir) == ["model", "model/only-2"]


async def test_no_model_without_success_or_without_files(launch: Launch) -> None:
    running = await launch(f'[ "$TONY_GENERATION" = 2 ] || {{ {_SAVE}; exit 1; }}')
    await running.begin()
    assert (await running.master.first("exited")).model_dir == ""
    await running.begin(generation=2)
    assert [end.model_dir for end in await running.master.all_of("exited", 2)] == ["", ""]
    assert stored(running.container.application_dir) == []


async def test_only_the_leading_task_keeps_its_model(launch: Launch) -> None:
    tasks = {"worker": TaskSpec(command=_SAVE), "chief": TaskSpec(command=_SAVE)}
    running = await launch(job("", tasks=tasks))
    await running.master.first("registration")
    running.master.rendezvous(address("worker", 0, 20000), address("chief", 0, 20001, role="chief"))
    ended = await running.master.first("exited")
    assert (ended.exit_code, ended.model_dir) == (0, "")
    assert stored(running.container.application_dir) == []


async def test_where_the_leader_is_missing_the_next_one_keeps_its_model(launch: Launch) -> None:
    spec = job("", tasks={"worker": TaskSpec(command=_SAVE, instances=3, min_instances=2)})
    running = await launch(spec, task="worker:1")
    registration = await running.master.first("registration")
    own, other = address("worker", 1, registration.ports[MAIN_PORT]), address("worker", 2, 20001, host="10.0.0.2")
    running.master.rendezvous(own, other, generation=2)
    ended = await running.master.first("exited")
    assert ended.model_dir == f"file://{running.container.application_dir}/model"
    assert "model/saved.pb" in stored(running.container.application_dir)


def block_store(running: Running) -> Path:
    """The application's directory, which is a file now: nothing can be kept there until that is removed."""
    directory = running.container.application_dir
    directory.rmdir()
    directory.write_text("a file where a directory should be")
    return directory


async def test_a_store_that_does_not_do_is_waited_for(launch: Launch) -> None:
    """The training is over, and is not done again for an upload."""
    running = await launch(_SAVE)
    directory = block_store(running)
    await running.begin()
    beat = await running.master.heartbeat_with(lambda beat: beat.trouble)
    assert beat.trouble.startswith("cannot upload the results to the store, retrying until ")
    assert beat.activity == "waiting to upload its results to the store"
    directory.unlink()
    ended = await running.master.first("exited")
    assert (ended.exit_code, ended.not_kept, ended.error) == (0, "", "")
    assert (directory / "model" / "saved.pb").exists()
    assert kinds(running)[:2] == ["started", "exited"]


async def test_a_store_that_refuses_for_long_is_the_end_and_says_where_the_files_are(launch: Launch) -> None:
    running = await launch(job(_SAVE, timeouts=Timeouts(grace=Duration(5), upload=Duration(1))))
    block_store(running)
    await running.begin()
    ended = await running.master.first("exited")
    assert (ended.exit_code, ended.stopped, ended.error) == (0, False, "")
    assert ended.not_kept.startswith("its results could not be uploaded within 1 s (timeouts.upload): ")
    assert f"They are in {running.container.directory}/tony-work on 127.0.0.1" in ended.not_kept


async def test_whoever_waits_for_the_store_is_stopped_at_once(launch: Launch) -> None:
    running = await launch(_SAVE)
    block_store(running)
    await running.begin()
    await running.master.heartbeat_with(lambda beat: beat.trouble)
    running.master.stop(1, grace=60)
    assert (await running.master.first("exited")).stopped


class BreakingStorage(LocalStorage):
    """Stands for a store that is gone when the new results are to take the place of the old."""

    def rename(self, source: str, target: str, *, overwrite: bool = False) -> None:
        if ".tmp-" in source and not Path(target).exists():
            raise StorageUnreachable(source, "rename", "it is gone")
        super().rename(source, target, overwrite=overwrite)


def test_what_was_there_stays_when_the_new_cannot_take_its_place(tmp_path: Path) -> None:
    target = tmp_path / "store" / "model"
    for directory, content in ((target, "old"), (tmp_path / "new", "new")):
        directory.mkdir(parents=True)
        (directory / "weights").write_text(content)
    with pytest.raises(StorageUnreachable, match="it is gone"):
        publish_directory(BreakingStorage(), tmp_path / "new", str(target), threading.Event(), print)
    assert (target / "weights").read_text() == "old"
    assert stored(tmp_path / "store") == ["model", "model/weights"]


async def test_a_model_directory_that_is_none_is_named(launch: Launch) -> None:
    running = await launch('rmdir "$TONY_MODEL_DIR" && mkfifo "$TONY_MODEL_DIR"')
    await running.begin()
    ended = await running.master.first("exited")
    assert "cannot be stored" in ended.not_kept
    assert "model" in ended.not_kept
    assert await running.end() == 0
    assert stored(running.container.application_dir) == []


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("mkfifo odd", "is neither a file nor a directory"),
        ("ln -s /nowhere odd", "is neither a file nor a directory"),
        ("ln -s . odd", "is a link to a directory that contains it"),
        ("ln -s / odd", "is a link to a directory that contains it"),
    ],
)
async def test_one_odd_entry_does_not_lose_the_model(launch: Launch, command: str, why: str) -> None:
    running = await launch(f'cd "$TONY_MODEL_DIR"; echo 1 > weights; {command}')
    await running.begin()
    settled = await running.master.first("settled")
    [notice] = settled.notices
    assert "odd" in notice
    assert why in notice
    assert (await running.master.first("exited")).not_kept == ""
    assert await running.end() == 0
    assert [path for path in stored(running.container.application_dir) if path.startswith("model")] == [
        "model",
        "model/weights",
    ]
    assert why in running.log


async def test_what_it_returns_is_on_the_store_before_the_end_is_told(launch: Launch) -> None:
    running = await launch("""echo '{"a": [1, -Infinity], "b": "é"}' > $TONY_RESULT_FILE""")
    await running.begin()
    assert (await running.master.first("exited")).error == ""
    file = running.container.application_dir / "return_value.json"
    assert json.loads(file.read_bytes()) == {"a": [1, "-Infinity"], "b": "é"}
    assert file.stat().st_mode & 0o777 == 0o600
    assert await running.end() == 0


async def test_what_an_earlier_start_returned_is_forgotten(launch: Launch) -> None:
    running = await launch("[ $TONY_GENERATION != 1 ] || echo 1 > $TONY_RESULT_FILE")
    await running.begin()
    await running.master.first("exited")
    assert stored(running.container.application_dir) == ["return_value.json"]
    await running.begin(generation=2, start=2)
    ends = await running.master.all_of("exited", 2)
    assert [end.error for end in ends] == ["", ""]
    assert stored(running.container.application_dir) == []


async def test_nothing_is_returned_without_success_or_by_others(launch: Launch) -> None:
    running = await launch("echo 1 > $TONY_RESULT_FILE; exit 1")
    await running.begin()
    await running.master.first("exited")
    assert stored(running.container.application_dir) == []
    tasks = {"worker": TaskSpec(command="echo 1 > $TONY_RESULT_FILE"), "chief": TaskSpec(command="true")}
    running = await launch(job("", tasks=tasks), below=running.container.directory)
    await running.master.first("registration")
    running.master.rendezvous(address("worker", 0, 20000), address("chief", 0, 20001, role="chief"))
    assert (await running.master.first("exited")).exit_code == 0
    assert stored(running.container.application_dir) == []


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (
            "head -c 1048577 /dev/zero > $TONY_RESULT_FILE",
            "has more than 1 MiB; write large data to TONY_MODEL_DIR",
        ),
        ("echo '{' > $TONY_RESULT_FILE", "does not contain valid JSON: Expecting property name"),
        ("head -c 100000 /dev/zero | tr '\\0' '[' > $TONY_RESULT_FILE", "is nested too deeply"),
        ("""echo '["\\ud800"]' > $TONY_RESULT_FILE""", "contains text that UTF-8 cannot encode"),
        ("mkfifo $TONY_RESULT_FILE", "is neither a file nor a link to a file"),
        ("mkdir $TONY_RESULT_FILE", "is neither a file nor a link to a file"),
    ],
)
async def test_what_cannot_be_returned_fails_the_task(launch: Launch, command: str, words: str) -> None:
    running = await launch(f"{command}; {_SAVE}")
    await running.begin()
    ended = await running.master.first("exited")
    assert f": TONY_RESULT_FILE {words}" in ended.not_kept
    assert stored(running.container.application_dir) == []
