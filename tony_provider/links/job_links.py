"""The links of a training task, available from the submission on, for the displayed try.

The operator pushes each address to the link's XCom key, which Airflow's pages read. Airflow clears XComs for each new
try. When an application ends, the operator empties the addresses of its master's pages, so that Airflow shows no link.
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

PORTAL_ROUTE = "training-jobs"  # path of the plugin's page in Airflow's navigation


class _PushedLink(BaseOperatorLink):
    xcom_key: ClassVar[str] = ""
    name: ClassVar[str] = ""

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the address, or an empty string if the operator pushed none, for example in a rejected task.

        At the end of a task, Airflow calls this method and pushes the result again. Airflow would log an error for a
        missing XCom.
        """
        return XCom.get_value(ti_key=ti_key, key=self.xcom_key) or "" if getattr(operator, "has_links", False) else ""


class TrainingJobLink(_PushedLink):
    """Link to the portal's page of the application, which shows it as long as Airflow keeps its summary."""

    name = "Training job"
    xcom_key = "tony_link_training_job"


class YarnApplicationLink(_PushedLink):
    """Link to YARN's page of the application."""

    name = "YARN application"
    xcom_key = "tony_link_application"


class JobPageLink(_PushedLink):
    """Link to the page that the application master serves behind YARN's proxy while it runs."""

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
_OF_ITS_MASTER = (JobPageLink, TensorBoardLink)  # pages served by the master, which end with the application


def portal_page(application_id: str) -> str:
    """Return the address of the application's page inside Airflow, or a path if Airflow's own address is unknown.

    Return an empty string if Airflow is too old for such pages.
    """
    if not PORTAL.is_here:
        return ""
    from airflow.providers.common.compat.sdk import conf

    base = conf.get("api", "base_url", fallback="") or ""
    return f"{base.rstrip('/')}/plugin/{PORTAL_ROUTE}?{urlencode({'job': application_id})}"


def push_links(ti: RuntimeTaskInstanceProtocol, application_id: str, pages: Pages, *, tensorboard: bool) -> None:
    """Push the links of a started application to the task's XComs.

    For a missing page, push an empty address. Airflow then shows no link, but for a missing XCom it would log an error.
    """
    from tony_provider.runtime.jobspec.container_content import (
        TENSORBOARD_PAGE,  # here: every DAG file loads this module
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
    """Push empty addresses for the pages of the application master, which has ended."""
    for link in _OF_ITS_MASTER:
        ti.xcom_push(key=link.xcom_key, value="")
