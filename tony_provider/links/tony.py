"""The links of a training task: there from the submission on, and of the try that is shown.

The operator pushes each address to the link's XCom key, which Airflow's pages read; XComs are cleared at each new try.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from airflow.providers.common.compat.sdk import BaseOperatorLink, XCom

from tony_provider.runtime.spec.tensorboard import PAGE

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperator
    from airflow.sdk.types import RuntimeTaskInstanceProtocol, TaskInstanceKey

    from tony_provider.cluster.base import Pages


class _PushedLink(BaseOperatorLink):
    xcom_key: ClassVar[str] = ""
    name: ClassVar[str] = ""

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Asked by the task when it has ended, which pushes the answer once more.

        Airflow calls an address that is not there an error, in the task's log: where nothing was pushed none is looked
        for, as in a task that was refused.
        """
        return XCom.get_value(ti_key=ti_key, key=self.xcom_key) or "" if getattr(operator, "has_links", False) else ""


class YarnApplicationLink(_PushedLink):
    """Link to the cluster's own page of the application."""

    name = "YARN application"
    xcom_key = "tony_link_application"


class JobPageLink(_PushedLink):
    """Link to the page that the application's master serves behind YARN's proxy while it runs."""

    name = "Job page"
    xcom_key = "tony_link_job"


class TensorBoardLink(_PushedLink):
    """Link to the TensorBoard of a job that has one."""

    name = "TensorBoard"
    xcom_key = "tony_link_tensorboard"


class FilesLink(_PushedLink):
    """Link to the application's directory on HDFS: logs, status, events, model."""

    name = "Logs and files"
    xcom_key = "tony_link_files"


LINKS = (YarnApplicationLink(), JobPageLink(), TensorBoardLink(), FilesLink())


def push_links(ti: RuntimeTaskInstanceProtocol, pages: Pages, *, tensorboard: bool) -> None:
    """Push the links of a started application to the task's XComs.

    What there is no page for gets an empty address, which is no link: Airflow calls a missing one an error.
    """
    addresses = {
        YarnApplicationLink.xcom_key: pages.application,
        JobPageLink.xcom_key: pages.job,
        TensorBoardLink.xcom_key: pages.job + PAGE if pages.job and tensorboard else None,
        FilesLink.xcom_key: pages.files,
    }
    for key, address in addresses.items():
        ti.xcom_push(key=key, value=address or "")
