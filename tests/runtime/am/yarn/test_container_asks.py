"""The book of requests, in every order: what the ResourceManager believes is what is wanted."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tony_provider.runtime.am.resource_manager import ContainerRequest
from tony_provider.runtime.am.yarn.container_requests import MOST_ASKS, ContainerAsks, Saying
from tony_provider.runtime.hadoop.yarn_records import ApplicationAttemptId, ApplicationId, ContainerId

ATTEMPT = ApplicationAttemptId(ApplicationId(1, 1), 1)
NODES = ("a:1", "b:1", "b:2")


def request(key: int) -> ContainerRequest:
    return ContainerRequest(key, 1, 512, 1, {"yarn.io/gpu": 1}, node_label="label")


class AsksMachine(RuleBasedStateMachine):
    """``believed`` is what a ResourceManager would have been told, ``wanted`` what was asked and not withdrawn."""

    def __init__(self) -> None:
        super().__init__()
        self.asks = ContainerAsks()
        self.key = 0
        self.wanted: set[int] = set()
        self.believed: set[int] = set()
        self.released: set[ContainerId] = set()
        self.told: set[ContainerId] = set()
        self.avoided: set[str] = set()
        self.blacklist: set[str] = set()
        self.moved: set[int] = set()

    @rule(nodes=st.sets(st.sampled_from(NODES)))
    def avoid(self, nodes: set[str]) -> None:
        self.asks.avoid(nodes)
        self.avoided = {*nodes, *(node.partition(":")[0] for node in nodes)}

    @rule()
    def ask(self) -> None:
        self.key += 1
        self.asks.request([request(self.key)], 0.0)
        self.wanted.add(self.key)

    @precondition(lambda self: self.key)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        key = data.draw(st.integers(1, self.key))
        self.asks.cancel([key])
        self.wanted.discard(key)

    @rule(number=st.integers(2, 5))
    def release(self, number: int) -> None:
        self.asks.release([ContainerId(ATTEMPT, number)])
        self.released.add(ContainerId(ATTEMPT, number))

    @rule(answered=st.booleans(), meanwhile=st.booleans())
    def heartbeat(self, answered: bool, meanwhile: bool) -> None:
        """The ResourceManager takes a call in whether or not its answer arrives."""
        saying = self.asks.next(0.0)
        self.hear(saying, self.believed, self.told, self.blacklist)
        if meanwhile and saying.asks:
            self.asks.cancel([saying.asks[0].key])
            self.wanted.discard(saying.asks[0].key)
        if answered:
            self.asks.said(saying)

    @staticmethod
    def hear(saying: Saying, believed: set[int], told: set[ContainerId], blacklist: set[str]) -> None:
        """As a ResourceManager does."""
        for ask in saying.asks:
            (believed.add if ask.count else believed.discard)(ask.key)
        told |= {ContainerId.from_proto(release) for release in saying.releases}
        if saying.blacklist is not None:
            blacklist |= set(saying.blacklist.blacklist_additions)
            blacklist -= set(saying.blacklist.blacklist_removals)

    @precondition(lambda self: self.believed)
    @rule(data=st.data(), node=st.sampled_from(NODES))
    def grant(self, data: st.DataObject, node: str) -> None:
        """A ResourceManager may have granted it before it was told to avoid the node, or give nothing on the wish."""
        key = data.draw(st.sampled_from(sorted(self.believed)))
        self.believed.discard(key)
        answered = self.asks.granted(key, node)
        if answered is None and key in self.wanted:
            assert node in self.avoided
            assert key not in self.moved, "asked for elsewhere again and again"
            self.moved.add(key)
            return
        assert (answered is not None) == (key in self.wanted)
        self.wanted.discard(key)

    @rule()
    def restart(self) -> None:
        self.believed.clear()
        self.told.clear()
        self.blacklist.clear()
        self.asks.start_again()

    @rule(number=st.integers(2, 5))
    def complete(self, number: int) -> None:
        container = ContainerId(ATTEMPT, number)
        if container in self.told:
            self.asks.completed(container)
            self.released.discard(container)

    @invariant()
    def one_more_heartbeat_says_it_all(self) -> None:
        believed, told, blacklist = set(self.believed), set(self.told), set(self.blacklist)
        self.hear(self.asks.next(0.0), believed, told, blacklist)
        assert believed == self.wanted
        assert self.released <= told
        assert blacklist == self.avoided


TestAsks = AsksMachine.TestCase
TestAsks.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


def test_ask_says_everything() -> None:
    asks = ContainerAsks()
    asks.request([request(7)], 0.0)
    (said,) = asks.next(0.0).resource_requests({})
    assert (said.allocation_request_id, said.num_containers, said.resource_name) == (7, 1, "*")
    assert (said.capability.memory, said.capability.virtual_cores) == (512, 1)
    assert [(each.key, each.value) for each in said.capability.resource_value_map] == [("yarn.io/gpu", 1)]
    assert (said.priority.priority, said.node_label_expression, said.relax_locality) == (1, "label", True)


def test_refused_request_is_not_repeated() -> None:
    asks = ContainerAsks()
    asks.request([request(1)], 0.0)
    asks.refused(asks.next(0.0))
    assert asks.next(0.0) == Saying()
    assert not asks.outstanding


def test_thousands_of_requests_are_said_in_several_calls_each_once() -> None:
    asks = ContainerAsks()
    number = 2 * MOST_ASKS + 1
    asks.request((request(key) for key in range(1, number + 1)), 0.0)
    said: list[int] = []
    calls = 0
    while asks.more:
        saying = asks.next(0.0)
        asks.said(saying)
        said += [ask.key for ask in saying.asks]
        calls += 1
    assert calls == 3
    assert sorted(said) == list(range(1, number + 1))
    assert not asks.next(0.0).asks
