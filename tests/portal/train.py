"""``python -m tests.portal.train dag_id [date …]``: runs of a DAG of ``tests/portal/dags``, one after the other."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

from tests.portal.dags import portal_jobs


def main(dag_id: str, *dates: str) -> None:
    """Without dates one run, without a logical date. What fails does not keep the others from their turn."""
    dag = next(each for each in vars(portal_jobs).values() if getattr(each, "dag_id", None) == dag_id)
    for date in dates or (None,):
        dag.test(logical_date=datetime.fromisoformat(date).replace(tzinfo=UTC) if date else None)


if __name__ == "__main__":
    main(*sys.argv[1:])
