"""The deal of shards in parts of nearly the same size, the same whenever it is made."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Sequence

import attrs


@attrs.frozen
class BalancedDeal:
    """Which shards are in which part: every shard in one, and none without any where there are enough of them.

    Eight bytes for each shard.
    """

    parts: int
    _order: array[int]  # numbers of shards, part after part; in a part as in the listing
    _begins: array[int]  # of each part in ``_order``, and the end of the last

    @classmethod
    def of(cls, sizes: Sequence[int], parts: int) -> BalancedDeal:
        """Deal shards of these sizes, in bytes: the largest first, each to the part that is the smallest by then.

        So no part is more than a third larger than the best deal's largest.
        """
        owners = array("I", bytes(4 * len(sizes)))
        counts = array("Q", bytes(8 * parts))
        smallest = [(0, 0, part) for part in range(parts)]  # its bytes, its shards, its number
        for shard in sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True):  # of equals the first stays first
            size, count, part = smallest[0]
            heapq.heapreplace(smallest, (size + sizes[shard], count + 1, part))
            owners[shard] = part
            counts[part] += 1
        return cls(parts, *_by_part(owners, counts))

    def part(self, number: int) -> Sequence[int]:
        """The numbers of the shards of a part, in the order of the listing."""
        return self._order[self._begins[number] : self._begins[number + 1]]


def _by_part(owners: array[int], counts: array[int]) -> tuple[array[int], array[int]]:
    begins = array("Q", [0])
    for count in counts:
        begins.append(begins[-1] + count)
    order, free = array("I", bytes(4 * len(owners))), begins[:]
    for shard, part in enumerate(owners):
        order[free[part]] = shard
        free[part] += 1
    return order, begins
