"""Measure the log loss of several models on held-out clicks. The model with the lowest log loss is the best."""

from __future__ import annotations

import argparse

import tony_sdk
from model import load_clicks, load_model, log_loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="directory of .npz shards")
    parser.add_argument("models", nargs="+", help="directories of the models; their names are used in the metrics")
    options = parser.parse_args()

    held_out = load_clicks(options.data)
    losses = {f"{name}_log_loss": log_loss(load_model(name), *held_out) for name in options.models}
    tony_sdk.report(1, 1, **losses)
    for name, loss in losses.items():
        print(f"{name} {loss:.4f}")


if __name__ == "__main__":
    main()
