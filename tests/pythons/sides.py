"""The versions of Python that are supported, and the requirements and tests of each."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

_NODES = ("3.9", "3.10")  # of the runtime alone: its tests are newer, but for those that are named here
_OURS = ("3.11", "3.12", "3.13", "3.14")

_TOOLS = ("pytest", "pytest-asyncio", "pytest-timeout", "pytest-xdist", "hypothesis")
_RUNTIME = ("-r", "tony_provider/runtime/requirements.txt", "fsspec", "cryptography")

# Executors and whole jobs on the oldest Python are in tests/jobs/test_each_python.py and test_other_python.py.
_ON_NODES = (
    *("am/session", "am/test_service.py", "frameworks", "jobspec", "launch", "sdk", "storage/test_uris.py"),
    *("storage/test_contract.py", "storage/test_object_store.py"),
    *(f"common/test_{name}.py" for name in ("codec", "deadline", "grpc_without_fork_handlers", "listeners")),
)
_RUNTIME_TESTS = ("am", "common", "executor", "frameworks", "jobspec", "launch", "parsing", "sdk")
_AIRFLOW_TESTS = ("cluster", "decorators", "operators", "sensors", "triggers", "watching")


@attrs.frozen
class Side:
    """What runs on a Python: the runtime on the nodes' Python, or everything on Airflow's."""

    name: str
    versions: Sequence[str]
    requirements: Sequence[str]  # as `uv pip install` takes them
    tests: Sequence[str]  # as pytest takes them


SIDES = (
    Side(
        "runtime",
        _NODES,
        (*_TOOLS, *_RUNTIME),
        (
            *(f"tests/runtime/{name}" for name in _ON_NODES),
            "--ignore=tests/runtime/am/session/test_restart_jobs.py",
            "--ignore=tests/runtime/sdk/test_tony_call.py",
            "--ignore=tests/runtime/jobspec/test_document.py",
            "--ignore=tests/runtime/jobspec/test_opening_hours.py",
            "--ignore=tests/runtime/jobspec/test_tensorboard.py",
            "--ignore=tests/runtime/jobspec/test_units.py",
        ),
    ),
    Side(
        "Airflow and runtime",
        _OURS,
        ("-c", "constraints.txt", "-e", ".[object-stores]", "--group", "dev", "numpy"),
        (*(f"tests/runtime/{name}" for name in _RUNTIME_TESTS), *(f"tests/{name}" for name in _AIRFLOW_TESTS)),
    ),
)
