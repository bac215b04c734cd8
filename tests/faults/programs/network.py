"""The network that the TensorFlow programs train, and its data: small, and the same in every run.

Deterministic: the seed is fixed, the data of a step depend on its number alone, and the optimizer's state is part of
the checkpoint, so the final weights do not depend on where a training was interrupted.
"""

from __future__ import annotations

import os
from typing import Any

BATCH = 32  # examples of one worker
SIZES = (16, 32, 4)
RATE, MOMENTUM = 0.05, 0.9


def examples(np: Any, step: int, rank: int) -> tuple[Any, Any]:
    """What one worker learns from in one step."""
    draw = np.random.Generator(np.random.Philox(key=[step, rank]))
    inputs = draw.standard_normal((BATCH, SIZES[0]), dtype=np.float32)
    return inputs, inputs[:, : SIZES[-1]].argmax(axis=1)


def prepare(tf: Any) -> None:
    """Before anything else of TensorFlow."""
    tf.random.set_seed(7)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.experimental.enable_op_determinism()


class Network:
    """Two layers, momentum, and what makes its checkpoints as large as FAULTS_PADDING says (MiB)."""

    def __init__(self, tf: Any, np: Any) -> None:
        self._tf = tf
        draw = np.random.Generator(np.random.Philox(key=[0, 1]))
        shapes = {"hidden": SIZES[:2], "bias": SIZES[1:2], "output": SIZES[1:]}
        self._weights = {
            name: self._variable(0.1 * draw.standard_normal(shape, dtype=np.float32)) for name, shape in shapes.items()
        }
        self._velocity = {name: self._variable(np.zeros(shape, np.float32)) for name, shape in shapes.items()}
        self.done = tf.Variable(0, dtype=tf.int64)
        padding = int(os.environ.get("FAULTS_PADDING", "0")) << 18 or 1  # an empty variable makes the broadcast crash
        self._padding = tf.Variable(draw.standard_normal(padding, dtype=np.float32))
        self.checkpoint = tf.train.Checkpoint(
            **{f"weight_{name}": weight for name, weight in self._weights.items()},
            **{f"velocity_{name}": velocity for name, velocity in self._velocity.items()},
            done=self.done,
            padding=self._padding,
        )

    def learn(self, inputs: Any, labels: Any) -> None:
        """One step, in each replica; assignments are averaged over them."""
        tf = self._tf
        with tf.GradientTape() as tape:
            hidden = tf.nn.relu(inputs @ self._weights["hidden"] + self._weights["bias"])
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, hidden @ self._weights["output"])
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, self._weights)
        for name, velocity in self._velocity.items():
            velocity.assign(MOMENTUM * velocity + gradients[name])
            self._weights[name].assign_sub(RATE * velocity)

    def resume(self) -> int:
        """Take over the checkpoint that the job says to go on from; the step that it was made after."""
        if path := os.environ.get("TONY_RESUME_FROM"):
            self.checkpoint.restore(path).assert_consumed()
        begin = int(self.done.numpy())
        if begin != int(os.environ.get("TONY_RESUME_STEP", "0")):
            raise SystemExit(f"the checkpoint is of step {begin}, not of step {os.environ.get('TONY_RESUME_STEP')}")
        return begin

    def weights(self) -> dict[str, Any]:
        return {name: weight.numpy() for name, weight in self._weights.items()}

    def _variable(self, value: Any) -> Any:
        return self._tf.Variable(value, aggregation=self._tf.VariableAggregation.MEAN)
