"""A stand-in, for tests only, for Hadoop's native `container-executor`: it begins, ends and removes things as a user.

No jar carries the real one, which is built on each system and owned by root. This one takes the same arguments and
gives the same exit codes, makes the same folders with the same permissions, and really changes the user. It knows
nothing of cgroups and traffic control, and reads no `container-executor.cfg`. It must be started by root, in a
NodeManager whose /etc/passwd knows the users (see node_view.py).

Neither Docker's engine nor runc is there: what they would be told is kept in the container's log folder (IN_IMAGE), and
the container is begun as a plain process, with the environment that an image has.
"""

from __future__ import annotations

import configparser
import errno
import json
import os
import pwd
import shutil
import signal
import stat
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

# Of the real one, container-executor.h and util.h.
INITIALIZE, LAUNCH, SIGNAL, DELETE, LAUNCH_DOCKER, LIST = "0", "1", "2", "3", "4", "5"
ASK_DOCKER = ("--run-docker", "--inspect-docker-container", "--remove-docker-container")
RUN_RUNC, REAP_RUNC = "--run-runc-container", "--reap-runc-layer-mounts"
INVALID_ARGUMENT_NUMBER, INVALID_USER_NAME, INVALID_COMMAND = 1, 2, 3
SETUID_FAILED, SCRIPT_FAILED, SIGNAL_FAILED, INVALID_CONTAINER_PID = 6, 7, 8, 9
LEAST_UID = 1000  # min.user.id: the system's own users run no containers
SEPARATOR = "%"  # between directories in one argument
IN_IMAGE = "in-image.json"  # in a container's log folder: what Docker or runc would have been told
IMAGE_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "OF_THE_IMAGE": "yes"}


def main(arguments: list[str]) -> int:
    if arguments == ["--checksetup"]:
        return 0 if os.geteuid() == 0 else SETUID_FAILED
    if arguments[:1] == [RUN_RUNC]:
        return _run_runc(Path(arguments[1]))
    if arguments[:1] == [REAP_RUNC]:
        return 0
    if arguments and arguments[0] in ASK_DOCKER:
        return _ask_docker(arguments[1:])
    if len(arguments) < 3:
        return _refuse(INVALID_ARGUMENT_NUMBER, f"usage: user yarn-user command …, not {arguments}")
    name, _, command, *rest = arguments
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        return _refuse(INVALID_USER_NAME, f"User {name} not found")
    if user.pw_uid < LEAST_UID:
        return _refuse(INVALID_USER_NAME, f"Requested user {name} has id {user.pw_uid}, below {LEAST_UID}")
    acts = {
        INITIALIZE: _initialize,
        LAUNCH: _launch,
        LAUNCH_DOCKER: _launch_docker,
        SIGNAL: _signal,
        DELETE: _delete,
        LIST: _list,
    }
    if command not in acts:
        return _refuse(INVALID_COMMAND, f"Invalid command {command} not supported.")
    return acts[command](user, rest)


def _initialize(user: pwd.struct_passwd, rest: list[str]) -> int:
    """Folders of an application, its token file, and then the program that fetches its files: never returns."""
    application, container, tokens, local, logs, *program = rest
    locals_, content = local.split(SEPARATOR), Path(tokens).read_bytes()
    _folders_of_user(user, application, locals_, logs.split(SEPARATOR))
    for log in logs.split(SEPARATOR):
        _own_folder(user, Path(log, application, container))
    _become(user)
    folders = [_application_folder(user, each, application) for each in locals_]
    for folder in folders:
        _make(folder)
    _write(folders[0] / Path(tokens).name, content, 0o600)
    os.chdir(folders[0])
    os.execv(program[0], program)


def _launch_docker(user: pwd.struct_passwd, rest: list[str]) -> int:
    """The command file, which Docker's client would be called by, comes last."""
    *_, logs, command_file = rest
    text = configparser.RawConfigParser(delimiters="=", interpolation=None)
    text.optionxform = str  # type: ignore[assignment,method-assign]
    text.read(command_file)
    command = dict(text["docker-command-execution"])
    config = Path(command["docker-config"], "config.json") if "docker-config" in command else None
    kept = {
        "command": command,
        "config": json.loads(config.read_text()) if config else None,
        "config_is_private": bool(config and any(not each.stat().st_mode & stat.S_IXOTH for each in config.parents)),
    }
    _keep(user, Path(logs.split(SEPARATOR)[0]), rest[0], rest[1], kept)
    return _launch(user, rest[:-1], IMAGE_ENVIRONMENT)


def _ask_docker(words: list[str]) -> int:
    """Nothing of Docker's runs, so nothing is to be stopped, and it has neither addresses nor ports."""
    asked = " ".join(Path(word).read_text() if Path(word).is_file() else word for word in words)
    if "inspect" not in asked and "{{" not in asked:
        return 0
    if "State.Status" not in asked:
        return _refuse(1, "No such object")
    print("exited")
    return 0


def _run_runc(command_file: Path) -> int:
    """All that is needed is in the file."""
    told = json.loads(command_file.read_text())
    runtime = told["ociRuntimeConfig"]
    where = [told["applicationId"], told["containerId"], runtime["process"]["cwd"]]
    files = [told["containerScriptPath"], told["containerCredentialsPath"]]
    transport = ["--https", told["keystorePath"], told["truststorePath"]] if told.get("https") else ["--http"]
    folders = [SEPARATOR.join(told["localDirs"]), SEPARATOR.join(told["logDirs"])]
    user = pwd.getpwnam(told["runAsUser"])
    _keep(user, Path(told["logDirs"][0]), where[0], where[1], {"command": told})
    return _launch(user, [*where, *files, *transport, told["pidFile"], *folders], IMAGE_ENVIRONMENT)


def _keep(user: pwd.struct_passwd, log: Path, application: str, container: str, what: object) -> None:
    for folder in (log / application, log / application / container):
        _own_folder(user, folder)
    Path(log, application, container, IN_IMAGE).write_text(json.dumps(what, indent=1))


def _launch(user: pwd.struct_passwd, rest: list[str], environment: dict[str, str] | None = None) -> int:
    """A container, in a session of its own; how it ended stands beside its pid file, for a NodeManager begun anew."""
    application, container, work, script, tokens, transport, *rest = rest
    copies = [(script, "launch_container.sh", 0o700), (tokens, "container_tokens", 0o600)]
    if transport == "--https":
        keys, trusted, *rest = rest
        copies += [(keys, "yarn_provided.keystore", 0o600), (trusted, "yarn_provided.truststore", 0o600)]
    pid_file, local, logs, *_resources = rest
    contents = [(Path(path).read_bytes(), name, mode) for path, name, mode in copies]
    child = os.fork()
    if child == 0:
        _begin(user, application, container, Path(work), pid_file, local, logs, contents, environment)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    code = 128 - code if code < 0 else code
    _appear(Path(f"{pid_file}.exitcode"), str(code))
    return code


def _begin(
    user: pwd.struct_passwd,
    application: str,
    container: str,
    work: Path,
    pid_file: str,
    local: str,
    logs: str,
    contents: Iterable[tuple[bytes, str, int]],
    environment: dict[str, str] | None,
) -> NoReturn:
    """In the child: whatever fails ends it, with the exit code that the NodeManager knows."""
    try:
        os.setsid()
        _appear(Path(pid_file), str(os.getpid()))
        locals_ = local.split(SEPARATOR)
        _folders_of_user(user, application, locals_, logs.split(SEPARATOR))
        _become(user)
        for folder in (*(_application_folder(user, each, application) for each in locals_), work, work / "tmp"):
            _make(folder)
        for log in logs.split(SEPARATOR):
            _make(Path(log, application, container))
        for content, name, mode in contents:
            _write(work / name, content, mode)
        os.chdir(work)
        os.umask(0o027)
        found = os.environ if environment is None else environment
        os.execve(work / "launch_container.sh", ["launch_container.sh"], dict(found))
    except BaseException as error:  # noqa: BLE001 - a child that was forked must not run what is its parent's
        print(f"Could not launch {container}: {error!r}", file=sys.stderr, flush=True)
        os._exit(SCRIPT_FAILED)


def _signal(user: pwd.struct_passwd, rest: list[str]) -> int:
    """To a container's process group; 0 asks whether it is there."""
    pid, number = int(rest[0]), int(rest[1])
    if pid <= 1:
        return _refuse(INVALID_CONTAINER_PID, f"{pid} is no container's")
    _become(user)
    try:
        os.killpg(pid, 0)
        os.killpg(pid, signal.Signals(number) if number else 0)
    except ProcessLookupError:
        return _refuse(INVALID_CONTAINER_PID, f"process group {pid} is not there")
    except PermissionError as error:
        return _refuse(SIGNAL_FAILED, f"process group {pid}: {error}")
    return 0


def _delete(user: pwd.struct_passwd, rest: list[str]) -> int:
    """A path below each of the bases, or by itself; without a path the bases, whose parents are the NodeManager's."""
    path, *bases = rest
    targets = [Path(base, path) if path else Path(base) for base in bases] or [Path(path)]
    uid, gid = os.geteuid(), os.getegid()
    _become(user, for_good=False)
    failed = [target for target in targets if not _removed(target)]
    os.seteuid(uid)
    os.setegid(gid)
    if not path:
        for target in targets:
            if target.is_dir() and not any(target.iterdir()):
                target.rmdir()
        failed = [target for target in failed if target.exists()]
    return _refuse(255, f"could not delete {failed}") if failed else 0


def _list(user: pwd.struct_passwd, rest: list[str]) -> int:
    _become(user)
    target = Path(rest[0])
    try:
        print("\n".join([each.name for each in target.iterdir()] if target.is_dir() else [str(target)]))
    except OSError as error:
        return _refuse(255, str(error))
    return 0


# -- folders and files -----------------------------------------------------------------------------------------------


def _folders_of_user(user: pwd.struct_passwd, application: str, locals_: list[str], logs: list[str]) -> None:
    """Those in folders of the NodeManager's, made by it and given away."""
    for local in locals_:
        _own_folder(user, Path(local, "usercache", user.pw_name))
    for log in logs:
        _own_folder(user, Path(log, application))


def _own_folder(user: pwd.struct_passwd, path: Path) -> None:
    """The user's, of the NodeManager's group, as is what will be made in it: rwxr-s---."""
    if not path.is_symlink() and path.is_dir() and path.stat().st_uid == user.pw_uid:
        return
    path.mkdir(parents=True, exist_ok=True)
    os.chown(path, user.pw_uid, os.getegid())
    path.chmod(stat.S_ISGID | 0o750)


def _application_folder(user: pwd.struct_passwd, local: str, application: str) -> Path:
    return Path(local, "usercache", user.pw_name, "appcache", application)


def _make(path: Path) -> None:
    """By the user, with what leads to it: rwxr-x---, whose group is inherited."""
    for folder in (*reversed(path.parents), path):
        if not folder.exists():
            folder.mkdir(mode=0o750, exist_ok=True)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Never through a link that somebody has laid."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)
        file.write(content)


def _appear(path: Path, text: str) -> None:
    """Whole, in one act."""
    draft = path.with_name(f"{path.name}.tmp")
    draft.write_text(text)
    draft.rename(path)


def _removed(target: Path) -> bool:
    """Whether nothing is there any more, links not followed."""
    if target.is_symlink() or not target.is_dir():
        try:
            target.unlink(missing_ok=True)
        except OSError as error:
            print(f"{target}: {error}", file=sys.stderr)
            return False
        return True
    shutil.rmtree(target, onerror=lambda _, path, info: _told(path, info[1]))
    return not target.exists()


def _told(path: str, error: BaseException) -> None:
    if not (isinstance(error, OSError) and error.errno == errno.ENOENT):
        print(f"{path}: {error}", file=sys.stderr)


def _become(user: pwd.struct_passwd, *, for_good: bool = True) -> None:
    os.setgroups([user.pw_gid])
    if for_good:
        os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
        os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
    else:
        os.setegid(user.pw_gid)
        os.seteuid(user.pw_uid)


def _refuse(code: int, words: str) -> int:
    print(words, file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
