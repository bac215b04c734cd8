"""What OpenLineage is told of a training: which data and models of the store it reads, and which model it writes.

Airflow's OpenLineage provider asks for it, where that is installed; names of datasets are as
https://openlineage.io/docs/spec/naming has them for HDFS and for files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tony_provider.exceptions import TonySpecError

if TYPE_CHECKING:
    from airflow.providers.common.compat.openlineage.facet import Dataset
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

    from tony_provider.runtime.spec.model import JobSpec

    Lineage = OperatorLineage[Any, Any]


class TellsLineage:
    """Mixin of the training operator with the three methods that the OpenLineage provider looks for."""

    warm_start: str | None
    resume_from: Mapping[str, Any] | str | None
    secrets: Mapping[str, str] | None
    told: dict[str, Any] | None = None  # the training's result, once there is one

    def parse_job(self, secrets: Collection[str]) -> JobSpec:
        raise NotImplementedError

    def get_openlineage_facets_on_start(self) -> Lineage:
        from airflow.providers.openlineage.extractors import OperatorLineage

        return OperatorLineage(inputs=_datasets(self._read()))

    def get_openlineage_facets_on_complete(self, task_instance: RuntimeTaskInstanceProtocol) -> Lineage:
        from airflow.providers.common.compat.openlineage.facet import ExternalQueryRunFacet
        from airflow.providers.openlineage.extractors import OperatorLineage

        result = self.told or {}
        written = [result[key] for key in ("model_dir", "checkpoint_dir") if result.get(key)]
        written += [each["uri"] for each in result.get("outputs", {}).values()]
        facets = {}
        if application_id := result.get("application_id"):
            source = result.get("tracking_url") or result["application_dir"]
            facets["externalQuery"] = ExternalQueryRunFacet(externalQueryId=application_id, source=source)
        return OperatorLineage(inputs=_datasets(self._read()), outputs=_datasets(written), run_facets=facets)

    def get_openlineage_facets_on_failure(self, task_instance: RuntimeTaskInstanceProtocol) -> Lineage:
        """The training's inputs and outputs when it has failed. Airflow itself tells why it did."""
        return self.get_openlineage_facets_on_start()

    def _read(self) -> Iterator[str]:
        """URIs of the store; the DAG's own files are code."""
        try:
            job = self.parse_job(self.secrets or {})
        except TonySpecError:
            return  # the task says so itself
        for resource in (*job.files, *job.archives):
            yield resource.source
        for origin in (self.warm_start, self.resume_from):
            if isinstance(origin, str):
                yield origin


def _datasets(uris: Iterable[str]) -> list[Dataset]:
    from airflow.providers.common.compat.openlineage.facet import Dataset

    found = []
    for uri in dict.fromkeys(each for each in uris if "://" in each):
        parts = urlsplit(uri)
        namespace = f"{parts.scheme}://{parts.netloc}" if parts.netloc else parts.scheme
        found.append(Dataset(namespace=namespace, name=parts.path.rstrip("/") or "/"))
    return found
