from __future__ import annotations

import json
import math
import shlex
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.operators.statuses import ID, application, status, worker
from tony_provider.cluster.interface import Application
from tony_provider.cluster.records.history import JobHistory, SpecificationRecord
from tony_provider.cluster.records.summary import (
    MOST_BYTES,
    JobSummary,
    ParameterSource,
    command_parameters,
    in_parts,
    plain_of,
    read_summary,
    summarize,
    verdict,
    with_parameters,
)
from tony_provider.runtime.application_history import TaskSample
from tony_provider.runtime.common.codec import to_plain
from tony_provider.runtime.protocol.status import (
    ExportedModel,
    Failure,
    FailureKind,
    FinalStatus,
    JobStatus,
    TimeUse,
    TypeUse,
)

FACTS = JobSummary(
    application_id=ID,
    application_dir="hdfs://n/tony/jobs/x/applications/1",
    dag_id="clicks",
    run_id="scheduled__2026-01-05",
    task_id="train",
    try_number=2,
    run_date="2026-01-05T00:00:00+00:00",
    submitted_ms=1000,
    fingerprint={"tasks.worker.command": "0a"},
    links={"job": "http://rm/proxy/1/"},
)
SUCCEEDED, FAILED, KILLED = FinalStatus.SUCCEEDED, FinalStatus.FAILED, FinalStatus.KILLED


def of(job: JobStatus | None = None, cluster: Application | None = None, **fields: Any) -> JobSummary:
    return summarize(FACTS, JobHistory(application_id=ID, status=job, **fields), cluster)


@pytest.mark.parametrize(
    ("cluster", "job", "found"),
    [
        (None, None, None),
        (application("RUNNING"), status("RUNNING"), None),
        (application("FINISHED", final_status=SUCCEEDED), status("SUCCEEDED"), SUCCEEDED),
        (application("FAILED", final_status=FAILED), status("SUCCEEDED"), SUCCEEDED),  # its own result is the truth
        (None, status("FAILED"), FAILED),
        (None, status("FAILED", failure=Failure(FailureKind.KILLED, "by carol")), KILLED),
        (application("KILLED", final_status=KILLED), status("RUNNING"), KILLED),
        (application("FAILED"), None, FAILED),
    ],
)
def test_verdict(cluster: Application | None, job: JobStatus | None, found: FinalStatus | None) -> None:
    assert verdict(cluster, job) is found


def test_a_job_that_never_started() -> None:
    found = of(
        None, application("KILLED", final_status=KILLED, diagnostics="by carol\nat noon", queue="ml", user="alice")
    )
    assert (found.verdict, found.reason, found.queue, found.user) == (KILLED, "by carol\nat noon", "ml", "alice")
    assert (found.submitted_ms, found.try_number, found.curves) == (1000, 2, [])


def test_a_failure_names_its_task_and_node() -> None:
    failure = Failure(FailureKind.OUT_OF_MEMORY, "worker:1 exited with 137\nstderr:\n<b>\x00", task="worker:1")
    found = of(status("FAILED", failure=failure, tasks=[worker(0, node="n0"), worker(1, "FAILED", node="n1")]))
    assert (found.failed_task, found.failed_node, found.failure_kind) == ("worker:1", "n1", "OUT_OF_MEMORY")
    assert found.reason == "worker:1 exited with 137\nstderr: <b>?"


def test_of_a_traceback_its_end_is_kept() -> None:
    frames = "".join(f'  File "/tmp/train.py", line {at}, in call\n    call()\n' for at in range(100))
    message = f"worker:0 ended with exit code 1\nTraceback (most recent call last):\n{frames}ValueError: no data\n"
    found = of(status("FAILED", failure=Failure(FailureKind.USER, message, task="worker:0")))
    assert (found.reason, found.cause) == ("worker:0 ended with exit code 1\nValueError: no data", "")
    long = of(status("FAILED", failure=Failure(FailureKind.USER, f"ended\n{'x' * 5000} no data", task="worker:0")))
    assert long.reason.startswith("ended\n…x")
    assert long.reason.endswith("x no data")


def test_program_output_is_only_in_the_cause_and_below_first_lines() -> None:
    failure = Failure(FailureKind.USER, "worker:0 ended\nsecret", task="worker:0", cause="ValueError: secret")
    found = of(status("FAILED", failure=failure, warnings=["worker:1 ended\nsecret words\n"]))
    assert found.cause == "ValueError: secret"
    assert (found.reason, found.warnings) == ("worker:0 ended\nsecret", ["worker:1 ended\nsecret words"])


def test_what_the_leader_did() -> None:
    taken = [
        TaskSample(time_ms=61_000, seconds=1, task=task, step=5, metrics={"loss": loss})
        for task, loss in (("worker:0", math.nan), ("worker:1", 1.0))
    ]
    use = [TypeUse(type="worker", tasks=2, container_seconds=9.0, memory_bytes=1, vcores=1)]
    job = status(
        "SUCCEEDED", 5, metrics={"loss": math.nan}, times=TimeUse(queue=3.0), use=use, started_ms=2000, finished_ms=9000
    )
    specification = SpecificationRecord(job={"framework": "pytorch"})
    found = of(job, application("FINISHED", started_ms=1500), samples=taken, specification=specification)
    assert (found.step, found.metrics, found.times.queue, found.use) == (5, {"loss": "NaN"}, 3.0, use)
    assert (found.framework, found.submitted_ms, found.finished_ms) == ("pytorch", 1500, 9000)
    assert [(curve.metric, curve.values, curve.seconds) for curve in found.curves] == [("loss", ["NaN"], [59.5])]


def enormous() -> JobHistory:
    """10,000 metrics with names like HTML, reported 300 times; and far too much of everything else."""
    names = [f"<img src=x onerror=alert({number})>" for number in range(10_000)]
    taken = [
        TaskSample(
            time_ms=1000 * at,
            seconds=1,
            task="worker:0",
            step=at,
            metrics=dict.fromkeys(names[: 30 if at else None], at / 7),
        )
        for at in range(300)
    ]
    job = status(
        "FAILED",
        7,
        metrics=dict.fromkeys(names, math.inf),
        warnings=["☃" * 100_000] * 100,
        failure=Failure(FailureKind.USER, "☃\n" * 100_000),
        use=[TypeUse(type=f"t{n}", tasks=1, container_seconds=1, memory_bytes=1, vcores=1) for n in range(500)],
    )
    return JobHistory(application_id=ID, status=job, samples=taken)


@pytest.mark.parametrize("most_bytes", [MOST_BYTES, 30_000])
def test_it_is_small_whatever_the_job_has_left(most_bytes: int) -> None:
    found = summarize(FACTS, enormous(), most_bytes=most_bytes)
    assert len(json.dumps(to_plain(found))) <= most_bytes
    assert found.metrics
    assert found.reason
    if most_bytes == MOST_BYTES:
        assert len(found.curves) >= 5
        assert all(len(curve.values) >= 8 for curve in found.curves)
        assert found.curves[0].metric.startswith("<img src=x")


def test_its_parts_make_it_whole_again() -> None:
    summary = summarize(FACTS, enormous())
    first, details = in_parts(summary)
    assert "curves" not in first
    texts = [json.dumps(part) for part in (first, details)]
    (one, none), (other, nothing) = (plain_of(text) for text in texts)
    assert read_summary({**one, **other}) == (summary, [])
    assert not none + nothing


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "is missing"),
        ('{"verdict": "SUCC', "damaged"),
        ("[" * 100_000, "damaged"),
        ("[1]", "not a JSON object"),
        ('{"__airflow_state_ref__": "s3://bucket/1"}', "backend"),
    ],
)
def test_what_is_no_summary_is_told(text: str | None, said: str) -> None:
    plain, problems = plain_of(text)
    assert plain == {}
    assert said in problems[0]


def test_a_damaged_or_newer_summary_is_read_as_far_as_it_goes() -> None:
    first, details = in_parts(summarize(FACTS, JobHistory(application_id=ID, status=status("SUCCEEDED", 5))))
    found, problems = read_summary(
        {**first, **details, "version": 9, "verdict": "SPLENDID", "step": "five", "glory": 1}
    )
    assert (found.version, found.verdict, found.step, found.dag_id) == (9, None, None, "clicks")
    assert len(problems) == 2


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("python train.py --lr 0.1 --epochs=3 --augment", {"lr": "0.1", "epochs": "3", "augment": "True"}),
        ("python train.py --offset -1 --shift -.5 --quiet -v", {"offset": "-1", "shift": "-.5", "quiet": "True"}),
        ("set -e\npython train.py --amp\npython test.py --amp=no", {"amp": "no"}),
        ("python train.py --amp && python test.py --fast; true", {"amp": "True", "fast": "True"}),
        ("for x in 1 2; do python train.py --lr 0.1; done", {"lr": "0.1"}),
        ("python train.py \\\n  --batch-size \\\n  32", {"batch_size": "32"}),
        ("python train.py --name 'a b' --empty '' --opt.lr=1e-3", {"name": "a b", "empty": "", "opt.lr": "1e-3"}),
        ('python train.py --day "$DAY" --host=`hostname` --lr 1', {"lr": "1"}),
        ("python train.py --lr 1 -- --lr 2 --", {"lr": "2"}),
        ("python train.py --name 'open", {}),
        ("", {}),
    ],
)
def test_options_of_a_command(command: str, found: dict[str, str]) -> None:
    assert command_parameters(command) == found


@given(
    st.dictionaries(
        st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True), st.text("ab1 .='\"-/,", max_size=8), max_size=5
    ),
    st.booleans(),
)
def test_options_are_read_as_the_shell_passes_them(options: dict[str, str], joined: bool) -> None:
    words = []
    for name, value in options.items():
        words += [f"--{name}={value}"] if joined or value.startswith("-") else [f"--{name}", value]
    assert command_parameters(shlex.join(["python", "train.py", *words])) == options


@given(st.text())
def test_any_command(command: str) -> None:
    for name, value in command_parameters(command).items():
        assert name.replace("_", "-") in command.replace("_", "-").replace("\\", "").replace("'", "").replace('"', "")
        assert "$" not in value


def test_the_program_overrides_the_command_which_overrides_the_run() -> None:
    begun = with_parameters(FACTS, ParameterSource.RUN, {"lr": 1, "epochs": 3, "seed": 7, "tags": ["a"], "none": None})
    job = {"tasks": {"worker": {"command": "x --lr 2 --epochs 4"}, "ps": {"command": "y --lr 3 --ps"}}}
    record = SpecificationRecord(job={**job, "ready": {"command": "z --lr 4"}})
    done = attrs.evolve(status("SUCCEEDED"), parameters={"lr": "0.5"})
    found = summarize(begun, JobHistory(application_id=ID, status=done, specification=record))
    assert found.parameters == {"lr": "0.5", "epochs": "4", "ps": "True", "seed": "7"}
    assert found.parameter_sources == {"lr": "program", "epochs": "command", "ps": "command", "seed": "run"}


def test_parameters_are_bounded_and_their_secrets_masked() -> None:
    many = {f"layer.{number}": "x" * 250 for number in range(200)}
    odd = {"a\nb": 1, "x" * 101: 1, "long": "x" * 251, "list": [1], "api_key": "k", "hubToken": "t", "max_tokens": 5}
    found = with_parameters(with_parameters(FACTS, ParameterSource.RUN, many), ParameterSource.COMMAND, odd)
    assert len(found.parameters) == len(found.parameter_sources) == 100
    kept = {name: found.parameters[name] for name in list(found.parameters)[:4]}
    assert kept == {"api_key": "***", "hubToken": "***", "max_tokens": "5", "layer.0": "x" * 250}


def test_results_of_a_job() -> None:
    export = ExportedModel(40, "hdfs://n/tony/jobs/x/applications/1/exports/step-40", 5)
    done = attrs.evolve(status("SUCCEEDED"), model_dir="hdfs://n/tony/jobs/x/applications/1/model", export=export)
    found = of(done, returned={"accuracy": 0.5, "text": "a\nb"})
    assert (found.model_dir, found.export_dir) == (done.model_dir, export.uri)
    assert json.loads(found.returned or "") == {"accuracy": 0.5, "text": "a\nb"}
    cut = of(done, returned=["x" * 10_000]).returned
    assert cut is not None
    assert (len(cut) < 1000, cut[-1]) == (True, "…")
    assert of(done).returned is None
