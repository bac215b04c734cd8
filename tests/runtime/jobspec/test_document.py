"""The reference pages document every key of a job with its type, default and limits, and every variable of a task."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import Any, Optional, get_args

import attrs
import pytest

from tests.runtime.frameworks.jobs import cluster_of, job_of
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.network import HIGHEST_PORT
from tony_provider.runtime.common.quantities import ResourceAmount
from tony_provider.runtime.frameworks.base import framework_names, get_framework, task_environment
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
    HadoopSpec,
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
from tony_provider.runtime.jobspec.units import MAX_DURATION, parse_duration, parse_memory
from tony_provider.runtime.parsing import validate_data, validation
from tony_provider.runtime.parsing.parse import ALLOWED_BY_DEFAULT, load_source, merge, parse_job

DOCS = Path(__file__).parents[3] / "docs"
JOB, TASKS, DATA, VARIABLES = (
    (DOCS / "reference" / f"{name}.md").read_text()
    for name in ("job", "task-keys", "data-keys", "environment-variables")
)
PARAMETERS = (DOCS / "dags" / "parameters.md").read_text()
LEVELS: dict[str, tuple[str, type[Any]]] = {
    "Job": (JOB, JobSpec),
    "tasks": (TASKS, TaskSpec),
    "ready": (TASKS, ReadinessProbe),
    "placement": (TASKS, Placement),
    "constraints": (TASKS, PlacementConstraint),
    "am": (JOB, AmSpec),
    "docker": (TASKS, Docker),
    "timeouts": (JOB, Timeouts),
    "windows": (JOB, Windows),
    "restart": (JOB, RestartPolicy),
    "checkpoint": (DATA, CheckpointSpec),
    "export": (DATA, ExportSpec),
    "logs": (JOB, LogSpec),
    "acls": (JOB, AclSpec),
    "tensorboard": (JOB, TensorBoardSpec),
    "hadoop": (JOB, HadoopSpec),
    "inputs": (DATA, InputSpec),
    "outputs": (DATA, OutputSpec),
    "resources": (DATA, Resource),
}
CHOICES: tuple[type[Enum], ...] = (
    Role,
    RestartScope,
    GrowRule,
    MirrorScope,
    CheckpointFormat,
    AfterSuccess,
    SuccessRule,
    StartRule,
    Network,
    ContainerRuntime,
    PidNamespace,
    InputDeal,
    OutputCommit,
    OutputLayout,
    InputFormat,
    PlacementScope,
)
TYPES: dict[Any, str] = {
    str: "text",
    int: "integer",
    bool: "boolean",
    **dict.fromkeys(CHOICES, "choice"),
    Memory: "memory",
    Duration: "duration",
    Moment: "moment",
    Tolerance: "tolerance",
    OpenHours: "hours",
    Processes: "processes",
    PythonEnv: "environment",
    PortRange: "port range",
    ReadinessProbe: "[probe](#ready)",
    Placement: "[placement](#placement)",
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
    TensorBoardSpec: "[tensorboard](#tensorboard)",
    HadoopSpec: "[hadoop](#hadoop)",
    list[str]: "list",
    list[int]: "list of integers",
    list[OpenHours]: "list of hours",
    list[Resource]: "list of resources",
    list[PlacementConstraint]: "list of [constraints](#constraints)",
    dict[str, str]: "mapping",
    dict[str, Milestone]: "mapping of choices",
    dict[str, ResourceAmount]: "mapping of amounts",
    dict[str, InputSpec]: "mapping of [inputs](#inputs)",
    dict[str, OutputSpec]: "mapping of [outputs](#outputs)",
    dict[str, TaskSpec]: "mapping of [tasks](#tasks)",
}
TYPES.update({Optional[known]: word for known, word in list(TYPES.items())})  # noqa: UP045 - as the model writes it
# Variables of executors and of TensorBoard's own command, which user programs do not need.
INTERNAL = {
    contract.ENV_AM_ADDRESS,
    contract.ENV_TASK,
    contract.ENV_TASK_ATTEMPT,
    contract.ENV_LOG_DIR,
    contract.ENV_POST_MORTEM,
    contract.ENV_PYTHON_CANDIDATES,
    contract.ENV_TENSORBOARD_PATH,
}


def section(page: str, title: str) -> str:
    """Return the text below a heading, up to the next heading of the same level. Letter case does not matter."""
    match = re.search(rf"^(##+) {title}\n(.*?)(?=^\1 |\Z)", page, re.MULTILINE | re.DOTALL | re.IGNORECASE)
    assert match, title
    return match[2]


def rows(text: str) -> list[list[str]]:
    """Return the cells of the first table. Links to headings of other pages look like links within the page."""
    table = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert table
    lines = re.sub(r"\]\([\w-]+\.md#", "](#", table[0]).splitlines()[2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def row(title: str, key: str) -> list[str]:
    """Return the cells of one key of a level."""
    return next(cells for cells in rows(section(LEVELS[title][0], title)) if cells[0] == f"`{key}`")


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("title", LEVELS)
def test_every_field_its_type_and_its_default(title: str) -> None:
    page, model = LEVELS[title]
    fields = attrs.fields(attrs.resolve_types(model))
    table = rows(section(page, title))
    assert [cells[0] for cells in table] == [f"`{field.name}`" for field in fields]
    assert [cells[1] for cells in table] == [TYPES[field.type] for field in fields]
    for cells, field in zip(table, fields, strict=True):
        assert documented_default(cells[2], field.type) == default_of(field.default, field.type), field.name
        assert cells[3].endswith("."), field.name


def documented_default(cell: str, kind: Any) -> Any:
    """Return the default in a cell. Words say what happens if the key is not set, so its default is None."""
    assert cell
    if cell == "**required**":
        return attrs.NOTHING
    if not cell.startswith("`"):
        return None
    value: Any = cell.strip("`")
    constants: dict[str, Any] = {"null": None, "true": True, "false": False, "[]": [], "{}": {}, '""': ""}
    return default_of(constants.get(value, value), kind)


def default_of(value: Any, kind: Any) -> Any:
    """Return a default in the form in which documented defaults and defaults of the model are compared."""
    if isinstance(value, attrs.Factory):  # type: ignore[arg-type]
        empty = value.factory()
        return {} if attrs.has(type(empty)) else empty
    if isinstance(value, PortRange):
        return f"{value.first}-{value.last}"
    if isinstance(value, str) and kind in (Memory, Duration):
        return (parse_memory if kind is Memory else parse_duration)(value)
    return int(value) if kind is int and value is not attrs.NOTHING else value


@pytest.mark.parametrize("title", LEVELS)
def test_every_choice_is_listed(title: str) -> None:
    """In the row of its key, or in a section that the row links to."""
    for field in attrs.fields(attrs.resolve_types(LEVELS[title][1])):
        kinds = [each for each in _kinds(field.type) if each in CHOICES or each is Milestone]
        meaning = row(title, field.name)[3] if kinds else ""
        linked = [section("\n".join((JOB, TASKS, DATA)), link) for link in re.findall(r"\(#([\w-]+)\)", meaning)]
        listed = set(re.findall(r"`([^`]+)`", "".join([meaning, *linked])))
        assert {member.value for kind in kinds for member in kind} <= listed, field.name


def _kinds(kind: Any) -> tuple[Any, ...]:
    return (kind, *get_args(kind))


LIMITS = [
    ("Job", "tasks", f"at most {validate_data.MAX_NAME} "),
    ("Job", "name", f"at most {validation.MAX_NAME} characters"),
    ("Job", "tags", f"at most {validation.MAX_TAGS}, of at most {validation.MAX_TAG} ASCII characters"),
    ("Job", "port_range", f"at least three, within {validation.LOWEST_PORT} to {HIGHEST_PORT}"),
    ("tasks", "instances", f"at most {validation._MOST_TASKS:,} tasks"),
    ("restart", "permanent_exit_codes", f"1 to {validation._LARGEST_EXIT_CODE}"),
    *(
        (path.rpartition(".")[0] or "Job", path.rpartition(".")[2], f"at least {least}")
        for path, least in {
            **validation._LOWEST,
            **{f"tasks.{key}": least for key, least in validation._LOWEST_OF_TASKS.items()},
        }.items()
        if least
    ),
]


@pytest.mark.parametrize(("title", "key", "limit"), LIMITS)
def test_limits_are_listed(title: str, key: str, limit: str) -> None:
    assert limit in row(title, key)[3]


def test_other_limits_and_defaults_are_listed() -> None:
    assert f"at most `{MAX_DURATION // 86400}d`" in section(JOB, "Value types")
    assert f"`{contract.LOG_SIZE}MiB`" in row("logs", "max_size")[2]
    first, more = (
        parse_job({"framework": "generic", "tasks": {"worker": {"command": "true", "instances": count}}}).am_memory
        for count in (1000, 2000)
    )
    assert row("am", "memory")[3].startswith(f"`{first}MiB`, and `{more - first}MiB` per thousand tasks")
    assert (contract.MAX_RESULT, contract.MAX_ENV_STRING) == (1 << 20, 128 << 10)
    assert "at most 1 MiB" in section(VARIABLES, "Results")
    assert VARIABLES.count("128 KiB") == 3


def test_it_is_said_which_timeouts_may_be_zero() -> None:
    durations = {each.name for each in attrs.fields(attrs.resolve_types(Timeouts)) if Duration in _kinds(each.type)}
    may_be_zero = {key.strip("`") for key, _, _, meaning in rows(section(JOB, "timeouts")) if "May be 0." in meaning}
    more = {path.removeprefix("timeouts.") for path in validation._MORE_THAN_ZERO if path.startswith("timeouts.")}
    assert may_be_zero == durations - more


def test_the_example_is_a_job() -> None:
    job = parse_job(blocks("yaml", JOB)[0])
    assert sum(task.instances for task in job.tasks.values()) == 5
    assert job.role("tensorboard") is Role.SIDECAR


def test_the_example_of_what_is_wrong_is_what_is_said() -> None:
    with pytest.raises(SpecError) as caught:
        parse_job("""
framework: tensorflow
timeouts: {queue: 2h, lifetime: 1h}
tasks: {worker: {command: "true", memory: 8GB, cpus: 4}}
""")
    assert str(caught.value) == blocks("text", JOB)[0].strip()


def test_overrides_merge_key_by_key() -> None:
    """Mappings merge key by key, other values replace, and null deletes a key."""
    base, overrides, merged = map(
        load_source,
        (
            """
framework: tensorflow
files: [train.py, words.txt]
queue: ml
tasks:
  worker: {instances: 8, memory: 16GiB, command: python train.py}
  ps: {instances: 2, command: python train.py}
""",
            """
files: [train.py]
queue: null
tasks:
  worker: {instances: 1, memory: 2GiB}
  ps: null
""",
            """
framework: tensorflow
files: [train.py]
tasks:
  worker: {instances: 1, memory: 2GiB, command: python train.py}
""",
        ),
    )
    assert merge(base, overrides) == merged
    assert parse_job(base, overrides=overrides) == parse_job(merged)


def test_overrides_that_are_allowed_by_default_are_listed() -> None:
    places = {"a task type of the job": "tasks.*.", "the job": ""}
    found = []
    for keys, of in rows(PARAMETERS[PARAMETERS.index("| keys | part of the job |") :]):
        for place in places.keys() & {of} or re.findall(r"`(\w+)`", of):
            prefix = places.get(place, f"{place}.")
            found += [prefix.rstrip(".")] if keys == "all" else [prefix + key for key in re.findall(r"`(\w+)`", keys)]
    assert sorted(found) == sorted(ALLOWED_BY_DEFAULT)


def test_roles_scopes_frameworks_and_taken_names_are_listed() -> None:
    assert [cells[0] for cells in rows(section(TASKS, "Roles"))] == [f"`{role.value}`" for role in Role]
    assert [cells[0] for cells in rows(section(TASKS, "Scopes"))] == [f"`{scope.value}`" for scope in RestartScope]
    frameworks = [name for cells in rows(section(JOB, "Frameworks")) for name in re.findall(r"`(\w+)`", cells[0])]
    assert sorted(frameworks) == sorted(framework_names())
    overview = (DOCS / "training-code" / "frameworks.md").read_text()
    assert {cells[0] for cells in rows(overview)} == {f"[`{name}`](frameworks/{name}.md)" for name in framework_names()}
    resources = section(DATA, "resources")
    assert all(f"`{name}`" in resources or name.endswith(".sh") for name in validation._TAKEN_NAMES)


def test_every_variable_of_a_task_is_listed() -> None:
    listed, listed_by_tensorflow = (
        {name for cells in rows(section(VARIABLES, title)) for name in re.findall(r"`([A-Z][A-Z_]+)`", cells[0])}
        for title in ("Cluster", "TensorFlow")
    )
    in_contract = {value for name, value in vars(contract).items() if name.startswith("ENV_")}
    ours = {name for name in in_contract if name.startswith(contract.OWN_ENV_PREFIX)}
    assert set(re.findall(r"TONY_[A-Z_]+", VARIABLES)) == ours - INTERNAL
    by_executor = {contract.ENV_LISTEN_ADDRESS}  # only the executor knows its node
    standalone, tensorflow = job_of("standalone", worker={}), job_of("tensorflow", worker={})
    assert set(task_environment(standalone, cluster_of(standalone), "worker", 0).env) == listed - by_executor
    of_tensorflow = set(task_environment(tensorflow, cluster_of(tensorflow), "worker", 0).env)
    assert of_tensorflow == (listed | listed_by_tensorflow) - by_executor


@pytest.mark.parametrize("name", framework_names())
def test_every_variable_of_a_framework_is_listed(name: str) -> None:
    """Exactly, or by a prefix such as ``PET_…``."""
    if name == "tensorflow":
        return  # has its own table
    table = {cells[0].strip("`"): cells[1] for cells in rows(section(VARIABLES, "Frameworks"))}
    listed = re.findall(r"`([A-Z][A-Z_]*)(…?)`", table.get(name, ""))
    framework = get_framework(name)
    worker: dict[str, Any] = {"processes": 2, "gpus": 2} if framework.several_processes(Role.WORKER) else {}
    others: dict[str, dict[str, Any]] = {role.value: {} for role, _ in framework.required_roles}
    job = job_of(name, **others, worker=worker)
    alone = job_of("standalone", worker={})
    found = set(task_environment(job, cluster_of(job), "worker", 0).env)
    found -= set(task_environment(alone, cluster_of(alone), "worker", 0).env)
    found |= framework.secret_variables | framework.interface_variables
    for variable in found:
        assert any(variable.startswith(each) if more else variable == each for each, more in listed), variable
    assert {each for each, more in listed if not more} <= found


def test_every_kind_of_value_is_explained() -> None:
    explained = {cells[0] for cells in rows(section(JOB, "Value types"))}
    assert explained == {word for word in TYPES.values() if " of " not in word and "[" not in word} | {"resource"}


def test_merges_make_no_more_of_a_small_text_than_it_says() -> None:
    """Seen: 58 KiB of a trigger form became 140 MB, and four times as much of it sixteen times as many."""
    many = ", ".join(f"k{each}: 1" for each in range(4000))
    text = f"a: &a {{{many}}}\n" + "\n".join(f"b{each}: {{<<: *a, x: 1}}" for each in range(100))
    with pytest.raises(SpecError, match="more than 100000 keys are merged in total"):
        load_source(text)
