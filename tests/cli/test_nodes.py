"""Nodes that lost containers: how masters record them, who lists them, and who avoids them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import attrs
import pytest

from tests.cli.conftest import Tony
from tests.hooks.jobs import ended, identity, job
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.am.checkpoint_chain import Ownership
from tony_provider.runtime.am.session.actions import Note
from tony_provider.runtime.am.store_writer import LostNodesFile
from tony_provider.runtime.application import ApplicationDescription, LocalizedResource
from tony_provider.runtime.application_history import lost_nodes_days
from tony_provider.runtime.common.clock import epoch_ms
from tony_provider.runtime.protocol.status import JobState
from tony_provider.runtime.storage import uris


def _ignore(note: Note) -> None:
    assert note is not None


def record(
    hook: TonyHook, application_id: str, *nodes: str, attempt: int = 1, reason: str = "1 container lost"
) -> None:
    """As the master of this application writes it at its end."""
    description = ApplicationDescription(
        application_id,
        "alice",
        job("true"),
        hook.layout.root,
        None,
        [],
        LocalizedResource("", "", 0, 0),
        lost_nodes_dir=hook.layout.lost_nodes_dir,
    )
    ownership = Ownership(hook.storage(), description, attempt, b"key")

    async def write() -> bool:
        file = LostNodesFile(ownership, _ignore)
        if nodes:
            file.lost(nodes, reason)
        return await file.finish()

    assert asyncio.run(write())


def test_nodes_are_listed_by_the_number_of_jobs(local: TonyHook, tony: Tony) -> None:
    record(local, "application_1_0001", "node1:8041", "node2:8041")
    record(local, "application_1_0002", "node2:8041", reason="its disk has 3 KiB free")
    record(local, "application_1_0002", "node3:8041", attempt=2)
    record(local, "application_1_0003")
    said = tony("nodes", "--output", "json")
    assert said.code == 0, said.error
    found = json.loads(said.out)
    assert [(each["node"], each["applications"], each["avoided"]) for each in found] == [
        ("node2:8041", 2, False),
        ("node3:8041", 1, False),
        ("node1:8041", 1, False),
    ]
    assert (found[0]["latest_application"], found[0]["reason"]) == ("application_1_0002", "its disk has 3 KiB free")
    assert "its disk has 3 KiB free" in tony("nodes").out


def test_no_node_has_lost_a_container(local: TonyHook, tony: Tony) -> None:
    assert local.suspect_nodes() == []
    assert "No node has lost a container" in tony("nodes").out


def test_records_of_earlier_weeks_are_removed(local: TonyHook) -> None:
    days = Path(local.layout.lost_nodes_dir.removeprefix("file://"))
    last, former = days / uris.name(lost_nodes_days("/", epoch_ms())[-1]), days / "2026-01-31"
    for each in (last, former):
        each.mkdir(parents=True)
        (each / "application_0_0001.1.json").write_text(
            f'{{"nodes": {{"node9:1": {{"reason": "lost", "time_ms": {epoch_ms()}}}}}}}'
        )
    assert [each.node for each in local.suspect_nodes()] == ["node9:1"]
    record(local, "application_1_0001", "node1:8041")
    assert last.is_dir()
    assert not former.exists()


def test_an_old_loss_in_a_new_record_does_not_count(local: TonyHook) -> None:
    """A job that runs for weeks writes all its losses again with the newest one."""
    record(local, "application_1_0001", "node1:8041")
    day = Path(lost_nodes_days(local.layout.lost_nodes_dir, epoch_ms())[0].removeprefix("file://"))
    loss = {"reason": "lost", "time_ms": epoch_ms() - 8 * 86_400_000}
    (day / "application_1_0002.1.json").write_text(json.dumps({"nodes": {"node2:8041": loss}}))
    assert [each.node for each in local.suspect_nodes()] == ["node1:8041"]


def test_a_node_counts_once_after_its_port_has_changed(local: TonyHook) -> None:
    record(local, "application_1_0001", "node1:41234")
    record(local, "application_1_0002", "node1:45678")
    assert [len(each.applications) for each in local.suspect_nodes()] == [2]


def test_records_that_cannot_be_read_do_not_prevent_submissions(
    local: TonyHook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    record(local, "application_1_0001", "node1:8041")
    day = Path(lost_nodes_days(local.layout.lost_nodes_dir, epoch_ms())[0].removeprefix("file://"))
    (day / "application_1_0002.1.json").mkdir()
    assert [each.node for each in local.suspect_nodes()] == ["node1:8041"]
    Path(local.layout.lost_nodes_dir.removeprefix("file://"), day.name).rename(day.with_name("moved"))
    day.write_text("a file, and no directory")
    monkeypatch.setattr(
        local, "opened", attrs.evolve(local.opened, settings=attrs.evolve(local.settings, avoid_nodes_after=1))
    )
    request = SubmissionRequest(job("true"), identity(local))
    assert local.preview(request).description["avoided_nodes"] == []
    assert "avoids no nodes" in caplog.text


@pytest.mark.parametrize("content", ["", "no JSON", "[]", '{"nodes": 3}'])
def test_a_damaged_record_is_left_out(local: TonyHook, content: str) -> None:
    record(local, "application_1_0001", "node1:8041")
    day = Path(lost_nodes_days(local.layout.lost_nodes_dir, epoch_ms())[0].removeprefix("file://"))
    (day / "application_1_0002.1.json").write_text(content)
    assert [each.node for each in local.suspect_nodes()] == ["node1:8041"]


@pytest.mark.parametrize(("least", "avoided"), [(None, []), (2, ["node2:8041"]), (1, ["node2:8041", "node1:8041"])])
def test_new_jobs_avoid_nodes_if_the_connection_says_so(
    local: TonyHook, least: int | None, avoided: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    record(local, "application_1_0001", "node1:8041", "node2:8041")
    record(local, "application_1_0002", "node2:8041")
    settings = attrs.evolve(local.settings, avoid_nodes_after=least)
    monkeypatch.setattr(local, "opened", attrs.evolve(local.opened, settings=settings))
    request = SubmissionRequest(job("true"), identity(local))
    assert local.preview(request).description["avoided_nodes"] == avoided
    application_id = local.submit(request).application_id
    ended(local, application_id)
    assert (status := local.job(application_id, request.identity).status()) is not None
    assert status.state is JobState.SUCCEEDED
