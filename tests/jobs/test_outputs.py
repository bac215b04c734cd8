"""Outputs of a job on its store: what is at their paths when it has ended, and what is not."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from tests.jobs.left import assert_nothing_left
from tests.jobs.places import Place
from tony_provider.runtime.storage import uris, walk
from tony_provider.runtime.storage.helpers import read_text

WRITE = 'cd "$TONY_OUTPUT_PREDICTIONS" && echo $TONY_RANK > a && mkdir b && echo 2 > b/c'


def worker(command: str, **more: Any) -> dict[str, Any]:
    return {"instances": 2, "memory": "128MiB", "command": command, **more}


@pytest.fixture
def target(place: Place) -> str:
    """The URI of a path on the store where nothing is."""
    return uris.join(uris.parent(place.hook().layout.root), f"data-{uuid.uuid4().hex}", "predictions")


def written(place: Place, target: str) -> dict[str, str]:
    """Each file at the target, but for the mark; and nothing beside it."""
    storage = place.hook().storage()
    assert [each.name for each in storage.list(uris.parent(target))] == [uris.name(target)]
    files = [each.path for each in walk(storage, target) if not each.is_directory]
    return {path[len(target) + 1 :]: read_text(storage, path) for path in files if not path.endswith("/_SUCCESS")}


def test_what_tasks_leave_appears_with_the_success_of_the_job(place: Place, target: str) -> None:
    job = place.submit({"tasks": {"worker": worker(WRITE)}, "outputs": {"predictions": target}})
    status = job.succeeded()
    assert written(place, target) == {
        "worker-0/a": "0\n",
        "worker-0/b/c": "2\n",
        "worker-1/a": "1\n",
        "worker-1/b/c": "2\n",
    }
    mark = json.loads(read_text(place.hook().storage(), f"{target}/_SUCCESS"))
    assert (mark["application_id"], mark["training"], mark["files"], mark["bytes"]) == (job.id, job.identity.name, 4, 8)
    assert [(each.name, each.uri, each.files, each.bytes) for each in status.outputs] == [("predictions", target, 4, 8)]
    assert_nothing_left(place, job)
