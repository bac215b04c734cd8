"""The list of threats by data flow: each source of foreign text, and each place where text is interpreted.

It generates the table in tests/secure/THREATS.md. A file of the product that interprets text and is not named here
fails `test_threats.py`. So a new feature cannot skip the question: which foreign text gets there, and what proves the
protection?
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = Path(__file__).with_name("THREATS.md")
# Code that runs in the user's own program, with the user's own text.
USERS_OWN = ("runtime/sdk/", "runtime/notebook/", "portal/static/vendor/")


@dataclass(frozen=True)
class Sink:
    """A kind of place where text is interpreted."""

    pattern: str  # regular expression that finds these places in the product
    files: tuple[str, ...]  # files with such a place, below tony_provider

    def found(self, files: dict[str, str]) -> set[str]:
        return {name for name, text in files.items() if re.search(self.pattern, text)}


@dataclass(frozen=True)
class Flow:
    """Foreign text on its way to a place where it is interpreted."""

    source: str
    sink: str
    protection: str
    proofs: tuple[str, ...]  # rows of `make secure` by name, tests as file::name


SINKS = {
    "templates": Sink(
        r"jinja2|render_template|literal\(",
        (
            "job_files/templates.py",
            "job_files/write_files.py",
            "macros.py",
            "notifications/message_source.py",
            "operators/job_templates.py",
            "arguments.py",
            "runtime/checkpoint/content/torch_files.py",  # ast.literal_eval, of a checkpoint's numbers
        ),
    ),
    "YAML": Sink(
        r"yaml\.(safe_)?load|yaml\.compose|yaml\.parse|Loader\b",
        ("runtime/launch/start.py", "runtime/parsing/parse.py"),
    ),
    "code": Sink(
        r"\bexec\(|\beval\(|runpy\.|import_module\(|marshal\.loads|\bpickle\.loads",
        (
            "cluster/environments/runtime_archive.py",
            "runtime/frameworks/base.py",
            "runtime/launch/start.py",
            "runtime/storage/object_store.py",
        ),
    ),
    "programs": Sink(
        r"subprocess\.(run|Popen|check)|create_subprocess|os\.exec|os\.fork|posix_spawn|run_program\(",
        (
            "cli/diagnose.py",
            "cli/local_tensorboard.py",
            "cluster/environments/built_environments.py",
            "cluster/environments/requirements.py",
            "cluster/environments/runtime_archive.py",
            "cluster/local/local_cluster.py",
            "cluster/local/local_cluster.py",
            "runtime/am/local_resource_manager.py",
            "runtime/common/archives.py",
            "runtime/executor/checkpoint_limits.py",
            "runtime/executor/gpus.py",
            "runtime/executor/hadoop_access.py",
            "runtime/executor/ports.py",
            "runtime/executor/processes.py",
            "runtime/executor/replay_runner.py",
            "runtime/executor/user_processes.py",
            "runtime/executor/user_environment.py",
        ),
    ),
    "YARN's launch script": Sink(
        r"script_values\(",
        (
            "cluster/checks/job_checks.py",
            "cluster/yarn/rest.py",
            "runtime/am/yarn/yarn_clients.py",
            "runtime/launch/launch_context.py",
        ),
    ),
    "archives": Sink(
        r"ZipFile\(|TarFile\(|tarfile\.open",
        (
            "cluster/environments/built_environments.py",
            "cluster/environments/inspection.py",
            "cluster/environments/runtime_archive.py",
            "runtime/checkpoint/content/zips.py",
            "runtime/common/archives.py",
            "runtime/protocol/http_messages.py",
        ),
    ),
    "connections": Sink(
        r"create_connection\(|open_connection\(|\.connect\(",
        (
            "cli/local_tensorboard.py",
            "cluster/checks/daemons.py",
            "cluster/checks/doctor.py",
            "cluster/local/local_cluster.py",
            "cluster/tables.py",
            "runtime/executor/ports.py",
            "runtime/executor/preflight.py",
            "runtime/executor/tunnel_ends.py",
            "runtime/hadoop/rpc.py",
            "runtime/storage/webhdfs/datanodes.py",
            "runtime/storage/webhdfs/key_server.py",
            "runtime/storage/webhdfs/namenodes.py",
            "runtime/storage/webhdfs/transport.py",
        ),
    ),
    "removal": Sink(
        r"rmtree\(|remove_tree\(|recursive=True",
        (
            "cluster/checks/doctor.py",
            "cluster/garbage.py",
            "cluster/local/application_folder.py",
            "cluster/local/local_cluster.py",
            "cluster/replay.py",
            "cluster/submission/submitter.py",
            "cluster/training/checkpoint_chains.py",
            "runtime/am/store_writer.py",
            "runtime/application.py",
            "runtime/artifacts/upload.py",
            "runtime/artifacts/tree_restore.py",
            "runtime/artifacts/upload.py",
            "runtime/checkpoint/catalog.py",
            "runtime/common/archives.py",
            "runtime/common/files.py",
            "runtime/event_files/show_tensorboard.py",
            "runtime/executor/checkpoint_directory.py",
            "runtime/executor/checkpoint_paths.py",
            "runtime/executor/kept_results.py",
            "runtime/executor/task_inputs.py",
            "runtime/executor/user_environment.py",
            "runtime/executor/workspace.py",
            "runtime/launch/launch_context.py",
            "runtime/outputs/publication.py",
            "runtime/storage/local.py",
        ),
    ),
    "signals": Sink(
        r"os\.kill\(|killpg\(",
        (
            "cluster/local/application_folder.py",
            "runtime/am/local_resource_manager.py",
            "runtime/executor/processes.py",
            "runtime/executor/user_processes.py",
        ),
    ),
    "HTML": Sink(r"innerHTML|Markup\(", ("runtime/am/web/page.js",)),
    "files of this machine": Sink(
        r"local_source\(",
        ("cluster/checks/job_checks.py", "cluster/environments/built_environments.py", "cluster/sources.py"),
    ),
    "Airflow's objects": Sink(
        r"xcom_push|XCom|\.extra\[|outlet_events",
        (
            "compat.py",
            "decorators/function_call.py",
            "decorators/task_tony.py",
            "exceptions.py",  # names them
            "links/job_links.py",
            "operators/job_templates.py",
            "operators/tony.py",
            "operators/training_try.py",
            "portal/api.py",  # names the permission
            "publishing.py",
            "runtime/protocol/limits.py",  # names them
            "sensors/tony.py",
        ),
    ),
    "messages": Sink(r"for_medium\(", ("notifications/message.py", "notifications/tony.py")),
}

_IMPORTED = "imported job"
_FORM = "form, `conf`, XCom"
_JOB = "reports and files of a job"
_RECORD = "records of an application"
_CACHE = "other jobs of the user"
_HDFS = "file names on the store"
_AUTHOR = "job specification"
_NEIGHBOUR = "users of the machine"
_VIEWER = "users of a job"
_FOLDER = "current directory"

FLOWS = (
    Flow(
        _IMPORTED,
        "templates",
        "the generated DAG uses `literal(…)`; the generated job file sets `templates: false`",
        ("imported-template", "tests/importers/test_hostile.py"),
    ),
    Flow(
        _IMPORTED,
        "code",
        "the importer writes values with `repr`, escapes notes into one line, and corrects names of task types",
        ("tests/importers/test_hostile.py", "tests/cli/test_import.py::test_a_user_of_theirs_is_a_users_name"),
    ),
    Flow(
        _IMPORTED,
        "YAML",
        "foreign keys and notes stay in one comment line; the importer checks that the file gives the same job",
        ("tests/cli/test_import.py::test_keys_of_theirs_stay_in_the_comment",),
    ),
    Flow(
        _FORM,
        "YAML",
        "the operator parses a job before it renders the values",
        ("form-job-text", "tests/operators/test_job_templates.py"),
    ),
    Flow(
        _FORM,
        "templates",
        "a rendered value is never rendered again, and is never used as the name of a job file",
        (
            "form-overrides",
            "tests/operators/test_job_templates.py::test_only_the_whole_job_is_the_name_of_a_file",
            "tests/operators/test_job_templates.py::test_arguments_that_another_task_returned_are_no_templates",
            "tests/operators/test_job_templates.py::test_secrets_that_another_task_returned_are_no_templates",
            "tests/notifications/test_tony.py::test_values_of_a_task_are_not_rendered_once_more",
        ),
    ),
    Flow(
        _AUTHOR,
        "templates",
        "templates in a job file can use only its parameters and `macros.tony.quote`",
        ("tests/job_files/test_parameters.py::test_a_template_of_a_file_reaches_nothing_else_of_a_dag_in_any_branch",),
    ),
    Flow(
        _AUTHOR,
        "YARN's launch script",
        "files get generated names, and the command is escaped; `script_values` refuses unsafe values",
        (
            "tests/jobs/test_launch_script.py",
            "tests/runtime/executor/test_job_files.py::test_a_name_is_taken_literally",
        ),
    ),
    Flow(
        _HDFS,
        "YARN's launch script",
        "the provider refuses unsafe file names before the submission",
        ("tests/jobs/test_launch_script.py",),
    ),
    Flow(
        _AUTHOR,
        "programs",
        "a shell interprets only `command`; `macros.tony.quote` quotes values of a form",
        ("form-overrides", "tests/jobs/test_odd.py::test_names_and_values_with_every_kind_of_character"),
    ),
    Flow(
        _AUTHOR,
        "programs",
        "`airflow tony replay` runs the recorded command of a job as the user who has called it for this job",
        ("tests/jobs/test_replay.py::test_a_task_fails_at_the_same_step_again",),
    ),
    Flow(
        _AUTHOR,
        "code",
        "`framework` selects a module from a fixed list, or an installed entry point",
        ("tests/runtime/frameworks/test_plugins.py::test_a_name_loads_no_other_module",),
    ),
    Flow(
        _CACHE,
        "code",
        "the launch command creates a new directory, and verifies the runtime there",
        (
            "poisoned-runtime",
            "poisoned-node-runtime",
            "planted-container",
            "tests/runtime/launch/test_launcher.py::test_nothing_of_a_changed_archive_runs",
            "tests/runtime/launch/test_launcher.py::test_nothing_runs_that_was_in_the_directory_before",
            "tests/cluster/test_known_contents.py",
        ),
    ),
    Flow(
        _CACHE,
        "programs",
        "executors verify files and archives, and remove files that existed before",
        (
            "poisoned-cache",
            "poisoned-node",
            "poisoned-node-archive",
            "poisoned-archive",
            "planted-container",
            "tests/runtime/executor/test_job_files.py",
        ),
    ),
    Flow(
        _CACHE,
        "archives",
        "a process with resource limits unpacks archives; no entry can leave the directory",
        ("archive-bombs", "tests/runtime/common/test_archives.py"),
    ),
    Flow(
        _JOB,
        "HTML",
        "the master escapes all texts; the page's script inserts only HTML from the master",
        ("tests/runtime/am/web/test_page.py",),
    ),
    Flow(
        _JOB,
        "messages",
        "`TonyNotifier` escapes texts for the medium, and renders templates only once",
        ("tests/notifications/test_media.py",),
    ),
    Flow(
        _JOB,
        "archives",
        "a process with resource limits reads checkpoints",
        ("checkpoint-bombs", "tests/runtime/executor/test_checkpoint_reader.py"),
    ),
    Flow(
        _JOB,
        "files of this machine",
        "results may contain only paths of the job; `stored:` and `file_roots` prevent other uses",
        (
            "forged-results",
            "worker-files",
            "tests/cluster/test_file_roots.py",
            "tests/operators/test_foreign_results.py",
        ),
    ),
    Flow(
        _JOB,
        "Airflow's objects",
        "the provider refuses keys that Airflow reserves, and XCom keys that lead to other data of Airflow",
        (
            "tests/decorators/test_returned_keys.py",
            "tests/operators/test_foreign_results.py",
            "tests/runtime/protocol/test_reserved_keys.py",
        ),
    ),
    Flow(
        _FORM,
        "files of this machine",
        "local files must be below `file_roots` after all links are resolved",
        ("worker-files", "tests/cluster/test_file_roots.py"),
    ),
    Flow(
        _RECORD,
        "files of this machine",
        "commands never read a local path from a record; they use objects outside the cache only with `--yes`",
        ("tests/cli/test_notebook.py::test_a_record_never_has_files_of_this_machine_read",),
    ),
    Flow(
        _RECORD,
        "files of this machine",
        "on a local store, the provider follows no link out of the staging directory",
        ("tests/runtime/storage/test_local.py::test_what_is_read_below_a_directory_lies_there",),
    ),
    Flow(
        _RECORD,
        "removal",
        "commands remove only listed paths and paths of the layout, and follow no links",
        ("tests/cli/test_gc.py", "tests/cli/test_old_environments.py"),
    ),
    Flow(
        _CACHE,
        "removal",
        "executors and the local backend remove earlier files without following links",
        (
            "tests/runtime/am/local_resource_manager/test_cluster.py::test_a_container_finds_nothing_that_another_one_has_put_there",
            "tests/runtime/executor/test_job_files.py::test_what_was_in_the_directory_before_the_container_is_removed",
        ),
    ),
    Flow(
        _NEIGHBOUR,
        "removal",
        "executors remove files only in a directory that belongs to the job's user",
        ("tests/runtime/executor/test_checkpoint_link.py", "tests/runtime/executor/test_shared_checkpoints.py"),
    ),
    Flow(
        _NEIGHBOUR,
        "signals",
        "directories must belong to the user; processes are identified by PID and start time",
        ("tests/hooks/test_local.py", "tests/runtime/common/test_own_directory.py"),
    ),
    Flow(
        _NEIGHBOUR,
        "connections",
        "executors connect only to servers of the task's container or of the same user",
        ("neighbours-tensorboard", "tests/runtime/executor/test_peers.py"),
    ),
    Flow(
        _NEIGHBOUR,
        "connections",
        "in the preflight, executors connect only to ports of the job's executors, and accept only the expected bytes",
        ("tests/runtime/executor/test_preflight.py",),
    ),
    Flow(
        _VIEWER,
        "connections",
        "tunnels reach only the task's container; the master blocks TensorBoard plug-ins that open connections",
        ("other-jobs-server", "tests/runtime/am/web/test_tensorboard.py"),
    ),
    Flow(
        _FOLDER,
        "programs",
        "programs start in another directory, with environment variables from a fixed list",
        ("tests/cluster/environments/test_isolation.py", "tests/cli/test_runtime.py"),
    ),
)


def product() -> dict[str, str]:
    """Return the text of each scanned file of the product, by its name below tony_provider."""
    root = REPOSITORY / "tony_provider"
    files = [path for ending in ("*.py", "*.js") for path in root.rglob(ending)]
    named = {path.relative_to(root).as_posix(): path for path in sorted(files)}
    return {name: path.read_text() for name, path in named.items() if not name.startswith(USERS_OWN)}


def table(_: str) -> str:
    """Return the table of tests/secure/THREATS.md."""
    rows = [
        f"| {flow.source} | {flow.sink} | {flow.protection} | {', '.join(f'`{proof}`' for proof in flow.proofs)} |"
        for flow in FLOWS
    ]
    return "\n".join(["| source | interpreted as | protection | rows and tests |", "|---|---|---|---|", *rows]) + "\n"
