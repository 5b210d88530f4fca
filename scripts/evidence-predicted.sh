#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Predicts sweep and arms of the parts that nobody has measured. A prediction that is not the
# committed one is red: then the pages under reports/ are to be made anew.
set -euo pipefail
cd "$(dirname "$0")/.."

out=${EVIDENCE:-evidence}
mkdir -p "$out"
failed=0
for profile in thor gb10; do
  for command in cluster-sweep topk-arms; do
    name=$profile-predicted
    [[ $command == topk-arms ]] && name+=-arms
    rm -f "$out/$name.jsonl"
    thorprobe "$command" --profile "$profile" --store "$out/$name.jsonl" --no-progress \
      --fail-on changed --baseline "reports/$name.jsonl" || failed=$?
  done
done
exit "$failed"
