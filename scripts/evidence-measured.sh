#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures the runner's own GPU. --device 0 ends with 3 where there is none: no prediction takes
# its place.
set -euo pipefail
cd "$(dirname "$0")/.."

out=${EVIDENCE:-evidence}
mkdir -p "$out"
rm -f "$out/gpu-sweep.jsonl" "$out/gpu-arms.jsonl"
thorprobe doctor
thorprobe cluster-sweep --device 0 --store "$out/gpu-sweep.jsonl" --no-progress --fail-on wrong
thorprobe topk-arms --device 0 --store "$out/gpu-arms.jsonl" --no-progress --fail-on wrong
