"""Which event files are an application's, and what it is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.owners import open_after, own
from tony_provider.cluster.training.checkpoint_chains import CheckpointChains
from tony_provider.cluster.training.identity import Layout, identity_of
from tony_provider.cluster.training.results import event_file_source, label_of
from tony_provider.runtime.checkpoint.stored_checkpoint import ChainRecord
from tony_provider.runtime.common.codec import dump_json
from tony_provider.runtime.protocol.status import JobState, JobStatus
from tony_provider.runtime.storage.local import LocalStorage

IDENTITY = identity_of(namespace="", dag_id="clicks", run_id="1", task_id="train")
ID = "application_1700000000000_0001"


def test_it_is_called_after_its_dag_its_task_and_its_date() -> None:
    clicks = {"dag_id": "clicks", "task_id": "train", "try_number": "2"}
    for labels, expected in (
        ({**clicks, "run_id": "scheduled__2026-01-05T00:00:00+00:00"}, f"clicks.train-2026-01-05-{ID}"),
        ({**clicks, "run_id": "scheduled__2026-01-05T06:30:00+00:00"}, f"clicks.train-2026-01-05T0630-{ID}"),
        ({**clicks, "run_id": "by hand", "map_index": "3"}, f"clicks.train-3-{ID}"),
        ({"dag_id": "../../etc", "task_id": "klicks für alle", "run_id": "/"}, f"etc.klicks-f-r-alle-{ID}"),
        ({"dag_id": "x" * 250}, f"{'x' * 100}-{ID}"),
        ({"run_id": "2026-01-05"}, f"{IDENTITY.slug}-{ID}"),  # submitted from the command line
    ):
        label = label_of(labels, IDENTITY, ID)
        assert label == expected
        assert "/" not in label


@pytest.mark.parametrize(("started_ms", "expected"), [(150, "chain-0001"), (250, "chain-0002"), (0, "chain-0003")])
def test_an_application_that_others_came_after_trained_in_the_chain_of_its_time(
    tmp_path: Path, started_ms: int, expected: str
) -> None:
    storage, layout = LocalStorage(), Layout(f"file://{tmp_path}")
    chains = CheckpointChains(storage, layout, IDENTITY)
    for created_ms in (100, 200, 300):
        chain = open_after(chains, chains.newest(), ChainRecord({}, created_ms=created_ms))
        own(chains, chain, "application_1700000000000_0002")
    status = JobStatus(ID, "clicks", JobState.FAILED, started_ms=started_ms)
    directory = layout.application_dir(IDENTITY, ID)
    if started_ms:
        storage.write(f"{directory}/result.json", dump_json(status))
    found = event_file_source(storage, layout, IDENTITY, ID)
    assert found.uri == f"{layout.job_dir(IDENTITY)}/{expected}/tensorboard"
    newest = event_file_source(storage, layout, IDENTITY, "application_1700000000000_0002")
    assert newest.uri == f"{layout.job_dir(IDENTITY)}/chain-0003/tensorboard"
