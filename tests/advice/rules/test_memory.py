"""Memory asked for and used."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.advice.cases import GIB, history, run, said, silent, use
from tony_provider.advice import sizing
from tony_provider.advice.case import Case
from tony_provider.advice.rules.memory_requests import MemoryTooLittle, MemoryTooMuch
from tony_provider.cluster.records.summary import Confidence
from tony_provider.runtime.jobspec.units import parse_memory
from tony_provider.runtime.protocol.status import Failure, FailureKind, FinalStatus, JobState

MUCH, LITTLE = MemoryTooMuch(), MemoryTooLittle()


def test_too_much_is_said_with_its_figures() -> None:
    advice = said(MUCH, history(used=[use(most_rss_bytes=GIB)]))
    assert advice.text == ("Request 1.5 GiB of memory for each worker instead of 8 GiB: one container used up to 1 GiB")
    assert advice.change == {"tasks": {"worker": {"memory": "1536MiB"}}}
    assert advice.evidence["most_rss_task"] == "worker:2"
    assert (advice.confidence, round(advice.gain, 2)) == (Confidence.LOW, 0.41)


def test_what_is_to_be_asked_for_is_said_exactly() -> None:
    advice = said(MUCH, history(used=[use(most_rss_bytes=937082880)]))
    assert advice.text.startswith("Request 1.25 GiB of memory")  # and not 1.2, which would be less than the change
    assert advice.change == {"tasks": {"worker": {"memory": "1280MiB"}}}


def test_the_run_that_used_most_decides_and_agreeing_runs_make_it_sure() -> None:
    former = [run(n, use=[use(most_rss_bytes=n * GIB)]) for n in (1, 2, 3)]
    advice = said(MUCH, history(used=[use(most_rss_bytes=GIB)]), former)
    assert advice.change == {"tasks": {"worker": {"memory": "4GiB"}}}
    assert advice.confidence is Confidence.HIGH
    assert silent(MUCH, history(used=[use(most_rss_bytes=GIB)]), [*former, run(4, use=[use(most_rss_bytes=6 * GIB)])])


def test_a_former_failure_is_no_measure() -> None:
    failed = run(1, verdict=FinalStatus.FAILED, use=[use(most_rss_bytes=7 * GIB)])
    assert said(MUCH, history(used=[use(most_rss_bytes=GIB)]), [failed]).change is not None


def test_enough_is_neither_too_much_nor_too_little() -> None:
    for rule in (MUCH, LITTLE):
        assert silent(rule, history())
        assert silent(rule, history(used=[use(most_rss_bytes=None)]))
        assert silent(rule, history(used=[]))


def test_of_a_job_that_failed_nobody_knows_what_it_would_have_used() -> None:
    assert silent(MUCH, history(state=JobState.FAILED, used=[use(most_rss_bytes=GIB)]))


def test_tensorboard_has_no_key_among_the_tasks() -> None:
    job = history(job={"tensorboard": True}, used=[use(type="tensorboard", most_rss_bytes=GIB)])
    assert silent(MUCH, job)


def test_nearly_too_little() -> None:
    advice = said(LITTLE, history(used=[use(most_rss_bytes=int(7.5 * GIB))]))
    assert advice.text == "Request 9.5 GiB of memory for each worker instead of 8 GiB: one container used up to 7.5 GiB"
    assert advice.change == {"tasks": {"worker": {"memory": "9728MiB"}}}


def test_a_container_that_was_killed_for_its_memory() -> None:
    failure = Failure(FailureKind.OUT_OF_MEMORY, "killed", task="worker:1")
    advice = said(LITTLE, history(state=JobState.FAILED, failure=failure, used=[use(most_rss_bytes=5 * GIB)]))
    assert advice.change == {"tasks": {"worker": {"memory": "12GiB"}}}
    assert "was killed for its memory" in advice.text
    raised = {"time_ms": 5, "event": "memory_raised", "data": {"memory": {"worker": 9000}}}
    assert said(LITTLE, history(events=[raised])).evidence["killed"] is True
    assert silent(LITTLE, history(state=JobState.FAILED, failure=Failure(FailureKind.USER, "x", task="worker:1")))


def test_after_a_kill_containers_got_more_and_what_counts_is_what_the_job_says() -> None:
    raised = {"time_ms": 5, "event": "memory_raised", "data": {"memory": {"worker": 16384}}}
    advice = said(LITTLE, history(events=[raised], used=[use(most_rss_bytes=9 * GIB, memory_bytes=16 * GIB)]))
    assert advice.text.startswith(
        "Request 12 GiB of memory for each worker instead of 8 GiB: one of its containers was "
    )
    assert silent(MUCH, history(events=[raised], used=[use(most_rss_bytes=9 * GIB, memory_bytes=16 * GIB)]))


@given(most=st.integers(1, 1 << 42), asked=st.integers(64, 1 << 21))
def test_who_follows_the_advice_is_told_nothing_more(most: int, asked: int) -> None:
    """And gets more than was used, and less than was asked for only where that is too much."""
    job = {"tasks": {"worker": {"memory": f"{asked}MiB"}}}
    before = history(job=job, used=[use(most_rss_bytes=most, memory_bytes=asked * sizing.MIB)])
    for rule in (MUCH, LITTLE):
        if (advice := rule.advise(Case(before))) is None:
            continue
        assert advice.change is not None
        wanted = parse_memory(advice.change["tasks"]["worker"]["memory"])
        assert wanted * sizing.MIB > most
        assert (wanted < asked) == (rule is MUCH)
        after = history(job=job | advice.change, used=[use(most_rss_bytes=most, memory_bytes=wanted * sizing.MIB)])
        assert all(silent(each, after) for each in (MUCH, LITTLE))
