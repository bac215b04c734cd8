"""The provider data for Airflow, in the form of ``airflow/provider_info.schema.json``."""

from __future__ import annotations

from typing import Any

from tony_provider.configuration import provider_config
from tony_provider.hooks.fields import CONNECTION_FIELDS, FIELD_BEHAVIOUR

_INTEGRATION = "TonY"
# Names instead of classes, because Airflow calls get_provider_info before its own classes can be imported.
_LINKS = ("TrainingJobLink", "YarnApplicationLink", "JobPageLink", "TensorBoardLink", "FilesLink")


def get_provider_info() -> dict[str, Any]:
    return {
        "package-name": "tony-provider",
        "name": "TonY",
        "description": "Distributed deep-learning training on Hadoop YARN, as tasks of Airflow DAGs.",
        "integrations": [
            {
                "integration-name": _INTEGRATION,
                "tags": ["software"],
            }
        ],
        "operators": [{"integration-name": _INTEGRATION, "python-modules": ["tony_provider.operators.tony"]}],
        "sensors": [{"integration-name": _INTEGRATION, "python-modules": ["tony_provider.sensors.tony"]}],
        "hooks": [{"integration-name": _INTEGRATION, "python-modules": ["tony_provider.hooks.tony"]}],
        "triggers": [
            {
                "integration-name": _INTEGRATION,
                "python-modules": ["tony_provider.triggers.tony"],
            }
        ],
        "extra-links": [f"tony_provider.links.job_links.{name}" for name in _LINKS],
        "notifications": ["tony_provider.notifications.tony.TonyNotifier"],
        "task-decorators": [{"name": "tony", "class-name": "tony_provider.decorators.task_tony.tony_task"}],
        "connection-types": [
            {
                "connection-type": "tony",
                "hook-class-name": "tony_provider.hooks.tony.TonyHook",
                "hook-name": "TonY (training on YARN)",
                "conn-fields": CONNECTION_FIELDS,
                "ui-field-behaviour": FIELD_BEHAVIOUR,
            }
        ],
        "config": provider_config(),
        "cli": ["tony_provider.cli.definition.get_tony_cli_commands"],
    }
