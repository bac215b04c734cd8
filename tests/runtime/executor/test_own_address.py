"""Where a task's servers should listen, on the addresses and interfaces of this machine."""

from __future__ import annotations

import socket

import pytest

from tony_provider.runtime.executor import executor_container as own_address_module
from tony_provider.runtime.executor.executor_container import OwnAddress, address_in_image, own_address


def test_a_job_on_this_machine_alone_listens_on_its_loopback() -> None:
    assert own_address("127.0.0.1", ["127.0.0.1"]) == OwnAddress("127.0.0.1", "lo")
    assert own_address("127.0.0.7", ["127.0.0.7", ""]) == OwnAddress("127.0.0.7", "lo")


def test_a_name_that_means_the_loopback_only_here_binds_nothing() -> None:
    """As Debian's 127.0.1.1, which stands beside the host's own name in /etc/hosts: others would find nobody there."""
    assert own_address("127.0.0.1", ["127.0.0.1", "node2"]) is None


def test_an_address_that_the_container_has_not_binds_nothing() -> None:
    """A container of Docker's has a network of its own: its node's address is not there. 192.0.2.1 is nobody's."""
    assert own_address("192.0.2.1", ["192.0.2.1"]) is None


def test_a_container_in_an_image_is_reached_at_its_node_where_it_shares_the_nodes_network() -> None:
    assert address_in_image("127.0.0.1") == "127.0.0.1"
    assert address_in_image("localhost") == "localhost"
    assert address_in_image("no-such-host.invalid") == "no-such-host.invalid"


def test_a_container_in_a_network_of_dockers_is_reached_at_what_its_name_stands_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """192.0.2.1, nobody's, is the node's address; the container's name stands for an address that it has."""
    monkeypatch.setattr(socket, "gethostbyname", lambda _: "127.0.0.1")
    assert address_in_image("192.0.2.1") == "192.0.2.1"  # a name that only means the container itself is no help
    own = [own_address_module._first_address(name) for _, name in socket.if_nameindex()]
    for address in (each for each in own if each and not each.startswith("127.")):
        monkeypatch.setattr(socket, "gethostbyname", lambda _, found=address: found)
        assert address_in_image("192.0.2.1") == address


def test_a_name_without_an_address_binds_nothing() -> None:
    assert own_address("no-such-host.invalid", []) is None


def test_a_name_with_several_addresses_binds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(*_: object, **__: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        return [(2, 1, 6, "", ("127.0.0.1", 0)), (2, 1, 6, "", ("127.0.0.2", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    assert own_address("both", ["both"]) is None


def test_the_interface_is_the_one_that_has_the_address() -> None:
    """Of the machine's own address, where it has one beside the loopback."""
    for _, name in socket.if_nameindex():
        address = own_address_module._first_address(name)
        if address and not address.startswith("127."):
            assert own_address(address, [address, "another"]) == OwnAddress(address, name)
            return
    pytest.skip("this machine has the loopback only")
