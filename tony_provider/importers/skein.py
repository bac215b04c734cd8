"""Import Skein application specifications in YAML or JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from tony_provider.importers.job_source import Source, System, for_sh
from tony_provider.importers.key_table import (
    Carry,
    Draft,
    KeyPath,
    Keys,
    NotImportable,
    argument,
    boolean,
    carried_by,
    handled_elsewhere,
    left_out,
    mapped_to,
    mapping,
    memory,
    nested_mapping,
    number,
    positive_or_none,
    user,
)

_ARCHIVES = (".zip", ".tar.gz", ".tgz")
_NOBODY = "no user program runs in the master, because it has no script"
_SKEIN = re.compile(r"\bskein (?:kv|application|driver|config)\b|-m skein[\w.]*")
_MANY = 1000  # our budget for Skein's unlimited restarts


def _script(draft: Draft, key: str, value: Any, names: Sequence[str]) -> None:
    lines = [str(each) for each in value] if isinstance(value, list) else [str(value)]
    text = " && ".join(lines).strip()
    draft.put((*_place(draft, names), "command"), for_sh(text), key)
    if found := _SKEIN.search(text):
        draft.leave_out(
            key,
            f"calls `{found[0]}`, but Skein does not run here: tasks find each other in TONY_CLUSTER_SPEC, and "
            "the job ends when they have ended; `airflow tony notebook` starts Jupyter, `framework: ray` starts Ray",
        )


def _place(draft: Draft, names: Sequence[str]) -> KeyPath:
    """Return our path of a service, or of the chief, which runs the script of Skein's master."""
    return draft.place(names) or ("tasks", "chief")


def _files(draft: Draft, key: str, value: Any, names: Sequence[str]) -> None:
    given_files = _named_files(value)
    if given_files is None:
        draft.leave_out(key, "should be a mapping of names to files", value)
        return
    if _is_nobodys(draft, names):
        draft.leave_out(key, _NOBODY, value)
        return
    for target, given in given_files.items():
        file = given if isinstance(given, Mapping) else {"source": given}
        source = str(file.get("source", "")).removeprefix("file://")
        kind = str(file.get("type", "infer")).lower()
        is_archive = kind == "archive" or (kind == "infer" and source.endswith(_ARCHIVES))
        draft.add_file((*_place(draft, names), "archives" if is_archive else "files"), source, str(target), key)
        for option in ("visibility", "size", "timestamp"):
            if option in file:
                draft.leave_out(f"{key}.{target}.{option}", "files are staged by their content, for this user alone")


def _named_files(value: Any) -> Mapping[str, Any] | None:
    """Return files by name, also from the list of older versions: ``[{file: data.txt}, {archive: env.zip}]``."""
    if isinstance(value, Mapping):
        return value
    named = {}
    for each in value if isinstance(value, list) else [None]:
        kind, source = next(iter(each.items())) if isinstance(each, Mapping) and len(each) == 1 else ("", None)
        if kind not in ("file", "archive") or not isinstance(source, str):
            return None
        named[PurePosixPath(source).name] = {"source": source, "type": kind}
    return named


def _is_nobodys(draft: Draft, names: Sequence[str]) -> bool:
    """Return whether the key belongs to Skein's master, and the master runs no user program."""
    return not names and "chief" not in draft.tasks


def _env(draft: Draft, key: str, value: Any, names: Sequence[str]) -> None:
    if _is_nobodys(draft, names):
        draft.leave_out(key, _NOBODY, value)
        return
    draft.put_environment(_place(draft, names), mapping(value), key)


def _depends(draft: Draft, key: str, value: Any, names: Sequence[str]) -> None:
    for other in value if isinstance(value, list) else [value]:
        draft.put("tasks.<type>.after.<type>", "started", key, [names[0], str(other)])


def _restarts(draft: Draft, key: str, value: Any, names: Sequence[str]) -> None:
    """Carry over a service's restarts. A job has only one budget, so the largest number of all services applies."""
    given = number(value)
    if given == 0:
        draft.put("tasks.<type>.restart", "never", key, names)
        return
    budget = _MANY if given < 0 else given
    if given < 0:
        draft.leave_out(key, f"an unlimited number is {_MANY} here; restarts after progress are not counted", value)
    before = draft.get("restart.budget")
    if before not in (None, budget):
        draft.leave_out(
            key, f"a job has only one `restart.budget`: {max(before, budget)}, the largest of its services", value
        )
    draft.put("restart.budget", max(before or 0, budget), key)


def _failures(draft: Draft, key: str, value: Any, _names: Sequence[str]) -> None:
    if boolean(value):
        why = "a failure fails the job; with `role: sidecar` it is only reported; `tolerated_failures` allows some"
        draft.leave_out(key, why, value)


def _of_master(name: str, read: Callable[[Any], Any]) -> Carry:
    """Return a function that carries a resource of the master over: to our chief if it has a script, else to ``am``."""

    def carry(draft: Draft, key: str, value: Any, _names: Sequence[str]) -> None:
        draft.put(("tasks", "chief", name) if "chief" in draft.tasks else ("am", name), read(value), key)

    return carry


def _fpgas(draft: Draft, key: str, value: Any, names: Sequence[str]) -> None:
    if count := positive_or_none(value):
        draft.put((*draft.place(names), "resources", "yarn.io/fpga"), count, key)


KEYS = Keys(
    {
        **handled_elsewhere(
            {
                "services.<type>.relax_locality": "tasks.<type>.placement.required",
                "services": "tasks",
            }
        ),
        "name": mapped_to("name"),
        "queue": mapped_to("queue"),
        "user": argument("proxy_user", user),
        "node_label": mapped_to("node_label", lambda value: value or None),
        "tags": mapped_to("tags"),
        "max_attempts": mapped_to("am.attempts", positive_or_none),
        "file_systems": left_out("`hadoop: true` in the job, and `other_hdfs` of the connection", "other_hdfs"),
        "acls.enable": left_out("`acls` applies on clusters that enforce access lists"),
        "acls.view_users": mapped_to("acls.view.users"),
        "acls.view_groups": mapped_to("acls.view.groups"),
        "acls.modify_users": mapped_to("acls.modify.users"),
        "acls.modify_groups": mapped_to("acls.modify.groups"),
        **dict.fromkeys(
            ("acls.ui_users", "acls.ui_groups"),
            left_out("only the users and groups of `acls.view` can open the job's page", "acls.view"),
        ),
        "master.resources.memory": carried_by(_of_master("memory", memory), "am.memory"),
        "master.resources.vcores": carried_by(_of_master("vcores", number), "am.vcores"),
        **dict.fromkeys(
            ("master.resources.gpus", "master.resources.fpgas"), left_out("no user program runs in the master")
        ),
        "master.script": carried_by(_script, "tasks.chief.command"),
        "master.files": carried_by(_files, "files"),
        "master.env": carried_by(_env, "tasks.chief.env"),
        "master.security": left_out("certificates are made for each application"),
        **dict.fromkeys(("master.log_level", "master.log_config"), left_out("nothing to set")),
        "services.<type>.resources.memory": mapped_to("tasks.<type>.memory", memory),
        "services.<type>.resources.vcores": mapped_to("tasks.<type>.vcores", number),
        "services.<type>.resources.gpus": mapped_to("tasks.<type>.gpus", positive_or_none),
        "services.<type>.resources.fpgas": carried_by(_fpgas, "tasks.<type>.resources"),
        "services.<type>.instances": mapped_to("tasks.<type>.instances", number),
        "services.<type>.script": carried_by(_script, "tasks.<type>.command"),
        "services.<type>.commands": carried_by(_script, "tasks.<type>.command"),
        "services.<type>.files": carried_by(_files, "files"),
        "services.<type>.env": carried_by(_env, "tasks.<type>.env"),
        "services.<type>.depends": carried_by(_depends, "tasks.<type>.after"),
        "services.<type>.max_restarts": carried_by(_restarts, "restart.budget"),
        "services.<type>.allow_failures": carried_by(_failures, "tolerated_failures"),
        "services.<type>.node_label": mapped_to("tasks.<type>.node_label", lambda value: value or None),
        "services.<type>.nodes": mapped_to("tasks.<type>.placement.nodes"),
        "services.<type>.racks": mapped_to("tasks.<type>.placement.racks"),
    }
)
_WITHIN = Keys({key: rule for key, rule in KEYS.rules.items() if key != "services"})


def _knows(source: Source) -> bool:
    plain = source.document
    if plain is None or "framework" in plain or "components" in plain or "roles" in plain:
        return False
    return isinstance(plain.get("services"), Mapping) or isinstance(plain.get("master"), Mapping)


def _read(source: Source) -> Draft:
    plain = source.document
    if plain is None:
        raise NotImportable(f"{source.label}: is not a mapping in YAML or JSON")
    draft = Draft()
    draft.put("framework", "standalone", "services")
    services = plain.get("services") or {}
    if not isinstance(services, Mapping):
        raise NotImportable(f"{source.label}: `services` should be a mapping")
    there = {name: service for name, service in services.items() if _is_there(draft, name, service)}
    for name in there:
        draft.put(("tasks", draft.service_type(name), "instances"), 1, name)
    if nested_mapping(plain, "master").get("script"):
        draft.put("tasks.chief.instances", 1, "master.script")
        draft.put("success", "chief", "master.script")
    _WITHIN.carry_all(draft, {**plain, "services": there})
    _places(draft, there)
    draft.share_files()
    draft.remove_absent_dependencies()
    if unsaid := [name for name, service in there.items() if "max_restarts" not in service]:
        draft.leave_out(
            f"services.{unsaid[0]}.max_restarts",
            "is not given, so Skein uses 0: a failure ends the application. Here the task restarts, up to "
            "`restart.budget` times (3); set `restart: never` of a task type for Skein's rule",
        )
    draft.report_servers("services.{theirs}")
    return draft


def _is_there(draft: Draft, name: str, service: object) -> bool:
    if not isinstance(service, Mapping):
        draft.leave_out(f"services.{name}", "should be a mapping", service)
        return False
    if str(service.get("instances", 1)) == "0":
        draft.leave_out(f"services.{name}.instances", "a task type needs at least one, so this service is left out", 0)
        return False
    return True


def _places(draft: Draft, services: Mapping[str, Any]) -> None:
    """Make named nodes and racks mandatory, unless the service relaxes locality."""
    for name, service in services.items():
        place: KeyPath = ("tasks", draft.task_type(name), "placement")
        if draft.get(place) and not boolean(service.get("relax_locality") or False):
            draft.put((*place, "required"), True, f"services.{name}.relax_locality")


SYSTEM = System(
    name="skein",
    title="Skein",
    page="from-skein",
    takes="a specification in YAML or JSON",
    keys=(KEYS,),
    knows=_knows,
    read=_read,
)
