#!/bin/sh
# Build the scheduler with protoc, a C++17 compiler and gRPC's libraries; nothing is fetched.
#   sh build.sh
# PROTOS is where the .proto files are, OUT where the code is generated and the program is left.
set -eu
cd "$(dirname "$0")"
PROTOS=$(cd "${PROTOS:-../../../protos}" && pwd)
OUT=${OUT:-$PWD/build}
rm -rf "$OUT/gen" && mkdir -p "$OUT/gen"

# The service's proto and what it imports, each in the folder of its package, and google.rpc's
# messages of refusals.
(cd "$PROTOS" && find google reprieve -name '*.proto' ! -path '*/autoscaler/*' ! -path '*/eviction/*' \
  ! -path '*/trace/*' ! -name queue_service.proto) | xargs protoc -I "$PROTOS" --cpp_out="$OUT/gen"
protoc -I "$PROTOS" --grpc_out="$OUT/gen" --plugin=protoc-gen-grpc="$(command -v grpc_cpp_plugin)" \
  reprieve/scheduler/v1beta1/scheduler_service.proto

# One compiler for each core; generated code need not be optimised.
export COMPILE="${CXX:-g++} -std=c++17 -I$OUT/gen $(pkg-config --cflags grpc++ protobuf) -c"
(echo -O1 main.cc "$OUT/main.o"
 find "$OUT/gen" -name '*.cc' -printf '-O0 %p %p.o\n') |
  xargs -P "$(nproc)" -n 3 sh -c '$COMPILE "$0" "$1" -o "$2"'
"${CXX:-g++}" -o "$OUT/first-fit-cpp" "$OUT/main.o" $(find "$OUT/gen" -name '*.o') \
  $(pkg-config --libs grpc++ protobuf absl_synchronization)
