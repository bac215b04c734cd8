"""Jobs of other systems, written by an attacker, which alice imports and whose DAGs her Airflow parses and renders."""

from __future__ import annotations

from tests import airflow_home
from tests.importers.foreign_jobs import SYSTEMS, hostile, options
from tests.rendering import parsed_dag, rendered
from tests.secure.field import Field
from tests.secure.row import row
from tony_provider.cli.job_file import import_job


@row(
    "imported-template",
    "have Airflow run code of an imported job: templates, ends of raw blocks, ends of Python texts and of comments",
    by="a file's author",
)
def imported_template(field: Field) -> str:
    if not (airflow_home.HOME / "airflow.db").exists():
        airflow_home.migrate()
    folder = field.folder / "imported"
    folder.mkdir()
    canary = folder / "canary"
    texts, written = hostile(canary), 0
    for system, words in SYSTEMS.items():
        for number, text in enumerate(texts):
            name = f"{system}_{number}".replace("-", "_")
            given = options(words(folder, [text]), system, folder / f"{name}.tony.yaml", folder / f"{name}.py")
            try:
                import_job(given)
            except SystemExit:  # nothing that a job can hold was left of it
                continue
            written += 1
            rendered(parsed_dag(folder, f"{name}.py"))
            field.expect(not canary.exists(), f"a job of {system} ran {text!r}")
            canary.unlink(missing_ok=True)
    field.expect(written >= len(texts) * len(SYSTEMS) * 0.8, f"only {written} jobs were imported")
    return f"{written} jobs of {len(SYSTEMS)} systems: each DAG was parsed and rendered, and nothing ran"
