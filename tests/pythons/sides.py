"""What runs on which Python, what it needs there, and which tests show that it does."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

_NODES = ("3.9", "3.10")  # of the runtime alone: its tests are newer, but for those that are named here
_OURS = ("3.11", "3.12", "3.13", "3.14")

_TOOLS = ("pytest", "pytest-asyncio", "pytest-timeout", "pytest-xdist", "hypothesis")
_RUNTIME = ("-r", "tony_provider/runtime/requirements.txt", "fsspec", "numpy", "cryptography")

_ON_NODES = ("am/session", "executor", "frameworks", "launch", "sdk", "spec", "test_codec.py", "test_deadline.py")
_RUNTIME_TESTS = ("am", "executor", "frameworks", "launch", "sdk", "spec")
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
            "--ignore=tests/runtime/spec/test_units.py",
        ),
    ),
    Side(
        "Airflow and runtime",
        _OURS,
        ("-c", "constraints.txt", "-e", ".[fsspec]", *_TOOLS, "numpy", "selenium"),
        (*(f"tests/runtime/{name}" for name in _RUNTIME_TESTS), *(f"tests/{name}" for name in _AIRFLOW_TESTS)),
    ),
)
