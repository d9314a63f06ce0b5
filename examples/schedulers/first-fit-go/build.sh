#!/bin/sh
# Build the scheduler with Debian's Go and its packages; nothing is fetched.
#   sh build.sh [test]
# PROTOS is where the .proto files are, OUT where the code is generated and the program is left.
set -eu
cd "$(dirname "$0")"
PROTOS=$(cd "${PROTOS:-../../../protos}" && pwd)
OUT=${OUT:-$PWD/build}
export GO111MODULE=off GOPATH="$OUT:/usr/share/gocode" GOFLAGS=

mkdir -p "$OUT/src"
# Each proto's go_package is its import path: reprieve.internal/scheduler/v1beta1 and so on.
(cd "$PROTOS" && find reprieve -name '*.proto') | xargs protoc -I "$PROTOS" \
  --go_out="$OUT/src" --go-grpc_out="$OUT/src"
[ "${1:-}" != test ] || go test .
go build -o "$OUT/first-fit-go" .
