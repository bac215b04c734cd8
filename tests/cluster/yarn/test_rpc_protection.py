"""What a master is told to insist on, by the ResourceManager's settings."""

from __future__ import annotations

import pytest

from tests.cluster.yarn.test_web_access import Configured
from tony_provider.cluster.yarn.configuration import rpc_protection


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"hadoop.rpc.protection": "privacy,authentication"}, "privacy,authentication"),
        ({}, ""),
        (
            {
                "hadoop.rpc.protection": "privacy",
                "hadoop.security.saslproperties.resolver.class": "org.apache.hadoop.security.WhitelistBasedResolver",
            },
            "",
        ),
        (None, ""),
    ],
)
def test_what_masters_insist_on(settings: dict[str, str] | None, expected: str) -> None:
    assert rpc_protection(Configured(settings)) == expected
