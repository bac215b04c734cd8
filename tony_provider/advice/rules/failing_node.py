"""Rule on nodes on which tasks fail repeatedly."""

from __future__ import annotations

from collections import Counter
from typing import Any

import attrs

from tony_provider.advice.case import Case, Rule, confidence
from tony_provider.cluster.records.summary import Advice
from tony_provider.runtime.common.quantities import count
from tony_provider.runtime.protocol.status import FailureKind

_TIMES = 2  # minimum number of this application's lost containers, or of failed applications, on the node
_TIMES_OF_A_PROGRAM = 3  # minimum number of applications whose program failed on the node; two may be chance
_NODES_FAULT = {
    each.value
    for each in (
        FailureKind.CONTAINER_LOST,
        FailureKind.LAUNCH,
        FailureKind.NODE,
        FailureKind.REGISTRATION_TIMEOUT,
    )
}
_MOST = 0.6  # minimum share of all failures that is on the node, because a faulty program fails on any node
_GAIN = 0.3  # the cost of the next failure on the node is unknown


@attrs.frozen
class _Failed:
    """A failed application, described by its first failure."""

    node: str
    is_nodes_fault: bool  # False: the program's own fault, as far as known


@attrs.frozen
class FailingNode(Rule):
    """Report a node with a probable fault in its disk, memory or network, for the cluster's operators to inspect."""

    name = "failing-node"

    def advise(self, case: Case) -> Advice | None:
        lost = _lost(case)
        failed_here, failed_before = _failed(case), _failed_before(case)
        here = {*lost, *(each.node for each in failed_here)}
        before = [each.node for each in failed_before]
        applications = Counter([*here, *before])
        blamed = {*lost, *(each.node for each in (*failed_here, *failed_before) if each.is_nodes_fault)}
        others = {_host(node) for node in case.nodes().values()} | set(before)
        node = max([*here, *before], key=lambda each: (applications[each], lost[each]), default=None)
        if node is None or not others - {node}:
            return None  # no other node to compare with
        failed = len(before) + bool(here)
        times = _TIMES if node in blamed else _TIMES_OF_A_PROGRAM
        often = applications[node] >= times and applications[node] >= _MOST * failed
        if not often and not (lost[node] >= _TIMES and lost[node] >= _MOST * lost.total()):
            return None
        told = f"{count(lost[node], 'container')} of this application" if lost[node] else "a task of this application"
        this = f"{told} and " if node in here else ""
        earlier = count(before.count(node), "application")
        said = f"{this}{earlier} of earlier runs" if before.count(node) else told
        return self.advice(
            f"{said} failed on {node}: have the node checked, and request other nodes after the first lost container",
            _GAIN,
            confidence(applications[node], failed),
            _change(case),
            node=node,
            lost_containers=lost[node],
            applications=applications[node],
            failed_applications=failed,
        )


def _lost(case: Case) -> Counter[str]:
    """Return the number of containers that this application lost, by node."""
    found: Counter[str] = Counter()
    for event in case.events("node_loss"):
        for node, losses in event.get("data", {}).get("nodes", {}).items():
            found[_host(node)] = int(losses)  # cumulative since the start of the application
    return found


def _failed(case: Case) -> list[_Failed]:
    failure = case.failure
    node = case.nodes().get(failure.task or "") if failure else None
    return _counting(case, [_Failed(_host(node), failure.kind.value in _NODES_FAULT)] if failure and node else [])


def _failed_before(case: Case) -> list[_Failed]:
    failed = [run for run in case.former if run.failed_node]
    return _counting(case, [_Failed(_host(run.failed_node or ""), run.failure_kind in _NODES_FAULT) for run in failed])


def _counting(case: Case, failed: list[_Failed]) -> list[_Failed]:
    """Drop failures of a program that has never succeeded, because such a program fails on any node."""
    succeeds = case.succeeded or bool(case.successes)
    return [each for each in failed if succeeds or each.is_nodes_fault]


def _host(node: str) -> str:
    host, _, port = node.rpartition(":")
    return host if host and port.isdigit() else node


def _change(case: Case) -> dict[str, Any] | None:
    spec = case.spec
    return {"restart": {"node_losses": 1}} if spec is not None and spec.restart.node_losses != 1 else None
