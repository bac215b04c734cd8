# Starts the application master or an executor in a container, with the first Python that suits the runtime archive.
#
# The launch command carries this text, because a launcher inside the archive could not verify the archive:
#
#   sh -c <this text> tony <prepare.py> <am|executor> <SHA-256 of the archive> <Python versions of the archive>
#       [<the job's environment, packed>] [<SHA-256 of the environment>]
#
# The launcher tries these interpreters, in this order:
# - the interpreters in TONY_PYTHON_CANDIDATES (colon-separated; paths or names on PATH);
# - python3 and python3.x on PATH;
# - in an image, python3 and python3.x in the usual directories that may not be on PATH;
# - the interpreter of the job's own environment.
# The launcher verifies the environment before unpacking, because other jobs' programs may have changed the node's copy.

# YARN gives containers a pipe that never ends. A program that reads it by mistake would wait for ever.
exec </dev/null

prepare=$1 program=$2 sha256=$3 pythons=$4 environment=$5 environment_sha256=$6

# The home directory of the node belongs to another user, or to root: keep all files in the container.
work=$PWD/tony-work
HOME=$work/home TMPDIR=$work/tmp XDG_CACHE_HOME=$work/home/.cache
export HOME TMPDIR XDG_CACHE_HOME

# Names of containers are predictable. So programs of other jobs of the user can create this directory beforehand and
# leave files in it: YARN uses an existing directory. Only files that this script creates may be executed from here.
for place in tony tony-work python_env; do
    if [ -e "$place" ] || [ -L "$place" ]; then
        rm -rf "$place"
    fi
done
if ! mkdir -m 700 tony "$work" "$HOME" "$TMPDIR"; then
    echo "cannot create directories in $PWD, the container's directory: another program changed it, or its disk is full; see the previous line" >&2
    exit 66
fi

found=
try() {
    path=$(command -v "$1" 2>/dev/null) || return 1
    said=$("$path" -I -S -c "$prepare" "$sha256" 2>/dev/null)
    case $? in
        0) exec "$path" -I -S "$PWD/tony/start.py" "$program" ;;
        3) echo "$said" >&2; exit 66 ;;
    esac
    case "$found, " in *", $path ("*) ;; *) found="$found, $path (${said:-does not run})" ;; esac
}

old_ifs=$IFS
IFS=:
set -f
for candidate in $TONY_PYTHON_CANDIDATES; do
    IFS=$old_ifs
    try "$candidate"
    IFS=:
done
set +f
IFS=$old_ifs
names='python3 python3.9 python3.10 python3.11 python3.12 python3.13 python3.14 python3.15'
for candidate in $names; do
    try "$candidate"
done
image=${YARN_CONTAINER_RUNTIME_DOCKER_IMAGE:-$YARN_CONTAINER_RUNTIME_RUNC_IMAGE}
if [ -n "$image" ]; then
    for directory in /usr/local/bin /usr/bin /opt/*/bin; do
        for name in $names; do
            try "$directory/$name"
        done
    done
fi

if [ -n "$environment" ]; then
    if [ -n "$environment_sha256" ]; then
        if ! echo "$environment_sha256  $environment" | sha256sum -c - >/dev/null 2>&1; then
            echo "python_env is not what was submitted, or this node has no sha256sum to verify it: $environment" >&2
            exit 66
        fi
    fi
    mkdir tony/python_env
    if tar -xf "$environment" -C tony/python_env 2>/dev/null ||
        unzip -q "$environment" -d tony/python_env 2>/dev/null; then
        try ./tony/python_env/bin/python
    else
        found="$found, python_env (neither tar nor unzip unpacked it)"
    fi
fi

found=${found#, }
where="on $(uname -n)"
advice='Name a suitable interpreter, or a runtime built for one of these by "airflow tony runtime build --python 3.9,3.12",'
if [ -n "$image" ]; then
    where="in the image $image (looked for in PATH, /usr/local/bin, /usr/bin and /opt/*/bin)"
    advice="Put one into the image, bring one along as python_env, or name a runtime built for one of these by"
    advice="$advice \"airflow tony runtime build --python 3.9,3.12\","
fi
echo "no Python $where suits the tony runtime: found ${found:-none}; the runtime was built for $pythons." \
    "$advice in the connection." >&2
exit 65
