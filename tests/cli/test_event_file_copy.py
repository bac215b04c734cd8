"""Event files of a job, copied beside a command while its store comes and goes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from tests.waiting import until
from tony_provider.cli.local_tensorboard import EventFileCopy, is_copied
from tony_provider.cluster.errors import ClusterUnreachable
from tony_provider.cluster.interface import Application
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.event_files import event_file_mirror

EVENTS = "worker-0/events.out.tfevents.1.host"
MEBIBYTE = 1 << 20


@attrs.frozen
class Copied:
    """From ``store``, a directory of the local store, to ``here``."""

    store: Path
    here: Path
    copy: EventFileCopy

    def put(self, name: str, data: bytes) -> None:
        path = self.store / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def until_here(self, name: str, data: bytes) -> None:
        path = self.here / name
        until(lambda: path.exists() and path.read_bytes() == data, name)

    def news(self) -> str:
        return self.copy.news.get(timeout=60)


@pytest.fixture
def copied(local: TonyHook, tmp_path: Path) -> Iterator[Copied]:
    store, here = tmp_path / "tony" / "events", tmp_path / "here"
    here.mkdir()
    training = local.identity(dag_id="clicks", run_id="1", task_id="train")
    copy = EventFileCopy(local, {f"file://{store}": here}, [training], refresh=0.05, size_limit=MEBIBYTE)
    yield Copied(store, here, copy)
    copy.stop()
    assert "event-files" not in [thread.name for thread in threading.enumerate()]


def test_a_store_that_goes_away_is_said_and_what_is_here_stays(copied: Copied) -> None:
    copied.put(EVENTS, b"one")
    copied.copy.start()
    copied.until_here(EVENTS, b"one")
    away = copied.store.with_name("away")
    copied.store.rename(away)
    copied.store.write_text("in the way")  # it cannot be listed
    assert copied.news().startswith(
        "Some data cannot be read now; TensorBoard shows the data that were copied before: "
    )
    copied.until_here(EVENTS, b"one")
    copied.store.unlink()
    away.rename(copied.store)
    assert copied.news() == "All data can be read again"
    copied.put(EVENTS, b"one, two")
    copied.until_here(EVENTS, b"one, two")
    assert copied.copy.news.empty()


def test_a_cluster_out_of_reach_does_not_keep_the_store_from_being_read(
    copied: Copied, local: TonyHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object) -> list[Application]:
        raise ClusterUnreachable("no ResourceManager answers")

    monkeypatch.setattr(local, "find", unreachable)
    copied.put(EVENTS, b"one")
    copied.copy.start()
    copied.until_here(EVENTS, b"one")
    assert "no ResourceManager answers" in copied.news()
    assert copied.copy.runs  # as far as anybody knows


def test_what_there_is_no_room_for_is_said_once(copied: Copied) -> None:
    copied.put(EVENTS, b"one")
    copied.put(f"{EVENTS}.2", b"x" * MEBIBYTE)
    copied.copy.start()
    said = copied.news()
    assert said == "1 file left out: more than 1 MiB would be copied; name fewer jobs, or raise --most"
    copied.put(EVENTS, b"one, two")
    copied.until_here(EVENTS, b"one, two")
    assert copied.copy.held(copied.here) == (1, 8)
    assert copied.copy.news.empty()


def test_more_files_than_are_looked_at_are_said(copied: Copied, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_file_mirror, "MOST_FILES", 2)
    for number in range(3):
        copied.put(f"{EVENTS}.{number}", b"one")
    copied.copy.start()
    assert copied.news() == "A job has more than 20,000 event files: the rest is left out"


def test_files_that_could_name_others_of_this_machine_are_not_copied() -> None:
    assert is_copied(EVENTS)
    assert is_copied("worker-0/train/plugins/profile/2026_01_05/host.xplane.pb")
    assert not is_copied("worker-0/projector_config.pbtxt")
    assert not is_copied("worker-0/tfevents/metadata.tsv")
