"""Train one candidate: a weight, whose best value is 3. The data are generated, with errors."""

import argparse
import json
import math
import os
from pathlib import Path

import tony_sdk

STEPS = 100

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--rate", type=float, required=True)
parser.add_argument("--batch", type=int, required=True)
options = parser.parse_args()

weight = 0.0
for step in range(1, STEPS + 1):
    gradient = 0.0
    for row in range(step * options.batch, (step + 1) * options.batch):
        x, y = math.sin(row), 3 * math.sin(row) + math.cos(5 * row)
        gradient += (weight * x - y) * x / options.batch
    weight -= options.rate * gradient
    tony_sdk.report(step, STEPS, error=abs(3 - weight), rate=options.rate, batch=options.batch)

print(f"rate {options.rate:g}, batch {options.batch}: error {abs(3 - weight):.4f}")
Path(os.environ["TONY_MODEL_DIR"], "model.json").write_text(json.dumps({"weight": weight}))
