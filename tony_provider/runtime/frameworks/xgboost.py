"""Framework ``xgboost``: XGBoost's collective, whose tracker runs in rank 0.

A program does its distributed work within ``tony_xgboost.communicator()``, a module next to tony_sdk. Rank 0 starts
XGBoost's own tracker and publishes its address at TONY_RENDEZVOUS. The framework sets no other variables.
"""

from __future__ import annotations

from tony_provider.runtime.frameworks.base import TaskEnvironment
from tony_provider.runtime.frameworks.collective import CollectiveFramework, Member


class XGBoost(CollectiveFramework):
    """Processes that meet at XGBoost's tracker."""

    name = "xgboost"

    exposed = "XGBoost accepts any client, which could change the exchanged data, or run code as the job's user"

    def membership(self, member: Member) -> TaskEnvironment:
        return TaskEnvironment({})
