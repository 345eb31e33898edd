#!/bin/bash
# Known vulnerabilities of what is locked: `make audit`, or deploy/audit.sh FILE … for other locks. Ends with 1 if there are.
# Asks a public database over the network, so it is no part of `make test`; a package that cannot be looked up is a failure
# too (--strict).
set -euo pipefail
cd "$(dirname "$0")/.."
locks=("${@:-requirements.image.lock}")
for lock in "${locks[@]}"; do
  .venv/bin/uv tool run --quiet 'pip-audit>=2.9,<3' --strict --require-hashes --disable-pip --progress-spinner off --requirement "$lock"
done
