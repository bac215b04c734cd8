"""XGBoost's ``TrainingCheckPoint``, resumed with ``xgb_model`` from the file with the most rounds."""

from __future__ import annotations

import re
from pathlib import Path

import moments
import numpy as np
import xgboost

ROUNDS, EVERY = 16, 2


class Booster(xgboost.Booster):
    """XGBoost writes a file at once. This one has its file half written in between."""

    def save_model(self, fname):
        whole = bytes(self.save_raw("ubj"))
        moments.saving(self.num_boosted_rounds())
        with Path(fname).open("wb") as file:
            file.write(whole[: len(whole) // 2])
            file.flush()
            moments.middle()
            file.write(whole[len(whole) // 2 :])


class Saved(xgboost.callback.TrainingCallback):
    """Comes after TrainingCheckPoint, which has the same interval."""

    def after_iteration(self, model, epoch, evals_log):
        if epoch and epoch % EVERY == 0:
            moments.saved(model.num_boosted_rounds())
        return False


def newest():
    """Return the path of the newest model, or None."""
    models = moments.CHECKPOINTS.glob("model_*.ubj")
    return max(models, key=lambda path: int(re.findall(r"\d+", path.name)[-1]), default=None)


xgboost.core.Booster.save_model = Booster.save_model
random = np.random.default_rng(1)
x = random.normal(size=(200, 6))
data = xgboost.DMatrix(x, (x[:, 0] * x[:, 1] + x[:, 2] > 0.3).astype(int))
begin = xgboost.Booster(model_file=newest()) if newest() else None
done = begin.num_boosted_rounds() if begin else 0
moments.began(done)
model = xgboost.train(
    {"objective": "binary:logistic", "max_depth": 3, "nthread": 1, "seed": 4},
    data,
    num_boost_round=ROUNDS - done,
    xgb_model=begin,
    callbacks=[xgboost.callback.TrainingCheckPoint(moments.CHECKPOINTS, interval=EVERY), Saved()],
)
moments.finished({"predictions": model.predict(data), "rounds": [model.num_boosted_rounds()]})
