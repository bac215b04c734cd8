"""What the names of metrics say."""

from __future__ import annotations

from tony_provider.advice.case import ranked


def test_losses_come_first_and_what_the_program_does_last() -> None:
    keras = ["train/epoch_learning_rate", "train/epoch_loss", "validation/epoch_accuracy", "validation/epoch_loss"]
    assert ranked(keras) == ["validation/epoch_loss", "validation/epoch_accuracy", *keras[1::-1]]
    given = ["input_wait", "lr", "grad_norm", "loss", "val_loss"]
    assert ranked(given) == ["val_loss", "loss", "grad_norm", "input_wait", "lr"]
