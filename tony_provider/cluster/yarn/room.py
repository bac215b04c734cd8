"""Whether the nodes and the queue of a cluster could ever hold a whole job, were nothing else on them.

Only what is certain counts: amounts are compared as they are given (YARN rounds them up), one resource at a time.
Virtual cores are left out, which YARN heeds with one of its two resource calculators only. Of what one user may have of
a queue the most counts: that is less where others are there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import attrs

from tony_provider.cluster.yarn.cluster_view import Node, Queue
from tony_provider.cluster.yarn.demand import Demand
from tony_provider.runtime.peak import Peak
from tony_provider.runtime.resource_names import VCORES


def shortages(
    demands: Sequence[Demand],
    peak: Peak,
    nodes: Sequence[Node],
    queue: Queue | None,
    shared: frozenset[str],
    free: str = "",
) -> list[str]:
    """What the cluster has too little of, with the figures; empty when all has room that is there at the same time.

    ``shared`` are the node labels whose idle nodes also take containers without a label; ``queue`` is None where it is
    not known; ``free`` is a word for what the nodes have.
    """
    found: list[str] = []
    for label in sorted({demand.label or "" for demand in demands}):
        wanted = [demand for demand in demands if (demand.label or "") == label]
        reached = [node for node in nodes if _reaches(label, node, queue, shared)]
        for resource in sorted({name for demand in wanted for name in demand.resources} - {VCORES}):
            limits = _Limits(free=free) if free else _limits(queue, label, shared)
            found += _of_resource(resource, wanted, peak, reached, label, limits)
    return found


def _at_once(demands: Sequence[Demand], peak: Peak, weigh: Callable[[Demand], int]) -> list[Demand]:
    """Those that are there at the same time, of which there is the most then."""
    types = peak.heaviest({demand.task_type: weigh(demand) for demand in demands if demand.task_type is not None})
    return [demand for demand in demands if demand.task_type is None or demand.task_type in types]


def _reaches(label: str, node: Node, queue: Queue | None, shared: frozenset[str]) -> bool:
    if label:
        return label in node.labels
    if queue is None or queue.default_label:
        return True  # or it may go where its queue sends it
    return not node.labels or bool(node.labels & shared)


@attrs.frozen
class _Limits:
    """What a job may have of the nodes, in percent of them."""

    queue: float = 100.0  # the queue, at most
    user: float | None = None  # that the queue is guaranteed; None: a user has no limit of his own
    factor: float = 1.0  # so many times that one user gets
    free: str = ""  # a word for what the nodes have


def _limits(queue: Queue | None, label: str, shared: frozenset[str]) -> _Limits:
    if queue is None or (not label and (shared or queue.default_label)):
        return _Limits()
    at_most = queue.maximum.get(label, 100.0)
    if queue.user_factor is None:
        return _Limits(at_most)
    return _Limits(at_most, queue.guaranteed.get(label), queue.user_factor)


def _of_resource(
    resource: str, demands: Sequence[Demand], peak: Peak, nodes: Sequence[Node], label: str, limits: _Limits
) -> Iterator[str]:
    """At most one shortage: the others would say the same."""
    where = f"the nodes with the label {label!r}" if label else "the nodes"
    there = [node.resources.get(resource, 0) for node in nodes]
    if shortage := _of_sum(resource, demands, peak, sum(there), where, limits):
        yield shortage
        return
    amount = demands[0].amount
    for least in sorted({each for demand in demands if (each := demand.resources.get(resource, 0))}, reverse=True):
        large = [demand for demand in demands if demand.resources.get(resource, 0) >= least]
        count = sum(demand.count for demand in _at_once(large, peak, lambda demand: demand.count))
        room = sum(each // least for each in there)
        if count > room:
            sized = f"{count} containers of {amount(resource, least)} or more"
            yield f"{sized} are needed; {where} have{limits.free} room for {room}"
            return


def _of_sum(
    resource: str, demands: Sequence[Demand], peak: Peak, total: int, where: str, limits: _Limits
) -> str | None:
    """Whether all of it together is more than the nodes have, or the queue or its user may have of them."""
    most_of_it = _at_once(demands, peak, lambda demand: demand.count * demand.resources.get(resource, 0))
    wanted = {demand.what: (demand.count, demand.resources.get(resource, 0)) for demand in most_of_it}
    needed, largest = sum(count * each for count, each in wanted.values()), max(each for _, each in wanted.values())

    def amount(number: int) -> str:
        return demands[0].amount(resource, number)

    asked = " + ".join(f"{count} x {amount(each)} ({what})" for what, (count, each) in wanted.items() if each)
    asked = f"{asked} is {amount(needed)}"
    of_queue, of_user = math.ceil(total * limits.queue / 100), _most_of_user(total, largest, limits)
    if needed > total:
        return f"{asked}; {where} have {amount(total)}{limits.free} together"
    if needed > of_queue:
        return f"{asked}; the queue gets {amount(of_queue)} at most, {limits.queue:g} % of {where}"
    if of_user is not None and needed - largest > of_user:
        share = f"{limits.factor:g} times its {limits.user:g} % of {where}"
        return f"{asked}; a user gets {amount(of_user)} in the queue, {share}"
    return None


def _most_of_user(total: int, largest: int, limits: _Limits) -> int | None:
    """YARN gives a container to whoever has not more than this before, and takes no queue for smaller than one.

    None: a user may have as much as the queue.
    """
    if limits.user is None:
        return None
    return math.ceil(max(total * limits.user / 100, largest) * limits.factor)
