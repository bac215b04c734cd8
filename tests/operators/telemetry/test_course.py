"""What a job did, as stretches of time made of its events."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tony_provider.operators.telemetry import MAX_SPANS, job_spans


def event(name: str, time_ms: int, **data: Any) -> dict[str, Any]:
    return {"time_ms": time_ms, "event": name, "message": "", "data": data}


def saved(step: int, saved_ms: int, time_ms: int) -> dict[str, Any]:
    return event("checkpoint", time_ms, checkpoint={"step": step, "uri": f"hdfs://n/{step}", "saved_ms": saved_ms})


RESTARTED = [
    event("application", 100),
    event("requested", 110),
    event("gang_complete", 200),
    event("rendezvous", 250, generation=1),
    saved(10, 300, 320),
    event("restarting", 330, restarting={"evaluator:0": True}),  # alone: the gang goes on
    event("restarting", 400, restarting={"gang": True}),
    event("restarting", 410, restarting={"gang": True}),
    event("rendezvous", 450, generation=2),
    event("verdict", 600),
    event("stopping", 610),
]


def told(events: list[dict[str, Any]], start: int = 50, end: int = 700) -> list[tuple[str, int, int]]:
    return [(each.name, each.start_ms, each.end_ms) for each in job_spans(events, start, end)]


def test_a_job_that_was_restarted() -> None:
    assert told(RESTARTED) == [
        ("waiting", 50, 200),
        ("localisation", 200, 250),
        ("generation", 250, 400),
        ("checkpoint", 300, 320),
        ("restart", 400, 450),
        ("generation", 450, 600),
        ("end", 600, 700),
    ]
    generations = [each.attributes for each in job_spans(RESTARTED, 50, 700) if each.name == "generation"]
    assert generations == [{"tony.generation": 1}, {"tony.generation": 2}]
    (checkpoint,) = [each for each in job_spans(RESTARTED, 50, 700) if each.name == "checkpoint"]
    assert checkpoint.attributes == {"tony.step": 10, "tony.uri": "hdfs://n/10"}


def test_a_job_that_was_suspended() -> None:
    suspended = [
        *RESTARTED[:4],
        event("suspending", 300, suspended="the day belongs to others"),
        event("suspended", 320),
        event("suspended", 330),  # by another application master
        event("resumed", 500, suspended=None),
        event("requested", 500),
        event("gang_complete", 540),
        event("rendezvous", 560, generation=2),
        event("verdict", 600),
    ]
    assert told(suspended) == [
        ("waiting", 50, 200),
        ("localisation", 200, 250),
        ("generation", 250, 320),
        ("suspended", 320, 500),
        ("waiting", 500, 560),
        ("generation", 560, 600),
        ("end", 600, 700),
    ]


def test_a_job_that_never_began() -> None:
    assert told([]) == [("waiting", 50, 700)]
    assert told(RESTARTED[:2]) == [("waiting", 50, 700)]
    assert told(RESTARTED[:3]) == [("waiting", 50, 200), ("localisation", 200, 700)]


def test_a_job_whose_master_died_before_it_could_say_how_it_ended() -> None:
    assert told(RESTARTED[:5])[-2:] == [("generation", 250, 700), ("checkpoint", 300, 320)]


def test_of_many_checkpoints_the_newest_are_told() -> None:
    many = [saved(step, 260 + step, 261 + step) for step in range(2 * MAX_SPANS)]
    found = job_spans([*RESTARTED[:4], *many], 50, 5000)
    assert len(found) == MAX_SPANS
    assert found[-1].attributes["tony.step"] == 2 * MAX_SPANS - 1
    assert [each.name for each in found[:3]] == ["waiting", "localisation", "generation"]


_json = (
    st.none()
    | st.integers()
    | st.text(max_size=3)
    | st.dictionaries(st.sampled_from(["gang", "step", "saved_ms"]), st.integers(), max_size=2)
)
_names = st.sampled_from(["rendezvous", "restarting", "checkpoint", "verdict", "gang_complete", "other"])
_event = st.fixed_dictionaries(
    {"time_ms": st.none() | st.integers(0, 10**14), "event": _names},
    optional={"data": _json | st.fixed_dictionaries({"restarting": _json, "checkpoint": _json, "generation": _json})},
)


@given(st.lists(_event, max_size=12))
def test_whatever_stands_in_the_events(events: list[dict[str, Any]]) -> None:
    job_spans(events, 50, 700)
