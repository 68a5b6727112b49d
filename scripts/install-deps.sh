#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Installs the Debian packages that are missing: `scripts/install-deps.sh GROUP...`, groups being
# build (the default), test, docs, interop, package, soak and bench. Says nothing and needs no
# rights when all of them are there.
set -eu

packages() {
	case $1 in
	build)
		echo gcc libc6-dev meson ninja-build pkg-config
		echo libdpdk-dev libjansson-dev libpcap-dev libprotobuf-c-dev
		echo protobuf-c-compiler libevent-dev libibverbs-dev libssl-dev libconfig-dev
		echo libsystemd-dev uthash-dev libcap-ng-dev libpmix-dev
		echo python3-pip python3-venv
		;;
	test)
		echo check clang libclang-rt-14-dev clang-format iproute2 openssl prometheus
		echo man-db groff gnuplot-nox openmpi-bin libopenmpi-dev mpich libmpich-dev
		echo slurm-wlm munge gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
		echo python3-numpy perftest ibverbs-utils ibverbs-providers ucx-utils
		echo rdmacm-utils libfabric-bin valgrind python3-pyverbs python3-torch mypy
		;;
	interop)
		echo qemu-system-x86 linux-image-amd64 busybox-static cpio kmod iproute2 python3
		echo ibverbs-utils ibverbs-providers perftest
		;;
	docs) echo python3-sphinx python3-myst-parser furo mandoc graphviz ;;
	package) echo mmdebstrap uidmap git ;;
	soak) echo stress-ng lcov ;;
	bench)
		echo openmpi-bin libopenmpi-dev mpich libmpich-dev ucx-utils libfabric-bin iperf3
		echo clang iproute2 python3 perftest ibverbs-utils
		;;
	*)
		echo "install-deps.sh: no group '$1' but build, test, docs, interop, package," \
			"soak, bench" >&2
		exit 2
		;;
	esac
}

[ $# -gt 0 ] || set -- build
wanted=()
for group in "$@"; do
	list=$(packages "$group")
	read -r -a names <<<"${list//$'\n'/ }"
	wanted+=("${names[@]}")
done

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
	echo "install-deps.sh: this is no Debian system; nothing installed. Needed, by their" \
		"Debian names: ${wanted[*]}" >&2
	exit 0
fi

# One query for all; a package that dpkg has never heard of is not in its answer.
installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${wanted[@]}" 2>/dev/null || true)
missing=()
for name in "${wanted[@]}"; do
	grep -qx "installed $name" <<<"$installed" || missing+=("$name")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
	if ! command -v sudo >/dev/null || { [ ! -t 0 ] && ! sudo -n true 2>/dev/null; }; then
		echo "install-deps.sh: packages are missing, and this is neither root nor can use" \
			"sudo. Let an administrator run:" >&2
		echo "    apt-get install ${missing[*]}" >&2
		exit 1
	fi
	as_root=(sudo)
fi

echo "installing ${missing[*]}"
apt() {
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
		apt-get -q -o DPkg::Lock::Timeout=300 "$@"
}
if ! apt update >/dev/null; then
	echo "install-deps.sh: apt-get update failed; going on with the lists that are there" >&2
fi
if ! apt install -y --no-install-recommends "${missing[@]}" >/dev/null; then
	echo "install-deps.sh: apt-get could not install: ${missing[*]}" >&2
	exit 1
fi
