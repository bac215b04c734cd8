from __future__ import annotations

from tests.operators.statuses import ID, application, status, worker
from tony_provider.operators.progress import MAX_ROWS, PROGRESS_INTERVAL, ProgressLog


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_says_each_state_once() -> None:
    log = ProgressLog()
    waiting = status("WAITING", message="1 of 2 containers")
    assert log.lines(application("ACCEPTED", queue="ml"), None) == [f"{ID} is ACCEPTED in queue ml"]
    assert log.lines(application("ACCEPTED", queue="ml"), None) == []
    assert log.lines(application(queue="ml"), waiting) == [
        f"{ID} is RUNNING in queue ml",
        "Job is WAITING: 1 of 2 containers",
    ]
    assert log.lines(application(queue="ml"), waiting) == []


def test_a_table_of_the_tasks_when_one_changes() -> None:
    log = ProgressLog()
    both = [worker(0, node="node1:45454", step=20, rss_bytes=300 << 20), worker(1, "STARTING")]
    log.lines(application(), status(tasks=[worker(0, "STARTING"), worker(1, "STARTING")]))
    assert log.lines(application(), status(tasks=both)) == [
        "task      state     node         step  steps/s  memory",
        "worker:0  RUNNING   node1:45454  20    2.5      300 MiB",
        "worker:1  STARTING  -            -     -        -",
    ]


def test_a_new_attempt_and_its_number_show() -> None:
    log = ProgressLog()
    log.lines(application(), status(tasks=[worker(0)]))
    lines = log.lines(application(), status(tasks=[worker(0, attempt=2)]))
    assert lines[1].split() == ["worker:0", "RUNNING", "(attempt", "2)", "-", "-", "-", "-"]


def test_memory_and_steps_alone_are_no_reason_for_a_table() -> None:
    log = ProgressLog()
    log.lines(application(), status(tasks=[worker(0, step=1)]))
    assert log.lines(application(), status(tasks=[worker(0, step=2, rss_bytes=1 << 30)])) == []


def test_a_large_gang_is_summed_up() -> None:
    tasks = [worker(index, "RUNNING" if index < 90 else "STARTING") for index in range(100)]
    lines = ProgressLog().lines(application(), status(tasks=tasks))
    assert lines[-1] == "of 100 tasks: 90 RUNNING, 10 STARTING"
    assert sum(line.startswith("worker:") for line in lines) == MAX_ROWS


def test_progress_now_and_then_and_at_the_end() -> None:
    clock = Clock()
    log = ProgressLog(clock)

    def lines(state: str, step: int) -> list[str]:
        told = log.lines(application(), status(state, step=step, total_steps=300, steps_per_second=8.44))
        return [line for line in told if line.startswith("step")]

    assert lines("RUNNING", 1) == ["step 1/300 (0%), 8.4 steps/s"]
    assert lines("RUNNING", 50) == []
    clock.now += PROGRESS_INTERVAL
    assert lines("RUNNING", 100) == ["step 100/300 (33%), 8.4 steps/s"]
    assert lines("RUNNING", 100) == []
    assert lines("SUCCEEDED", 300) == ["step 300/300 (100%), 8.4 steps/s"]


def test_metrics_stand_beside_the_step() -> None:
    lines = ProgressLog().lines(application(), status(step=5, metrics={"loss": 0.123456, "accuracy": 0.9}))
    assert lines[-1] == "step 5, accuracy=0.9 loss=0.1235"
