"""Publishing a model: each as a version of its own, and one of them as the current one.

    <models>/versions/7/model/          the files
    <models>/versions/7/version.json    what it is; written at last, so that whoever sees it finds all of the model
    <models>/current.json               the same, of the version to be used now

``macros.tony.newest_model`` reads this.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from itertools import count
from typing import Any

from airflow.providers.common.compat.lineage.hook import get_hook_lineage_collector
from airflow.sdk import get_current_context, task

from tony_provider.hooks.tony import TonyHook
from tony_provider.run_dates import period_end
from tony_provider.runtime.storage.base import Storage, read_bytes, walk, write_atomically
from tony_provider.runtime.storage.errors import StorageExists, StorageNotFound
from tony_provider.runtime.storage.uris import join


@task
def publish(models: str, trained: Any, measured: Any = None, approved_by: str | None = None) -> dict[str, Any]:
    """Keep the model as a version of its own, then make it the current one, in one step; again does no harm.

    The assets that are this task's outlets get an event each, which says what was published. What is scheduled on such
    an asset finds it in ``triggering_asset_events``.

    :param models: where, below the connection's staging directory.
    :param trained: what the training's task returned.
    :param measured: what the task returned that measured it; default: the training itself did.
    :param approved_by: who wanted it to be published, where somebody was asked.
    """
    context = get_current_context()
    run = context["dag_run"]
    about = {
        "metrics": (measured or trained)["metrics"],
        # What the model was made for.
        "period_start": run.data_interval_start.isoformat() if run.data_interval_start else None,
        "period_end": period_end(run).isoformat(),
        "run_id": run.run_id,
        "application_id": trained["application_id"],
        **({"approved_by": approved_by} if approved_by else {}),
    }
    with TonyHook() as hook:
        version = keep(hook.storage(), join(hook.layout.root, models), trained["model_dir"], about)
        # OpenLineage, if it is installed, reports what is added here.
        lineage = get_hook_lineage_collector()  # type: ignore[no-untyped-call]
        lineage.add_input_asset(hook, uri=trained["model_dir"])
        lineage.add_output_asset(hook, uri=version["model_dir"])
    for asset in context["task"].outlets:
        context["outlet_events"][asset].extra = version
    return version


@task
def published_model(models: str) -> dict[str, Any] | None:
    """The current version, as ``publish`` returned it; None: nothing was published yet."""
    with TonyHook() as hook:
        return current_version(hook.storage(), join(hook.layout.root, models))


def keep(storage: Storage, models: str, model_dir: str, about: Mapping[str, Any]) -> dict[str, Any]:
    version = {**about, **version_of(storage, join(models, "versions"), about["application_id"])}
    for file in walk(storage, model_dir):
        if not file.is_directory:
            name = file.path.removeprefix(model_dir).strip("/")
            with storage.open_read(file.path) as source:
                storage.write(join(version["model_dir"], name), source, overwrite=True)
    write(storage, join(models, "versions", str(version["version"]), "version.json"), version)

    published = current_version(storage, models)
    if published is not None and moment(published) > moment(version):
        print(f"Version {published['version']} stays the current one: it is of a later period")
    else:
        write(storage, join(models, "current.json"), version)
        print(f"Version {version['version']} is the current one: {version['model_dir']}")
    return version


def current_version(storage: Storage, models: str) -> dict[str, Any] | None:
    try:
        version: dict[str, Any] = json.loads(read_bytes(storage, join(models, "current.json")))
    except StorageNotFound:
        return None
    return version


def version_of(storage: Storage, versions: str, application_id: str) -> dict[str, Any]:
    """The number of this application's model, and its place. Of several that want one number exactly one gets it."""
    storage.make_directories(versions)
    taken = {int(each.name): each.path for each in storage.list(versions) if each.name.isdigit()}
    for number, directory in taken.items():
        if holder(storage, directory) == application_id:  # published already, or an earlier try came so far
            return {"version": number, "model_dir": join(directory, "model")}
    for number in count(max(taken, default=0) + 1):
        directory = join(versions, str(number))
        try:
            storage.write(join(directory, "taken-by"), application_id.encode())
        except StorageExists:
            continue
        return {"version": number, "model_dir": join(directory, "model")}
    raise AssertionError("there is always a next number")


def holder(storage: Storage, directory: str) -> str | None:
    try:
        return read_bytes(storage, join(directory, "taken-by")).decode()
    except StorageNotFound:
        return None


def moment(version: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(version["period_end"])


def write(storage: Storage, uri: str, version: Mapping[str, Any]) -> None:
    write_atomically(storage, uri, json.dumps(version, indent=2).encode())
