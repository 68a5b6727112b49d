#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# tests/python/run.sh TEST.py ARGUMENT...: runs a file of tests by FRL_PYTHON or Debian's Python,
# for which scripts/install-deps.sh test installs NumPy and PyTorch. Another one may have PyTorch 2:
# FRL_PYTHON=venv/bin/python meson test -C build --suite python
set -eu
python=${FRL_PYTHON:-/usr/bin/python3}
modules=(numpy)
case ${1##*/} in
*torch* | ddp.py) modules+=(torch) ;;
esac
for module in "${modules[@]}"; do
	"$python" -c "import $module" 2>/dev/null || {
		echo "SKIP: $python has no $module: scripts/install-deps.sh test installs it"
		exit 77
	}
done
exec "$python" "$@"
