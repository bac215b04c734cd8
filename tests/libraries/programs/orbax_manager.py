"""JAX and Orbax's ``CheckpointManager``, in one process or in several that share the arrays of a mesh."""

from __future__ import annotations

import os
import sys

import jax
import jax.numpy as jnp
import moments
import numpy as np
import optax
import orbax.checkpoint as ocp
from jax.sharding import NamedSharding, PartitionSpec

STEPS, EVERY = 12, 2


def rename_later(source, target, rename=os.rename):
    """Rename a step's directory, which is the last thing that a save does."""
    moments.middle()
    rename(source, target)


def loss(parameters, x, y):
    return jnp.mean((jnp.tanh(x @ parameters["a"]) @ parameters["b"] - y) ** 2)


os.rename = rename_later
if "several" in sys.argv:
    jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ("data",))
split, whole = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
optimizer = optax.adam(0.05)


@jax.jit
def update(state, x, y):
    gradients = jax.grad(loss)(state["parameters"], x, y)
    updates, optimizer_state = optimizer.update(gradients, state["optimizer"])
    return {"parameters": optax.apply_updates(state["parameters"], updates), "optimizer": optimizer_state}


def everywhere(value):
    """Give each process its part: the rows of large arrays."""
    sharding = split if np.ndim(value) == 2 and np.shape(value)[0] % jax.device_count() == 0 else whole
    return jax.make_array_from_callback(np.shape(value), sharding, lambda index: np.asarray(value)[index])


random = np.random.default_rng(1)
parameters = {"a": random.normal(size=(4, 8)).astype("f"), "b": random.normal(size=(8, 1)).astype("f")}
state = {"parameters": parameters, "optimizer": optimizer.init(parameters)}
state = jax.tree.map(everywhere, state)
options = ocp.CheckpointManagerOptions(max_to_keep=3, save_interval_steps=EVERY)
with ocp.CheckpointManager(moments.CHECKPOINTS / "orbax", options=options) as manager:
    begin = manager.latest_step() or 0
    if begin:
        state = manager.restore(begin, args=ocp.args.StandardRestore(state))
    moments.began(begin)
    for step in range(begin + 1, STEPS + 1):
        x = np.random.default_rng(step).normal(size=(16, 4)).astype("f")
        state = update(state, everywhere(x), everywhere(x.sum(axis=1, keepdims=True)))
        if manager.should_save(step):
            moments.saving(step)
        if manager.save(step, args=ocp.args.StandardSave(state)):
            manager.wait_until_finished()
            moments.saved(step)
final = jax.tree.map(lambda value: jax.jit(lambda v: v, out_shardings=whole)(value), state["parameters"])
if jax.process_index() == 0:
    moments.finished({name: np.asarray(value.addressable_data(0)) for name, value in final.items()})
