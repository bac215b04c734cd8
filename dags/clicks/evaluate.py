"""Measure models on clicks that none of them was trained on: the lower the log loss, the better the model."""

from __future__ import annotations

import argparse

import tony_sdk
from model import load_clicks, load_model, log_loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="directory of .npz shards")
    parser.add_argument("models", nargs="+", help="directories of a model each, by whose names the log losses are told")
    options = parser.parse_args()

    held_out = load_clicks(options.data)
    losses = {f"{name}_log_loss": log_loss(load_model(name), *held_out) for name in options.models}
    tony_sdk.report(1, 1, **losses)
    for name, loss in losses.items():
        print(f"{name} {loss:.4f}")


if __name__ == "__main__":
    main()
