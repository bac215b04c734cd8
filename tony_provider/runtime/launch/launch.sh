#!/bin/sh
# sh tony/launch.sh am|executor: starts the runtime in a container with the first Python that suits its archive.
#
# Looked for, in this order: the job's environment when it was unpacked here (python_env/bin/python), the
# interpreters in TONY_PYTHON_CANDIDATES (colon-separated; paths or names on PATH), then python3 and python3.x on PATH;
# in an image also where images have one beside PATH.
# One suits when it is 3.9 or newer and the archive has the compiled libraries for it, which those of another machine or
# C library (an Alpine image's) are not.

here=${0%/*}
case $here in /*) ;; *) here=$PWD/$here ;; esac

# What the node calls home belongs to others, or to nobody: everything goes into the container.
work=$PWD/tony-work
HOME=$work/home TMPDIR=$work/tmp XDG_CACHE_HOME=$work/home/.cache
export HOME TMPDIR XDG_CACHE_HOME
mkdir -p "$HOME" "$TMPDIR"

# Also runs on a Python that is too old, to learn which it is.
probe='import os, sys
v = sys.version_info
sys.stdout.write("%d.%d" % v[:2])
lib = os.path.join(sys.argv[1], "lib", "cp%d%d" % v[:2])
if v[:2] < (3, 9) or not os.path.isdir(lib):
    sys.exit(1)
from importlib.machinery import EXTENSION_SUFFIXES
core = os.path.join(lib, "grpc", "_cython", "cygrpc")
if os.path.isdir(os.path.dirname(core)) and not any(os.path.exists(core + each) for each in EXTENSION_SUFFIXES):
    sys.stdout.write(" for " + getattr(sys.implementation, "_multiarch", sys.platform))
    sys.exit(1)'

found=
try() {
    path=$(command -v "$1" 2>/dev/null) || return 1
    version=$("$path" -E -s -c "$probe" "$here" 2>/dev/null </dev/null) && exec "$path" -I "$here/main.py" "$program"
    case "$found, " in *", $path ("*) ;; *) found="$found, $path (${version:-does not run})" ;; esac
}

program=$1
try ./python_env/bin/python
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

built=
for libraries in "$here"/lib/cp*; do
    version=${libraries##*/cp}
    minor=${version#?}
    built="$built, ${version%"$minor"}.$minor"
done
found=${found#, }
where="on $(uname -n)"
advice='Name a suitable interpreter, or a runtime built for one of these by "airflow tony runtime build --python 3.9,3.12",'
if [ -n "$image" ]; then
    where="in the image $image (looked for in PATH, /usr/local/bin, /usr/bin and /opt/*/bin)"
    advice="Put one into the image, bring one along as python_env, or name a runtime built for one of these by"
    advice="$advice \"airflow tony runtime build --python 3.9,3.12\","
fi
echo "no Python $where suits the tony runtime: found ${found:-none}; the runtime was built for ${built#, }." \
    "$advice in the connection." >&2
exit 65 # exit_codes.NO_PYTHON
