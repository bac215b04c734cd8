"""Whether the nodes and the queue of a cluster could ever hold a whole job, were nothing else on them.

Only what is certain counts: amounts are compared as they are given (YARN rounds them up), one resource at a time.
Virtual cores are left out, which YARN heeds with one of its two resource calculators only; so is what one user may have
of a queue, which depends on who else is there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from tony_provider.cluster.yarn.cluster_view import Node, Queue
from tony_provider.cluster.yarn.demand import Demand
from tony_provider.runtime.peak import Peak
from tony_provider.runtime.resource_names import VCORES


def shortages(
    demands: Sequence[Demand], peak: Peak, nodes: Sequence[Node], queue: Queue | None, shared: frozenset[str]
) -> list[str]:
    """What the cluster has too little of, with the figures; empty when all has room that is there at the same time.

    ``shared`` are the node labels whose idle nodes also take containers without a label; ``queue`` is None where it is
    not known.
    """
    found: list[str] = []
    for label in sorted({demand.label or "" for demand in demands}):
        wanted = [demand for demand in demands if (demand.label or "") == label]
        reached = [node for node in nodes if _reaches(label, node, queue, shared)]
        for resource in sorted({name for demand in wanted for name in demand.resources} - {VCORES}):
            found += _of_resource(resource, wanted, peak, reached, label, _share(queue, label, shared))
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


def _share(queue: Queue | None, label: str, shared: frozenset[str]) -> float:
    """Percent of the nodes that the queue may have at most."""
    if queue is None or (not label and (shared or queue.default_label)):
        return 100.0
    return queue.maximum.get(label, 100.0)


def _of_resource(
    resource: str, demands: Sequence[Demand], peak: Peak, nodes: Sequence[Node], label: str, share: float
) -> Iterator[str]:
    """At most one shortage: the others would say the same."""
    where = f"the nodes with the label {label!r}" if label else "the nodes"
    most_of_it = _at_once(demands, peak, lambda demand: demand.count * demand.resources.get(resource, 0))
    wanted = {demand.what: (demand.count, demand.resources.get(resource, 0)) for demand in most_of_it}
    needed = sum(count * each for count, each in wanted.values())
    there = [node.resources.get(resource, 0) for node in nodes]
    amount = demands[0].amount
    asked = " + ".join(f"{count} x {amount(resource, each)} ({what})" for what, (count, each) in wanted.items() if each)
    total = sum(there)
    if needed > total:
        yield f"{asked} is {amount(resource, needed)}; {where} have {amount(resource, total)} together"
        return
    if needed > math.ceil(total * share / 100):
        most = amount(resource, math.ceil(total * share / 100))
        yield f"{asked} is {amount(resource, needed)}; the queue gets {most} at most, {share:g} % of {where}"
        return
    for least in sorted({each for demand in demands if (each := demand.resources.get(resource, 0))}, reverse=True):
        large = [demand for demand in demands if demand.resources.get(resource, 0) >= least]
        count = sum(demand.count for demand in _at_once(large, peak, lambda demand: demand.count))
        room = sum(each // least for each in there)
        if count > room:
            yield f"{count} containers of {amount(resource, least)} or more are needed; {where} have room for {room}"
            return
