#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs thorprobe into an environment of its own, and puts it on the PATH of the steps after it.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=${THORPROBE_VENV:-.venv}
python3 -m venv "$venv"
"$venv/bin/pip" install --quiet .
bin=$(cd "$venv/bin" && pwd)
"$bin/thorprobe" --version
# Outside of GitHub Actions there are no later steps to tell.
if [[ -n ${GITHUB_PATH:-} ]]; then
  echo "$bin" >> "$GITHUB_PATH"
fi
