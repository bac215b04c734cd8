"""XGBoost."""

from __future__ import annotations

from tests.libraries.row import Row, add

add(
    Row(
        "xgboost-checkpoint",
        "xgboost",
        "XGBoost TrainingCheckPoint; a file for each save",
        "xgboost_checkpoint",
        ("xgboost-cpu",),
        framework="standalone",
        instances=1,
        saves=(3, 6, 8, 11),  # the callback counts from the round at which it begins
        paused_save=5,
    )
)
