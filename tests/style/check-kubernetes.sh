#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The manifests are valid by Kubernetes' own schemas, which PyPI's kubernetes-validate has with it.
set -eu

cd "${1:-$(dirname "$0")/../..}"

if ! command -v kubernetes-validate >/dev/null; then
	echo "SKIP: there is no kubernetes-validate (pip install kubernetes-validate)"
	exit 77
fi
status=0
for file in packaging/kubernetes/*.yaml; do
	[ -e "$file" ] || continue
	# "ERROR FILE: ..." becomes a finding.
	findings=$(kubernetes-validate --strict --no-warn "$file" 2>&1 |
		grep -v ' passed for ' || true)
	[ -z "$findings" ] || {
		echo "$file:1: $findings"
		status=1
	}
done
exit "$status"
