from __future__ import annotations

import importlib
import itertools
import json
from importlib import metadata
from pathlib import Path
from typing import Any

import airflow
import jsonschema
import pytest
from airflow.api_fastapi.core_api.services.ui.connections import HookMetaService
from airflow.providers_manager import ProvidersManager

from tony_provider.get_provider_info import get_provider_info
from tony_provider.hooks.fields import CONNECTION_FIELDS, FIELD_BEHAVIOUR
from tony_provider.hooks.tony import TonyHook
from tony_provider.links.job_links import LINKS
from tony_provider.runtime.jobspec.model import Network


@pytest.fixture(scope="module")
def info() -> dict[str, Any]:
    return get_provider_info()


def test_it_is_what_airflow_takes(info: dict[str, Any]) -> None:
    schema = json.loads((Path(airflow.__file__).parent / "provider_info.schema.json").read_text())
    jsonschema.validate(info, schema)
    assert info["package-name"] == metadata.metadata("tony-provider")["Name"]
    # The schema does not require this URL, and the project has no site of its own to point to.
    assert [each for each in info["integrations"] if "external-doc-url" in each] == []


def _imported(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def test_everything_that_it_names_is_there(info: dict[str, Any]) -> None:
    for kind in ("operators", "sensors", "hooks", "triggers"):
        for integration in info[kind]:
            for module in integration["python-modules"]:
                importlib.import_module(module)
    assert [_imported(path) for path in info["extra-links"]] == [type(link) for link in LINKS]
    decorators = [decorator["class-name"] for decorator in info["task-decorators"]]
    assert all(callable(_imported(path)) for path in [*info["cli"], *info["notifications"], *decorators])


def test_every_field_of_the_form_says_what_it_is_for() -> None:
    for name, field in CONNECTION_FIELDS.items():
        assert field["label"], name
        assert field["description"].endswith("."), name
        types = field["schema"]["type"]
        assert types[-1] == "null", name  # all may be left empty
        assert types[0] in ("string", "integer", "boolean", "object"), name
    shown = {
        "host",
        "port",
        "login",
        "password",
    }  # of those that every connection has; others have no placeholders in the form
    assert set(FIELD_BEHAVIOUR["placeholders"]) <= shown
    assert set(FIELD_BEHAVIOUR["relabeling"]) <= shown
    assert not shown & set(FIELD_BEHAVIOUR["hidden-fields"])


def test_the_form_begins_with_what_is_needed_and_folds_the_rest_away() -> None:
    groups = {name: field["schema"].get("section") for name, field in CONNECTION_FIELDS.items()}
    needed = ["backend", "webhdfs", "webhdfs_conn_id", "staging_dir", "queue"]
    assert [name for name, group in groups.items() if group is None] == needed == list(groups)[: len(needed)]
    assert [group for group, _ in itertools.groupby(groups.values())] == [
        None,
        "Security",
        "Nodes and jobs",
        "Limits of jobs",
        "YARN",
        "Local backend",
    ]


def test_nothing_in_the_form_looks_filled_in_or_like_a_list_without_entries() -> None:
    for name, text in FIELD_BEHAVIOUR["placeholders"].items():
        assert " " in text, name  # a sentence, and not a value
        assert len(text) <= 60, name  # more is cut off in Airflow's form
    for name, label in FIELD_BEHAVIOUR["relabeling"].items():
        assert len(label) <= 24, name  # more pushes its field aside
    for name, field in CONNECTION_FIELDS.items():
        assert "examples" not in field["schema"], name


def test_airflows_pages_get_the_form() -> None:
    [form] = [each for each in HookMetaService.hook_meta_data() if each.connection_type == "tony"]
    assert form.standard_fields is not None
    assert form.standard_fields.host is not None
    assert form.standard_fields.host.title == "ResourceManagers"
    assert form.standard_fields.host.placeholder is not None
    assert "such as http://rm1:8088,http://rm2:8088" in form.standard_fields.host.placeholder
    assert form.standard_fields.password is not None
    assert form.standard_fields.password.title == "Password or JWT"
    assert form.extra_fields is not None
    assert list(form.extra_fields) == list(CONNECTION_FIELDS)
    backend = form.extra_fields["backend"]
    assert backend["schema"]["enum"] == ["yarn", "local"]
    assert (backend["schema"]["title"], backend["value"]) == ("Backend", "yarn")
    network = form.extra_fields["network"]
    assert set(network["schema"]["enum"]) == {each.value for each in Network}
    assert network["value"] is None  # neither choice is the default
    assert form.extra_fields["kerberos"]["schema"]["section"] == "Security"


def test_airflow_knows_the_connection_type_and_its_form() -> None:
    manager = ProvidersManager()  # type: ignore[no-untyped-call]
    assert manager.hooks["tony"] is not None
    assert manager.hooks["tony"].hook_class_name == "tony_provider.hooks.tony.TonyHook"
    assert manager.hooks["tony"].hook_name == TonyHook.hook_name
    fields = {name for name in manager.connection_form_widgets if name.startswith("extra__tony__")}
    assert {"extra__tony__backend", "extra__tony__webhdfs_conn_id", "extra__tony__staging_dir"} <= fields
    assert manager.field_behaviours["tony"]["relabeling"]["host"] == "ResourceManagers"
