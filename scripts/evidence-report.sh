#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the report of a row from what was made here and, where nothing was, from reports/: pages
# beside the evidence, annotations in the log, and the pages in the step summary.
set -euo pipefail
shopt -s nullglob
cd "$(dirname "$0")/.."

out=${EVIDENCE:-evidence}
row=${ROW:-MODEL-MM-QWEN4-EXP}
fleet=${FLEET:-thor-h200-gb10}
evidence=("$out"/*.jsonl)
if [[ ${#evidence[@]} -eq 0 ]]; then
  echo "no store was made in $out" >&2
  exit 1
fi
made=("${evidence[@]}")
for file in reports/*.json reports/*.jsonl; do
  # Evidence is named by its file: what was made here takes the place of what is committed.
  [[ -e $out/${file##*/} ]] || evidence+=("$file")
done

thorprobe report --row "$row" --fleet "$fleet" "${evidence[@]}" --json --output "$out/row-$row.json"
thorprobe report "$out/row-$row.json" --output "$out/row-$row.md"
thorprobe report "$out/row-$row.json" --format github
options=()
for file in "${evidence[@]}"; do
  options+=(--evidence "$file")
done
thorprobe oracle "$fleet" "${options[@]}" --json --output "$out/oracle.json"
thorprobe report "$out/oracle.json" --output "$out/oracle.md"
for store in "${made[@]}"; do
  thorprobe report "$store" --output "${store%.jsonl}.md"
  thorprobe report "$store" --format github
done
