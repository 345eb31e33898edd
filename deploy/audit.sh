#!/bin/bash
# Lists published vulnerabilities of the locked packages: `make audit`, or deploy/audit.sh FILE … for other lock files.
# Exits with 1 if there are any, or if a package cannot be looked up (--strict). It queries a public database over the
# network, so it is not part of `make test`.
set -euo pipefail
cd "$(dirname "$0")/.."
locks=("${@:-requirements.image.lock}")
for lock in "${locks[@]}"; do
  .venv/bin/uv tool run --quiet 'pip-audit>=2.9,<3' --strict --require-hashes --disable-pip --progress-spinner off --requirement "$lock"
done
