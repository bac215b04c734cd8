"""``airflow tony advise``."""

from __future__ import annotations

import json

import attrs

from tests.advice.cases import TIMES, run, use
from tests.cli.conftest import Tony
from tests.hooks.jobs import ended, job
from tests.sample_segments import encode_segment
from tony_provider.cluster.records.summary import PreviousRuns
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.application_history import SampleSegmentHeader, segment_name
from tony_provider.runtime.common.codec import dump_json
from tony_provider.runtime.common.contract import HISTORY_DIR, RESULT_FILE
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.protocol.status import TaskProgress
from tony_provider.runtime.storage.base import write_atomically

LABELS = {"dag_id": "tests", "task_id": "advise", "run_id": "r"}


def test_a_job_that_used_little(tony: Tony, local: TonyHook) -> None:
    which = local.identity(dag_id="tests", task_id="advise", run_id="r")
    submitted = job("true", {"memory": "768MiB"})
    application_id = local.submit(SubmissionRequest(submitted, which, labels=LABELS)).application_id
    ended(local, application_id)
    status = local.job_status(which, application_id)
    assert status is not None
    used = use(tasks=1, memory_bytes=768 << 20, vcores=1, most_rss_bytes=100 << 20, most_rss_task="worker:0")
    uri = f"{local.job(application_id, which).directory}/{RESULT_FILE}"
    ran = attrs.evolve(status.tasks[0], progress=TaskProgress(step=9))
    status = attrs.evolve(status, times=TIMES, tasks=[ran])
    write_atomically(local.storage(), uri, dump_json(attrs.evolve(status, use=[used])))
    local.keep_former_runs(LABELS, PreviousRuns(summaries=[run(n, use=[used]) for n in (1, 2)]))

    said = tony("advise", application_id).out
    assert said.splitlines()[:2] == [
        "Request 512 MiB of memory for each worker instead of 768 MiB: one container used up to 100 MiB",
        "  memory-too-much, high confidence: task_type worker, asked_bytes 805306368, most_rss_bytes 104857600, "
        "most_rss_task worker:0, applications 3",
    ]
    assert "\n  *Checks* the highest resident memory" in tony("advise", application_id, "--explain").out
    patch = json.loads(tony("advise", application_id, "--patch").out)
    assert parse_job(submitted, overrides=patch).tasks["worker"].memory == 512
    [advice] = json.loads(tony("advise", application_id, "--output", "json").out)
    assert (advice["rule"], advice["confidence"], advice["change"]) == ("memory-too-much", "high", patch)
    assert "memory-too-much  high " in tony("advise", application_id, "--output", "plain").out

    write_atomically(local.storage(), uri, dump_json(attrs.evolve(status, use=[])))
    assert tony("advise", application_id).out.startswith(f"There is no advice on {application_id}")
    assert json.loads(tony("advise", application_id, "--patch").out) == {}
    assert tony("advise", "application_1_0001").code == 1


def test_what_a_history_holds_gives_a_terminal_no_orders(tony: Tony, local: TonyHook) -> None:
    which = local.identity(dag_id="tests", task_id="advise", run_id="r")
    application_id = local.submit(SubmissionRequest(job("true"), which, labels=LABELS)).application_id
    ended(local, application_id)
    header = SampleSegmentHeader(metrics_left_out=2, such_as=["\x1b]0;owned\x07\x1b[2J", "a\nFAKE line"])
    uri = f"{local.job(application_id, which).directory}/{HISTORY_DIR}/{segment_name(9, 1)}"
    write_atomically(local.storage(), uri, encode_segment(header, []))
    said = tony("advise", application_id).out
    assert said.isascii()
    assert "\x1b" not in said
    assert "\nFAKE" not in said
    assert "FAKE line" in said
