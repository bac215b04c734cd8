"""Memory on real jobs."""

from __future__ import annotations

import pytest

from tests.advice.real.jobs import TASK, fit, ran, ran_again, submitted
from tests.advice.real.table import Verdicts
from tests.jobs.places import LocalPlace, YarnPlace
from tony_provider.advice.rules.memory_requests import MemoryTooLittle, MemoryTooMuch
from tony_provider.cluster.records.summary import Confidence

SHORT = "--steps 70 --pace 0.1"  # some heartbeats
ENOUGH = fit(f"{SHORT} --holds 160")


@pytest.mark.long
def test_memory_too_much(local: LocalPlace, verdicts: Verdicts) -> None:
    rule = MemoryTooMuch(least_seconds=5.0)
    spec = fit(f"{SHORT} --holds 20", memory="1GiB")
    runs = submitted(local, *[spec] * 3, labels=TASK)
    [other] = submitted(local, ENOUGH)
    advice = verdicts.told(rule, "20 MiB of data in 1 GiB, the third run", ran_again(runs))
    assert advice.confidence is Confidence.HIGH
    assert advice.change == {"tasks": {"worker": {"memory": "512MiB"}}}
    assert 20 << 20 < advice.evidence["most_rss_bytes"] < 100 << 20
    verdicts.silent(rule, "160 MiB of data in 256 MiB", ran(other))


@pytest.mark.long
def test_memory_too_little(local: LocalPlace, verdicts: Verdicts) -> None:
    rule = MemoryTooLittle()
    near, enough = map(ran, submitted(local, fit(f"{SHORT} --holds 230"), ENOUGH))
    advice = verdicts.told(rule, "230 MiB of data in 256 MiB", near)
    assert advice.change == {"tasks": {"worker": {"memory": "512MiB"}}}
    verdicts.silent(rule, "160 MiB of data in 256 MiB", enough)


@pytest.mark.long
def test_memory_too_little_after_a_kill(yarn: YarnPlace, verdicts: Verdicts) -> None:
    """Containers got more by ``memory_step``: what counts is what the job says, with which the next run begins."""
    more = {"restart": {"memory_step": "512MiB", "memory_limit": "1GiB", "backoff": "1s"}}
    spec = fit(f"{SHORT} --holds 500", memory="512MiB", job=more)
    killed = ran(yarn.submit(spec))
    killed.job.succeeded()
    advice = verdicts.told(MemoryTooLittle(), "500 MiB of data in 512 MiB: killed, and given 1 GiB", killed)
    assert advice.evidence["asked_bytes"] == 512 << 20
    assert advice.evidence["killed"] is True
    assert advice.change == {"tasks": {"worker": {"memory": "768MiB"}}}
    after = ran(yarn.submit(fit(f"{SHORT} --holds 500", memory="768MiB", job=more)))
    assert after.job.succeeded().restarts == 0
    verdicts.silent(MemoryTooLittle(), "the same with the 768 MiB that were advised", after)
