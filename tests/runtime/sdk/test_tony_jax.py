"""How JAX is told which cluster a job is; a stand-in has JAX's places. `make kinds` does it with JAX itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import tony_provider.runtime.sdk as sdk

CLUSTERS = """
class ClusterEnv:
    _cluster_types = []

    def __init_subclass__(cls, **more):
        super().__init_subclass__(**more)
        cls._cluster_types.append(cls)

class SlurmCluster(ClusterEnv):
    name = "slurm"
"""
LOOK = """
from jax._src.clusters import ClusterEnv
first = ClusterEnv._cluster_types[0]
print([kind.name for kind in ClusterEnv._cluster_types], first.is_env_present())
print(first.get_coordinator_address(timeout_secs=300, override_coordinator_port=None))
print(first.get_process_count(), first.get_process_id(), first.get_local_process_id())
"""
TOLD = {"TONY_RENDEZVOUS": "10.0.0.1:20000", "TONY_RANK": "2", "TONY_WORLD_SIZE": "3"}


def look(tmp_path: Path, program: str, clusters: str = CLUSTERS, **env: str) -> subprocess.CompletedProcess[str]:
    package = tmp_path / "jax" / "_src"
    package.mkdir(parents=True)
    (tmp_path / "jax" / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "clusters.py").write_text(clusters)
    path = os.pathsep.join([str(Path(sdk.__file__).parent), str(tmp_path)])
    return subprocess.run(
        [sys.executable, "-c", program],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": path, **env},
        capture_output=True,
        text=True,
        check=True,
    )


def test_jax_asks_the_job_first(tmp_path: Path) -> None:
    said = look(tmp_path, LOOK, TONY_JAX="1", **TOLD)
    assert said.stdout.splitlines() == ["['tony', 'slurm'] True", "10.0.0.1:20000", "3 2 None"]
    assert said.stderr == ""


def test_outside_its_jobs_jax_is_left_alone(tmp_path: Path) -> None:
    program = "from jax._src.clusters import ClusterEnv; print([kind.name for kind in ClusterEnv._cluster_types])"
    assert look(tmp_path, program, **TOLD).stdout == "['slurm']\n"


def test_a_jax_of_another_kind_is_no_reason_to_fail(tmp_path: Path) -> None:
    said = look(tmp_path, "import jax._src.clusters; print('on')", "here = 'nothing'", TONY_JAX="1", **TOLD)
    assert said.stdout == "on\n"
    assert "cannot set the arguments of jax.distributed.initialize()" in said.stderr


def test_a_program_without_jax_pays_nothing(tmp_path: Path) -> None:
    said = look(tmp_path, "import sys; print('jax' in sys.modules)", TONY_JAX="1", **TOLD)
    assert said.stdout == "False\n"


BOUND = "import os, jax._src.clusters; print(os.environ.get('JAX_COORDINATOR_BIND_ADDRESS'))"


def test_rank_0_s_coordinator_listens_where_others_know_its_node(tmp_path: Path) -> None:
    told = {**TOLD, "TONY_JAX": "1", "TONY_RANK": "0", "TONY_LISTEN_ADDRESS": "10.0.0.1"}
    assert look(tmp_path / "ours", BOUND, **told).stdout == "10.0.0.1:20000\n"
    given = {**told, "JAX_COORDINATOR_BIND_ADDRESS": "0.0.0.0:20000"}
    assert look(tmp_path / "theirs", BOUND, **given).stdout == "0.0.0.0:20000\n"
    assert look(tmp_path / "other", BOUND, **{**told, "TONY_RANK": "1"}).stdout == "None\n"
