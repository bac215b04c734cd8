from __future__ import annotations

import importlib
import json
from importlib import metadata
from pathlib import Path
from typing import Any

import airflow
import jsonschema  # type: ignore[import-untyped]
import pytest
from airflow.providers_manager import ProvidersManager

from tony_provider.get_provider_info import get_provider_info
from tony_provider.hooks.tony import TonyHook


@pytest.fixture(scope="module")
def info() -> dict[str, Any]:
    return get_provider_info()


def test_it_is_what_airflow_takes(info: dict[str, Any]) -> None:
    schema = json.loads((Path(airflow.__file__).parent / "provider_info.schema.json").read_text())
    jsonschema.validate(info, schema)
    assert info["package-name"] == metadata.metadata("tony-provider")["Name"]


def test_everything_that_it_names_is_there(info: dict[str, Any]) -> None:
    for kind in ("operators", "hooks", "triggers"):
        for integration in info[kind]:
            for module in integration["python-modules"]:
                importlib.import_module(module)
    for path in info["cli"]:
        module, _, function = path.rpartition(".")
        assert callable(getattr(importlib.import_module(module), function))


def test_airflow_knows_the_connection_type_and_its_form() -> None:
    manager = ProvidersManager()  # type: ignore[no-untyped-call]
    assert manager.hooks["tony"] is not None
    assert manager.hooks["tony"].hook_class_name == "tony_provider.hooks.tony.TonyHook"
    assert manager.hooks["tony"].hook_name == TonyHook.hook_name
    fields = {name for name in manager.connection_form_widgets if name.startswith("extra__tony__")}
    assert {"extra__tony__backend", "extra__tony__webhdfs_conn_id", "extra__tony__staging_dir"} <= fields
    assert manager.field_behaviours["tony"]["relabeling"]["host"] == "ResourceManagers"
