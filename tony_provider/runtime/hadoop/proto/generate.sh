#!/bin/sh
# Generate the Python code next to every .proto file below tony_provider/runtime: messages with type stubs, and gRPC stubs
# for files with a service. Run this script after each change of a .proto file, and commit the result.
#
# The compiler is pinned to the oldest release that the package's dependencies allow (protobuf 6.31, grpcio 1.76), because
# generated code does not work with older libraries. It works with newer libraries up to the next major release.
# The compiler is installed in a temporary environment, because only this script needs it. The variable PYTHON selects the
# interpreter (default: python3).
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
