"""What a connection lets jobs ask for."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from tony_provider.cluster.settings import Policy
from tony_provider.runtime.parsing.parse import parse_job

POLICY = Policy(
    conn_id="tony_shared",
    queues=["ml", "root.ml.*"],
    images=["registry.example.com/ml/*"],
    allowed_overrides=["tasks.*.memory"],
    max_tasks=8,
    max_memory=65536,  # type: ignore[arg-type]
    max_vcores=32,
    max_gpus=4,
    max_container_memory=16384,  # type: ignore[arg-type]
    max_container_vcores=8,
    max_container_gpus=2,
    max_lifetime=86400.0,  # type: ignore[arg-type]
    max_priority=5,
)
FINE = {
    "framework": "standalone",
    "queue": "ml",
    "priority": 5,
    "docker": {"image": "registry.example.com/ml/tf:2"},
    "timeouts": {"lifetime": "1d"},
    "tasks": {"worker": {"command": "true", "instances": 4, "memory": "15GiB", "vcores": 4, "gpus": 1}},
}


def problems(over: dict[str, Any], policy: Policy = POLICY, laid_over: dict[str, Any] | None = None) -> list[str]:
    return policy.problems(parse_job(FINE, overrides=over), laid_over, has_queues=True)


def test_what_fits_is_fine() -> None:
    assert problems({}) == []
    assert problems({}, laid_over={"tasks": {"worker": {"memory": "15GiB"}}}) == []
    assert Policy().problems(parse_job(FINE), {"env": {"X": "y"}}, has_queues=True) == []


@pytest.mark.parametrize(
    ("over", "expected"),
    [
        ({"queue": "etl"}, ["queue: etl is not allowed", "(queues: ml, root.ml.*)"]),
        ({"queue": "root.ml"}, ["queue: root.ml is not"]),
        ({"queue": None}, ["queue: the queue that YARN chooses is not"]),
        (
            {"docker": {"image": "mallory/tf"}},
            ["docker.image: mallory/tf is not", "(images: registry.ex"],
        ),
        (
            {"tasks": {"worker": {"docker": {"image": "mallory/tf"}}}},
            ["tasks.worker.docker.image: mallory/tf is not", "(images: registry.ex"],
        ),
        ({"am": {"docker": {"image": "mallory/am"}}}, ["am.docker.image: mallory/am is not"]),
        ({"tensorboard": {"docker": {"image": "mallory/tb"}}}, ["tensorboard.docker.image: mallory/tb is not"]),
        ({"priority": 6}, ["priority: 6 is more than", "(max_priority: 5)"]),
        ({"timeouts": {"lifetime": "2d"}}, ["timeouts.lifetime: 172800 s is more than", "(max_lifetime: 86400 s)"]),
        ({"tasks": {"worker": {"gpus": 3, "instances": 1}}}, ["tasks.worker.gpus: 3 is", "(max_container_gpus: 2)"]),
        ({"tasks": {"worker": {"vcores": 9, "instances": 1}}}, ["tasks.worker.vcores: 9 is"]),
        ({"tasks": {"worker": {"memory": "17GiB", "instances": 1}}}, ["tasks.worker.memory: 17408 MiB is more than"]),
        ({"tasks": {"worker": {"memory": "1GiB", "instances": 9, "vcores": 1, "gpus": 0}}}, ["tasks: 9 is more than"]),
        ({"tasks": {"worker": {"memory": "16GiB"}}}, ["memory of all containers together: 66048 MiB is more"]),
        ({"tasks": {"worker": {"vcores": 8}}}, ["vcores of all containers together: 33 is"]),
        ({"tasks": {"worker": {"gpus": 2}}}, ["gpus of all containers together: 8 is"]),
        ({"am": {"memory": "17GiB"}, "tasks": {"worker": {"instances": 1}}}, ["am.memory: 17408 MiB is"]),
        # What a container may grow to counts.
        (
            {"restart": {"memory_step": "1GiB"}, "tasks": {"worker": {"instances": 1}}},
            ["tasks.worker.memory: 30720"],
        ),
    ],
)
def test_what_is_more_than_allowed(over: dict[str, Any], expected: list[str]) -> None:
    (problem,) = problems(over)
    for words in [*expected, "connection 'tony_shared'"]:
        assert words in problem


def test_all_at_once() -> None:
    over = {"queue": "etl", "priority": 9, "tasks": {"worker": {"memory": "64GiB", "instances": 20}}}
    found = problems(over, laid_over={"tasks": {"worker": {"instances": 20}}})
    assert [problem.partition(":")[0] for problem in found] == [
        "tasks.worker.instances",
        "queue",
        "tasks.worker.memory",
        "tasks",
        "memory of all containers together",
        "vcores of all containers together",
        "gpus of all containers together",
        "priority",
    ]


def test_an_empty_list_allows_nothing() -> None:
    policy = Policy("c", proxy_users=[], queues=[], images=[], file_roots=[], allowed_overrides=[])
    found = problems({}, policy, laid_over={"priority": 1})
    assert [problem.partition(":")[0] for problem in found] == ["priority", "queue", "docker.image"]
    assert all("none)" in problem for problem in [*found, policy.user_problem("bob")])


def test_what_was_laid_over_is_shown_in_a_few_words_however_large_it_is() -> None:
    """Seen: all of it was written out, to be cut then."""
    policy = Policy("c", allowed_overrides=[])
    deep: Any = {"k" * 200: ["x" * 1000] * 10_000}
    for _ in range(100):
        deep = {"k" * 200: deep}
    tracemalloc.start()
    (found,) = problems({}, policy, laid_over=deep)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found) < 4000
    assert most < 1 << 20


def test_where_there_are_no_queues_none_need_be_named() -> None:
    job = parse_job(FINE, overrides={"queue": None})
    assert POLICY.problems(job, None, has_queues=False) == []


def test_users() -> None:
    policy = Policy("c", proxy_users=["ml-*", "alice"])
    assert [policy.user_problem(user) for user in (None, "alice", "ml-night")] == ["", "", ""]
    for listed in ("ml-a,root", "ml-a\nroot", "ml-a root"):
        assert policy.user_problem(listed)
    assert "proxy_user: root is not allowed by the connection 'c'" in policy.user_problem("root")
    assert Policy().user_problem("root") == ""
    assert policy.user_problem("root\x1b[2J").isprintable()
