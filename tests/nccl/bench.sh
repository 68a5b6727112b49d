#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# bench.sh [options]: traffic as of NCCL's rings, of host memory, through libnccl-net-ferrule.so and
# through plain TCP sockets as NCCL's Socket transport uses them by default, in turns. Prints
# bandwidth, processor seconds a GB, the latency of small messages, and the ratios, as markdown.
# Both use the same path: two processes of this host (local), or two network namespaces (veth).
# Numbers from a busy machine mean nothing; the load is printed.
#	--build FOLDER  the build (default: build)
#	--paths LIST    of local,veth (both)
#	--what LIST     of bandwidth,latency (both)
#	--json FOLDER   keeps every single run of the bandwidth there, a file for each path
# Other options are nccl-bench's: --rounds, --mib, --both, --slice, --channels, --sets, --in-flight.
build=$(cd "$(dirname "$0")/../.." && pwd)/build
paths=local,veth
what=bandwidth,latency
json=
options=(--mib 1024)
while [ $# -gt 0 ]; do
	case $1 in
	-h | --help)
		sed -n '4,15s/^# \?//p' "$0"
		exit 0
		;;
	--both)
		options+=("$1")
		shift
		continue
		;;
	esac
	[ $# -ge 2 ] || {
		echo "$1: no value; see --help" >&2
		exit 2
	}
	case $1 in
	--build) build=$(cd "$2" && pwd) ;;
	--paths) paths=$2 ;;
	--what) what=$2 ;;
	--json) json=$2 ;;
	*) options+=("$1" "$2") ;;
	esac
	shift 2
done
export FRL_BIN=$build/tools
own_machine=unwanted
keep_settings='FERRULE_.*|FRL_.*|NCCL_.*'
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../system/lib.sh"
# shellcheck source=tests/nccl/ethernet_lib.sh
. "$(dirname "$0")/ethernet_lib.sh"

bench=$build/tests/nccl/nccl-bench
plugins=("$build/libnccl-net-ferrule.so" "$build/tests/nccl/libnccl-net-testsocket.so")
for file in "$bench" "${plugins[@]}"; do
	[ -r "$file" ] || skip "$file is not built"
done
[ -z "$json" ] || mkdir -p "$json"

# measure PATH OPTION...: prints its tables.
measure() {
	local path=$1 kind extra load
	shift
	for kind in "${kinds[@]}"; do
		case $kind in
		bandwidth) extra=(${json:+--json "$json/$path.json"}) ;;
		latency) extra=(--latency) ;;
		esac
		load=$(cut -d ' ' -f 1 /proc/loadavg)
		printf '\n### %s, %s (load %s)\n\n' "$path" "$kind" "$load"
		if "$bench" "$@" "${options[@]}" "${extra[@]}" "${plugins[@]}" >"$temp/$path" 2>&1
		then
			sed -n '/^|/p' "$temp/$path"
		else
			fail "$path, $kind"
			show "$temp/$path"
		fi
	done
}

IFS=, read -r -a paths <<<"$paths"
IFS=, read -r -a kinds <<<"$what"
for kind in "${kinds[@]}"; do
	case $kind in
	bandwidth | latency) ;;
	*)
		echo "--what $kind: bandwidth and latency are known" >&2
		exit 2
		;;
	esac
done
model=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
echo "$(nproc) processors, $model; medians of alternating runs."
for path in "${paths[@]}"; do
	case $path in
	local) NCCL_SOCKET_IFNAME=lo FERRULE_DEVICES=local measure local ;;
	veth)
		make_hosts 0
		read -r -d '' -a hosts <<<"$(host_options)" || true
		measure veth "${hosts[@]}" \
			--set "0:FERRULE_DEVICES=$(ferrule_devices 0)" \
			--set "1:FERRULE_DEVICES=$(ferrule_devices 1)"
		;;
	*) fail "there is no path $path: local and veth are known" ;;
	esac
done
finish
