#!/usr/bin/env bash
# Install a wheel or an sdist into an empty environment and try it there: tools/smoke.sh dist/proxode-*.whl [python3]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
package=$1
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
"${2:-python3}" -m venv "$room"
pip() { "$room/bin/python" -I -m pip --quiet --disable-pip-version-check "$@"; }
pip install -c constraints.txt setuptools # an sdist is built by it, here and not in an environment of pip's own
pip install -c constraints.txt --no-build-isolation "$package"
"$room/bin/python" -I tools/smoke.py --without-extras
pip install -c constraints.txt --no-build-isolation "$package[cli]"
"$room/bin/python" -I tools/smoke.py
echo "$package: installed and tried"
