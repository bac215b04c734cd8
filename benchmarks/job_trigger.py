"""The trigger of a training that the stand-in cluster runs, as the operator would make it."""

from __future__ import annotations

from tony_provider.triggers.tony import VERSION, TonyJobTrigger


def trigger_of(application_id: str) -> TonyJobTrigger:
    return TonyJobTrigger(
        tony_conn_id="tony_default",
        proxy_user=None,
        slug="bench",
        digest=application_id,
        application_id=application_id,
        poll_interval=5.0,
        end=None,
        queue=None,
        kill=False,
        version=VERSION,
    )
