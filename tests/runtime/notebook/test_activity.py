from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tony_provider.runtime.notebook.jupyter import Idleness, ServerActivity
from tony_provider.runtime.notebook.serving import NotebookOptions


def kernel(state: str = "idle", last: str = "2026-11-25T20:00:00Z", name: str = "k") -> dict[str, Any]:
    return {"id": name, "execution_state": state, "last_activity": last, "connections": 1}


def test_a_kernel_that_computes_for_hours_is_activity() -> None:
    idleness = Idleness(0.0)
    for now in range(0, 7200, 5):
        assert idleness.record(ServerActivity.of([kernel("busy")], []), now, changed=False) == 0
    assert idleness.record(ServerActivity.of([kernel()], []), 7205, changed=False) == 10


def test_a_page_that_was_left_open_is_none() -> None:
    idleness = Idleness(0.0)
    idleness.record(ServerActivity.of([kernel()], None), 5, changed=False)
    assert idleness.record(ServerActivity.of([kernel()], None), 3605, changed=False) == 3600


def test_messages_of_kernels_and_terminals_and_files_that_change_are_activity() -> None:
    idleness = Idleness(0.0)
    terminal = {"name": "1", "last_activity": "2026-11-25T20:00:00Z"}
    assert idleness.record(ServerActivity.of([kernel()], [terminal]), 10, changed=False) == 0
    assert idleness.record(ServerActivity.of([kernel(last="2026-11-25T20:00:09Z")], [terminal]), 20, changed=False) == 0
    assert idleness.record(ServerActivity.of([], [{**terminal, "last_activity": "later"}]), 30, changed=False) == 0
    assert idleness.record(ServerActivity.of([], []), 40, changed=True) == 0
    assert idleness.record(ServerActivity.of([], []), 50, changed=False) == 10


def test_a_server_that_does_not_answer_is_no_activity_and_neither_is_its_return() -> None:
    idleness = Idleness(0.0)
    idleness.record(ServerActivity.of([kernel()], []), 10, changed=False)
    assert idleness.record(None, 20, changed=False) == 10
    assert idleness.record(ServerActivity.of([kernel()], []), 30, changed=False) == 20


def test_the_start_of_a_server_is_no_idleness_unless_it_never_answers() -> None:
    idleness = Idleness(0.0)
    assert idleness.record(None, 290, changed=False) == 0
    assert idleness.record(None, 400, changed=False) == 110
    started = Idleness(0.0)
    started.record(None, 10, changed=False)
    started.record(ServerActivity.of([], []), 20, changed=False)
    assert started.record(None, 30, changed=False) == 20


ANSWERS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "name", "last_activity", "execution_state"]), inner, max_size=4)
    ),
    max_leaves=10,
)


@given(ANSWERS, ANSWERS)
def test_whatever_a_server_answers_is_taken(kernels: Any, terminals: Any) -> None:
    assert Idleness(0.0).record(ServerActivity.of(kernels, terminals), 1.0, changed=False) in (0.0, 1.0)


@given(st.floats(0, 1e6), st.integers(0, 4_000_000_000), st.integers(0, 1 << 50))
def test_options_arrive_as_they_were_written(idle: float, until: int, keep: int) -> None:
    found = NotebookOptions.of(NotebookOptions(idle, float(until), keep).arguments.split())
    assert (found.until, found.keep) == (until, keep)
    assert abs(found.idle - idle) <= 1e-5 * idle
