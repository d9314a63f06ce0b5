#!/bin/sh
# An authority, and a folder for each of queue, scheduler, eviction, autoscaler and replay, with tls.crt,
# tls.key, ca.crt and access.yaml: who may drive which service. Needs openssl.
#
#   deploy/tls/make-certificates.sh [--days N] [--host NAME_OR_ADDRESS]... [FOLDER]
#
# Default: 90 days, and deploy/tls/certificates, which git ignores. --host adds a name or an address at
# which other machines reach the services. Run it again to renew: the authority and access.yaml stay.
# The key of the authority, FOLDER/ca/ca.key, is needed for that only: keep it elsewhere.
set -eu
umask 077

days=90
names=
folder=$(dirname "$0")/certificates
while [ $# -gt 0 ]; do
  case $1 in
    --days) days=${2:?--days needs a number}; shift ;;
    --host)
      case ${2:?--host needs a name or an address} in
        *:*) names="$names,IP:$2" ;;
        *[!0-9.]*) names="$names,DNS:$2" ;;
        *) names="$names,IP:$2" ;;
      esac
      shift
      ;;
    -*) sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    *) folder=$1 ;;
  esac
  shift
done

ca=$folder/ca
mkdir -p "$ca"
if [ ! -e "$ca/ca.crt" ]; then
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -sha256 -days 3650 \
    -subj "/CN=reprieve authority" -addext "keyUsage=critical,keyCertSign,cRLSign" \
    -keyout "$ca/ca.key" -out "$ca/ca.crt" 2>/dev/null
fi

issue() { # issue NAME EXTRA_NAMES
  into=$folder/$1
  mkdir -p "$into"
  printf '%s\n' "subjectAltName=DNS:$1$2" "basicConstraints=critical,CA:FALSE" \
    "keyUsage=critical,digitalSignature" "extendedKeyUsage=serverAuth,clientAuth" >"$into/.extensions"
  openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -sha256 -subj "/CN=$1" \
    -keyout "$into/.tls.key" -out "$into/.request" 2>/dev/null
  openssl x509 -req -sha256 -days "$days" -in "$into/.request" -extfile "$into/.extensions" \
    -CA "$ca/ca.crt" -CAkey "$ca/ca.key" -set_serial "0x$(openssl rand -hex 15)" \
    -out "$into/.tls.crt" 2>/dev/null
  cp "$ca/ca.crt" "$into/.ca.crt"
  [ -e "$into/access.yaml" ] || access >"$into/access.yaml"
  share "$into" "$1"
  for file in ca.crt tls.key tls.crt; do mv "$into/.$file" "$into/$file"; done
  rm -f "$into/.extensions" "$into/.request"
}

access() {
  cat <<'ACCESS'
# Who this is, whom it trusts, and who may drive and look (docs/security.md).
certificate: tls.crt
key: tls.key
authority: ca.crt
services:
  queue: {drive: [scheduler], look: []}
  scheduler: {drive: [replay], look: []}
  eviction: {drive: [replay], look: []}
  autoscaler: {drive: [replay], look: []}
ACCESS
}

share() { # share FOLDER NAME: the containers' user, 65532, reads the files of the services
  [ "$2" != replay ] || return 0
  chmod 0750 "$1"
  chmod 0640 "$1/.ca.crt" "$1/.tls.key" "$1/.tls.crt" "$1/access.yaml"
  if [ "$(id -u)" = 0 ]; then
    chown 65532:65532 "$1" "$1/.ca.crt" "$1/.tls.key" "$1/.tls.crt" "$1/access.yaml"
  fi
}

for service in queue scheduler eviction autoscaler; do
  issue "$service" ",DNS:localhost,IP:127.0.0.1,IP:::1$names"
done
issue replay ""
echo "wrote $folder: valid for $days days" >&2
if [ "$(id -u)" != 0 ]; then
  echo "for docker-compose.tls.yml: export REPRIEVE_TLS_GROUP=$(id -g)" >&2
fi
