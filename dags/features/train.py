"""Train on a table that a Spark task wrote: fit a weight, whose best value is 3. The program needs no packages."""

import argparse
import json
import os
from pathlib import Path

import tony_sdk

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=5)
options = parser.parse_args()

rows = [json.loads(line) for shard in tony_sdk.inputs("features") for line in shard.records()]
print(f"{len(rows)} rows")

weight = 0.0
if checkpoint := tony_sdk.resume_from():
    weight = json.loads(Path(checkpoint).read_text())["weight"]

for epoch in range(tony_sdk.resume_step() + 1, options.epochs + 1):
    for row in rows:
        weight += 0.01 * (row["y"] - weight * row["x"]) * row["x"]
    loss = sum((row["y"] - weight * row["x"]) ** 2 for row in rows) / len(rows)
    tony_sdk.report(epoch, options.epochs, loss=loss)
    name = f"epoch-{epoch}.json"
    Path(tony_sdk.checkpoint_dir() or ".", name).write_text(json.dumps({"weight": weight}))
    tony_sdk.commit_checkpoint(epoch, name)

Path(os.environ["TONY_MODEL_DIR"], "model.json").write_text(json.dumps({"weight": weight}))
