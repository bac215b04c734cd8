"""Asks the portal's end points among many jobs: `python -m benchmarks.airflow_side.portal_answers ROUNDS TIMES`.

Prints a line of JSON for each (``Answers`` of ``benchmarks.airflow_portal``). The database is one of its own.
"""

from __future__ import annotations

import json
import sys
import time

from benchmarks.report import OURS
from tests.portal import many

_AIRFLOW = "Airflow"
_AIRFLOWS = {
    "task instances": "/api/v2/dags/~/dagRuns/~/taskInstances?limit=50&order_by=-start_date",
    "runs": "/api/v2/dags/~/dagRuns?limit=50&order_by=-logical_date",
}


def main() -> None:
    rounds, times = map(int, sys.argv[1:])
    many.prepare()
    many.fill()
    from tests.portal import stored
    from tony_provider.portal.stored_jobs import ROW_CACHE

    client, cluster = many.client(), stored.application_id(0).rpartition("_")[0]
    ours = [(path, OURS, f"/tony/api{path}") for path in many.paths()]
    for name, who, address in [*ours, *((name, _AIRFLOW, address) for name, address in _AIRFLOWS.items())]:

        def seconds() -> float:
            began = time.perf_counter()
            answer = client.get(address)  # noqa: B023 - asked here and now
            taken = time.perf_counter() - began
            assert answer.status_code in (200, 503), (address, answer.text)  # noqa: B023
            return taken

        first, following = [], []
        for _ in range(rounds):
            ROW_CACHE.clear()
            first.append(seconds())
            following.append([seconds() for _ in range(times)])
        path = name.replace(cluster, "…")
        print(json.dumps({"path": path, "who": who, "first": first, "next": following}), flush=True)


if __name__ == "__main__":
    main()
