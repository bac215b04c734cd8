"""The section [tony] of Airflow's configuration."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tony_provider import configuration
from tony_provider.configuration import OPTIONS, ConfigurationProblem


def test_the_defaults_are_those_that_airflow_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW__TONY__LIST_INTERVAL", raising=False)  # tests are in a hurry
    section = configuration.provider_config()["tony"]["options"]
    assert configuration.poll_interval() == float(section["poll_interval"]["default"]) == 5.0
    assert configuration.list_interval() == float(section["list_interval"]["default"]) == 5.0
    assert configuration.details_per_second() == float(section["details_per_second"]["default"]) == 10.0


def test_they_are_read_when_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__TONY__POLL_INTERVAL", "0.5")
    assert configuration.poll_interval() == 0.5
    monkeypatch.setenv("AIRFLOW__TONY__POLL_INTERVAL", "60")
    assert configuration.poll_interval() == 60.0


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
@pytest.mark.parametrize("value", ["0", "-1", "soon", "nan", "inf", ""])
def test_what_cannot_be_is_named(monkeypatch: pytest.MonkeyPatch, option: configuration.Option, value: str) -> None:
    monkeypatch.setenv(f"AIRFLOW__TONY__{option.name.upper()}", value)
    with pytest.raises(ConfigurationProblem, match=rf"\[tony\] {option.name} .* should be a number above 0"):
        option.read()


def test_airflow_shows_them(airflow_db: None) -> None:
    """As people look for them."""
    command = [sys.executable, "-m", "airflow", "config", "list", "--section", "tony", "--defaults"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert all(option.name in done.stdout for option in OPTIONS)
