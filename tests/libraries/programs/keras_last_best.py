"""Keras 3's ``ModelCheckpoint`` twice: ``last.keras``, overwritten, and a ``best-…`` file whenever it is better."""

from __future__ import annotations

import re

import keras
import moments
import numpy as np
from keras import layers

EPOCHS, BATCHES = 7, 4


@keras.saving.register_keras_serializable()
class Head(layers.Dense):
    def save_own_variables(self, store):
        super().save_own_variables(store)
        moments.middle()


class Saving(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        moments.saving(epoch + 1)


class Saved(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        moments.saved(epoch + 1)


def best():
    """Return the best model's file and its loss, or None and None."""
    losses = {float(re.findall(r"\d+\.\d+", path.name)[-1]): path for path in moments.CHECKPOINTS.glob("best-*.keras")}
    return (losses[min(losses)], min(losses)) if losses else (None, None)


keras.utils.set_random_seed(1)
random = np.random.default_rng(1)
x = random.normal(size=(64, 5))
y = x.sum(axis=1) ** 2
last = moments.CHECKPOINTS / "last.keras"
if last.exists():
    model = keras.models.load_model(last)
else:
    model = keras.Sequential([keras.Input((5,)), layers.Dense(8, activation="tanh"), Head(1)])
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse")
begin = int(model.optimizer.iterations) // BATCHES
moments.began(begin)
callbacks = [
    Saving(),
    keras.callbacks.ModelCheckpoint(last),
    keras.callbacks.ModelCheckpoint(
        moments.CHECKPOINTS / "best-{epoch:02d}-{val_loss:.6f}.keras",
        save_best_only=True,
        initial_value_threshold=best()[1],
    ),
    Saved(),
]
options = {"batch_size": 64 // BATCHES, "shuffle": False, "verbose": 0, "callbacks": callbacks}
model.fit(x, y, validation_data=(x[:16] + 1, y[:16]), initial_epoch=begin, epochs=EPOCHS, **options)
weights = {"last": model, "best": keras.models.load_model(best()[0])}
moments.finished({f"{name}.{n}": value for name, each in weights.items() for n, value in enumerate(each.get_weights())})
