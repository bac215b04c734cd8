#!/bin/sh
# Makes the Python code of every .proto file below tony_provider/runtime, in place: messages and their type stubs, and gRPC
# stubs for files with a service. Run it after each change of a .proto file and commit the result.
#
# The compiler is pinned to the oldest release that the package's dependencies allow (protobuf 6.31, grpcio 1.76): generated
# code works with its own and newer libraries up to the next major release, never with older ones.
# It lives in a throw-away environment, since it is needed for nothing else. PYTHON chooses the interpreter (default python3).
set -eu

GRPCIO_TOOLS_VERSION=1.76.0

cd "$(dirname "$0")/../../../.."
environment=$(mktemp -d)
trap 'rm -rf "$environment"' EXIT
"${PYTHON:-python3}" -m venv "$environment"
"$environment/bin/pip" install --quiet "grpcio-tools==$GRPCIO_TOOLS_VERSION"

find tony_provider/runtime -name '*.proto' | sort | while read -r file; do
    set -- --python_out=. --pyi_out=.
    if grep -q '^service ' "$file"; then
        set -- "$@" --grpc_python_out=.
    fi
    "$environment/bin/python" -m grpc_tools.protoc --proto_path=. "$@" "$file"
    echo "$file"
done
