from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hadoop.cluster import HadoopCluster
from tests.jobs.places import transport
from tony_provider.hooks.tony import TonyHook

AddConnection = Callable[..., None]


@pytest.fixture
def add_connection(airflow_db: None, monkeypatch: pytest.MonkeyPatch) -> AddConnection:
    """Adds a connection of type tony unless told otherwise: ``add_connection("tony_default", host=…, extra={…})``."""

    def add(conn_id: str, conn_type: str = "tony", **fields: Any) -> None:
        value = json.dumps({"conn_type": conn_type, **fields})
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", value)

    return add


@pytest.fixture
def local(add_connection: AddConnection, tmp_path: Path) -> Iterator[TonyHook]:
    add_connection("tony_default", extra={"backend": "local", "staging_dir": str(tmp_path / "tony")})
    with TonyHook() as hook:
        yield hook


@pytest.fixture
def yarn(add_connection: AddConnection, hadoop: HadoopCluster, request: pytest.FixtureRequest) -> Iterator[TonyHook]:
    """As alice, with a staging directory of the test's own, removed afterwards."""
    name = request.node.name.replace("[", "-").replace("]", "")
    directory = f"/user/alice/{name}"
    add_yarn(add_connection, hadoop, staging_dir=directory)
    with TonyHook() as hook:
        yield hook
        hook.storage().remove(f"{hadoop.fs_default}{directory}", recursive=True)


def add_yarn(add_connection: AddConnection, cluster: HadoopCluster, login: str | None = "alice", **extra: Any) -> None:
    """The cluster as ``tony_default``."""
    fields: dict[str, Any] = {"host": ",".join(cluster.rm_webapp), "login": login}
    known = {"webhdfs": ",".join(cluster.webhdfs), **transport(cluster)}
    add_connection("tony_default", **fields, extra={**known, **extra})
