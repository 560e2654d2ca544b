#!/usr/bin/env bash
# Measures what `graph run` costs beyond the commands that its graph runs: from the start of the process to its exit.
#
# Each round runs `graphs/project_stats.yaml` and then, as the reference, its two commands with `bash -c` alone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

rounds=${1:-101}
cargo build --quiet --release -p state-graph-cli
graph=${CARGO_TARGET_DIR:-target}/release/graph
export DIRECTORY=graphs PATTERN='*.yaml'
find="find \"\$DIRECTORY\" -type f -name \"\$PATTERN\" -not -path '*/target/*' -not -path '*/.git/*'"
count_files="set -o pipefail
$find | wc -l | tr -d ' '"
count_lines="set -o pipefail
$find -exec cat {} + | wc -l | tr -d ' '"

# In microseconds.
now() { printf '%s' "${EPOCHREALTIME/[.,]/}"; }

with=() without=() beyond=()
for ((round = 0; round < rounds; round++)); do
    begun=$(now)
    "$graph" run graphs/project_stats.yaml --quiet --input "directory=$DIRECTORY" --input "pattern=$PATTERN" </dev/null >/dev/null
    between=$(now)
    bash -c "$count_files" >/dev/null
    bash -c "$count_lines" >/dev/null
    ended=$(now)
    with+=($((between - begun)))
    without+=($((ended - between)))
    beyond+=($((between - begun - (ended - between))))
done

show() {
    local name=$1 sorted
    shift
    mapfile -t sorted < <(printf '%s\n' "$@" | sort -n)
    printf '%-34s least %6d µs   median %6d µs\n' "$name" "${sorted[0]}" "${sorted[$# / 2]}"
}
show 'graph run' "${with[@]}"
show 'the two commands alone' "${without[@]}"
show 'the difference, round by round' "${beyond[@]}"
