"""The section ``[tony]`` of Airflow's configuration: settings of the whole installation, read at each use."""

from __future__ import annotations

import math
from typing import Any

import attrs

SECTION = "tony"


class ConfigurationProblem(ValueError):  # noqa: N818 - named for what is wrong
    """An option of the section ``[tony]`` has an invalid value."""


@attrs.frozen
class Option:
    """One option of the section ``[tony]``; its value is a positive number."""

    name: str
    default: float
    description: str

    @property
    def info(self) -> dict[str, Any]:
        """The option in the form of Airflow's provider data, see ``airflow/provider_info.schema.json``."""
        return {
            "description": self.description,
            "version_added": "0.1.0",
            "type": "float",
            "example": None,
            "default": f"{self.default:g}",
        }

    def read(self) -> float:
        """Return the option's configured value, otherwise its default. Raises ConfigurationProblem."""
        from airflow.providers.common.compat.sdk import conf  # here, because Airflow reads ``info`` at start

        text = str(conf.get(SECTION, self.name, fallback=self.default))
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 < value < math.inf:
            raise ConfigurationProblem(
                f"[{SECTION}] {self.name} of Airflow's configuration is {text!r} and should be a number above 0; "
                f"the default is {self.default:g}"
            )
        return value


_POLL_INTERVAL = Option(
    "poll_interval", 5.0, "Number of seconds between two polls of a training, for tasks that wait in a worker slot."
)
_LIST_INTERVAL = Option(
    "list_interval",
    5.0,
    "Number of seconds after which a triggerer requests the cluster's list of applications again. One list serves all "
    "deferred trainings of a connection.",
)
_DETAILS_PER_SECOND = Option(
    "details_per_second",
    10.0,
    "Maximum number of requests per second that a triggerer sends to poll the steps, metrics and output of one "
    "connection's trainings. If there are many trainings, the triggerer polls each training less often. The list of "
    "applications always shows the end of each training.",
)
OPTIONS = (_POLL_INTERVAL, _LIST_INTERVAL, _DETAILS_PER_SECOND)


def poll_interval() -> float:
    """Return ``[tony] poll_interval``: seconds between two polls of a job. Raises ConfigurationProblem."""
    return _POLL_INTERVAL.read()


def list_interval() -> float:
    """Return ``[tony] list_interval``: seconds between two requests for the list of applications.

    Raises ConfigurationProblem.
    """
    return _LIST_INTERVAL.read()


def details_per_second() -> float:
    """Return ``[tony] details_per_second``: requests about single jobs per second. Raises ConfigurationProblem."""
    return _DETAILS_PER_SECOND.read()


def provider_config() -> dict[str, Any]:
    """Return the section ``[tony]`` as the entry ``config`` of Airflow's provider data."""
    return {
        SECTION: {
            "description": "Settings of tony_provider, which runs distributed training on YARN.",
            "options": {option.name: option.info for option in OPTIONS},
        }
    }
