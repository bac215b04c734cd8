"""Small jobs, and waiting for what becomes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.waiting import until
from tony_provider.cluster.interface import Application
from tony_provider.cluster.training.identity import Identity
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.storage.base import walk

SECONDS = 90.0  # that a small job may take on two busy processors


def job(command: str = "true", task: dict[str, Any] | None = None, **fields: Any) -> JobSpec:
    tasks = {"worker": {"command": command, "memory": "256MiB", **(task or {})}}
    return parse_job({"name": "small", "framework": "standalone", "tasks": tasks, **fields})


def identity(hook: TonyHook, task_id: str = "train") -> Identity:
    return hook.identity(dag_id="tests", run_id="manual__2026-01-01T00:00:00+00:00", task_id=task_id)


def ended(hook: TonyHook, application_id: str) -> Application:
    def application() -> Application | None:
        found = hook.application(application_id)
        return found if found is not None and found.is_final else None

    return until(application, f"the end of {application_id}", SECONDS)


def running(hook: TonyHook, which: Identity, application_id: str) -> None:
    """Wait until the user processes run."""

    def state() -> bool:
        status = hook.job_status(which, application_id)
        application = hook.application(application_id)
        assert application is not None
        assert not application.is_final, application.diagnostics
        return status is not None and status.state.value == "RUNNING"

    until(state, f"{application_id} running", SECONDS)


def below(hook: TonyHook, directory: str) -> dict[str, tuple[int, int]]:
    """Size and modification time of every file below a directory of the hook's store, by URI."""
    storage = hook.storage()
    if not storage.exists(directory):
        return {}
    return {
        status.path: (status.size, status.modified_ms) for status in walk(storage, directory) if not status.is_directory
    }


def processes_with(text: str) -> list[int]:
    """Processes whose environment or command line holds ``text``."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                held = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if text.encode() in held:
                found.append(int(entry.name))
    return found
