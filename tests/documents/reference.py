"""Tables of docs/reference, generated from the code: signatures, docstrings, fields and their comments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from tests.documents import arguments, fields
from tests.documents.row import Row
from tony_provider.notifications.tony import TonyNotifier
from tony_provider.operators.outcome import JobResult
from tony_provider.operators.stale_models import TonyStaleModels
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.retry_policy import TonyRetryPolicy
from tony_provider.sensors.tony import TonyHeartbeatSensor, TonyJobSensor, TonySensor
from tony_provider.watching.conditions import SensorResult

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
PAGES = (FOLDER / "operator.md", FOLDER / "connection.md")

TABLES: dict[str, tuple[str, Callable[[], Iterator[Row]]]] = {
    "TonyTrainOperator": ("argument", lambda: arguments.of(TonyTrainOperator)),
    "TonyRetryPolicy": ("argument", lambda: arguments.of(TonyRetryPolicy)),
    "TonyStaleModels": ("argument", lambda: arguments.of(TonyStaleModels)),
    "TonyNotifier": ("argument", lambda: arguments.of(TonyNotifier)),
    "connection": ("key", fields.of_connection),
    "configuration": ("option", fields.of_configuration),
    "TonySensor": ("argument", lambda: arguments.of(TonySensor)),
    "TonyJobSensor": ("argument", lambda: arguments.of(TonyJobSensor)),
    "TonyHeartbeatSensor": ("argument", lambda: arguments.of(TonyHeartbeatSensor)),
    "SensorResult": ("key", lambda: fields.of_attrs(SensorResult)),
    "JobResult": ("key", lambda: fields.of_attrs(JobResult)),
}


def table(name: str) -> str:
    """Return a table as Markdown. Raises KeyError for an unknown name."""
    what, rows = TABLES[name]
    columns = ("default",) if what != "key" or name == "connection" else ()
    head = (what, "type", *columns, "unit", "meaning")
    lines = [_line(head), _line(["---"] * len(head))]
    for row in rows():
        lines.append(_line([f"`{row.name}`", row.type, *(row.default for _ in columns), row.unit, row.meaning]))
    return "".join(lines)


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
