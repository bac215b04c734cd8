"""What helper processes get of this process's variables."""

from __future__ import annotations

import os

import pytest

from tony_provider.runtime.common import helper_processes
from tony_provider.runtime.common.helper_processes import child_environment

SECRETS = ("AIRFLOW_CONN_TONY", "AIRFLOW__CORE__FERNET_KEY", "AWS_SECRET_ACCESS_KEY", "JUPYTER_TOKEN", "KEY")


def test_no_secret_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, "hush")
    assert "hush" not in child_environment().values()
    assert "hush" not in helper_processes.helper_environment().values()


def test_named_variables_are_kept_when_they_are_set() -> None:
    environ = {"HOME": "/home/alice", "https_proxy": "http://proxy:3128", "KEY": "hush"}
    assert child_environment(["https_proxy", "no_proxy"], environ) == {
        "HOME": "/home/alice",
        "https_proxy": "http://proxy:3128",
        "PATH": os.defpath,
    }


@pytest.mark.parametrize("path", [":/usr/bin", "/usr/bin:", ".:/usr/bin", "/usr/bin::bin"])
def test_the_current_directory_is_on_no_search_path(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert child_environment(environ={"PATH": path, "LD_LIBRARY_PATH": path}) == {
        "PATH": "/usr/bin",
        "LD_LIBRARY_PATH": "/usr/bin",
    }
    monkeypatch.setattr("sys.path", path.split(":"))
    assert helper_processes.helper_environment()["PYTHONPATH"] == "/usr/bin"
