"""Trainers on top of PyTorch: transformers, accelerate, Lightning, DeepSpeed."""

from __future__ import annotations

from tests.libraries.row import Row, add

TRAINER = "transformers Trainer; save_total_limit, best model, save_model()"

add(
    Row(
        "trainers-transformers",
        "trainers",
        f"{TRAINER}; get_last_checkpoint()",
        "transformers_trainer",
        ("transformers", "accelerate", "torch"),
        arguments="last",
    )
)
add(
    Row(
        "trainers-transformers-sdk",
        "trainers",
        f"{TRAINER}; tony_sdk.resume_from(), also after save_model()",
        "transformers_trainer",
        ("transformers", "accelerate", "torch"),
        arguments="sdk",
        saves=(2, 4, 6, 12),
        last="model",
        paused_rank=1,
    )
)
add(
    Row(
        "trainers-accelerate",
        "trainers",
        "accelerate save_state; step_%d for each save",
        "accelerate_state",
        ("accelerate", "torch"),
        paused_rank=1,
    )
)
add(
    Row(
        "trainers-lightning",
        "trainers",
        "Lightning DDP; last.ckpt and best-epoch=%d.ckpt",
        "lightning_last_best",
        ("lightning", "torch"),
        command="exec torchrun {program}",
        saves=(2, 3, 5, 7),
        piece=25,  # before last.ckpt, when the new best one has replaced the old one
    )
)
for stage in (1, 2):
    add(
        Row(
            f"trainers-deepspeed-{stage}",
            "trainers",
            f"DeepSpeed ZeRO-{stage}; global_step%d for each save, latest",
            "deepspeed_zero",
            ("deepspeed", "torch"),
            arguments=str(stage),
            paused_rank=1,
        )
    )
add(
    Row(
        "trainers-slow-deepspeed",
        "trainers",
        "DeepSpeed ZeRO-2, rank 1 pauses for 7 s in each save",
        "deepspeed_zero",
        ("deepspeed", "torch"),
        arguments="2",
        paused_rank=1,
        slow=7.0,
    )
)
