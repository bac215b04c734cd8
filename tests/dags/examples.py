"""The example DAGs, as Airflow loads them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.dag_processing.dagbag import BundleDagBag, DagBag
from airflow.models.asset import AssetEvent
from airflow.utils.session import create_session
from sqlalchemy import select

from tests.airflow_dags import Run
from tests.demo.airflow import REPOSITORY
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.storage.base import read_bytes
from tony_provider.runtime.storage.uris import join

FOLDER = REPOSITORY / "dags"
FIRST_DAY = datetime(2026, 1, 5, tzinfo=UTC)


def example_dags() -> DagBag:
    """Load the DAGs. Their folder stays on the import path, because the tasks run in this process."""
    return BundleDagBag(dag_folder=str(FOLDER), bundle_path=FOLDER, bundle_name="examples")


def succeeded(done: Run) -> Run:
    """Return the run, which must have succeeded."""
    assert done.state == "success", done.errors
    return done


def states(done: Run) -> dict[str, str]:
    """Return the state of each task."""
    return {task_id: str(ti.state) for task_id, ti in done.task_instances.items()}


def on(day: int) -> dict[str, datetime]:
    """Return the arguments of dag.test() for the run of a day, counted from 0."""
    moment = FIRST_DAY + timedelta(days=day)
    return {"logical_date": moment, "run_after": moment}


def current(hook: TonyHook, models: str) -> Any:
    """Return the current version of a model."""
    return json.loads(read_bytes(hook.storage(), join(hook.layout.root, models, "current.json")))


def events(asset: str, done: Run) -> list[dict[str, Any]]:
    """Return the extra of each event of an asset from a run."""
    with create_session() as session:
        found = session.scalars(select(AssetEvent).where(AssetEvent.source_run_id == done.run_id)).all()
        return [dict(event.extra) for event in found if event.asset.name == asset]
