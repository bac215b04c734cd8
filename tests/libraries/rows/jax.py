"""JAX."""

from __future__ import annotations

from tests.libraries.row import Row, add

add(
    Row(
        "jax-orbax",
        "jax",
        "Orbax CheckpointManager in one process",
        "orbax_manager",
        ("jax", "optax", "orbax-checkpoint"),
        framework="jax",
        instances=1,
        saves=(1, 2, 4, 6),  # the first step, and every second one
    )
)
add(
    Row(
        "jax-orbax-several",
        "jax",
        "Orbax CheckpointManager in two containers, shared: true",
        "orbax_manager",
        ("jax", "optax", "orbax-checkpoint"),
        framework="jax",
        arguments="several",
        job={"checkpoint": {"shared": True}},
        saves=(1, 2, 4, 6),
    )
)
