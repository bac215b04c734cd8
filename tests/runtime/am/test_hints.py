"""Hints for failures that are known, by what the programs really print."""

from __future__ import annotations

from tony_provider.runtime.am import descriptions
from tony_provider.runtime.am.session import failures
from tony_provider.runtime.am.session.session_state import ProcessEnd, Task
from tony_provider.runtime.jobspec.model import RestartScope, Role, TaskSpec

# Of TensorFlow 2.21 with Keras 3.15, two workers, some rows of the numbers left out.
KERAS_3 = """\
ValueError: Attempt to convert a value (PerReplica:{
  0: <tf.Tensor: shape=(8, 4), dtype=float32, numpy=
array([[0.15684299, 0.9391861 , 0.9416369 , 0.73674256],
       [0.08308553, 0.82233083, 0.01190884, 0.3948868 ],
       [0.30679953, 0.8972475 , 0.36923328, 0.62578315]], dtype=float32)>
}) with an unsupported type (<class 'tensorflow.python.distribute.values.PerReplica'>) to a Tensor.
"""


def test_keras_3_under_a_strategy_of_several_workers() -> None:
    spec = TaskSpec("python train.py")
    task = Task("worker", 0, Role.WORKER, spec, decisive=True, scope=RestartScope.GANG)
    failure = failures.of_process(task, ProcessEnd(1, exit_code=1, output_tail=KERAS_3), started=True)
    first, _, rest = failure.message.partition("\n")
    assert first.startswith("worker:0 ended with exit code 1; Keras 3 does not train under this strategy")
    assert "TF_USE_LEGACY_KERAS=1" in first
    assert rest == KERAS_3.rstrip()


def test_nothing_is_known_of_most() -> None:
    assert descriptions.error_hint("") == ""
    assert (
        descriptions.error_hint("ValueError: Attempt to convert a value (None) with an unsupported type to a Tensor.")
        == ""
    )
