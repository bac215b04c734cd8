"""The links of a training task: there from the submission on, and of the try that is shown.

The operator pushes each address to the link's XCom key, which Airflow's pages read; XComs are cleared at each new try.
Pages that an application takes with it when it ends get an empty address then, which is no link.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlencode

from airflow.providers.common.compat.sdk import BaseOperatorLink, XCom

from tony_provider.compat import PORTAL

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperator
    from airflow.sdk.types import RuntimeTaskInstanceProtocol, TaskInstanceKey

    from tony_provider.cluster.interface import Pages

PORTAL_ROUTE = "training-jobs"  # of the plugin's page in Airflow's navigation


class _PushedLink(BaseOperatorLink):
    xcom_key: ClassVar[str] = ""
    name: ClassVar[str] = ""

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Asked by the task when it has ended, which pushes the answer once more.

        Airflow calls an address that is not there an error, in the task's log: where nothing was pushed none is looked
        for, as in a task that was refused.
        """
        return XCom.get_value(ti_key=ti_key, key=self.xcom_key) or "" if getattr(operator, "has_links", False) else ""


class TrainingJobLink(_PushedLink):
    """Link to the application's page inside Airflow: while it runs, and for as long as it is known."""

    name = "Training job"
    xcom_key = "tony_link_training_job"


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


LINKS = (TrainingJobLink(), YarnApplicationLink(), JobPageLink(), TensorBoardLink(), FilesLink())
_OF_ITS_MASTER = (JobPageLink, TensorBoardLink)  # which serves them, and is gone when the application has ended


def portal_page(application_id: str) -> str:
    """The address of the application's page inside Airflow; a path where Airflow does not know its own address.

    Empty where Airflow is too old for such pages.
    """
    if not PORTAL.is_here:
        return ""
    from airflow.providers.common.compat.sdk import conf

    base = conf.get("api", "base_url", fallback="") or ""
    return f"{base.rstrip('/')}/plugin/{PORTAL_ROUTE}?{urlencode({'job': application_id})}"


def push_links(ti: RuntimeTaskInstanceProtocol, application_id: str, pages: Pages, *, tensorboard: bool) -> None:
    """Push the links of a started application to the task's XComs.

    What there is no page for gets an empty address, which is no link: Airflow calls a missing one an error.
    """
    from tony_provider.runtime.jobspec.container_content import (
        TENSORBOARD_PAGE,  # here: every DAG file loads this module, for its links
    )

    addresses = {
        TrainingJobLink.xcom_key: portal_page(application_id),
        YarnApplicationLink.xcom_key: pages.application,
        JobPageLink.xcom_key: pages.job,
        TensorBoardLink.xcom_key: pages.job + TENSORBOARD_PAGE if pages.job and tensorboard else None,
        FilesLink.xcom_key: pages.files,
    }
    for key, address in addresses.items():
        ti.xcom_push(key=key, value=address or "")


def withdraw_links(ti: RuntimeTaskInstanceProtocol) -> None:
    """Take back the links to pages that an application has taken with it at its end."""
    for link in _OF_ITS_MASTER:
        ti.xcom_push(key=link.xcom_key, value="")
