#!/bin/sh
# sh tony/launch.sh am|executor: starts the runtime in a container with the first Python that suits its archive.
#
# Looked for, in this order: the job's environment when it was unpacked here (python_env/bin/python), the
# interpreters in TONY_PYTHON_CANDIDATES (colon-separated; paths or names on PATH), then python3 and python3.x on PATH.
# One suits when it is 3.9 or newer and the archive has the compiled libraries for it.

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
sys.exit(not (v[:2] >= (3, 9) and os.path.isdir(os.path.join(sys.argv[1], "lib", "cp%d%d" % v[:2]))))'

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
for candidate in python3 python3.9 python3.10 python3.11 python3.12 python3.13 python3.14 python3.15; do
    try "$candidate"
done

built=
for libraries in "$here"/lib/cp*; do
    version=${libraries##*/cp}
    minor=${version#?}
    built="$built, ${version%"$minor"}.$minor"
done
found=${found#, }
echo "no Python on $(uname -n) suits the tony runtime: found ${found:-none}; the runtime was built for ${built#, }." \
    "Name a suitable interpreter, or a runtime built for one of these by \"airflow tony runtime build --python" \
    "3.9,3.12\", in the connection." >&2
exit 65 # exit_codes.NO_PYTHON
