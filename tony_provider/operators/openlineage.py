"""OpenLineage metadata of a training: the datasets that it reads and writes, and facets that identify it.

Airflow's OpenLineage provider calls these methods, if it is installed. Dataset names follow the naming rules of
https://openlineage.io/docs/spec/naming for HDFS and for files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from tony_provider.exceptions import TonySpecError

if TYPE_CHECKING:
    from airflow.providers.common.compat.openlineage.facet import Dataset
    from airflow.providers.common.compat.sdk import Context
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

    from tony_provider.hooks.tony import TonyHook
    from tony_provider.operators.submission import ParsedJob
    from tony_provider.runtime.jobspec.model import JobSpec

    Lineage = OperatorLineage[Any, Any]


_HIVE = "hive"  # scheme of the namespace of tables


class OpenLineageMixin:
    """Mixin of the training operator with the three methods that the OpenLineage provider calls."""

    if TYPE_CHECKING:

        @property
        def hook(self) -> TonyHook: ...

    warm_start: str | None
    resume_from: Mapping[str, Any] | str | None
    checkpoint_key: str | None
    secrets: Mapping[str, str] | None
    told: dict[str, Any] | None = None  # the training's result; None until it exists

    def parse_job(self, secrets: Collection[str]) -> ParsedJob:
        raise NotImplementedError

    def get_openlineage_facets_on_start(self) -> Lineage:
        """Return the datasets that the training reads and writes according to its job."""
        from airflow.providers.openlineage.extractors import OperatorLineage

        from tony_provider.runtime.storage import uris

        job = self._job()
        written = [str(uris.parse(output.path)) for output in job.outputs.values()] if job else []
        return OperatorLineage(inputs=self._datasets(self._read(job)), outputs=self._datasets(written))

    def get_openlineage_facets_on_complete(self, task_instance: RuntimeTaskInstanceProtocol) -> Lineage:
        """Return the datasets that the training has read and written, with the facets that identify the training."""
        from airflow.providers.common.compat.openlineage.facet import ExternalQueryRunFacet
        from airflow.providers.openlineage.extractors import OperatorLineage

        result = self.told or {}
        written = [result[key] for key in ("model_dir", "checkpoint_dir", "export_dir") if result.get(key)]
        written += [each["uri"] for each in result.get("outputs", {}).values()]
        lineage = self._identified(
            OperatorLineage(inputs=self._datasets(self._read(self._job())), outputs=self._datasets(written)),
            task_instance,
        )
        if application_id := result.get("application_id"):
            source = result.get("tracking_url") or result["application_dir"]
            facet = ExternalQueryRunFacet(externalQueryId=application_id, source=source)
            lineage.run_facets["externalQuery"] = facet
        return lineage

    def get_openlineage_facets_on_failure(self, task_instance: RuntimeTaskInstanceProtocol) -> Lineage:
        """Return the same datasets as at the start, with the facets. Airflow itself reports the error."""
        return self._identified(self.get_openlineage_facets_on_start(), task_instance)

    def _identified(self, lineage: Lineage, task_instance: RuntimeTaskInstanceProtocol) -> Lineage:
        """Add the facets with the versions of the DAG and the id of the training."""
        from tony_provider.cluster.errors import ClusterError
        from tony_provider.operators.openlineage_facets import TonyDagJobFacet, TonyTrainingRunFacet
        from tony_provider.operators.try_state import TaskInstanceInfo

        bundle = getattr(task_instance, "bundle_instance", None)  # dag.test() gives none
        version = getattr(task_instance, "dag_version_id", None)
        lineage.job_facets["tony_dag"] = TonyDagJobFacet(
            bundleName=getattr(bundle, "name", None),
            bundleVersion=getattr(bundle, "version", None),
            dagVersionId=str(version) if version is not None else None,
        )
        with contextlib.suppress(ClusterError):  # the task itself reports this error
            identity = TaskInstanceInfo.of(cast("Context", {"ti": task_instance})).identity(
                self.hook, self.checkpoint_key
            )
            lineage.run_facets["tony_training"] = TonyTrainingRunFacet(trainingId=identity.name)
        return lineage

    def _job(self) -> JobSpec | None:
        with contextlib.suppress(TonySpecError):  # the task itself reports this error
            return self.parse_job(self.secrets or {}).specification
        return None

    def _read(self, job: JobSpec | None) -> Iterator[str]:
        """Yield the sources that the job reads. Sources without a scheme are files of the DAG, and not datasets."""
        from tony_provider.runtime.inputs.finding import fixed_directory

        if job is None:
            return
        for resource in (*job.files, *job.archives):
            yield resource.source
        for given in job.inputs.values():
            for path in given.paths:
                yield fixed_directory(path)
            if given.table is not None:
                yield f"{self._metastore()}/{given.table}"
        for origin in (self.warm_start, self.resume_from):
            if isinstance(origin, str):
                yield origin

    def _datasets(self, found: Iterable[str]) -> list[Dataset]:
        from airflow.providers.common.compat.openlineage.facet import Dataset

        from tony_provider.runtime.storage import uris

        datasets = []
        for uri in dict.fromkeys(each for each in found if "://" in each):
            parts = uris.parse(uri)
            authority = parts.authority or self._authority_of(parts.scheme)
            namespace = f"{parts.scheme}://{authority}" if authority else parts.scheme
            name = parts.path.lstrip("/") if parts.scheme == _HIVE else parts.path  # a table has no path
            datasets.append(Dataset(namespace=namespace, name=name))
        return datasets

    def _metastore(self) -> str:
        """Return the namespace of tables, or an empty string if the connection names no metastore."""
        from tony_provider.cluster.errors import ClusterError

        with contextlib.suppress(ClusterError):  # the task itself reports this error
            yarn = self.hook.settings.yarn
            if yarn is not None and yarn.hive_metastore:
                return f"{_HIVE}://{yarn.hive_metastore[0].partition('://')[2]}"
        return ""

    def _authority_of(self, scheme: str) -> str:
        """Return the authority for URIs that have none: ``hdfs:///…`` stands for the connection's HDFS."""
        from tony_provider.cluster.errors import ClusterError
        from tony_provider.runtime.storage import uris
        from tony_provider.runtime.storage.errors import StorageError

        if scheme != "file":
            with contextlib.suppress(ClusterError, StorageError):  # the task itself reports this error
                own = uris.parse(self.hook.layout.root)
                return own.authority if own.scheme == scheme else ""
        return ""
