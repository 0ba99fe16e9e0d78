#!/usr/bin/env bash
# Instructions that one statement takes in user space, counted by callgrind, in process.
#
#   bench/callgrind.sh [read|write|lwt|view|cdc|index|counter|slice|put-item|…]…     reads and writes by key without arguments; all kinds: torc bench simple-query --help
#
#   TORC       the program (default: target/release/torc, built when it is not there)
#   OPS        operations of the longer run (default 12000); the shorter one has a fifth
#   TOP        functions shown (default 25)
#   OUT        where callgrind's files stay (default: a temporary folder that is removed)
#
# A run is counted twice with different numbers of operations; the difference leaves out start and preparation. The
# list of functions comes from the longer run, counted only inside of `measured_operations`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
ops=${OPS:-12000} top=${TOP:-25}
torc=${TORC:-${CARGO_TARGET_DIR:-target}/release/torc}
command -v valgrind >/dev/null || { echo "callgrind.sh: valgrind is not installed" >&2; exit 1; }
[ -x "$torc" ] || cargo build -q --release -p torc
arguments=(bench simple-query)
# The example of the crate is the subcommand itself.
[[ "$(basename "$torc")" == bench* ]] && arguments=(simple-query)
if [ -n "${OUT:-}" ]; then
  out=$OUT
  mkdir -p "$out"
else
  out=$(mktemp -d)
  trap 'rm -rf "$out"' EXIT
fi

count() { # count KIND OPERATIONS FILE [CALLGRIND OPTION…]: runs and prints the instructions
  local kind=$1 operations=$2 file=$3
  shift 3
  valgrind --tool=callgrind --callgrind-out-file="$file" "$@" \
    "$torc" "${arguments[@]}" "$kind" --ops "$operations" --warmup 1000 >"$file.log" 2>&1 ||
    { cat "$file.log" >&2; exit 1; }
  sed -n 's/^\(summary\|totals\): //p' "$file" | head -1
}

for kind in "${@:-read write}"; do
  for kind in $kind; do
    few=$((ops / 5))
    short=$(count "$kind" "$few" "$out/$kind.short")
    long=$(count "$kind" "$ops" "$out/$kind.long")
    echo "$kind: $(((long - short) / (ops - few))) instructions an operation"
    count "$kind" "$ops" "$out/$kind.inside" "--toggle-collect=*simple_query::measured_operations*" >/dev/null
    # The warm-up is inside too.
    echo "  where (instructions an operation, the function alone):"
    callgrind_annotate --threshold=100 --show-percs=no --auto=no "$out/$kind.inside" 2>/dev/null |
      awk -v per=$((ops + 1000)) -v top="$top" '
        /file:function/ { begun = 1; next }
        begun && $1 ~ /^[0-9,]+$/ && shown < top {
          number = $1; gsub(",", "", number); $1 = ""
          sub(/ \[[^\]]*\]$/, ""); sub(/^ +[^ ]*\//, " ")
          if (number / per >= 1) { printf "  %8.0f %s\n", number / per, substr($0, 1, 150); shown++ }
        }'
  done
done
