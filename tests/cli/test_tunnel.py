"""``airflow tony tunnel``: what is wrong with it is told at once. What it does: tests/jobs."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Tony
from tony_provider.hooks.tony import TonyHook

ID = "application_1700000000000_0001"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((ID, "worker"), "name a task, and optionally its port"),
        ((ID, "worker:0:70000"), "name a task, and optionally its port"),
        ((ID, "worker:0", "--local-port", "-1"), "--local-port -1 is not a port: use 1 to 65535"),
        ((ID, "worker:0"), "neither the cluster nor"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(tony: Tony, local: TonyHook, words: tuple[str, ...], says: str) -> None:
    said = tony("tunnel", *words)
    assert said.code == 1
    assert says in said.error
    assert said.error.count("\n") <= 1
