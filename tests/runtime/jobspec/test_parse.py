"""What people write becomes a job, or all that is wrong with it at once."""

from __future__ import annotations

import json
import pickle
from collections import OrderedDict
from datetime import timedelta
from typing import Any

import pytest

from tony_provider.runtime.common.codec import to_plain
from tony_provider.runtime.common.quantities import ResourceAmount
from tony_provider.runtime.jobspec.model import (
    Docker,
    Duration,
    JobSpec,
    Memory,
    PortRange,
    PythonEnv,
    Resource,
    Role,
    TaskSpec,
    Timeouts,
    role_of,
)
from tony_provider.runtime.jobspec.problems import SpecError
from tony_provider.runtime.parsing.parse import merge, parse_job

SMALL = {"framework": "standalone", "tasks": {"worker": {"command": "true"}}}

FULL = """
name: retrain clicks
framework: tensorflow
queue: root.ml
priority: 5
node_label: gpu
tags: [team-a, nightly]
am: {memory: 1GiB, vcores: 2, node_label: cpu}
files:
  - train.py
  - hdfs:///data/vocab.txt::vocab/words.txt
  - {source: "odd::name", name: odd}
archives: ["hdfs:///envs/data.zip::data"]
python_env: hdfs:///envs/tf.tar.gz
docker: {image: "registry/tf:2.21", mounts: ["/etc/krb5.conf:/etc/krb5.conf:ro"]}
env: {LOG: debug, SEED: 010, FAST: yes, RATIO: 1.10, OFF: false}
secrets: [API_KEY]
timeouts: {queue: 1h30m, allocation: 60, registration: "300", lifetime: 1d, grace: 0, evaluator: 2m}
port_range: 21000-21999
tasks:
  chief: {command: python train.py, memory: 8GiB, vcores: 4, gpus: 1}
  trainer: {command: python train.py, instances: "2", resources: {yarn.io/fpga: 1}, node_label: fpga, env: {LOG: info}}
  store: {command: python ps.py, role: ps}
"""


def problems_of(source: Any, **changes: Any) -> dict[str, str]:
    with pytest.raises(SpecError) as caught:
        parse_job(source, **changes)
    return {problem.path: problem.message for problem in caught.value.problems}


def test_the_smallest_job_has_documented_defaults() -> None:
    assert parse_job(SMALL) == JobSpec(framework="standalone", tasks={"worker": TaskSpec(command="true")})


def test_every_key() -> None:
    assert parse_job(FULL) == JobSpec(
        name="retrain clicks",
        framework="tensorflow",
        queue="root.ml",
        priority=5,
        node_label="gpu",
        tags=["team-a", "nightly"],
        am=type(parse_job(SMALL).am)(memory=Memory(1024), vcores=2, node_label="cpu"),
        files=[
            Resource("train.py"),
            Resource("hdfs:///data/vocab.txt", "vocab/words.txt"),
            Resource("odd::name", "odd"),
        ],
        archives=[Resource("hdfs:///envs/data.zip", "data")],
        python_env=PythonEnv("hdfs:///envs/tf.tar.gz"),
        docker=Docker("registry/tf:2.21", ["/etc/krb5.conf:/etc/krb5.conf:ro"]),
        env={"LOG": "debug", "SEED": "010", "FAST": "yes", "RATIO": "1.10", "OFF": "false"},
        secrets=["API_KEY"],
        timeouts=Timeouts(*(float(seconds) for seconds in (5400, 60, 300, 86400, 0, 120))),  # type: ignore[arg-type]
        port_range=PortRange(21000, 21999),
        tasks={
            "chief": TaskSpec("python train.py", memory=Memory(8192), vcores=4, gpus=1),
            "trainer": TaskSpec(
                "python train.py",
                instances=2,
                resources={"yarn.io/fpga": ResourceAmount(1)},
                node_label="fpga",
                env={"LOG": "info"},
            ),
            "store": TaskSpec("python ps.py", role=Role.PS),
        },
    )


def test_yaml_json_python_and_the_model_say_the_same() -> None:
    job = parse_job(FULL)
    plain = to_plain(job)
    assert parse_job(job) == job
    assert parse_job(plain) == job
    assert parse_job(json.dumps(plain)) == job
    assert parse_job(json.dumps(plain, indent="\t").encode()) == job
    assert parse_job(b"\xef\xbb\xbf" + FULL.encode()) == job
    assert parse_job(OrderedDict(plain)) == job


def test_a_mapping_as_jinja_writes_it_is_what_it_was() -> None:
    mapping = {**SMALL, "env": {"A": 'it\'s "q" \\ \n', "B": True, "C": None, "D": 1.5, "E": "é\t"}}
    assert parse_job(str(mapping)) == parse_job(mapping)
    assert parse_job(SMALL, overrides=str({"env": {"A": "x\ny"}})).env == {"A": "x\ny"}


def test_yaml_in_braces_stays_yaml() -> None:
    job = parse_job(SMALL, overrides=r"{'env': {'A': 'it''s', 'B': 1.10, 'C': 'x\ny', 'D': 010}}")
    assert job.env == {"A": "it's", "B": "1.10", "C": r"x\ny", "D": "010"}


def test_numbers_may_come_as_text_since_templates_give_text() -> None:
    job = parse_job(
        {
            "framework": "standalone",
            "priority": "3",
            "port_range": {"first": "20000", "last": "20100"},
            "tasks": {
                "worker": {"command": "true", "instances": "2", "memory": "4096", "gpus": " 1 ", "vcores": "2.0"}
            },
            "timeouts": {"queue": "90", "lifetime": timedelta(hours=1)},
        }
    )
    assert job.tasks["worker"] == TaskSpec("true", instances=2, memory=Memory(4096), gpus=1, vcores=2)
    assert job.priority == 3
    assert job.port_range == PortRange(20000, 20100)
    assert job.timeouts.queue == Duration(90)
    assert job.timeouts.lifetime == Duration(3600)


def test_null_is_the_same_as_leaving_a_key_out_and_so_is_empty_text_where_null_is_the_default() -> None:
    job = parse_job(
        {
            **SMALL,
            "queue": "",
            "priority": "",
            "node_label": None,
            "env": None,
            "timeouts": {"queue": "", "grace": None},
        }
    )
    assert job == parse_job(SMALL)


def test_environment_values_become_text() -> None:
    job = parse_job({**SMALL, "env": {"A": 1, "B": True, "C": 1.5, "D": "x", "E": "", "F": None}})
    assert job.env == {"A": "1", "B": "true", "C": "1.5", "D": "x", "E": ""}


def test_json_numbers_stay_as_written_in_an_environment() -> None:
    job = parse_job('{"framework": "standalone", "tasks": {"worker": {"command": "x"}}, "env": {"A": 1.10, "B": 1e3}}')
    assert job.env == {"A": "1.10", "B": "1e3"}


def test_yaml_anchors_and_merge_keys() -> None:
    job = parse_job("""
framework: standalone
tasks:
  worker: &task {command: "true", memory: 1GiB}
  trainer: {<<: *task, memory: 2GiB}
""")
    assert job.tasks["trainer"] == TaskSpec("true", memory=Memory(2048))


def test_overrides_are_merged_before_parsing() -> None:
    overrides = {"tasks": {"chief": None, "trainer": {"instances": 5, "env": {"LOG": None}}}, "files": ["other.py"]}
    for written in (overrides, json.dumps(overrides)):
        job = parse_job(FULL, overrides=written)
        assert list(job.tasks) == ["trainer", "store"]
        assert (job.tasks["trainer"].instances, job.tasks["trainer"].env) == (5, {})
        assert job.files == [Resource("other.py")]
    assert parse_job(parse_job(FULL), overrides=overrides) == job
    assert parse_job(merge(to_plain(parse_job(FULL)), overrides)) == job


def test_nothing_given_is_changed() -> None:
    source: dict[str, Any] = {**SMALL, "env": {"A": None}}
    overrides = {"env": {"B": "1"}}
    parse_job(source, overrides=overrides)
    assert source["env"] == {"A": None}
    assert overrides == {"env": {"B": "1"}}


def test_helpers_of_the_model() -> None:
    job = parse_job(FULL)
    assert [job.role(name) for name in job.tasks] == [Role.CHIEF, Role.WORKER, Role.PS]
    assert sum(task.instances for task in job.tasks.values()) == 4
    assert [file.target for file in job.files] == ["train.py", "vocab/words.txt", "odd"]
    assert Resource("hdfs:///data/days/").target == "days"
    assert role_of("tensorboard", TaskSpec("x")) is Role.SIDECAR
    assert role_of("chief", TaskSpec("x", role=Role.WORKER)) is Role.WORKER


def test_every_problem_is_told_at_once_with_path_value_and_what_is_allowed() -> None:
    with pytest.raises(SpecError) as caught:
        parse_job("""
framework: tensrflow
taks: {}
command: python x.py
port_range: 9-1
timeouts: {lifetime: 5s, queue: 9s}
tasks:
  worker: {instances: "0", memory: 4GB, cpus: 3, command: " "}
  ps: 4
  chief: {instances: 2, command: x, vcores: many, role: boss}
""")
    assert str(caught.value) == (
        "the job specification has 13 problems:\n"
        "  taks: unknown key; did you mean tasks? (got {})\n"
        "  command: unknown key; it belongs under tasks.<type> (got 'python x.py')\n"
        "  tasks.worker.cpus: unknown key; did you mean vcores? (got '3')\n"
        "  tasks.worker.memory: GB may mean powers of ten or of two; write 4GiB (got '4GB')\n"
        "  tasks.ps: must be a mapping (got '4')\n"
        "  tasks.chief.vcores: must be a whole number (got 'many')\n"
        "  tasks.chief.role: must be one of chief, worker, ps, evaluator, once, sidecar (got 'boss')\n"
        "  framework: must be one of tensorflow, pytorch, jax, xgboost, ray, horovod, mpi, mxnet, generic, standalone; "
        "did you mean tensorflow? (got 'tensrflow')\n"
        "  tasks.worker.command: must not be empty (got ' ')\n"
        "  tasks.worker.instances: must be at least 1 (got '0')\n"
        "  tasks.chief.instances: must be 1 for a chief (got '2')\n"
        "  timeouts.queue: must be less than timeouts.lifetime (5 s) (got '9s')\n"
        "  port_range: must be FIRST-LAST within 1024-65535, and FIRST must not exceed LAST (got '9-1')"
    )


def test_a_missing_key_is_told_with_its_path() -> None:
    assert problems_of({"tasks": {"worker": {}}, "docker": {}, "files": [{}]}) == {
        "framework": "is required",
        "tasks.worker.command": "is required",
        "files[0].source": "is required",
        "docker.image": "is required",
    }
    assert problems_of({}) == {"framework": "is required", "tasks": "is required"}


@pytest.mark.parametrize(
    ("source", "path", "says"),
    [
        ("", "", "is empty"),
        ("# nothing", "", "is empty"),
        ("- a", "", "must be a mapping"),
        ("text", "", "must be a mapping"),
        (b"\xff", "", "not UTF-8"),
        (42, "", "must be YAML, JSON or a mapping"),
        (None, "", "must be YAML, JSON or a mapping"),
        ("a: [", "", "not YAML or JSON in line 1"),
        ("{", "", "not YAML or JSON"),
        ("a: b: c", "", "not YAML or JSON in line 1"),
        ("a: 1\n---\nb: 2", "", "not YAML or JSON"),
        ("[" * 5000, "", "nested too deeply"),
        ("a: " + "[" * 101 + "]" * 101, "", "nested too deeply"),  # PyYAML took seconds for five hundred open ones
        ('{"a":' * 50_000, "", "nested too deeply"),
        ('a: "\\UFFFFFFFF"', "", "not YAML or JSON"),
        ("a: \x00", "", "not YAML or JSON"),
        ("a: !!python/object/apply:os.system [true]", "a", "is not allowed (line 1)"),
        ("a: !!binary aGk=", "a", "is not allowed"),
        ("a: &b [*b]", "a[0]", "must not contain itself"),
        ("? [a]\n: b", "", "a key must be text (line 1)"),
        ("<<: text", "['<<']", "must refer to mappings"),
        ("a: 1\nb: 2\na: 3", "a", "the key is given twice (line 3)"),
        ("tasks:\n  worker: {gpus: 1, gpus: 2}", "tasks.worker.gpus", "the key is given twice (line 2)"),
        ('{"tasks": {"worker": {"gpus": 1, "gpus": 2}}}', "tasks.worker.gpus", "the key is given twice"),
    ],
)
def test_text_that_is_no_specification(source: Any, path: str, says: str) -> None:
    assert says in problems_of(source)[path]


def test_an_overrides_problem_says_so() -> None:
    assert problems_of(SMALL, overrides="- a") == {"overrides": "must be a mapping of keys to values"}
    assert problems_of(SMALL, overrides="a: 1\na: 2") == {"overrides.a": "the key is given twice (line 2)"}


def test_a_mapping_that_contains_itself() -> None:
    job: dict[str, Any] = {**SMALL}
    job["env"] = job
    assert "env.framework" not in problems_of(job)
    assert problems_of(job)["env.tasks"] == "must be text"
    loop: dict[str, Any] = {}
    loop["tasks"] = loop
    assert problems_of(loop, overrides=loop) == {"": "nested too deeply"}


def test_aliases_of_aliases_cost_nothing() -> None:
    levels = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 60))
    assert "unknown key" in problems_of(f"l0: &l0 [x]\n{levels}")["l59"]


def test_the_error_travels_between_processes() -> None:
    with pytest.raises(SpecError) as caught:
        parse_job({})
    copy = pickle.loads(pickle.dumps(caught.value))
    assert copy.problems == caught.value.problems
    assert str(copy) == str(caught.value)


def test_a_huge_value_makes_a_short_message() -> None:
    with pytest.raises(SpecError) as caught:
        parse_job({**SMALL, "queue": "x y" * 100_000, "tags": 10**5000})
    assert len(str(caught.value)) < 600
