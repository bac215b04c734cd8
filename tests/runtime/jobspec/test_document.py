"""docs/job-specification.md says what the model says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Optional

import attrs
import pytest

from tests.runtime.frameworks.jobs import cluster_of, job_of
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.quantities import ResourceAmount
from tony_provider.runtime.frameworks.base import framework_names, task_environment
from tony_provider.runtime.jobspec.model import (
    AccessNames,
    AclSpec,
    AfterSuccess,
    AmSpec,
    CheckpointFormat,
    CheckpointSpec,
    ContainerRuntime,
    Docker,
    Duration,
    ExportSpec,
    GrowRule,
    InputDeal,
    InputFormat,
    InputSpec,
    JobSpec,
    LogSpec,
    Memory,
    Milestone,
    MirrorScope,
    Moment,
    Network,
    OpenHours,
    OutputCommit,
    OutputLayout,
    OutputSpec,
    PidNamespace,
    PortRange,
    Processes,
    PythonEnv,
    ReadinessProbe,
    Resource,
    RestartPolicy,
    RestartScope,
    Role,
    StartRule,
    SuccessRule,
    TaskSpec,
    TensorBoardSpec,
    Timeouts,
    Tolerance,
    Windows,
)
from tony_provider.runtime.jobspec.placement import Placement, PlacementConstraint, PlacementScope
from tony_provider.runtime.jobspec.problems import SpecError
from tony_provider.runtime.jobspec.units import parse_duration, parse_memory
from tony_provider.runtime.parsing.parse import load_source, merge, parse_job
from tony_provider.runtime.parsing.validation import _TAKEN_NAMES

DOCUMENT = (Path(__file__).parents[3] / "docs" / "job-specification.md").read_text()
LEVELS: dict[str, type[Any]] = {
    "Job": JobSpec,
    "Tasks": TaskSpec,
    "Placement": Placement,
    "Constraints": PlacementConstraint,
    "Am": AmSpec,
    "Docker": Docker,
    "Timeouts": Timeouts,
    "Windows": Windows,
    "Restart": RestartPolicy,
    "Checkpoint": CheckpointSpec,
    "Export": ExportSpec,
    "Logs": LogSpec,
    "Acls": AclSpec,
    "Tensorboard": TensorBoardSpec,
    "Inputs": InputSpec,
    "Outputs": OutputSpec,
    "Resources": Resource,
}
TYPES: dict[Any, str] = {
    str: "text",
    int: "integer",
    Memory: "memory",
    Duration: "duration",
    Moment: "moment",
    Role: "role",
    RestartScope: "scope",
    GrowRule: "grow",
    MirrorScope: "mirror",
    CheckpointFormat: "format",
    AfterSuccess: "after success",
    SuccessRule: "success",
    StartRule: "start",
    Network: "network",
    ContainerRuntime: "container runtime",
    PidNamespace: "pid namespace",
    ReadinessProbe: "[probe](#one-after-the-other)",
    Milestone: "milestone",
    dict[str, Milestone]: "mapping of milestones",
    Tolerance: "tolerance",
    OpenHours: "hours",
    Processes: "processes",
    PythonEnv: "environment",
    InputDeal: "deal",
    OutputCommit: "commit",
    OutputLayout: "layout",
    InputFormat: "input format",
    PortRange: "port range",
    Placement: "[placement](#placement)",
    PlacementScope: "rule scope",
    list[PlacementConstraint]: "list of [constraints](#constraints)",
    AmSpec: "[am](#am)",
    Docker: "[docker](#docker)",
    Timeouts: "[timeouts](#timeouts)",
    Windows: "[windows](#windows)",
    RestartPolicy: "[restart](#restart)",
    CheckpointSpec: "[checkpoint](#checkpoint)",
    ExportSpec: "[export](#export)",
    LogSpec: "[logs](#logs)",
    AclSpec: "[acls](#acls)",
    AccessNames: "[names](#acls)",
    bool: "boolean",
    TensorBoardSpec: "[tensorboard](#tensorboard)",
    list[int]: "list of integers",
    list[str]: "list of text",
    list[OpenHours]: "list of hours",
    list[Resource]: "list of resources",
    dict[str, str]: "mapping of text",
    dict[str, ResourceAmount]: "mapping of amounts",
    dict[str, InputSpec]: "mapping of [inputs](#inputs)",
    dict[str, OutputSpec]: "mapping of [outputs](#outputs)",
    dict[str, TaskSpec]: "mapping of [tasks](#tasks)",
}
TYPES.update({Optional[known]: word for known, word in list(TYPES.items())})  # noqa: UP045 - as the model writes it


def section(title: str) -> str:
    match = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", DOCUMENT, re.MULTILINE | re.DOTALL)
    assert match, title
    return match[1]


def rows(text: str) -> list[list[str]]:
    """Of the first table."""
    table = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert table
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table[0].splitlines()[2:]]


def blocks(language: str, text: str = DOCUMENT) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("title", LEVELS)
def test_every_field_its_type_and_its_default(title: str) -> None:
    fields = attrs.fields(attrs.resolve_types(LEVELS[title]))
    table = rows(section(title))
    assert [row[0] for row in table] == [f"`{field.name}`" for field in fields]
    assert [row[1] for row in table] == [TYPES[field.type] for field in fields]
    for row, field in zip(table, fields, strict=True):
        assert default_of(row[2], field.type) == default_of(field.default, field.type), field.name
        assert row[3].endswith("."), field.name


def default_of(written: Any, wanted: Any) -> Any:
    """The default, from the document's cell or from the model's field."""
    if isinstance(written, str) and written.startswith("`"):
        written = {"null": None, "true": True, "false": False, "[]": [], "{}": {}, '""': ""}.get(
            written.strip("`"), written.strip("`")
        )
    if written in (attrs.NOTHING, "**required**"):
        return attrs.NOTHING
    if isinstance(written, attrs.Factory):  # type: ignore[arg-type]
        empty = written.factory()
        return {} if attrs.has(type(empty)) else empty
    if isinstance(written, PortRange):
        return f"{written.first}-{written.last}"
    if written is not None and wanted in (Memory, Duration):
        return (parse_memory if wanted is Memory else parse_duration)(written)
    return int(written) if wanted is int else written


def test_the_example_is_a_job() -> None:
    job = parse_job(blocks("yaml")[0])
    assert sum(task.instances for task in job.tasks.values()) == 5
    assert job.role("tensorboard") is Role.SIDECAR


def test_the_example_of_what_is_wrong_is_what_is_said() -> None:
    with pytest.raises(SpecError) as caught:
        parse_job("""
framework: tensorflow
timeouts: {queue: 2h, lifetime: 1h}
tasks: {worker: {command: "true", memory: 8GB, cpus: 4}}
""")
    assert str(caught.value) == blocks("text")[0].strip()


def test_the_example_of_a_merge_is_what_it_gives() -> None:
    base, overrides, parsed = (load_source(block) for block in blocks("yaml", section("Overrides"))[-3:])
    assert merge(base, overrides) == parsed
    assert parse_job(base, overrides=overrides) == parse_job(parsed)


def test_roles_frameworks_and_taken_names_are_listed() -> None:
    roles = DOCUMENT.partition("### Roles")[2]
    assert [row[0] for row in rows(roles)] == [f"`{role.value}`" for role in Role]
    frameworks = DOCUMENT.partition("### Frameworks")[2]
    assert {row[0] for row in rows(frameworks)} == {f"`{name}`" for name in framework_names()}
    overview = (Path(__file__).parents[3] / "docs" / "frameworks.md").read_text()
    assert {row[0] for row in rows(overview)} == {f"[`{name}`](frameworks/{name}.md)" for name in framework_names()}
    resources = section("Resources")
    assert all(f"`{name}`" in resources or name.endswith(".sh") for name in _TAKEN_NAMES)


def test_every_variable_of_a_task_is_listed() -> None:
    text = section("What a task finds")
    listed = set(re.findall(r"`([A-Z][A-Z_]+)`", "".join(row[0] for row in rows(text))))
    listed_by_tensorflow = set(
        re.findall(r"`([A-Z][A-Z_]+)`", "".join(row[0] for row in rows(text.partition("With `framework")[2])))
    )
    in_contract = {value for name, value in vars(contract).items() if name.startswith("ENV_")}
    assert set(re.findall(r"TONY_[A-Z_]+", text)) <= in_contract
    by_executor = {contract.ENV_LISTEN_ADDRESS}  # which alone knows its node
    standalone, tensorflow = job_of("standalone", worker={}), job_of("tensorflow", worker={})
    assert set(task_environment(standalone, cluster_of(standalone), "worker", 0).env) == listed - by_executor
    of_tensorflow = set(task_environment(tensorflow, cluster_of(tensorflow), "worker", 0).env)
    assert of_tensorflow == (listed | listed_by_tensorflow) - by_executor


@pytest.mark.parametrize("title", ["How values are written"])
def test_every_kind_of_value_is_explained(title: str) -> None:
    explained = {row[0] for row in rows(section(title))}
    assert explained == {word for word in TYPES.values() if " of " not in word and "[" not in word} | {"resource"}


def test_merges_make_no_more_of_a_small_text_than_it_says() -> None:
    """Seen: 58 KiB of a trigger form became 140 MB, and four times as much of it sixteen times as many."""
    many = ", ".join(f"k{each}: 1" for each in range(4000))
    text = f"a: &a {{{many}}}\n" + "\n".join(f"b{each}: {{<<: *a, x: 1}}" for each in range(100))
    with pytest.raises(SpecError, match="more than 100000 keys are merged in total"):
        load_source(text)
