"""Keras 3."""

from __future__ import annotations

from tests.libraries.row import Row, add

for name, what, piece in (
    ("weights", "weights half written", 1),
    ("epoch", "between weights and epoch", 2),
):
    add(
        Row(
            f"keras-backup-{name}",
            "keras",
            f"Keras BackupAndRestore; killed: {what}",
            "keras_backup",
            ("keras", "jax"),
            framework="standalone",
            instances=1,
            environment={"KERAS_BACKEND": "jax"},
            saves=(1, 2, 3, 4),
            piece=piece,
        )
    )
add(
    Row(
        "keras-last-best",
        "keras",
        "Keras ModelCheckpoint; last.keras and best-*.keras",
        "keras_last_best",
        ("keras", "jax"),
        framework="standalone",
        instances=1,
        environment={"KERAS_BACKEND": "jax"},
        saves=(1, 2, 3, 4),
        piece=2,
    )
)
