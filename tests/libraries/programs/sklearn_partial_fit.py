"""scikit-learn's out-of-core learning: ``partial_fit`` on batches, the model and its scaler in one joblib file."""

from __future__ import annotations

import joblib
import moments
import numpy as np
from sklearn.linear_model import SGDClassifier
from sklearn.preprocessing import StandardScaler

STEPS, EVERY = 12, 2
path = moments.CHECKPOINTS / "model.joblib"


class Piece:
    """Part of what is saved: a save that is pickled up to here is half written."""

    def __reduce__(self):
        moments.middle()
        return Piece, ()


def batch(step: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(step)
    x = random.normal(size=(64, 20))
    return x, (x[:, 0] + x[:, 1] ** 2 > 0.5).astype(int)


state = {"step": 0, "model": SGDClassifier(random_state=7), "scaler": StandardScaler()}
if path.exists():
    state = joblib.load(path)
moments.began(state["step"])
for step in range(state["step"] + 1, STEPS + 1):
    x, y = batch(step)
    state["scaler"].partial_fit(x)
    state["model"].partial_fit(state["scaler"].transform(x), y, classes=[0, 1])
    state["step"] = step
    if step % EVERY == 0:
        moments.saving(step)
        joblib.dump({"padding": np.zeros(1 << 17), "piece": Piece(), **state}, path)
        moments.saved(step)
moments.finished({"coef": state["model"].coef_, "mean": state["scaler"].mean_, "t": [state["model"].t_]})
