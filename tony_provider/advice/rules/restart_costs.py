"""Rules on restarts: their cost, the interval between checkpoints, and nodes on which tasks fail repeatedly."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from statistics import median
from typing import Any

import attrs

from tony_provider.advice.case import Case, Rule, confidence
from tony_provider.cluster.records.summary import Advice, Confidence
from tony_provider.runtime.application_history import DROPPED
from tony_provider.runtime.common.quantities import count, span
from tony_provider.runtime.protocol.status import FailureKind, TimeUse

_MUCH_LOST = 0.1  # share of the total time


@attrs.frozen
class RestartCost(Rule):
    """Recommend finding the cause of restarts that cost much time. Jobs recover from single restarts by themselves."""

    name = "restart-cost"

    least_seconds: float = 60.0  # minimum time lost to restarts; less needs no action

    def advise(self, case: Case) -> Advice | None:
        down, again = case.times.restarts, case.times.repeated
        share, sureness = case.share_of_time(lambda times: times.restarts + times.repeated, _MUCH_LOST)
        if not case.restarts or share < _MUCH_LOST or down + again < self.least_seconds:
            return None
        failed = Counter(str(each.get("task")) for each in case.events("failed") if each.get("task"))
        [(task, times)] = failed.most_common(1) or [("", 0)]
        often = f" {times} of {failed.total()} times" if failed.total() > 1 else ""
        who = f"; {task} failed{often}, so check its log first" if task else ""
        return self.advice(
            f"{count(case.restarts, 'restart')} cost {share:.0%} of its time: {span(down)} until it trained again, and "
            f"{span(again)} of repeated training{who}",
            share,
            sureness,
            restarts=case.restarts,
            down_seconds=down,
            repeated_seconds=again,
            failed=dict(failed.most_common(5)),
        )


_WORTH = 0.02  # share of the time that a better interval must save
_WORTH_UNTRIED = 0.3  # the same share without a failure so far, because then only very costly copies matter
_LEAST_COPY = 1.0  # minimum seconds for a copy, because the program's own time to save is unknown and not 0


@attrs.frozen
class CheckpointInterval(Rule):
    """Recommend the interval sqrt(2 · copy · time between failures) between checkpoints.

    On average, a failure costs half an interval. A checkpoint costs the duration of its copy.
    """

    name = "checkpoint-interval"

    least_seconds: float = 300.0  # minimum training time of all applications together; less counts as a trial

    def advise(self, case: Case) -> Advice | None:
        if any(case.events(DROPPED)):
            return None  # the number and times of the checkpoints are unknown
        saved = _saved(case)
        worked = sum(_worked(each) for each in (case.times, *(run.times for run in case.former)))
        if worked < self.least_seconds:
            return None
        if not saved:
            return self._none_saved(case)
        later = [after - before for before, after in pairwise(saved) if after > before]
        failures = case.restarts + sum(run.restarts for run in case.former)
        if not (later or failures):
            return None
        interval = median(later) if later else _worked(case.times) / len(saved)
        between = worked / max(1, failures)  # a lower bound if there was no failure
        copied = case.times.checkpoints / len(saved)
        rare = interval > best_interval(copied, between)
        copy = max(copied, _LEAST_COPY) if rare else copied
        best = best_interval(copy, between)
        if best <= 0 or (rare and (interval <= best or not failures)):
            return None
        gain = cost(interval, copy, between) - cost(best, copy, between)
        if gain < (_WORTH if failures else _WORTH_UNTRIED):
            return None
        how_often = "more often" if rare else "less often"
        takes = span(copied) if copied >= 1 else "less than 1 s"
        return self.advice(
            f"Save checkpoints {how_often}: every {span(best)} instead of every {span(interval)}, because a copy "
            f"takes {takes} and the job had {count(failures, 'restart')} in {span(worked)}",
            gain,
            confidence(failures, failures),
            copy_seconds=copied,
            interval_seconds=interval,
            best_interval_seconds=best,
            seconds_between_failures=between,
            failures=failures,
            applications=1 + len(case.former),
        )

    def _none_saved(self, case: Case) -> Advice | None:
        again = case.times.repeated
        if not case.restarts or again <= _WORTH * case.times.training:
            return None
        return self.advice(
            f"Save checkpoints in TONY_CHECKPOINT_DIR: no checkpoint was saved, and {count(case.restarts, 'restart')} "
            f"caused {span(again)} of repeated training",
            again / max(again, case.times.training),
            Confidence.MEDIUM,
            repeated_seconds=again,
            restarts=case.restarts,
        )


def best_interval(copy: float, between: float) -> float:
    """Return Young's interval in seconds.

    ``copy`` is the duration of a checkpoint, ``between`` the time between failures.
    """
    return math.sqrt(2 * copy * between)


def cost(interval: float, copy: float, between: float) -> float:
    """Return the share of the time that checkpoints and failures cost at this interval."""
    return copy / interval + interval / (2 * between)


def _saved(case: Case) -> list[float]:
    """Return the time of each save in seconds. If it is unknown, use the checkpoint's arrival on the store."""
    found = []
    for event in case.events("checkpoint"):
        point = event.get("data", {}).get("checkpoint", {})
        found.append((point.get("saved_ms") or event["time_ms"]) / 1000)
    return found


def _worked(times: TimeUse) -> float:
    return times.training + times.restarts


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
_MOST_FAILURES = 0.6  # minimum share of all failures that is on the node, because a faulty program fails on any node
_GAIN_OF_INSPECTION = 0.3  # the cost of the next failure on the node is unknown


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
        often = applications[node] >= times and applications[node] >= _MOST_FAILURES * failed
        if not often and not (lost[node] >= _TIMES and lost[node] >= _MOST_FAILURES * lost.total()):
            return None
        told = f"{count(lost[node], 'container')} of this application" if lost[node] else "a task of this application"
        this = f"{told} and " if node in here else ""
        earlier = count(before.count(node), "application")
        said = f"{this}{earlier} of earlier runs" if before.count(node) else told
        return self.advice(
            f"{said} failed on {node}: have the node checked, and request other nodes after the first lost container",
            _GAIN_OF_INSPECTION,
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
