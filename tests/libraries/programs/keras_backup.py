"""Keras 3's ``BackupAndRestore`` with its default settings: a directory that each epoch overwrites."""

from __future__ import annotations

import keras
import moments
import numpy as np
from keras import layers

EPOCHS = 7


@keras.saving.register_keras_serializable()
class Head(layers.Dense):
    def save_own_variables(self, store):
        super().save_own_variables(store)
        moments.middle()


class Backup(keras.callbacks.BackupAndRestore):
    def on_train_begin(self, logs=None):
        super().on_train_begin(logs)
        moments.began(self.model._initial_epoch or 0)

    def on_epoch_end(self, epoch, logs=None):
        moments.saving(epoch + 1)
        super().on_epoch_end(epoch, logs)
        moments.saved(epoch + 1)


class Model(keras.Sequential):
    def save_weights(self, *arguments, **options):
        super().save_weights(*arguments, **options)
        moments.middle()


keras.utils.set_random_seed(1)
random = np.random.default_rng(1)
x = random.normal(size=(64, 5))
model = Model([keras.Input((5,)), layers.Dense(8, activation="tanh"), Head(1)])
model.compile("adam", "mse")
callbacks = [Backup(moments.CHECKPOINTS / "backup")]
model.fit(x, x.sum(axis=1) ** 2, epochs=EPOCHS, shuffle=False, verbose=0, callbacks=callbacks)
moments.finished({str(number): value for number, value in enumerate(model.get_weights())})
