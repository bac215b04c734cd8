"""OpenLineage facets of this provider. Only tasks whose lineage is collected import this module."""

from __future__ import annotations

import attrs
from openlineage.client.generated.base import JobFacet, RunFacet


@attrs.define
class TonyDagJobFacet(JobFacet):
    """The versions of the DAG that the training was started with."""

    bundleName: str | None = None  # noqa: N815 - OpenLineage's form
    bundleVersion: str | None = None  # noqa: N815 - in the bundle's own form, such as a commit; None if it has none
    dagVersionId: str | None = None  # noqa: N815 - Airflow's ID of the DAG version


@attrs.define
class TonyTrainingRunFacet(RunFacet):
    """The training to which the task's run belongs: all tries of a task have the same training."""

    trainingId: str | None = None  # noqa: N815 - as in TONY_TRAINING_ID
