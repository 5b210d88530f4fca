#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the committed oracle table and closing report anew, after evidence under reports/ changed.
# THORPROBE names the command, such as `python -m thorprobe`, where it is not installed.
set -euo pipefail
cd "$(dirname "$0")/.."

read -ra thorprobe <<< "${THORPROBE:-thorprobe}"
row=MODEL-MM-QWEN4-EXP
"${thorprobe[@]}" oracle thor-h200-gb10 --json --output reports/oracle.json
"${thorprobe[@]}" report --row "$row" --json --output "reports/row-$row.json"
for name in oracle "row-$row"; do
  "${thorprobe[@]}" report "reports/$name.json" --output "reports/$name.md"
done
