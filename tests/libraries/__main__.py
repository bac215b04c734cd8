"""`python -m tests.libraries [row …]`: kill programs of real libraries in and between their saves."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import tests.airflow_home  # noqa: F401 - names Airflow's home before anything imports Airflow
from tests import named_rows

os.environ["AIRFLOW__LOGGING__LOGGING_LEVEL"] = "WARNING"  # of the harness itself; read when Airflow is imported
from tests.libraries.environment import environment
from tests.libraries.rows import in_order
from tests.libraries.training import RowField
from tests.row_tables import NOT_TO_ITS_END, Outcome, Table, run_row

REPOSITORY = Path(__file__).resolve().parents[2]
TABLE = Table(
    texts=(("row", 26), ("library, and what it writes", 58), ("what the training did", 40)),
    notes="""\
Each program runs with default settings in an embedded local cluster. One of its processes is killed in the middle of a
save, one between saves, and the application with its master, after which Airflow starts the second try. A row passes
when each start of the processes finds the files of the newest save, every committed checkpoint is one save, and the
final weights equal those of an undisturbed run.
""",
)


def main() -> int:
    parser = named_rows.parser_of_rows("python -m tests.libraries", __doc__, REPOSITORY / ".tony" / "libraries")
    chosen = named_rows.asked_for(parser, parser.parse_args(), in_order(), lambda row: f"{row.name:26} {row.library}")
    root = parser.parse_args().root.absolute()
    print(f"Python with the libraries: {environment()}", flush=True)
    folder = root / time.strftime("run-%Y%m%d-%H%M%S")
    print(TABLE.header(), flush=True)
    outcomes = []
    for row in chosen:
        field = RowField(row, folder / row.name, root / "references")
        did, seconds = run_row(field, field.run)
        texts = (row.name, row.library, ". ".join(filter(None, (did or NOT_TO_ITS_END, row.remark))))
        outcomes.append(Outcome(row, texts, field.problems, seconds))
        print("\n".join(TABLE.lines_of(outcomes[-1])), flush=True)
    summary = TABLE.summary(outcomes)
    (folder / "table.txt").write_text(f"{summary}\n")
    print(f"\n{summary}\n\nThis table, and what is known of rows that failed, is in {folder}")
    return 0 if all(outcome.good for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
