#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The types of the Python package, and of a program that uses it, as Debian's mypy checks them.
set -eu
cd "$(dirname "$0")/../.."
command -v mypy >/dev/null || {
	echo "SKIP: there is no mypy: scripts/install-deps.sh test installs it"
	exit 77
}
cache=$(mktemp -d)
trap 'rm -rf "$cache"' EXIT
mypy --strict --cache-dir "$cache" --python-executable "${FRL_PYTHON:-/usr/bin/python3}" \
	python/ferrule tests/python/typed_user.py
