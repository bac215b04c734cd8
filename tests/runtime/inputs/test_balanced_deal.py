from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tony_provider.runtime.inputs.shards import BalancedAssignment


@given(st.lists(st.integers(0, 1 << 40), max_size=60), st.integers(1, 9))
def test_every_shard_is_in_one_part(sizes: list[int], parts: int) -> None:
    deal = BalancedAssignment.of(sizes, parts)
    dealt = [list(deal.part(number)) for number in range(parts)]
    assert sorted(shard for part in dealt for shard in part) == list(range(len(sizes)))
    assert all(part == sorted(part) for part in dealt)
    if len(sizes) >= parts:
        assert all(dealt)


@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=60), st.integers(1, 9))
def test_parts_are_balanced_and_the_same_again(sizes: list[int], parts: int) -> None:
    deal = BalancedAssignment.of(sizes, parts)
    largest = max(sum(sizes[shard] for shard in deal.part(number)) for number in range(parts))
    assert largest <= sum(sizes) / parts + max(sizes)
    again = BalancedAssignment.of(list(sizes), parts)
    assert [list(again.part(number)) for number in range(parts)] == [list(deal.part(number)) for number in range(parts)]


def test_equal_shards_are_dealt_in_turn() -> None:
    deal = BalancedAssignment.of([5] * 7, 3)
    assert [list(deal.part(number)) for number in range(3)] == [[0, 3, 6], [1, 4], [2, 5]]
