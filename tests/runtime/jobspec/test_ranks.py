from __future__ import annotations

import attrs
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.runtime.jobspec.model import Role, in_cluster, leading_type, ranks


@attrs.frozen
class Task:
    type: str
    index: int
    role: Role


def tasks_of(roles: dict[str, Role], instances: int = 2) -> list[Task]:
    return [Task(name, index, role) for name, role in roles.items() for index in range(instances)]


def test_chief_then_workers_then_the_rest() -> None:
    roles = {
        "ps": Role.PS,
        "reader": Role.WORKER,
        "evaluator": Role.EVALUATOR,
        "worker": Role.WORKER,
        "chief": Role.CHIEF,
        "tensorboard": Role.SIDECAR,
    }
    assert list(ranks(tasks_of(roles))) == [
        ("chief", 0),
        ("chief", 1),
        ("reader", 0),
        ("reader", 1),
        ("worker", 0),
        ("worker", 1),
        ("ps", 0),
        ("ps", 1),
    ]
    assert leading_type(roles) == "chief"


def test_nobody_leads_where_nobody_has_a_rank() -> None:
    assert leading_type({"tensorboard": Role.SIDECAR}) is None


@given(st.dictionaries(st.text(max_size=3), st.sampled_from(Role), max_size=6), st.integers(1, 4))
def test_ranks_are_the_numbers_from_0_and_the_leading_type_has_the_first(
    roles: dict[str, Role], instances: int
) -> None:
    found = ranks(tasks_of(roles, instances))
    assert sorted(found.values()) == list(range(instances * sum(map(in_cluster, roles.values()))))
    leader = leading_type(roles)
    assert (leader is None) == (not found)
    if leader is not None:
        assert found[leader, 0] == 0
