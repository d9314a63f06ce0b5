#!/usr/bin/env bash
# A Docker engine and a Python base image for tests/e2e/test_compose.py, also on a bare machine.
#
#   eval "$(deploy/test-engine.sh start)"   # prints exports; what it does goes to standard error
#   deploy/test-engine.sh stop              # ends only the engine that start has started
#
# An engine that answers is used as it is. Otherwise Debian's is installed and started with a data
# folder, a socket and a bridge of its own, which needs root. Both commands may be repeated.
set -euo pipefail

STATE=${REPRIEVE_ENGINE_DIR:-${TMPDIR:-/tmp}/reprieve-engine}
SOCKET=unix://$STATE/docker.sock
BRIDGE=reprieve0
LOCAL_BASE=reprieve-base:local
REGISTRY_BASE=${PYTHON_IMAGE:-python:3.12-slim}

say() { echo "test-engine: $*" >&2; }

install_packages() {
  [ "$(id -u)" = 0 ] || { say "installing $* needs root"; return 1; }
  local apt=(apt-get -qq -o DPkg::Lock::Timeout=120)
  {
    "${apt[@]}" update
    DEBIAN_FRONTEND=noninteractive "${apt[@]}" install -y --no-install-recommends "$@"
  } >>"$STATE/apt.log" 2>&1 || { tail -5 "$STATE/apt.log" >&2; return 1; }
}

need() { # need COMMAND PACKAGE...
  command -v "$1" >/dev/null || install_packages "${@:2}"
}

uplink_mtu() { # a container's packets must fit the machine's own way out
  local device
  device=$(ip -o route get 192.0.2.1 2>/dev/null | sed -n 's/.* dev \([^ ]*\).*/\1/p')
  cat "/sys/class/net/$device/mtu" 2>/dev/null || echo 1500
}

start_engine() {
  if docker info >/dev/null 2>&1; then return; fi
  need dockerd docker.io
  need docker docker.io
  need iptables iptables
  need ip iproute2
  if docker info >/dev/null 2>&1; then return; fi # the package has started its service
  export DOCKER_HOST=$SOCKET
  if docker info >/dev/null 2>&1; then return; fi # a former start
  ip link show "$BRIDGE" >/dev/null 2>&1 || ip link add "$BRIDGE" type bridge
  ip address replace 172.31.250.1/24 dev "$BRIDGE"
  ip link set "$BRIDGE" up
  iptables-save >"$STATE/iptables.before"
  cp /proc/sys/net/ipv4/ip_forward "$STATE/ip_forward.before"
  setsid dockerd --host "$SOCKET" --data-root "$STATE/data" --exec-root "$STATE/exec" \
    --pidfile "$STATE/dockerd.pid" --bridge "$BRIDGE" --mtu "$(uplink_mtu)" \
    --default-address-pool base=172.31.0.0/17,size=24 >"$STATE/dockerd.log" 2>&1 </dev/null &
  local pid=$!
  for _ in $(seq 120); do
    if docker info >/dev/null 2>&1; then say "started dockerd"; return; fi
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.25
  done
  tail -20 "$STATE/dockerd.log" >&2
  return 1
}

find_base_image() { # sets PYTHON_IMAGE
  for PYTHON_IMAGE in "$REGISTRY_BASE" "$LOCAL_BASE"; do
    if docker image inspect "$PYTHON_IMAGE" >/dev/null 2>&1; then return; fi
  done
  PYTHON_IMAGE=$REGISTRY_BASE
  if timeout 60 docker pull --quiet "$PYTHON_IMAGE" >/dev/null 2>"$STATE/pull.log"; then return; fi
  say "no $PYTHON_IMAGE from a registry; making $LOCAL_BASE from Debian's packages"
  PYTHON_IMAGE=$LOCAL_BASE
  make_base_image
}

make_base_image() {
  need mmdebstrap mmdebstrap
  local trusted=/etc/ssl/certs/ca-certificates.crt
  mmdebstrap --quiet --mode=root --variant=minbase \
    --include=python3-venv,python-is-python3,ca-certificates \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --customize-hook="upload $trusted $trusted" \
    "$(. /etc/os-release && echo "$VERSION_CODENAME")" - 2>"$STATE/base.log" |
    docker import --change "ENV PIP_CERT=$trusted" --change 'ENV LANG=C.UTF-8' - "$LOCAL_BASE" \
      >/dev/null || { tail -5 "$STATE/base.log" >&2; return 1; }
}

start() {
  mkdir -p "$STATE"
  start_engine
  docker compose version >/dev/null 2>&1 || need docker-compose docker-compose
  find_base_image
  echo "export PYTHON_IMAGE=$PYTHON_IMAGE"
  if [ -n "${DOCKER_HOST:-}" ]; then echo "export DOCKER_HOST=$DOCKER_HOST"; fi
  if ! docker buildx version >/dev/null 2>&1; then
    echo "export DOCKER_BUILDKIT=0 COMPOSE_DOCKER_CLI_BUILD=0"
  fi
}

stop() {
  if [ -f "$STATE/iptables.before" ]; then stop_engine; fi
  rm -rf "$STATE"
}

stop_engine() {
  export DOCKER_HOST=$SOCKET # what still runs here is ours: its networks would outlive the engine
  docker ps --all --quiet 2>/dev/null | xargs -r docker rm --force >/dev/null
  docker network prune --force >/dev/null 2>&1 || true
  local pid
  pid=$(cat "$STATE/dockerd.pid" 2>/dev/null || echo none)
  if [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = dockerd ]; then kill "$pid"; fi
  for _ in $(seq 120); do
    [ -d "/proc/$pid" ] || break
    sleep 0.25
  done
  awk -v at="$STATE/" 'index($2, at) == 1 { print $2 }' /proc/mounts | sort -r | xargs -r umount
  restore_network
  ip link delete "$BRIDGE" 2>/dev/null || true
  say "stopped dockerd"
}

restore_network() { # dockerd leaves its rules, and forwarding denied to everybody else
  iptables-save | awk '
    !now { if ($1 ~ /^\*/) table = $1; else before[table, $1 == "-A" ? $0 : $1] = $2; next }
    /^\*/ { table = $1; chains = ""; print; next }
    /^:/ && $2 == "-" { if (!((table, $1) in before)) chains = chains " " substr($1, 2); next }
    /^:FORWARD/ { print $1, (table, $1) in before ? before[table, $1] : "ACCEPT"; next }
    /^-A/ && /DOCKER|reprieve0|br-[0-9a-f]+/ && !((table, $0) in before) { sub(/^-A/, "-D"); print }
    /^COMMIT/ {
      count = split(chains, chain, " ")
      for (i = 1; i <= count; i++) print "-X", chain[i]
      print
    }' "$STATE/iptables.before" now=1 - | iptables-restore --noflush || say "iptables rules are left"
  cat "$STATE/ip_forward.before" >/proc/sys/net/ipv4/ip_forward
}

case ${1:-} in
  start | stop) "$1" ;;
  *)
    sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
