"""Jobs of a shell command each, run by TonyTrainOperator, and helpers to interfere with them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airflow.sdk import DAG

from tests.airflow_dags import Run, run
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.runtime.common import contract
from tony_provider.runtime.storage.base import walk
from tony_provider.runtime.storage.uris import join

DAG_ID = "operator_test"
DEADLINE = 60.0  # seconds that anything here may take


def job(command: str, **more: Any) -> dict[str, Any]:
    return {
        "framework": "standalone",
        "am": {"memory": "256MiB"},
        "tasks": {"worker": {"memory": "256MiB", "command": command}},
        **more,
    }


def train(spec: Mapping[str, Any] | str, *, conf: dict[str, Any] | None = None, **arguments: Any) -> Run:
    """Run a DAG of one task."""
    with dag_of(spec, **arguments) as dag:
        return run(dag, run_conf=conf)


@contextmanager
def dag_of(
    spec: Mapping[str, Any] | str, operator: type[TonyTrainOperator] = TonyTrainOperator, **arguments: Any
) -> Iterator[DAG]:
    with DAG(DAG_ID, schedule=None, params={"code": 0}) as dag:
        operator(task_id="train", job=spec, poll_interval=0.5, **arguments)
    yield dag


def applications(hook: TonyHook) -> list[str]:
    """Ids of all that were ever started."""
    jobs = join(hook.layout.root, "jobs")
    paths = [file.path.split("/") for file in walk(hook.storage(), jobs)] if hook.storage().exists(jobs) else []
    return sorted(path[-1] for path in paths if path[-2] == "applications")


class Marker:
    """A file in which user processes say that they run, and of which application."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.forever = f"echo $TONY_APPLICATION_ID > {path}.new && mv {path}.new {path}; exec sleep 60"

    @contextmanager
    def then(self, act: Callable[[str], None]) -> Iterator[None]:
        """Meanwhile, from a thread: wait for the file, then call ``act`` with the application's id."""
        over = threading.Event()
        problems: list[BaseException] = []

        def watch() -> None:
            while not over.wait(0.1):
                if self.path.exists():
                    try:
                        act(self.path.read_text().strip())
                    except BaseException as error:  # noqa: BLE001 - raised below
                        problems.append(error)
                    return

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        if problems:
            raise problems[0]


def ended(hook: TonyHook) -> bool:
    """Whether every application has ended and left nothing of its launch."""
    names = applications(hook)
    states = [hook.application(name) for name in names]
    places = tuple(f"/{name}/{contract.LAUNCH_DIR}" for name in names)
    left = [file.path for file in walk(hook.storage(), hook.layout.root) if file.path.endswith(places)]
    return bool(names) and all(state is None or state.is_final for state in states) and not left
