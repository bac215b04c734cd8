"""Values of the right type that no job can have."""

from __future__ import annotations

from typing import Any

import pytest

from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.spec.merge import merge
from tony_provider.runtime.spec.problems import SpecError

BASE = {"framework": "tensorflow", "tasks": {"worker": {"command": "python train.py"}}}


def problems_of(changes: dict[str, Any]) -> dict[str, str]:
    try:
        parse_job(merge(BASE, changes))
    except SpecError as error:
        return {problem.path: problem.message for problem in error.problems}
    return {}


def worker(**changes: Any) -> dict[str, Any]:
    return {"tasks": {"worker": changes}}


@pytest.mark.parametrize(
    ("changes", "path", "says"),
    [
        ({"inputs": {"x": {"paths": []}}}, "inputs.x.paths", "at least one path"),
        ({"inputs": {"x": {}}}, "inputs.x.paths", "is required"),
        ({"inputs": {"x": "data/*.csv"}}, "inputs.x.paths[0]", "must be a URI or an absolute path"),
        ({"inputs": {"x": "/data/../x"}}, "inputs.x.paths[0]", "must be a URI or an absolute path"),
        ({"inputs": {"x": {"path": ["/x"], "paths": ["/x"]}}}, "inputs.x.path", "did you mean paths?"),
        ({"inputs": {"x": {"paths": ["/x"], "deal": "queued"}}}, "inputs.x.deal", "did you mean queue?"),
        ({"inputs": {"x": {"paths": ["/x"], "tasks": ["workers"]}}}, "inputs.x.tasks[0]", "did you mean worker?"),
        (
            {"inputs": {"x": {"paths": ["/x"], "split_size": "64MiB"}}},
            "inputs.x.split_size",
            "write `format: lines` or `format: tfrecord` or `format: parquet` too",
        ),
        ({"inputs": {"x": {"paths": ["/x"], "split_size": 0}}}, "inputs.x.split_size", "more than zero"),
        ({"inputs": {"x": {"paths": ["/x"], "format": "tfrecords"}}}, "inputs.x.format", "did you mean tfrecord?"),
        ({"inputs": {"x": {"paths": ["/x"], "checksum": True}}}, "inputs.x.checksum", "a disk has no checksums"),
        ({"inputs": {"X": "/x"}}, "inputs.X", "lower-case letters"),
        ({"inputs": {"queues": "/x"}}, "inputs.queues", "another variable is named TONY_INPUT_QUEUES"),
        ({"inputs": {"socket": "/x"}}, "inputs.socket", "another variable is named TONY_INPUT_SOCKET"),
        (
            {
                "framework": "ray",
                "inputs": {"x": {"paths": ["/x"], "tasks": ["chief", "worker"]}},
                "tasks": {"chief": {"command": "x"}, "worker": {"command": None}},
            },
            "inputs.x.tasks[1]",
            "run no program of yours",
        ),
        (
            {
                "inputs": {"x": {"paths": ["/x"], "tasks": ["eye"]}},
                "tasks": {"eye": {"command": "x", "role": "sidecar"}},
            },
            "inputs.x.tasks[0]",
            "tasks with a rank",
        ),
        ({"outputs": {"x": {}}}, "outputs.x.path", "is required"),
        ({"outputs": {"x": {"path": "/x", "paths": ["/x"]}}}, "outputs.x.paths", "did you mean path?"),
        ({"outputs": {"x": "data/out"}}, "outputs.x.path", "must be a URI or an absolute path"),
        ({"outputs": {"x": "hdfs:///"}}, "outputs.x.path", "the root of the store"),
        ({"outputs": {"x": "/out/day=*"}}, "outputs.x.path", "must be one directory"),
        ({"outputs": {"x": "/out/_x"}}, "outputs.x.path", "readers leave out names"),
        ({"outputs": {"X": "/x"}}, "outputs.X", "lower-case letters"),
        ({"outputs": {"x": {"path": "/x", "commit": "tasks"}}}, "outputs.x.commit", "did you mean task?"),
        (
            {"outputs": {"x": {"path": "/x", "commit": "task"}}},
            "outputs.x.commit",
            "worker starts again with the others",
        ),
        (
            {"framework": "standalone", "outputs": {"x": {"path": "/x", "commit": "task", "layout": "flat"}}},
            "outputs.x.commit",
            "would appear one by one",
        ),
        ({"outputs": {"x": {"path": "/x", "tasks": ["workers"]}}}, "outputs.x.tasks[0]", "did you mean worker?"),
        (
            {"outputs": {"x": {"path": "/x", "tasks": ["ps"]}}, "tasks": {"ps": {"command": "x"}}},
            "outputs.x.tasks[0]",
            "tasks of the role ps do not end by themselves",
        ),
        ({"inputs": {"i": "/d"}, "outputs": {"x": "/d"}}, "outputs.x.path", "is the same as inputs.i.paths[0]"),
        ({"inputs": {"i": "/d"}, "outputs": {"x": "/d/e"}}, "outputs.x.path", "lies in inputs.i.paths[0]"),
        ({"inputs": {"i": "/d/e/f"}, "outputs": {"x": "/d"}}, "outputs.x.path", "contains inputs.i.paths[0]"),
        ({"inputs": {"i": "/d/*/p-*"}, "outputs": {"x": "/d/e"}}, "outputs.x.path", "contains inputs.i.paths[0]"),
        ({"inputs": {"i": "/d/d*"}, "outputs": {"x": "/d/day"}}, "outputs.x.path", "is among the files of inputs.i"),
        ({"inputs": {"i": "/d/**/p"}, "outputs": {"x": "/d/e"}}, "outputs.x.path", "inputs.i.paths[0]"),
        ({"outputs": {"x": "/d/e", "y": "/d/e/"}}, "outputs.y.path", "is the same as outputs.x"),
        ({"outputs": {"x": "/d/e", "y": "/d/e/f"}}, "outputs.y.path", "lies in outputs.x"),
        (
            {"inputs": {"i": "hdfs:///d"}, "outputs": {"x": "hdfs://nn:8020/d/e"}},
            "outputs.x.path",
            "lies in inputs.i.paths[0]",
        ),
        ({"framework": "tensorflw"}, "framework", "did you mean tensorflow?"),
        ({"framework": ""}, "framework", "must be one of tensorflow, pytorch, jax"),
        ({"tasks": {"worker": None}}, "tasks", "at least one task type"),
        ({"tasks": {"worker": None, "ps": {"command": "x"}}}, "tasks", "nothing would end the job"),
        ({"tasks": {"worker": {"decides": False}}}, "tasks", "nothing would end the job"),
        ({"tasks": {"chief": {"command": "x", "decides": "false"}}}, "tasks.chief.decides", "a chief decides"),
        ({"tasks": {"Worker": {"command": "x"}}}, "tasks.Worker", "lower-case letters"),
        ({"tasks": {"1st": {"command": "x"}}}, "tasks.1st", "lower-case letters"),
        ({"tasks": {"a" * 33: {"command": "x"}}}, f"tasks.{'a' * 33}", "at most 32 characters"),
        ({"tasks": {"a": {"command": "x", "role": "chief"}, "chief": {"command": "x"}}}, "tasks.chief", "at most one"),
        ({"tasks": {"chief": {"command": "x", "instances": 2}}}, "tasks.chief.instances", "a chief has one instance"),
        (worker(role="leader"), "tasks.worker.role", "must be one of chief, worker"),
        (worker(instances=0), "tasks.worker.instances", "must be at least 1"),
        (worker(instances=-1), "tasks.worker.instances", "must be at least 1"),
        (worker(instances=float("nan")), "tasks.worker.instances", "finite"),
        (worker(instances=2**40), "tasks.worker.instances", "at most"),
        (worker(vcores=0), "tasks.worker.vcores", "must be at least 1"),
        (worker(gpus=-1), "tasks.worker.gpus", "must be at least 0"),
        (worker(memory=0), "tasks.worker.memory", "more than zero"),
        (worker(processes=0), "tasks.worker.processes", "at least 1, or gpus"),
        (worker(processes="-2"), "tasks.worker.processes", "at least 1, or gpus"),
        (worker(processes="gpu"), "tasks.worker.processes", "at least 1, or gpus"),
        (worker(processes=1.5), "tasks.worker.processes", "at least 1, or gpus"),
        (worker(processes="gpus"), "tasks.worker.processes", "gpus is 0; give gpus, or a number"),
        (worker(processes="gpus", gpus=-1), "tasks.worker.gpus", "must be at least 0"),
        ({"tasks": {"ps": {"command": "x", "processes": 2}}}, "tasks.ps.processes", "the role ps; leave it out"),
        ({"tasks": {"evaluator": {"command": "x", "processes": 2}}}, "tasks.evaluator.processes", "give instances"),
        ({"tasks": {"s": {"command": "x", "role": "sidecar", "processes": "4"}}}, "tasks.s.processes", "role sidecar"),
        (
            {"tasks": {"chief": {"command": "x", "processes": 2}}},
            "tasks.chief.processes",
            "tensorflow runs one process",
        ),
        (
            {"framework": "ray", "tasks": {"chief": {"command": "x"}, "worker": {"processes": 2}}},
            "tasks.worker.processes",
            "ray runs one process",
        ),
        (
            {"framework": "mxnet", "tasks": {"ps": {}, "worker": {"processes": 2}}},
            "tasks.worker.processes",
            "mxnet runs one process",
        ),
        (
            {"framework": "pytorch", **worker(processes=2, env={"LOCAL_RANK": "0"})},
            "tasks.worker.env.LOCAL_RANK",
            "is made from the cluster",
        ),
        ({"port_range": "20000-20003", **worker(processes=3)}, "port_range", "at least 5 ports"),
        ({"success": "chief"}, "success", "there is no chief"),
        ({"start": "first"}, "start", "did you mean first-come?"),
        (worker(after={"wrker": "started"}), "tasks.worker.after.wrker", "no task type wrker; did you mean worker?"),
        (worker(after={"worker": "over"}), "tasks.worker.after.worker", "must be one of started, ready, succeeded"),
        (worker(after={"worker": "started"}), "tasks.worker.after.worker", "worker waits for worker"),
        (
            {
                "framework": "standalone",
                "tasks": {
                    "a": {"command": "x", "after": {"b": "succeeded"}},
                    "b": {"command": "x", "after": {"c": "started"}},
                    "c": {"command": "x", "after": {"a": "succeeded"}},
                },
            },
            "tasks.a.after.b",
            "would wait for itself: a waits for b waits for c waits for a",
        ),
        (
            {"tasks": {"worker": {"command": "x", "after": {"sidecar": "succeeded"}}, "sidecar": {"command": "x"}}},
            "tasks.worker.after.sidecar",
            "a sidecar does not end by itself",
        ),
        (
            {"tasks": {"worker": {"command": "x"}, "evaluator": {"command": "x", "after": {"worker": "succeeded"}}}},
            "tasks.evaluator.after.worker",
            "give evaluator the role once",
        ),
        (
            {"framework": "pytorch", "tasks": {"chief": {"command": "x", "after": {"worker": "started"}}}},
            "tasks.chief.after.worker",
            "train together and begin together",
        ),
        (
            {
                "framework": "pytorch",
                "tasks": {"chief": {"command": "x", "after": {"sidecar": "started"}}, "sidecar": {"command": "x"}},
            },
            "tasks.chief.after",
            "must be that of worker",
        ),
        (
            {"tasks": {"worker": {"command": "x", "after": {"sidecar": "ready"}}, "sidecar": {"command": "x"}}},
            "tasks.worker.after.sidecar",
            "nothing says when sidecar is ready; give it tasks.sidecar.ready",
        ),
        (worker(ready={}), "tasks.worker.ready", "one of command, port and file"),
        (worker(ready={"port": 1, "file": "x"}), "tasks.worker.ready", "one of command, port and file"),
        (worker(ready={"port": 65536}), "tasks.worker.ready.port", "must be a port, or 0"),
        (worker(ready={"command": " "}), "tasks.worker.ready.command", "must not be empty"),
        (
            {"framework": "pytorch", **worker(processes=2), "inputs": {"data": "/data"}},
            "inputs.data.deal",
            "would read the same part",
        ),
        ({"timeouts": {"dependency": 0}}, "timeouts.dependency", "more than zero"),
        (
            {
                "framework": "standalone",
                "tasks": {
                    "worker": {"restart": "gang"},
                    "more": {"command": "x", "after": {"worker": "succeeded"}},
                },
            },
            "tasks.more.after.worker",
            "start again together (restart: gang) and begin together",
        ),
        (
            {
                "tasks": {
                    "sidecar": {"command": "x"},
                    "evaluator": {"command": "x", "restart": "gang", "after": {"sidecar": "started"}},
                }
            },
            "tasks.evaluator.after",
            "must be that of worker",
        ),
        (
            {"tasks": {"prepare": {"command": "x", "restart": "gang"}}},
            "tasks.prepare.restart",
            "is not run again with the others",
        ),
        (
            {
                "success": "any",
                "tasks": {"export": {"command": "x", "role": "once", "after": {"worker": "succeeded"}}},
            },
            "tasks.export.after.worker",
            "the success of worker is the job's (success: any), and export never begins",
        ),
        (
            {
                "success": "chief",
                "tasks": {
                    "chief": {"command": "x"},
                    "export": {"command": "x", "role": "once", "after": {"chief": "succeeded"}},
                },
            },
            "tasks.export.after.chief",
            "the success of chief is the job's (success: chief), and export never begins",
        ),
        (
            {
                "tasks": {
                    "export": {"command": "x", "role": "once", "after": {"worker": "succeeded"}},
                    "evaluator": {"command": "x", "after": {"export": "succeeded"}},
                },
            },
            "tasks.evaluator.after.export",
            "the success of worker and export is the job's, and evaluator never begins; give it the role once",
        ),
        (
            {
                "tasks": {
                    "export": {"command": "x", "role": "once", "decides": False, "after": {"worker": "succeeded"}},
                },
            },
            "tasks.export.after.worker",
            "the success of worker is the job's, and export never begins",
        ),
        (
            {
                "framework": "standalone",
                "tasks": {
                    "other": {"command": "x"},
                    "a": {"command": "x", "decides": False, "after": {"worker": "succeeded"}},
                    "b": {"command": "x", "decides": False, "after": {"other": "succeeded"}},
                    "more": {"command": "x", "decides": False, "after": {"a": "started", "b": "started"}},
                },
            },
            "tasks.more.after.a",
            "the success of worker and other is the job's, and more never begins",
        ),
        ({"framework": "pytorch", "start": "first-come"}, "start", "tasks of the framework pytorch begin together"),
        (
            {"framework": "standalone", "start": "first-come", **worker(restart="gang")},
            "tasks.worker.restart",
            "with start: first-come each task starts again by itself",
        ),
        (
            {"framework": "standalone", "start": "first-come", "checkpoint": {"mirror": "all"}},
            "checkpoint.mirror",
            "needs all ranks at work at a time",
        ),
        ({"framework": "pytorch", "tolerated_failures": 1}, "tolerated_failures", "takes the others along"),
        (
            {"framework": "standalone", "tasks": {"worker": None, "chief": {"command": "x"}}, "tolerated_failures": 1},
            "tolerated_failures",
            "there is no worker",
        ),
        ({"tolerated_failures": "-1"}, "tolerated_failures", "must not be negative"),
        ({"tolerated_failures": "101%"}, "tolerated_failures", "not a share"),
        ({"tolerated_failures": "x%"}, "tolerated_failures", "not a share"),
        ({"tolerated_failures": "some"}, "tolerated_failures", "write a number of tasks, such as 3"),
        (worker(command="\n"), "tasks.worker.command", "must not be empty"),
        (worker(command="a\0b"), "tasks.worker.command", "NUL"),
        (worker(command="a\ud800b"), "tasks.worker.command", "surrogate"),
        (worker(command=["python", "x.py"]), "tasks.worker.command", "must be text"),
        (worker(resources={"yarn.io/gpu": 1}), "tasks.worker.resources['yarn.io/gpu']", "tasks.worker.gpus"),
        (worker(resources={"memory-mb": 1}), "tasks.worker.resources.memory-mb", "tasks.worker.memory"),
        (worker(resources={"a b": 1}), "tasks.worker.resources['a b']", "is YARN's"),
        (worker(resources={"fpga": 0}), "tasks.worker.resources.fpga", "at least 1"),
        (worker(node_label="gpu && ssd"), "tasks.worker.node_label", "is one label"),
        ({"node_label": "a b"}, "node_label", "is one label"),
        ({"am": {"node_label": "-"}}, "am.node_label", "is one label"),
        ({"am": {"vcores": 0}}, "am.vcores", "at least 1"),
        ({"am": {"memory": "-1g"}}, "am.memory", "more than zero"),
        ({"am": {"attempts": 0}}, "am.attempts", "at least 1"),
        ({"am": {"attempts_window": 0}}, "am.attempts_window", "more than zero"),
        (worker(restart="always"), "tasks.worker.restart", "must be one of gang, task, never"),
        (worker(instances=10_001), "tasks.worker.instances", "one application master serves 10000; give fewer"),
        (worker(min_instances=0), "tasks.worker.min_instances", "at least 1"),
        (worker(instances=2, min_instances=3), "tasks.worker.min_instances", "more than instances (2)"),
        ({"framework": "standalone", **worker(min_instances=1)}, "tasks.worker.min_instances", "standalone cannot"),
        ({"tasks": {"ps": {"command": "x", "min_instances": 1}}}, "tasks.ps.min_instances", "of the role ps"),
        (worker(instances=3, max_instances=2), "tasks.worker.max_instances", "less than instances (3)"),
        (worker(max_instances=10_001), "tasks.worker.instances", "one application master serves 10000; give fewer"),
        ({"framework": "standalone", **worker(max_instances=2)}, "tasks.worker.max_instances", "standalone cannot"),
        ({"tasks": {"ps": {"command": "x", "max_instances": 2}}}, "tasks.ps.max_instances", "of the role ps"),
        (worker(restart="task", max_instances=2), "tasks.worker.max_instances", "start again with the whole gang"),
        (worker(grow="spare"), "tasks.worker.grow", "needs max_instances, more than instances (1), to grow to"),
        (worker(instances=2, max_instances=2, grow="spare"), "tasks.worker.grow", "more than instances (2)"),
        (worker(max_instances=2, grow="always"), "tasks.worker.grow", "must be one of asked, spare"),
        (
            {"framework": "standalone", "start": "first-come", **worker(max_instances=2, grow="spare")},
            "tasks.worker.max_instances",
            "standalone cannot",
        ),
        ({"timeouts": {"spare": 0}}, "timeouts.spare", "more than zero"),
        ({"restart": {"budget": -1}}, "restart.budget", "at least 0"),
        ({"restart": {"same_failure": 0}}, "restart.same_failure", "at least 1"),
        ({"restart": {"window": 0}}, "restart.window", "more than zero"),
        ({"restart": {"backoff": "1h"}}, "restart.max_backoff", "at least backoff (3600 s)"),
        ({"restart": {"permanent_exit_codes": [3, 256]}}, "restart.permanent_exit_codes[1]", "1 to 255"),
        ({"restart": {"permanent_exit_codes": ["x"]}}, "restart.permanent_exit_codes[0]", "whole number"),
        ({"restart": {"memory_limit": "4g"}}, "restart.memory_limit", "without memory_step"),
        ({"restart": {"retries": 1}}, "restart.retries", "unknown key"),
        ({"budget": 1}, "budget", "it belongs under restart"),
        ({"checkpoint": {"mirror": "rank0"}}, "checkpoint.mirror", "must be one of auto, leader, all, off"),
        ({"checkpoint": {"keep": 0}}, "checkpoint.keep", "at least 1"),
        ({"checkpoint": {"keep_every": 0}}, "checkpoint.keep_every", "at least 1"),
        ({"export": {"every": 0}}, "export.every", "at least 1"),
        ({"export": {"keep_last": 0}}, "export.keep_last", "at least 1"),
        ({"export": {"every": 2}, "checkpoint": {"mirror": "off"}}, "export.every", "counts checkpoints on the store"),
        ({"timeouts": {"stall": 0}}, "timeouts.stall", "more than zero"),
        ({"timeouts": {"replacement": 0}}, "timeouts.replacement", "more than zero"),
        ({"timeouts": {"deadline": "2026-11-21T18:00:00"}}, "timeouts.deadline", "needs its time zone"),
        ({"timeouts": {"deadline": "tomorrow"}}, "timeouts.deadline", "not a point in time"),
        ({"am": {"cores": 1}}, "am.cores", "did you mean vcores?"),
        ({"name": " "}, "name", "printable"),
        ({"name": "a\nb"}, "name", "printable"),
        ({"name": "x" * 513}, "name", "1 to 512"),
        ({"queue": "a b"}, "queue", "queue's name"),
        ({"queue": "a,b"}, "queue", "queue's name"),
        ({"priority": -1}, "priority", "at least 0"),
        ({"tags": list("abcdefghi")}, "tags", "at most 8"),
        ({"tags": ["a", "A"]}, "tags[1]", "twice"),
        ({"tags": ["a,b"]}, "tags[0]", "no comma"),
        ({"tags": [""]}, "tags[0]", "1 to 100"),
        ({"tags": ["é"]}, "tags[0]", "ASCII"),
        ({"tags": ["x" * 101]}, "tags[0]", "1 to 100"),
        ({"tags": ["tony-1"]}, "tags[0]", "are ours"),
        ({"tags": "a"}, "tags", "must be a list"),
        ({"tags": [None]}, "tags[0]", "must not be null"),
        ({"files": "a.py"}, "files", "must be a list"),
        ({"files": [1]}, "files[0]", "SRC::NAME"),
        ({"files": [""]}, "files[0]", "path or URI"),
        ({"files": ["a::"]}, "files[0]", "SRC::NAME"),
        ({"files": ["a::b::c"]}, "files[0]", "SRC::NAME"),
        ({"files": ["/"]}, "files[0]", "give one with SRC::NAME"),
        ({"files": ["../"]}, "files[0]", "without '..'"),
        ({"files": ["a::../b"]}, "files[0]", "without '..'"),
        ({"files": ["a::b/../../c"]}, "files[0]", "without '..'"),
        ({"files": ["a::/etc/passwd"]}, "files[0]", "must be relative"),
        ({"files": ["a::b//c"]}, "files[0]", "must be relative"),
        ({"files": ["a::./b"]}, "files[0]", "must be relative"),
        ({"files": ["x/a.py", "y/a.py"]}, "files[1]", "same as, or inside"),
        ({"files": ["a", "b::a/b"]}, "files[1]", "same as, or inside"),
        ({"files": ["b::a/b"], "archives": ["a"]}, "archives[0]", "same as, or inside"),
        ({"files": ["x::tony"]}, "files[0]", "by YARN or by us"),
        ({"files": ["x::tony-application.json"]}, "files[0]", "by YARN or by us"),
        ({"archives": ["x::python_env"]}, "archives[0]", "by YARN or by us"),
        ({"files": ["x::tmp/y"]}, "files[0]", "by YARN or by us"),
        ({"python_env": " "}, "python_env", "path or URI"),
        ({"python_env": []}, "python_env", "path or URI"),
        ({"python_env": ["a.whl", 1]}, "python_env", "of wheels a list"),
        ({"python_env": ["a,b.whl"]}, "python_env", "has no comma"),
        ({"python_env": ["a.whl", "b.pex"]}, "python_env", "several are wheels, and nothing else"),
        (worker(python_env="a.whl,b.zip"), "tasks.worker.python_env", "several are wheels"),
        ({"python_env": "/home/me/env.tar.bz2"}, "python_env", "in a way that YARN does not unpack"),
        ({"files": ["a"], **worker(files=["b::a/b"])}, "tasks.worker.files[0]", "inside, that of files[0]"),
        (worker(files=["a"], archives=["x::a"]), "tasks.worker.archives[0]", "that of tasks.worker.files[0]"),
        (worker(files=["x::tony"]), "tasks.worker.files[0]", "by YARN or by us"),
        ({"docker": {"image": "a b"}}, "docker.image", "image's name"),
        ({"docker": {"image": ""}}, "docker.image", "is required"),
        ({"docker": {"image": "registry/Team/TF"}}, "docker.image", "in lower case"),
        ({"docker": {"image": "team/tf@sha256:abc"}}, "docker.image", "name@sha256:…"),
        ({"docker": "image"}, "docker", "must be a mapping"),
        ({"docker": True}, "docker", "or false: no image"),
        ({"docker": {"image": "a", "mounts": ["/a"]}}, "docker.mounts[0]", "SOURCE:TARGET:MODE"),
        ({"docker": {"image": "a", "mounts": ["/a:/b:rx"]}}, "docker.mounts[0]", "SOURCE:TARGET:MODE"),
        ({"docker": {"image": "a", "mounts": ["/a:/b,/c:/d"]}}, "docker.mounts[0]", "SOURCE:TARGET:MODE"),
        ({"docker": {"image": "a", "mounts": ["/$HOME:/b:ro"]}}, "docker.mounts[0]", "without blanks and any of"),
        ({"docker": {"image": "a", "tmpfs": ["shm"]}}, "docker.tmpfs[0]", "an absolute path"),
        ({"docker": {"image": "a", "oci_runtime": "a b"}}, "docker.oci_runtime", "letters, digits"),
        (worker(docker={"image": "a", "network": "a b"}), "tasks.worker.docker.network", "letters, digits"),
        ({"docker": {"image": "a", "network": "none"}}, "docker.network", "no task reaches its application master"),
        ({"docker": {"image": "a", "network": "bridge"}}, "docker.network", "am: {docker: {network: host}}"),
        ({"docker": {"image": "a", "pid_namespace": "node"}}, "docker.pid_namespace", "must be one of host"),
        ({"docker": {"image": "a", "runtime": "podman"}}, "docker.runtime", "must be one of docker, runc, none"),
        ({"docker": {"image": "a", "runtime": "runc", "tmpfs": ["/dev/shm"]}}, "docker.tmpfs", "image and mounts only"),
        ({"docker": {"image": "a", "runtime": "runc", "privileged": True}}, "docker.privileged", "image and mounts"),
        ({"docker": {"image": "a", "runtime": "runc", "mounts": ["/a:/a:ro+shared"]}}, "docker.mounts", "ro or rw"),
        ({"docker": {"image": "a", "runtime": "none"}}, "docker.image", "means nothing with runtime: none"),
        ({"docker": {"image": "a", "client_config": " "}}, "docker.client_config", "path or URI"),
        ({"docker": {"image": "a", "hostname": "x"}}, "docker.hostname", "unknown key"),
        (worker(docker={"network": "ml"}), "tasks.worker.docker.image", "is required"),
        (worker(docker={"image": "A"}), "tasks.worker.docker.image", "in lower case"),
        (
            {"docker": {"image": "a", "tmpfs": ["/dev/shm"]}, **worker(docker={"runtime": "runc"})},
            "docker.tmpfs",
            "image and mounts only",
        ),
        (
            {"docker": {"image": "a", "runtime": "runc"}, **worker(docker={"network": "ml"})},
            "tasks.worker.docker.network",
            "image and mounts only",
        ),
        (
            worker(docker={"image": "a", "client_config": "/c.json"}),
            "tasks.worker.docker.client_config",
            "is the job's: docker.client_config",
        ),
        (
            {"docker": {"client_config": "/c.json"}, "am": {"docker": False}, **worker(docker=False)},
            "docker.client_config",
            "no container is Docker's",
        ),
        ({"docker": {"mounts": ["/a:/a:ro"]}, **worker(docker={"image": "a"})}, "docker.image", "is required"),
        ({"tensorboard": {"docker": {"image": "a b"}}}, "tensorboard.docker.image", "image's name"),
        ({"am": {"docker": {"image": "a", "network": "bridge"}}}, "am.docker.network", "am: {docker: false}"),
        ({"docker": {"image": "a", "network": "overlay"}}, "docker.network", "reach an application master at"),
        ({"env": {"TONY_RANK": "0"}}, "env.TONY_RANK", "are ours"),
        ({"env": {"A-B": "0"}}, "env.A-B", "digits and _"),
        ({"env": {"": "0"}}, "env['']", "digits and _"),
        ({"env": {"A": ["0"]}}, "env.A", "must be text"),
        ({"env": {1: "0"}}, "env[1]", "key must be text"),
        ({"env": {"A": "x" * 200_000}}, "env.A", "128 KiB"),
        (worker(env={"TONY_X": "0"}), "tasks.worker.env.TONY_X", "are ours"),
        ({"secrets": ["A", "A"]}, "secrets[1]", "twice"),
        ({"secrets": ["A"], "env": {"A": "1"}}, "secrets[0]", "stands in env, too"),
        ({"secrets": ["A"], **worker(env={"A": "1"})}, "secrets[0]", "stands in tasks.worker.env, too"),
        ({"secrets": ["A B"]}, "secrets[0]", "digits and _"),
        ({"secrets": ["A"], **worker(secrets=["A", "B"])}, "tasks.worker.secrets[1]", "none of the job's secrets"),
        ({"secrets": ["TONY_A"]}, "secrets[0]", "are ours"),
        ({"timeouts": {"queue": 0}}, "timeouts.queue", "more than zero"),
        ({"timeouts": {"allocation": "0s"}}, "timeouts.allocation", "more than zero"),
        ({"timeouts": {"registration": 0}}, "timeouts.registration", "more than zero"),
        ({"timeouts": {"lifetime": 0}}, "timeouts.lifetime", "more than zero"),
        ({"timeouts": {"lifetime": "-1s"}}, "timeouts.lifetime", "must not be negative"),
        ({"timeouts": {"lifetime": "1h", "queue": "1h"}}, "timeouts.queue", "less than timeouts.lifetime"),
        ({"timeouts": {"execution": 1}}, "timeouts.execution", "unknown key; allowed: queue, allocation"),
        ({"port_range": "20000"}, "port_range", "20000-31999"),
        ({"port_range": 20000}, "port_range", "20000-31999"),
        ({"port_range": "1000-2000"}, "port_range", "within 1024-65535"),
        ({"port_range": "60000-70000"}, "port_range", "within 1024-65535"),
        ({"port_range": "2001-2000"}, "port_range", "first not above last"),
        ({"acls": {"view": {"users": ["bob@EXAMPLE.COM"]}}}, "acls.view.users[0]", "no Kerberos principal"),
        ({"acls": {"view": {"users": ["a,b"]}}}, "acls.view.users[0]", "one name of the cluster's users"),
        ({"acls": {"modify": {"groups": ["ml team"]}}}, "acls.modify.groups[0]", "one name of the cluster's groups"),
        ({"acls": {"modify": {"groups": ["*"]}}}, "acls.modify.groups[0]", "everybody is * as the only user"),
        ({"acls": {"view": {"users": ["*", "bob"]}}}, "acls.view.users", "leave out all other names"),
        ({"acls": {"view": {"users": ["*"], "groups": ["x"]}}}, "acls.view.users", "leave out all other names"),
        ({"acls": {"view": {"users": ["bob", "bob"]}}}, "acls.view.users[1]", "is there twice"),
        ({"acls": {"view": {"users": [""]}}}, "acls.view.users[0]", "not empty"),
        ({"acls": {"view": {"users": "bob"}}}, "acls.view.users", "must be a list"),
        ({"acls": {"views": {"users": ["bob"]}}}, "acls.views", "did you mean view?"),
        ({"acls": {"view": {"user": ["bob"]}}}, "acls.view.user", "did you mean users?"),
        ({"view": {"users": ["bob"]}}, "view", "it belongs under acls"),
        ({"port_range": "20000-20001"}, "port_range", "at least 3 ports"),
        ({"port_range": {"first": 20000}}, "port_range.last", "is required"),
        ({"port_range": {"first": 1, "last": 2, "step": 3}}, "port_range.step", "unknown key"),
        ({"memory": "4GiB"}, "memory", "it belongs under tasks.<type> or am"),
        (worker(gpu=1), "tasks.worker.gpu", "did you mean gpus?"),
        (worker(replicas=1), "tasks.worker.replicas", "did you mean instances?"),
    ],
)
def test_refused(changes: dict[str, Any], path: str, says: str) -> None:
    problems = problems_of(changes)
    assert list(problems) == [path]
    assert says in problems[path]


@pytest.mark.parametrize(
    "changes",
    [
        {"tasks": {"worker": None, "chief": {"command": "x"}}},
        {"tasks": {"ps": {"command": "x"}, "tensorboard": {"command": "x"}}},
        {"name": "Größe der Klicks, täglich"},
        {"queue": "root.users.anna_b"},
        {"tags": list("abcdefgh")},
        {"tags": ["user:anna"]},
        {"files": ["a.py", "conf/b.yaml::conf/b.yaml", "c::conf/c.yaml"], "archives": ["hdfs://nn:8020/x/d.zip"]},
        {"files": ["a::tony.yaml", "b::temp"]},
        {"acls": {"view": {"users": ["bob", "svc_x.y-1"], "groups": ["ml-team"]}, "modify": {"users": ["*"]}}},
        {"acls": {"view": None}},
        {"port_range": "20000-20002"},
        {"timeouts": {"grace": 0, "evaluator": 0}},
        {"timeouts": {"queue": 1}},
        {"timeouts": {"stall": "10m", "checkpoint": 0, "deadline": "2026-11-21T18:00:00Z"}},
        {"restart": {"budget": 0, "backoff": 0, "memory_step": "1g", "memory_limit": "8g", "node_losses": 0}},
        {"restart": {"permanent_exit_codes": ["3", 255]}},
        {"checkpoint": {"mirror": "all", "keep_every": 100, "after_success": "remove", "bandwidth": "50MiB"}},
        {"export": {"every": 5, "keep_last": 1}, "checkpoint": {"mirror": "all"}},
        {"export": {"keep_last": 9}, "checkpoint": {"mirror": "off"}},
        worker(instances=4, min_instances=2, restart="never"),
        {"docker": {"image": f"registry/team/tf@sha256:{'0123456789abcdef' * 4}"}},
        {"docker": {"image": "registry.example.org:5000/team/tf:2.21-gpu", "mounts": ["/a:/b", "/c:/d:ro"]}},
        {"docker": {"image": "a", "network": "bridge"}, "am": {"docker": {"network": "host"}}},
        {"docker": {"image": "a", "mounts": ["/a:/a:rw+rslave"], "tmpfs": ["/dev/shm"], "oci_runtime": "nvidia"}},
        {"docker": {"image": "a", "runtime": "runc", "mounts": ["/a:/b:ro"]}},
        {"docker": {"client_config": "hdfs:///c.json"}, "am": {"docker": False}, **worker(docker={"image": "a"})},
        {"docker": False, **worker(docker={"image": "a", "pid_namespace": "host", "privileged": True})},
        {"secrets": ["API_KEY"], "env": {"LOG": "x" * 100_000}},
        {"tasks": {"worker": {"resources": {"yarn.io/fpga": 1, "licences": 2}}}},
        {"env": {"CUDA_VISIBLE_DEVICES": "0"}},
        worker(processes="2.0"),
        worker(processes="GPUs", gpus=4),
        {"framework": "pytorch", **worker(env={"LOCAL_RANK": "0"})},
        {"framework": "ray", "tasks": {"chief": {"command": "x", "processes": 1}}},
    ],
)
def test_allowed(changes: dict[str, Any]) -> None:
    assert problems_of(changes) == {}


def test_contradictions_are_told_beside_values_that_cannot_be_read() -> None:
    changes = {
        **worker(memory="lots", env={"A": "1"}),
        "secrets": ["A"],
        "tags": [None, "tony-x"],
        "timeouts": {"queue": "9s", "lifetime": "5s", "grace": "x"},
    }
    assert set(problems_of(changes)) == {
        "tasks.worker.memory",
        "secrets[0]",
        "tags[0]",
        "tags[1]",
        "timeouts.grace",
        "timeouts.queue",
    }


def test_outputs_that_have_nothing_to_do_with_other_paths() -> None:
    outputs = {"x": "/data/out", "y": {"path": "hdfs:///data/raw", "tasks": ["worker"]}, "z": "/data/outer"}
    inputs = {"i": "/data/raw/day=*", "j": ["hdfs://a/data/raw2", "s3://b/data/out"][0]}
    assert problems_of({"inputs": inputs, "outputs": outputs}) == {}
    assert parse_job(merge(BASE, {"outputs": {"x": "/data/out"}})).writers("x") == ["worker"]


def test_a_job_is_as_large_as_one_application_master_serves() -> None:
    both: dict[str, Any] = {"ps": {"command": "x", "instances": 4000}, "worker": {"instances": 6000}}
    assert not problems_of({"tasks": both})
    both["worker"]["instances"] = 6001
    assert list(problems_of({"tasks": both})) == ["tasks.worker.instances"]
