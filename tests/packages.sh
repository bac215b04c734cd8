#!/bin/sh
# Debian packages that the tests need beside Python. As root on Debian they are installed; elsewhere the missing ones are named.
# With the argument `build`: only what the virtual environment is built with.
# With the argument `torch`: PyTorch for the system's Python, too, which a row of the faults trains with.
# With the argument `secure`: what gives a process another clock.
# With the argument `kinds`: PyTorch, what Horovod is built with, and MPI.
set -eu

missing=
need() { # command package
    command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
PATH="$PATH:/usr/sbin:/sbin"
need krb5-config libkrb5-dev # headers: the hdfs extra builds gssapi and krb5
need gcc gcc
if [ "${1:-}" != build ]; then
    need java openjdk-17-jdk-headless
    need javac openjdk-17-jdk-headless
    need mvn maven
    need krb5kdc krb5-kdc
    need kadmin.local krb5-admin-server
    need kinit krb5-user
    need curl curl # SPNEGO to the Kerberos cluster that the tests set up
    need chromium chromium # the browser of the tests
    need chromedriver chromium-driver
    need git git # a DAG bundle of the tests
    PATH="$PATH:$(echo /usr/lib/postgresql/*/bin | tr ' ' ':')"
    need initdb postgresql # Airflow's database
fi
case "${1:-}" in
torch | kinds) /usr/bin/python3 -c 'import torch' 2>/dev/null || missing="$missing python3-torch" ;;
esac
[ "${1:-}" != secure ] || need faketime faketime
if [ "${1:-}" = kinds ]; then
    need mpirun.openmpi openmpi-bin
    need mpirun.mpich mpich
    /usr/bin/python3 -c 'import mpi4py, numpy' 2>/dev/null || missing="$missing python3-mpi4py python3-numpy"
    need cmake cmake
    need g++ g++
    [ -e /usr/include/pybind11 ] || missing="$missing pybind11-dev"
    [ -e /usr/include/torch ] || missing="$missing libtorch-dev"
fi
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Installing Debian packages that the tests need, a few minutes, this once:$missing"
    export DEBIAN_FRONTEND=noninteractive
    # The tests have a PostgreSQL of their own: the package is not to start one for the whole machine.
    if [ ! -e /etc/postgresql-common ]; then
        mkdir -p /etc/postgresql-common
        echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
    fi
    echo "  fetching the lists of packages …"
    apt-get update -qq
    echo "  fetching and unpacking …"
    # shellcheck disable=SC2086
    apt-get install -y -qq --no-install-recommends $missing >/dev/null
else
    echo "The tests need these packages, which are not installed:$missing" >&2
    echo "Install them (on Debian and Ubuntu, as root: apt-get install$missing), then run the command again." >&2
    exit 1
fi
