"""All benchmarks, in the order in which `make bench` runs them."""

from __future__ import annotations

import attrs


@attrs.frozen
class Benchmark:
    """A module whose ``measure`` makes one report of the same name."""

    name: str
    about: str  # a line
    on_cluster: bool = False  # needs HDFS and YARN; all such share one
    only_named: bool = False  # runs only if it is named, because it takes too long
    package: str = "benchmarks"

    @property
    def module(self) -> str:
        return f"{self.package}.{self.name}"


# Those that start many small jobs come before those that fill disks.
EVERY = (
    Benchmark("launch", "trivial jobs: begin, end, memory, calls; beside skein and others", on_cluster=True),
    Benchmark("recovery", "seconds until a job runs again, after something of it was killed", on_cluster=True),
    Benchmark("rivals", "a training of two ranks, compared with TorchDistributor and Ray on Spark", only_named=True),
    Benchmark("airflow_commands", "`airflow tony …`, and Airflow's own with the provider and without", on_cluster=True),
    Benchmark("airflow_submissions", "a hundred tasks that submit at once, and what each asks for", on_cluster=True),
    Benchmark("overhead", "a training by hand and as a job: wall time, CPU of master and executors", on_cluster=True),
    Benchmark("mirror", "checkpoints copied to HDFS, beside a raw WebHDFS copy and Hadoop's command", on_cluster=True),
    Benchmark("large_files", "one file of 4 GiB stored and restored, compared with one stream and Hadoop's commands"),
    Benchmark("inputs", "a million shards: listing, deals, the queue and its log, the next master", on_cluster=True),
    Benchmark("scale", "an application master of thousands of simulated executors"),
    Benchmark("grants", "a real ResourceManager with simulated nodes: seconds until a large job has its containers"),
    Benchmark("triggerer", "1,000 deferred trainings in one triggerer, beside a naive poll for each"),
    Benchmark("airflow_imports", "what Airflow's processes load because the provider is installed"),
    Benchmark("airflow_portal", "the portal's answers among 10,000 jobs, beside Airflow's own lists"),
)
