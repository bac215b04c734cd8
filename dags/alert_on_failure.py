"""
### Send a mail when a training fails

Train on a table with some rows. Without rows, the training fails, and Airflow sends a mail for each try, with the cause
and the last lines of the failed process.

The mail needs the connection `smtp_default`. Without it, only the log shows that the mail was not sent. `TonyNotifier`
also accepts other notifiers, such as `SlackNotifier` of the Slack provider.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.smtp.notifications.smtp import SmtpNotifier
from airflow.sdk import DAG, Param, task

from tony_provider.notifications.tony import TonyNotifier

MAIL = TonyNotifier(SmtpNotifier(to="team@example.com", subject="{{ tony.title }}", html_content="{{ tony.html }}"))

with DAG(
    "alert_on_failure",
    schedule=None,
    params={
        "rows": Param(
            0,
            type="integer",
            minimum=0,
            maximum=1000000,
            title="Rows",
            description="Rows of the table. The training fails without rows.",
            section="Training",
        ),
    },
    doc_md=__doc__,
    tags=["tony", "example"],
):

    @task.tony(
        job={
            "framework": "standalone",
            "restart": {"budget": 0},  # fail after the first error, because this program always fails again
            "tasks": {"worker": {"memory": "256MiB"}},
        },
        retries=1,
        retry_delay=timedelta(seconds=30),
        on_retry_callback=MAIL,
        on_failure_callback=MAIL,
    )
    def train(rows: str) -> dict[str, int]:
        import sys

        if int(rows) == 0:
            sys.exit("the table clicks has no rows")
        return {"rows": int(rows)}

    train("{{ params.rows }}")
