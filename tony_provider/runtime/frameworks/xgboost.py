"""The framework ``xgboost``: its collective, whose tracker is part of rank 0.

A program does its distributed work within ``tony_xgboost.communicator()``, which lies beside tony_sdk: rank 0 starts
XGBoost's own tracker, and tells the others at TONY_RENDEZVOUS where it listens. There are no variables beside.
"""

from __future__ import annotations

from tony_provider.runtime.frameworks.base import TaskEnvironment
from tony_provider.runtime.frameworks.collective import CollectiveFramework, Member


class XGBoost(CollectiveFramework):
    """Processes that meet at XGBoost's tracker."""

    name = "xgboost"

    exposed = (
        "XGBoost's tracker and workers take anybody for one of the job: who connects can take a rank's place, read and "
        "change what they exchange, and run code where that is objects (pickle)"
    )

    def membership(self, member: Member) -> TaskEnvironment:
        return TaskEnvironment({})
