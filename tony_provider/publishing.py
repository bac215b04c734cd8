"""Publish trained models as numbered versions, which ``macros.tony.newest_model`` and other DAGs read.

DAG files import this module, so it imports modules of a running task only on use.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from airflow.providers.common.compat.lineage.hook import get_hook_lineage_collector
from airflow.providers.common.compat.sdk import get_current_context

from tony_provider.arguments import DEFAULT_CONN_ID


def publish_model(
    models: str,
    trained: Mapping[str, Any],
    measured: Mapping[str, Any] | None = None,
    *,
    approved_by: str | None = None,
    tony_conn_id: str = DEFAULT_CONN_ID,
    proxy_user: str | None = None,
) -> dict[str, Any]:
    """Publish the model of a training as a new version, and make it the current version.

    Call this function in a task of a DAG. The function copies no data. It writes ``versions/<number>/version.json``
    below ``models``, and then ``current.json`` with the same content. Each file appears atomically. The model's files
    stay in the application's directory. ``airflow tony gc`` keeps this directory as long as a ``version.json`` refers
    to it.

    A retry returns the same version. The new version becomes the current version unless a version of a later period
    exists, as in a backfill. Each outlet of the task gets an asset event. The event's ``extra`` contains the version,
    and the key ``current``, which is true for the current version. If OpenLineage is installed, it reports the model as
    an input of the task, and the version as an output.

    :param models: directory of the published models, as a path below the connection's staging directory, or as a URI of
        the same store.
    :param trained: result of the training task. For ``@task.tony``, this result is the XCom ``tony``.
    :param measured: result of the task that evaluated the model. Its metrics replace the metrics in ``trained``.
    :param approved_by: name of the person who approved the model.
    :param tony_conn_id: ID of the training's connection.
    :param proxy_user: user of the training, if the training does not run as the connection's user.

    Return the version as a mapping. Its keys are ``metrics``, ``period_start`` and ``period_end`` (ISO 8601),
    ``run_id``, ``application_id``, ``model_dir`` (a URI) and ``version`` (a number, from 1). The key ``approved_by`` is
    added if you set this argument. ``period_start`` is None for a run without a data interval.

    Raises ValueError if the training has produced no model, if a ``version.json`` is invalid, or if the run is for a
    partition without a date. Raises StorageNotFound if the model was removed. Also raises ClusterError and other
    StorageErrors.
    """
    from tony_provider.cluster.records.summary import VERSION_FILE, VERSIONS_DIR, models_directory, published_versions
    from tony_provider.hooks.tony import TonyHook
    from tony_provider.run_dates import period_end
    from tony_provider.runtime.storage.errors import StorageExists
    from tony_provider.runtime.storage.uris import join

    model = trained.get("model_dir")
    if not model:
        raise ValueError(
            f"{trained['application_id']} has left no model to publish: its program must write files to TONY_MODEL_DIR"
        )
    context = get_current_context()
    run = context["dag_run"]
    end = period_end(run)
    version: dict[str, Any] = {
        "metrics": (measured or trained)["metrics"],
        "period_start": run.data_interval_start.isoformat() if run.data_interval_start else None,
        "period_end": end.isoformat(),
        "run_id": run.run_id,
        "application_id": trained["application_id"],
        "model_dir": model,
    }
    if approved_by:
        version["approved_by"] = approved_by
    with TonyHook(tony_conn_id, proxy_user) as hook:
        storage = hook.storage()
        storage.status(model)
        directory = models_directory(hook.layout.root, models)
        while True:
            known = list(published_versions(storage, directory))
            numbers = {each.model_dir: int(each.number) for each in known if each.number.isdecimal()}
            number = numbers.get(model) or max(numbers.values(), default=0) + 1
            uri = join(directory, VERSIONS_DIR, str(number))
            version["version"] = number
            content = json.dumps(version, indent=2).encode()
            try:
                storage.write(join(uri, VERSION_FILE), content, overwrite=model in numbers)
                break
            except StorageExists:
                continue  # another task has taken the number
        hook.log.info("Published %s as %s", model, uri)
        is_current = all(each.period_end <= end for each in known)
        if is_current:
            storage.write(join(directory, "current.json"), content, overwrite=True)
            hook.log.info("This is the current version")
        lineage = get_hook_lineage_collector()  # type: ignore[no-untyped-call]
        lineage.add_input_asset(hook, uri=model)
        lineage.add_output_asset(hook, uri=uri)
    for asset in context["task"].outlets:
        context["outlet_events"][asset].extra = {**version, "current": is_current}
    return version
