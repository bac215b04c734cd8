"""`spark-submit torch_on_spark.py PROGRAM RECORD`: two ranks of a program by Spark's TorchDistributor."""

import sys

from pyspark.ml.torch.distributor import TorchDistributor
from pyspark.sql import SparkSession

SparkSession.builder.getOrCreate()
TorchDistributor(num_processes=2, local_mode=False, use_gpu=False).run(*sys.argv[1:])
