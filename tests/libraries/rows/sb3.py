"""stable-baselines3."""

from __future__ import annotations

from tests.libraries.row import Row, add

for name, what, piece in (("buffer", "replay buffer half written", 2), ("statistics", "no statistics yet", 3)):
    add(
        Row(
            f"sb3-{name}",
            "sb3",
            f"stable-baselines3 CheckpointCallback; killed: {what}",
            "sb3_callback",
            ("stable-baselines3", "gymnasium"),
            framework="standalone",
            instances=1,
            saves=(100, 200, 300, 400),
            piece=piece,
            remark="Only the steps are compared: it saves neither the environment nor random numbers",
        )
    )
