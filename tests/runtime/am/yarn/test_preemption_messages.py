"""What YARN says it will take, in both forms of its message."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tony_provider.runtime.am.resource_manager import NodeLeaving, Preempting
from tony_provider.runtime.am.yarn.yarn_resource_manager import PreemptionMessages, leaving_nodes
from tony_provider.runtime.hadoop.proto import yarn_pb2 as yarn
from tony_provider.runtime.hadoop.yarn_records import ApplicationAttemptId, ApplicationId, ContainerId

ATTEMPT = ApplicationAttemptId(ApplicationId(1, 1), 1)
NUMBERS = st.lists(st.integers(1, 6), unique=True)


def name(number: int) -> str:
    return str(ContainerId(ATTEMPT, number, epoch=1))


def container(number: int) -> yarn.PreemptionContainerProto:
    return yarn.PreemptionContainerProto(id=ContainerId(ATTEMPT, number, epoch=1).to_proto())


def message(strict: list[int], negotiable: list[int]) -> yarn.PreemptionMessageProto:
    """A FairScheduler's contract is strict, a CapacityScheduler's says what it would take instead."""
    made = yarn.PreemptionMessageProto()
    made.strictContract.container.extend(map(container, strict))
    made.contract.container.extend(map(container, negotiable))
    made.contract.resource.add().resource.num_containers = len(negotiable)
    return made


@given(NUMBERS, NUMBERS, NUMBERS)
def test_containers_of_both_contracts_are_named_once(strict: list[int], negotiable: list[int], held: list[int]) -> None:
    notices, own = PreemptionMessages(), {name(number) for number in held}
    said = notices.preempting(message(strict, negotiable), own, now=0.0)
    named = set(said.container_ids) if said else set()
    assert named == {name(number) for number in {*strict, *negotiable}} & own
    assert said is None or len(said.container_ids) == len(named)
    assert notices.preempting(message(negotiable, strict), own, now=59.0) is None
    again = notices.preempting(message(strict, negotiable), own, now=61.0)
    assert {*(again.container_ids if again else [])} == named


def test_a_container_that_is_asked_back_later_is_told_alone() -> None:
    notices, own = PreemptionMessages(), {name(1), name(2)}
    assert notices.preempting(message([], [1]), own, now=0.0) == Preempting([name(1)])
    assert notices.preempting(message([], [1, 2]), own, now=1.0) == Preempting([name(2)])


def test_no_message_says_nothing() -> None:
    assert PreemptionMessages().preempting(yarn.PreemptionMessageProto(), {name(1)}, now=0.0) is None


def report(host: str, state: yarn.NodeStateProto, timeout: int | None = None) -> yarn.NodeReportProto:
    made = yarn.NodeReportProto(nodeId=yarn.NodeIdProto(host=host, port=45454), node_state=state)
    if timeout is not None:
        made.decommissioning_timeout = timeout
    return made


def test_nodes_that_leave_with_containers_of_ours() -> None:
    reports = [
        report("a", yarn.NS_DECOMMISSIONING, 3600),
        report("b", yarn.NS_DECOMMISSIONING),
        report("c", yarn.NS_LOST),
        report("d", yarn.NS_RUNNING),
        report("e", yarn.NS_DECOMMISSIONING, 5),
    ]
    assert list(leaving_nodes(reports, {"a:45454", "b:45454", "c:45454", "d:45454"})) == [
        NodeLeaving("a:45454", 3600.0),
        NodeLeaving("b:45454", None),
        NodeLeaving("c:45454", 0.0),
    ]
