"""What travels between the sides of a job comes out as it went in."""

from __future__ import annotations

import json
import math
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.runtime.application import (
    ApplicationDescription,
    LocalAccess,
    LocalizedResource,
    ResourceKind,
)
from tony_provider.runtime.common.codec import CodecError, dump_json, load_json, to_plain
from tony_provider.runtime.jobspec.model import (
    Docker,
    Duration,
    JobSpec,
    Memory,
    PortRange,
    Resource,
    Role,
    TaskSpec,
    Timeouts,
)
from tony_provider.runtime.protocol.status import (
    Failure,
    FailureKind,
    JobState,
    JobStatus,
    TaskProgress,
    TaskState,
    TaskStatus,
)
from tony_provider.runtime.storage import WebHdfsConfig

JOB = JobSpec(
    framework="tensorflow",
    tasks={"chief": TaskSpec("python x.py", memory=Memory(4096), role=Role.CHIEF, env={"A": "ü"})},
    files=[Resource("a"), Resource("b", "c")],
    docker=Docker("image", ["/a:/b"]),
    timeouts=Timeouts(queue=Duration(1.5)),
    port_range=PortRange(1024, 2048),
)
DESCRIPTION = ApplicationDescription(
    application_id="application_1_2",
    user="anna",
    job=JOB,
    application_dir="hdfs:///x",
    webhdfs=WebHdfsConfig(["http://nn:9870"], "anna", verify=False, timeout=7.0),
    resources=[LocalizedResource("n", "hdfs:///n", 1, 2, ResourceKind.ARCHIVE)],
    runtime=LocalizedResource("tony", "hdfs:///t", 3, 4),
    local=LocalAccess("/l", 1024, 2),
    labels={"dag": "d"},
)
STATUS = JobStatus(
    application_id="application_1_2",
    name="job",
    state=JobState.RUNNING,
    leader="worker:0",
    tasks=[TaskStatus("worker", 0, TaskState.LOST, progress=TaskProgress(1, metrics={"loss": 0.5}))],
    failure=Failure(FailureKind.USER, "no", exit_code=1),
)


@pytest.mark.parametrize("sent", [JOB, DESCRIPTION, STATUS])
def test_round_trip(sent: Any) -> None:
    assert load_json(dump_json(sent), type(sent)) == sent


def test_enums_come_out_as_enums() -> None:
    status = load_json(dump_json(STATUS), JobStatus)
    assert isinstance(status.state, JobState)
    assert isinstance(status.tasks[0].state, TaskState)
    assert status.failure is not None
    assert isinstance(status.failure.kind, FailureKind)
    assert isinstance(load_json(dump_json(JOB), JobSpec).tasks["chief"].role, Role)
    assert isinstance(load_json(dump_json(DESCRIPTION), ApplicationDescription).resources[0].kind, ResourceKind)


def test_the_plain_form_has_plain_values_only() -> None:
    plain = to_plain(DESCRIPTION)
    assert json.loads(json.dumps(plain)) == plain
    assert type(plain["job"]["tasks"]["chief"]["role"]) is str
    assert type(plain["resources"][0]["kind"]) is str


def test_a_loss_that_is_no_number_travels() -> None:
    metrics = {"loss": math.nan, "high": math.inf, "low": -math.inf}
    data = dump_json(
        attrs.evolve(STATUS, tasks=[attrs.evolve(STATUS.tasks[0], progress=TaskProgress(1, metrics=metrics))])
    )
    json.loads(data, parse_constant=lambda constant: pytest.fail(f"{constant} is not JSON"))
    read = load_json(data, JobStatus).metrics
    assert math.isnan(read["loss"])
    assert (read["high"], read["low"]) == (math.inf, -math.inf)


def test_a_status_may_be_newer_than_its_reader_and_a_description_may_not() -> None:
    newer = {**to_plain(STATUS), "mood": "good"}
    assert load_json(json.dumps(newer).encode(), JobStatus) == STATUS
    with pytest.raises(CodecError, match="unknown: mood @ JobStatus"):
        load_json(json.dumps(newer).encode(), JobStatus, ignore_unknown=False)
    newer = to_plain(DESCRIPTION)
    newer["job"]["mood"] = "good"
    with pytest.raises(CodecError, match=r"unknown: mood @ ApplicationDescription\.job"):
        load_json(json.dumps(newer).encode(), ApplicationDescription)
    assert load_json(json.dumps(newer).encode(), ApplicationDescription, ignore_unknown=True) == DESCRIPTION


def test_every_wrong_place_is_named() -> None:
    plain = to_plain(STATUS)
    plain["tasks"][0]["index"] = "0"
    plain["state"] = "DREAMING"
    plain["progress"] = True
    del plain["name"]
    with pytest.raises(CodecError) as caught:
        load_json(json.dumps(plain).encode(), JobStatus)
    places = {problem.rpartition(" @ ")[2] for problem in caught.value.problems}
    assert places == {"JobStatus.tasks[0].index", "JobStatus.state", "JobStatus.progress", "JobStatus.name"}


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("tasks", "worker", "tasks: expected a list"),
        ("tasks", {"a": 1}, "tasks: expected a list"),
        ("tasks", [{"progress": {"metrics": [1]}}], "metrics: expected an object"),
        ("tasks", [4], "expected an object, got 4"),
        ("failure", "x", "expected an object"),
        ("am_attempt", 1.5, "expected an integer"),
        ("generation", 1 << 70, "expected a signed 64-bit integer"),  # as text of a size or a time it is an error
        ("generation", -(1 << 64), "expected a signed 64-bit integer"),
        ("name", None, "expected text"),
    ],
)
def test_one_wrong_type(key: str, value: object, says: str) -> None:
    with pytest.raises(CodecError, match=says):
        load_json(json.dumps({**to_plain(STATUS), key: value}).encode(), JobStatus)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000, b'{"progress": NaN}', b"null", b"[]", b"7"])
def test_data_that_is_no_message(data: bytes) -> None:
    with pytest.raises(CodecError, match="not a valid JobStatus"):
        load_json(data, JobStatus)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([field.name for field in attrs.fields(JobStatus)]), inner, max_size=4)
    ),
)


@given(st.binary(max_size=30) | JSON.map(lambda value: json.dumps(value).encode()), st.booleans())
def test_nothing_but_codec_error_is_raised(data: bytes, ignore_unknown: bool) -> None:
    for cls in (JobStatus, JobSpec, ApplicationDescription):
        with pytest.raises(CodecError):
            load_json(data, cls, ignore_unknown=ignore_unknown)


@given(JSON, st.sampled_from([field.name for field in attrs.fields(JobStatus)]))
def test_one_field_of_any_form(value: object, key: str) -> None:
    data = json.dumps({**to_plain(STATUS), key: value}).encode()
    try:
        status = load_json(data, JobStatus)
    except CodecError:
        return
    assert load_json(dump_json(status), JobStatus) == status
