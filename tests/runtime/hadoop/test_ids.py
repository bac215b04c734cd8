"""YARN's names for applications, attempts, containers and nodes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.runtime.common.network import Address
from tony_provider.runtime.hadoop.proto.yarn_pb2 import NodeIdProto
from tony_provider.runtime.hadoop.yarn_records import ApplicationAttemptId, ApplicationId, ContainerId, node_address

applications = st.builds(ApplicationId, st.integers(0, 10**15), st.integers(0, 999_999))
attempts = st.builds(ApplicationAttemptId, applications, st.integers(1, 999_999))
containers = st.builds(ContainerId, attempts, st.integers(1, 2**39), st.integers(0, 2**20))


def test_yarns_own_examples() -> None:
    application = ApplicationId(1410901177871, 1)
    attempt = ApplicationAttemptId(application, 1)
    assert str(application) == "application_1410901177871_0001"
    assert str(attempt) == "appattempt_1410901177871_0001_000001"
    assert str(ContainerId(attempt, 5)) == "container_1410901177871_0001_01_000005"
    assert str(ContainerId(attempt, 5, epoch=17)) == "container_e17_1410901177871_0001_01_000005"


def test_the_epoch_lies_above_bit_40() -> None:
    container = ContainerId.parse("container_e03_1410901177871_0012_02_000007")
    assert container.to_proto().id == 3 << 40 | 7
    assert ContainerId.from_proto(container.to_proto()) == container


@given(containers)
def test_text_and_message_come_back(container: ContainerId) -> None:
    assert ContainerId.parse(str(container)) == container
    assert ContainerId.from_proto(container.to_proto()) == container
    attempt = container.attempt
    assert ApplicationAttemptId.parse(str(attempt)) == attempt
    assert ApplicationAttemptId.from_proto(attempt.to_proto()) == attempt
    assert ApplicationId.parse(str(attempt.application)) == attempt.application
    assert ApplicationId.from_proto(attempt.application.to_proto()) == attempt.application


@pytest.mark.parametrize(
    "text", ["", "container_", "container_1_1_1", "container_e_1_1_1_1", "container_1_1_1_1 ", "x"]
)
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a container id"):
        ContainerId.parse(text)


@pytest.mark.parametrize("text", ["host:8030", "127.0.0.1:8030", "[::1]:8030"])
def test_addresses_come_back(text: str) -> None:
    address = Address.parse(text)
    assert str(address) == text
    assert node_address(NodeIdProto(host=address.host, port=address.port)) == address


@pytest.mark.parametrize("text", ["", "host", "host:", ":80", "host:0", "host:65536", "host:x", "host:-1", "host:²"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        Address.parse(text)
