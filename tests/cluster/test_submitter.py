from __future__ import annotations

from typing import cast

from tony_provider.cluster.identity import Identity
from tony_provider.cluster.layout import Layout
from tony_provider.cluster.open import OpenCluster
from tony_provider.cluster.submitter import _Attempt


def test_a_delegation_token_is_in_no_log() -> None:
    opened = cast(OpenCluster, None)  # is not asked
    attempt = _Attempt(opened, Layout("hdfs://nn/tony"), Identity("x", "0"), "application_1_0001", token="open-sesame")
    assert "open-sesame" not in repr(attempt)
    assert "application_1_0001" in repr(attempt)
