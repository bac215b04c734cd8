"""Spark program: write a table of features as JSON lines. The data are generated."""

import argparse
from zlib import crc32

from pyspark.sql import SparkSession
from pyspark.sql.functions import rand, randn

ROWS = 4000
FILES = 4

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--day", required=True)
parser.add_argument("--output", required=True, help="URI of the directory of the table")
options = parser.parse_args()

seed = crc32(options.day.encode())
spark = SparkSession.builder.appName("features").getOrCreate()
rows = spark.range(ROWS, numPartitions=FILES)
features = rows.select((2 * rand(seed) - 1).alias("x"), randn(seed + 1).alias("error"))
table = features.select("x", (3 * features.x + 0.1 * features.error).alias("y"))
table.write.mode("overwrite").json(options.output)
spark.stop()
