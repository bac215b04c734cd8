"""`spark-submit ray_on_spark.py FOLDER RECORD`: two ranks by Ray Train, in a Ray cluster in Spark's executors.

FOLDER has paced_steps.py. Its checkpoints go to a folder that all nodes and all attempts share.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import ray.train
from pyspark.sql import SparkSession
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer
from ray.util.spark import setup_ray_cluster

_OBJECTS = 80 << 20  # bytes; the minimum that Ray accepts
_MEMORY = 512 << 20


def loop(config: dict[str, Any]) -> None:
    sys.path.insert(0, config["folder"])
    import paced_steps

    def save(step: int) -> None:
        checkpoint = None
        with tempfile.TemporaryDirectory() as folder:
            if ray.train.get_context().get_world_rank() == 0:
                Path(folder, "step").write_text(str(step))
                checkpoint = Checkpoint.from_directory(folder)
            ray.train.report({"step": step}, checkpoint=checkpoint)

    step = 0
    if (saved := ray.train.get_checkpoint()) is not None:
        with saved.as_directory() as folder:
            step = int(Path(folder, "step").read_text())
    paced_steps.train(Path(config["record"]), step, save)


SparkSession.builder.getOrCreate()
setup_ray_cluster(
    max_worker_nodes=2,
    num_cpus_worker_node=1,
    num_gpus_worker_node=0,
    num_cpus_head_node=0,
    num_gpus_head_node=0,
    memory_worker_node=_MEMORY,
    object_store_memory_worker_node=_OBJECTS,
    memory_head_node=_MEMORY,
    object_store_memory_head_node=_OBJECTS,
    head_node_options={"include_dashboard": False},  # it would listen on all interfaces
)
record = sys.argv[2]
TorchTrainer(
    loop,
    train_loop_config={"folder": sys.argv[1], "record": record},
    torch_config=TorchConfig(backend="gloo"),
    scaling_config=ScalingConfig(num_workers=2),
    run_config=RunConfig(name="steps", storage_path=f"{record}/ray", failure_config=FailureConfig(max_failures=3)),
).fit()
