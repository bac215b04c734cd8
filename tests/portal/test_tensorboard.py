from __future__ import annotations

from tony_provider.portal.job_views import tensorboard_commands


def test_jobs_of_one_connection_and_user_are_drawn_together() -> None:
    through = [("gpus", None), ("tony_default", "alice"), ("gpus", ""), ("tony_default", None), ("", None)]
    rows = [
        {"application_id": f"application_1_{at}", "tony_conn_id": connection, "proxy_user": user}
        for at, (connection, user) in enumerate(through)
    ]
    assert tensorboard_commands(rows) == [
        "airflow tony tensorboard application_1_0 application_1_2 --conn-id gpus",
        "airflow tony tensorboard application_1_1 --proxy-user alice",
        "airflow tony tensorboard application_1_3",
    ]
