"""Whatever is given: a job or a SpecError; and a job survives every way of writing it."""

from __future__ import annotations

import json
from typing import Any

import attrs
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tony_provider.runtime.common.codec import dump_json, load_json, to_plain
from tony_provider.runtime.common.quantities import UNITS, ResourceAmount
from tony_provider.runtime.jobspec.container_content import with_tensorboard_task
from tony_provider.runtime.jobspec.model import (
    AmSpec,
    Docker,
    Duration,
    JobSpec,
    Memory,
    PortRange,
    Resource,
    Role,
    TaskSpec,
    TensorBoardSpec,
    Timeouts,
)
from tony_provider.runtime.jobspec.problems import SpecError
from tony_provider.runtime.parsing.parse import parse_job

LEVELS = (JobSpec, TaskSpec, AmSpec, Docker, Timeouts, PortRange, Resource)
KEYS = st.one_of(
    st.sampled_from(sorted({field.name for level in LEVELS for field in attrs.fields(level)} | {"worker", "chief"})),
    st.text(max_size=4),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["tensorflow", "standalone", "4GiB", "1h30m", "20000-20010", "a::b", "ps", "2", "-1", "nan"]),
)
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=5))
)
# A job that is nearly right, so that the deeper levels are reached.
NEARLY = st.fixed_dictionaries(
    {
        "framework": st.sampled_from(["tensorflow", "standalone", "", 1]),
        "tasks": st.dictionaries(
            st.sampled_from(["worker", "chief", "ps", "x y"]), st.dictionaries(KEYS, ANYTHING, max_size=6), max_size=3
        ),
    },
    optional={
        "am": ANYTHING,
        "files": ANYTHING,
        "env": ANYTHING,
        "secrets": ANYTHING,
        "tags": ANYTHING,
        "timeouts": ANYTHING,
        "port_range": ANYTHING,
        "docker": ANYTHING | st.fixed_dictionaries({"image": st.just("a")}, optional={"runtime": st.just("runc")}),
        "tensorboard": ANYTHING,
    },
)


def parse_or_refuse(source: Any, overrides: Any = None) -> None:
    try:
        job = parse_job(source, overrides=overrides)
    except SpecError as error:
        refusal = error
    else:
        assert parse_job(to_plain(job)) == job
        return
    assert refusal.problems
    assert all(isinstance(problem.path, str) and problem.message for problem in refusal.problems)
    assert str(refusal)


@settings(max_examples=300)
@given(st.one_of(ANYTHING, NEARLY))
def test_a_mapping_is_a_job_or_a_spec_error(source: Any) -> None:
    parse_or_refuse(source)


@settings(max_examples=150)
@given(NEARLY, ANYTHING)
def test_whatever_is_laid_over_it(source: Any, overrides: Any) -> None:
    parse_or_refuse(source, overrides)


@settings(max_examples=150)
@given(st.one_of(ANYTHING, NEARLY))
def test_json_and_yaml_text_is_a_job_or_a_spec_error(source: Any) -> None:
    parse_or_refuse(json.dumps(source))
    parse_or_refuse(yaml.safe_dump(source))


@settings(max_examples=300)
@given(st.one_of(st.text(), st.text("{}[]:,-&*!|>'\"%@`#?<~ \n\tab01", max_size=30), st.binary(max_size=20)))
def test_any_text_is_a_job_or_a_spec_error(source: Any) -> None:
    parse_or_refuse(source)


NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
WORDS = st.from_regex(r"[A-Za-z0-9_.-]{1,12}", fullmatch=True).filter(
    lambda word: word not in (".", "..", "tmp", "sysfs", "tony", "python_env", "below") and not word.startswith("tony-")
)
IMAGES = st.from_regex(r"[a-z0-9]{1,8}(:[a-z0-9]{1,8})?", fullmatch=True)
LABELS = st.none() | st.from_regex(r"[0-9A-Za-z][0-9A-Za-z_-]{0,8}", fullmatch=True)
ENV_NAMES = st.from_regex(r"[A-Z][A-Z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: not name.startswith("TONY_") and name != "TF_CONFIG"
)
ENVIRONMENTS = st.dictionaries(ENV_NAMES, TEXT, max_size=3)
MEMORY = st.integers(1, 2**31 - 1).map(Memory)
SECONDS = st.floats(0.001, 3650 * 86400).map(Duration)
RESOURCES = st.lists(
    st.builds(Resource, WORDS.map(lambda word: f"hdfs:///d/{word}"), st.none() | WORDS),
    max_size=4,
    unique_by=lambda resource: resource.target,
)


def _several(words: list[str]) -> str:
    return ",".join(f"{word}.whl" for word in words)


def _elsewhere(resources: list[Resource]) -> list[Resource]:
    """Under names that the job's own files have not."""
    return [attrs.evolve(resource, name=f"below/{resource.target}") for resource in resources]


TASKS = st.builds(
    TaskSpec,
    command=TEXT.filter(str.strip),
    instances=st.integers(1, 3000),
    memory=MEMORY,
    vcores=st.integers(1, 64),
    gpus=st.integers(0, 16),
    resources=st.dictionaries(
        st.sampled_from(["yarn.io/fpga", "licences"]),
        st.builds(ResourceAmount, st.integers(1, 9), st.sampled_from(list(UNITS))),
        max_size=2,
    ),
    node_label=LABELS,
    docker=st.none() | st.builds(Docker, IMAGES, tmpfs=st.none() | st.just(["/dev/shm"])),
    env=ENVIRONMENTS,
    role=st.sampled_from([None, Role.WORKER, Role.PS, Role.EVALUATOR, Role.SIDECAR]),
    python_env=st.none() | WORDS | st.lists(WORDS, min_size=2, max_size=3).map(_several),
    files=RESOURCES.map(_elsewhere),
)
JOBS = st.builds(
    JobSpec,
    framework=st.sampled_from(["tensorflow", "standalone"]),
    tasks=st.dictionaries(NAMES.filter(lambda name: name != "chief"), TASKS, max_size=3).map(
        lambda tasks: {**tasks, "chief": TaskSpec("python train.py", role=Role.CHIEF)}
    ),
    name=st.text(st.characters(categories=("L", "N")), min_size=1, max_size=20),
    queue=st.none() | NAMES,
    priority=st.none() | st.integers(0, 100),
    node_label=LABELS,
    tags=st.lists(NAMES, max_size=8, unique=True),
    am=st.builds(AmSpec, MEMORY, st.integers(1, 8), LABELS),
    files=RESOURCES,
    python_env=st.none() | WORDS,
    docker=st.none() | st.builds(Docker, IMAGES, st.lists(st.just("/a:/b:ro"), max_size=2)),
    env=ENVIRONMENTS,
    secrets=st.lists(NAMES.map(lambda name: f"secret_{name}"), max_size=3, unique=True),
    timeouts=st.builds(Timeouts, st.none() | SECONDS, SECONDS, SECONDS, st.none(), SECONDS, SECONDS),
    tensorboard=st.none() | st.builds(TensorBoardSpec, MEMORY, st.integers(1, 8), LABELS, ENVIRONMENTS),
    port_range=st.integers(1024, 60000).map(lambda first: PortRange(first, first + 100)),
).map(with_tensorboard_task)


@settings(max_examples=150)
@given(JOBS)
def test_a_job_survives_every_way_of_writing_it(job: JobSpec) -> None:
    plain = to_plain(job)
    assert parse_job(plain) == job
    assert parse_job(dump_json(job)) == job
    assert parse_job(json.dumps(plain)) == job
    assert parse_job(yaml.safe_dump(plain, sort_keys=False)) == job
    assert parse_job(job, overrides={}) == job
    assert load_json(dump_json(job), JobSpec) == job
