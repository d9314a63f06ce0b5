#!/bin/sh
# numba uses a cache only where it may write, and the image is read-only: give it a copy in /tmp.
# On another processor than the image's builder it finds nothing there, compiles, and keeps it.
set -eu
mkdir -p "$NUMBA_CACHE_DIR"
cp -R /opt/reprieve/kernels/. "$NUMBA_CACHE_DIR"
exec "$@"
