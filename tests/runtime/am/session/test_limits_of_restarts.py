"""The counters that bound restarts, each by itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tony_provider.runtime.am.resource_manager import Largest
from tony_provider.runtime.am.session.containers import NodeBlocklist
from tony_provider.runtime.am.session.gang import ContainerSizes
from tony_provider.runtime.am.session.restart_policy import RestartBudget
from tony_provider.runtime.jobspec.model import Duration, JobSpec, Memory, RestartPolicy, TaskSpec


@given(
    budget=st.integers(0, 5),
    window=st.integers(1, 100),
    pauses=st.lists(st.integers(0, 50), max_size=30),
)
def test_never_more_restarts_within_the_window_than_the_budget(budget: int, window: int, pauses: list[int]) -> None:
    spent = RestartBudget(RestartPolicy(budget=budget, window=Duration(window)))
    now, allowed = 0, []
    for pause in pauses:
        now += pause
        if spent.spend(now) is not None:
            allowed.append(now)
        assert sum(1 for time in allowed if now - time < window) <= budget


def test_waits_are_doubled_up_to_the_longest() -> None:
    spent = RestartBudget(RestartPolicy(budget=100, backoff=Duration(5), max_backoff=Duration(60)))
    assert [spent.spend(0) for _ in range(7)] == [0, 5, 10, 20, 40, 60, 60]
    spent.progress()
    assert spent.spend(0) == 0


def test_many_restarts_do_not_overflow() -> None:
    spent = RestartBudget(RestartPolicy(budget=5000, max_backoff=Duration(300)), [0.0] * 4000)
    assert spent.spend(1) == 300


@given(
    seen=st.lists(st.sampled_from("abcdef"), max_size=8),
    lost=st.lists(st.sampled_from("abcdef"), max_size=20),
    most_losses=st.integers(0, 3),
)
def test_at_most_half_of_the_nodes_are_avoided(seen: list[str], lost: list[str], most_losses: int) -> None:
    nodes = NodeBlocklist(most_losses)
    known = set(seen)
    for node in seen:
        nodes.saw(node)
    avoided: tuple[str, ...] = ()
    for node in lost:
        known.add(node)
        change = nodes.lost(node)
        if change:
            avoided = change.nodes
        assert len(avoided) <= len(known) / 2
        assert all(nodes.losses[each] >= most_losses > 0 for each in avoided)


def test_the_worst_nodes_are_avoided_first() -> None:
    nodes = NodeBlocklist(1)
    for node in ("a", "b", "c", "d"):
        nodes.saw(node)
    for node in ("a", "b", "c", "c", "b"):
        nodes.lost(node)
    change = nodes.lift()
    assert change
    assert change.nodes == ()
    again = nodes.choose()
    assert again
    assert again.nodes == ("b", "c")


def memory(task_type: str, sizes: ContainerSizes) -> int:
    return sizes.request(task_type, 1).memory


def test_memory_grows_up_to_its_limit() -> None:
    tasks = {"worker": TaskSpec("true", memory=Memory(1000)), "ps": TaskSpec("true", memory=Memory(500))}
    policy = RestartPolicy(memory_step=Memory(600))
    sizes = ContainerSizes(JobSpec("standalone", tasks, restart=policy))
    assert sizes.raise_memory("worker")
    assert memory("worker", sizes) == 1600
    assert sizes.raise_memory("worker")
    assert memory("worker", sizes) == 2000
    assert not sizes.raise_memory("worker")
    assert memory("ps", sizes) == 500
    assert sizes.raised == {"worker": 2000}


def test_memory_grows_no_further_than_the_cluster_gives() -> None:
    policy = RestartPolicy(memory_step=Memory(600), memory_limit=Memory(9000))
    sizes = ContainerSizes(JobSpec("standalone", {"worker": TaskSpec("true", memory=Memory(1000))}, restart=policy))
    sizes.limit(Largest(memory=1200, vcores=4))
    assert sizes.raise_memory("worker")
    assert memory("worker", sizes) == 1200
    assert not sizes.raise_memory("worker")


def test_each_size_has_its_own_priority() -> None:
    tasks = {"worker": TaskSpec("true"), "ps": TaskSpec("true"), "chief": TaskSpec("true", vcores=2)}
    sizes = ContainerSizes(JobSpec("standalone", tasks, restart=RestartPolicy(memory_step=Memory(100))))
    before = [sizes.request(name, 1).priority for name in tasks]
    sizes.raise_memory("ps")
    assert before == [1, 1, 2]
    assert [sizes.request(name, 1).priority for name in tasks] == [1, 3, 2]
