# Functions of the scripts that measure the gateway; to be sourced from the root of the repository.

# Sets `gateway` to the release build, which it makes. GATEWAY names another program to measure.
build_gateway() {
  gateway="${GATEWAY:-}"
  [[ -n "$gateway" ]] && return
  cargo build --quiet --release -p tollgate-gateway
  gateway="${CARGO_TARGET_DIR:-target}/release/tollgate-gateway"
}

# Sets `folder` to a temporary folder. It and all background processes are removed at the end.
use_folder() {
  folder=$(mktemp -d)
  trap 'kill $(jobs -p) 2>/dev/null; wait 2>/dev/null; rm -rf "$folder"' EXIT
}

needs() { command -v "$1" >/dev/null || [[ -x "/usr/sbin/$1" ]] || { echo "installing $2"; apt-get install -y --no-install-recommends "$2" >/dev/null; }; }

# The address that a gateway prints to file $1: that of its clients, or with `admin` as $2 that of its page.
address() {
  local found which='s|^[^,]* at https\{0,1\}://\([0-9.:]*\).*|\1|p'
  [[ "${2:-}" = admin ]] && which='s|.*the page at http://\([0-9.:]*\).*|\1|p'
  for _ in {1..100}; do
    found=$(sed -n "$which" "$1" 2>/dev/null) || true
    [[ -n "$found" ]] && { echo "$found"; return; }
    sleep 0.1
  done
  echo "no address found; $1 contains:" >&2; cat "$1" >&2
  return 1
}

# CPU time of the processes $@ so far, in clock ticks, and their resident memory in kB.
ticks() { local id; for id in "$@"; do cat "/proc/$id/stat"; done | awk '{ sub(/.*\) /, ""); sum += $12 + $13 } END { print sum }'; }
resident() { awk '/^VmRSS/ { print $2 }' "/proc/$1/status"; }

median() { sort -n | awk '{ all[NR] = $1 } END { print (all[int((NR + 1) / 2)] + all[int(NR / 2) + 1]) / 2 }'; }
