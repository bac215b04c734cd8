"""What of a job's status counts as the job's own."""

from __future__ import annotations

import posixpath
from urllib.parse import unquote

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.protocol.limits import foreign_places, is_below, without_foreign_places
from tony_provider.runtime.protocol.status import ExportedModel, InputStatus, JobState, JobStatus

TRAINING = "hdfs://prod/user/alice/.tony/jobs/clicks-1"
APPLICATION = f"{TRAINING}/applications/application_1_0001"
OWN = JobStatus(
    "application_1_0001",
    "clicks",
    JobState.SUCCEEDED,
    model_dir=f"{APPLICATION}/model",
    export=ExportedModel(3, f"{APPLICATION}/exports/step-3"),
    checkpoint=ResumePoint(3, f"{TRAINING}/chain-0001/checkpoints/save-3"),
    resumed=ResumePoint(2, "hdfs://prod/user/bob/.tony/jobs/clicks-2/chain-0001/checkpoints/save-2"),
    inputs=[InputStatus("clicks", "queue", 1, 1, f"{APPLICATION}/inputs/clicks/listing")],
)

FOREIGN = [
    "/etc",
    "file:///etc/airflow/airflow.cfg",
    "hdfs://prod/user/alice/keys",
    APPLICATION,
    f"{APPLICATION}/",
    f"{APPLICATION}-of-others/model",
    f"{APPLICATION}//model",
    f"{APPLICATION}/model/",
    f"{APPLICATION}/./model",
    f"{APPLICATION}/../../../../keys",
    f"{APPLICATION}/%2e%2e/%2E%2E/keys",
    f"{APPLICATION}/model%2f..%2f..",
    APPLICATION.replace("hdfs://prod", "hdfs://other") + "/model",
    APPLICATION.replace("hdfs://", "HDFS://") + "/model",
    APPLICATION.replace("hdfs://prod", "webhdfs://prod") + "/model",
    APPLICATION.replace("hdfs://prod", "hdfs://prod@evil") + "/model",
    APPLICATION.removeprefix("hdfs://prod") + "/model",
    "model",
    "../model",
    "hdfs:",
    "\0",
]


def test_a_job_s_own_places_stay() -> None:
    assert foreign_places(OWN, APPLICATION) == []
    assert without_foreign_places(OWN, APPLICATION) is OWN
    nothing = attrs.evolve(OWN, model_dir=None, export=None, checkpoint=ResumePoint(3, ""), inputs=[])
    assert foreign_places(nothing, APPLICATION) == []


@pytest.mark.parametrize("uri", FOREIGN)
def test_all_others_are_named_and_left_out(uri: str) -> None:
    forged = attrs.evolve(
        OWN,
        model_dir=uri,
        export=ExportedModel(3, uri),
        checkpoint=ResumePoint(3, "hdfs://prod/user/alice/keys" if uri.startswith(APPLICATION) else uri),
        inputs=[InputStatus("clicks", "queue", 1, 1, uri)],
    )
    found = foreign_places(forged, APPLICATION)
    assert [each.key for each in found] == ["model_dir", "export.uri", "checkpoint.uri", "inputs.clicks.listing"]
    assert str(found[0]) == f"model_dir: {uri!a} does not lie below {APPLICATION}"
    left = without_foreign_places(forged, APPLICATION)
    assert (left.model_dir, left.export, left.checkpoint, left.inputs) == (None, None, None, [])
    assert left.warnings == [f"left out of the job's status: {each}" for each in found]


def test_what_a_training_goes_on_from_may_be_another_one_s_of_the_same_store() -> None:
    for uri in ("file:///etc", "hdfs://other/x", "/etc"):
        (found,) = foreign_places(attrs.evolve(OWN, resumed=ResumePoint(2, uri)), APPLICATION)
        assert found.key == "resumed.uri"


PARTS = st.sampled_from(["model", "..", ".", "", "%2e%2e", "%2F", "a b", "x", "%", "..%2f..", "é", "\\..", "?a", "#b"])


@given(st.lists(PARTS, max_size=6), st.sampled_from(["", "/", "//"]))
def test_however_it_is_read_what_is_below_stays_below(parts: list[str], ending: str) -> None:
    """As a reader that decodes, or one that takes ``..`` for the directory above, would have it."""
    uri = f"{APPLICATION}/{'/'.join(parts)}{ending}"
    if is_below(uri, APPLICATION):
        for read in (uri, unquote(uri)):
            path = posixpath.normpath(read.removeprefix("hdfs://prod"))
            assert path.startswith(APPLICATION.removeprefix("hdfs://prod") + "/")
