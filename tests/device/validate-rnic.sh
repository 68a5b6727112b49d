#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Validates Ferrule on real RDMA NICs, between two hosts: the settings of the NIC, its link and this
# host, latency and bandwidth beside perftest's, collectives with checked results, the tests of the
# API on the NIC, a link that goes down. Prints a report in markdown. An operator runs it on both
# hosts; see docs/guide/hardware.md. No command runs for longer than its limit.
#
# It has run on Linux rxe only, not on hardware.
set -eu

usage() {
	cat <<-'END'
	On the one host:     tests/device/validate-rnic.sh --server [options]
	On the other host:   tests/device/validate-rnic.sh --client HOST [options] >report.md

	HOST is the first one, as its control daemon (ferruled) is reached; ferruled has to run on
	both hosts (man ferruled), perftest has to be installed for the comparison.

	  --device NAME    libibverbs' device: mlx5_0, or mlx5_0/2 (default: the first usable one)
	  --ip ADDRESS     the address to use on it, where it has several
	  --bin FOLDER     where the programs are (default: build/tools, or PATH)
	  --tests FOLDER   where the tests of the API are (default: build/tests/unit; none: they are
	                   left out)
	  --perftest PORT  TCP port of perftest's meetings (default: 18515)
	  --limit SECONDS  how long a command may take (default: 300)
	  --flap           on both hosts: the client's interface also goes down and comes up again
	                   in mid-transfer (root there)
	END
}

role=
peer=
device=
ip=
bin=
tests=
perftest_port=18515
limit=300
flap=
while [ $# -gt 0 ]; do
	case $1 in
	-h | --help)
		usage
		exit 0
		;;
	--server) role=server ;;
	--flap) flap=1 ;;
	--client | --device | --ip | --bin | --tests | --perftest | --limit)
		if [ $# -lt 2 ]; then
			usage >&2
			exit 2
		fi
		case $1 in
		--client)
			role=client
			peer=$2
			;;
		--device) device=$2 ;;
		--ip) ip=$2 ;;
		--bin) bin=$2 ;;
		--tests) tests=$2 ;;
		--perftest) perftest_port=$2 ;;
		--limit) limit=$2 ;;
		esac
		shift
		;;
	*)
		usage >&2
		exit 2
		;;
	esac
	shift
done
if [ -z "$role" ]; then
	usage >&2
	exit 2
fi

here=$(cd "$(dirname "$0")/../.." && pwd)
if [ -z "$bin" ] && [ -x "$here/build/tools/ferrule-pingpong" ]; then
	bin=$here/build/tools
fi
[ -n "$tests" ] || tests=$here/build/tests/unit
[ -z "$bin" ] || PATH=$bin:$PATH
for program in ferrule-info ferrule-pingpong ferrule-bench; do
	if ! command -v "$program" >/dev/null; then
		echo "validate-rnic.sh: there is no $program: build Ferrule, or give --bin" >&2
		exit 2
	fi
done

# usable_port: "NAME INTERFACE ADDRESS PCI" of the first usable port among the chosen ones; a dash
# stands for an unknown value.
usable_port() {
	ferrule-info --json "verbs${device:+:$device}" 2>/dev/null | awk -F '"' '
		$2 != "" { value[$2] = $4 != "" ? $4 : $3 ~ /true/ ? "true" : "-" }
		/}/ {
			if (value["usable"] == "true") {
				print value["name"], value["interface"], value["address"], \
					value["pci"]
				exit
			}
			delete value
		}'
}

port=
interface=-
address=-
pci=-
read -r port interface address pci <<<"$(usable_port)" || true
if [ -z "$port" ]; then
	echo "validate-rnic.sh: no RDMA NIC that can be used:" >&2
	ferrule-info "verbs${device:+:$device}" >&2 || true
	exit 1
fi
[ -z "$ip" ] || address=${ip%%/*}
name=${port#verbs:}
case $name in
*/*) number=${name##*/} name=${name%%/*} ;;
*) number=1 ;;
esac
ferrule_device=(--port "$port")
[ -z "$ip" ] || ferrule_device+=(--ip "$ip")

# host_of PEER: without the port of its daemon, and the brackets of an IPv6 address.
host_of() {
	case $1 in
	\[*) echo "$1" | sed 's/^\[//; s/\].*//' ;;
	*:*:*) echo "$1" ;;
	*) echo "${1%%:*}" ;;
	esac
}

# text_of GID: its address as text.
text_of() {
	case $1 in
	0000:0000:0000:0000:0000:ffff:*)
		printf '%d.%d.%d.%d\n' "0x${1:30:2}" "0x${1:32:2}" "0x${1:35:2}" "0x${1:37:2}"
		;;
	*) getent ahostsv6 "$1" | awk '{ print $1; exit }' ;;
	esac
}

# gids: index, type, address and interface of all GIDs of the port.
gids() {
	local at=${SYSFS:-/sys}/class/infiniband/$name/ports/$number index gid type

	for index in $(seq 0 255); do
		read -r gid 2>/dev/null <"$at/gids/$index" || continue
		read -r type 2>/dev/null <"$at/gid_attrs/types/$index" || continue
		[ "${gid//[0:]/}" ] || continue
		printf '%s\t%s\t%s\t%s\n' "$index" "$type" "$(text_of "$gid")" \
			"$(cat "$at/gid_attrs/ndevs/$index" 2>/dev/null || echo -)"
	done
}

# Otherwise perftest chooses another address.
gid_index=$(gids | awk -F '\t' -v address="$address" '$2 == "RoCE v2" && $3 == address {
	print $1; exit }')
perftest_device=(-d "$name" -i "$number")
[ -z "$gid_index" ] || perftest_device+=(-x "$gid_index")
# Several names for a run would need a second channel: both ends use the same names.
job=validate-rnic
failures=0

# section TITLE: a heading.
section() {
	printf '\n## %s\n\n' "$1"
}

# failed TEXT: reports a failed check.
failed() {
	printf '\n**%s**\n' "$1"
	failures=$((failures + 1))
}

# show COMMAND...: prints its output unchanged. Returns its status, 124 past the limit.
show() {
	local status=0

	printf '```\n$ %s\n' "$*"
	timeout -k 5 "$limit" "$@" 2>&1 || status=$?
	printf '```\n'
	return "$status"
}

# report COMMAND...: the same, and it must succeed.
report() {
	local status=0

	show "$@" || status=$?
	case $status in
	0) ;;
	124 | 137) failed "Not done after $limit s." ;;
	*) failed "Failed with status $status." ;;
	esac
}

# maybe COMMAND...: the same, if the program is installed; it may fail.
maybe() {
	if command -v "$1" >/dev/null; then
		show "$@" || true
	else
		printf '%s is not installed.\n' "$1"
	fi
}

# perftest_pair TOOL OPTIONS...: this end of one of perftest's programs.
perftest_pair() {
	local tool=$1

	shift
	if ! command -v "$tool" >/dev/null; then
		printf '%s is not installed (package perftest): no comparison.\n' "$tool"
		return
	fi
	if [ "$role" = server ]; then
		report "$tool" "${perftest_device[@]}" -p "$perftest_port" "$@"
	else
		# The server's end needs a moment to listen again.
		sleep 2
		report "$tool" "${perftest_device[@]}" -p "$perftest_port" "$@" \
			"$(host_of "$peer")"
	fi
}

# pingpong OPTIONS...: the client's options decide the measurement.
pingpong() {
	if [ "$role" = server ]; then
		report ferrule-pingpong --listen "$job" "${ferrule_device[@]}"
	else
		report ferrule-pingpong --connect "$peer:$job" "${ferrule_device[@]}" "$@"
	fi
}

# bench NAME OPTIONS...: the command for two ranks, in `command`. The server's daemon keeps the job.
# The client is rank 0, which prints the report.
bench() {
	local name=$1 rank=1 at=

	shift
	if [ "$role" = client ]; then
		rank=0
		at=@$peer
	fi
	command=(ferrule-bench -n 2 --rank "$rank" --job "$job-$name$at"
		"${ferrule_device[@]}" "$@")
}

# collectives NAME OPTIONS...: results are checked.
collectives() {
	bench "$@"
	report "${command[@]}"
}

# describe_host: the properties that the figures depend on.
describe_host() {
	local of=/sys/bus/pci/devices/$pci file

	report uname -srm
	report ferrule-info
	printf 'Used: %s, interface %s, address %s, GID %s; lockable memory (ulimit -l): %s.\n' \
		"$port" "$interface" "$address" "${gid_index:-unknown}" "$(ulimit -l)"
	printf '%s\n' '```' "$(gids)" '```'
	maybe ibv_devinfo -d "$name" -i "$number" -v
	for file in "$of"/{current,max}_link_{speed,width} "$of/numa_node"; do
		[ ! -r "$file" ] || printf 'PCIe %s: %s\n' "${file##*/}" "$(cat "$file")"
	done
	[ "$interface" != - ] || return 0
	maybe ip -d -s link show "$interface"
	maybe ethtool "$interface"
	maybe ethtool -i "$interface"
	# Pause frames of the link, lossless priorities, congestion control.
	maybe ethtool -a "$interface"
	maybe dcb pfc show dev "$interface"
	maybe mlnx_qos -i "$interface"
}

# api_tests: the tests of the public functions, on this NIC with itself.
api_tests() {
	local test some=

	for test in $("$tests/test_api" -l 2>/dev/null || true); do
		case $test in
		api_endpoint | api_ethernet | api_links) continue ;;
		api*) ;;
		*) continue ;;
		esac
		some=1
		report env FRL_CONTROL=off FRL_TUNER_CACHE= FRL_TUNER_COSTS=default \
			FRL_TEST_PORT="$port" "$tests/test_api" "$test"
	done
	[ "$some" ] || printf 'There are none in %s: build Ferrule, or give --tests.\n' "$tests"
}

# flap_link: takes the link down 2 s from now, for 1 s.
flap_link() {
	sleep 2
	ip link set "$interface" down || return 1
	sleep 1
	ip link set "$interface" up
}

# flap_test: with one rail the transfer may go on or fail, depending on the time that the link
# needs. A rank that hangs or a wrong result is an error.
flap_test() {
	local status=0 flapping='' out

	out=$(mktemp)
	bench flap --op allreduce --min 16M --max 16M --iters 2000
	if [ "$role" = client ] && [ "$interface" = - ]; then
		failed "The port's network interface is not known."
	elif [ "$role" = client ]; then
		flap_link &
		flapping=$!
	fi
	show "${command[@]}" >"$out" || status=$?
	cat "$out"
	! grep -qE 'of place: |in place: |different results' "$out" || failed "Wrong results."
	rm -f "$out"
	case $status in
	0) printf 'The transfer went on.\n' ;;
	1) printf 'The transfer ended with an error, as it may with one rail.\n' ;;
	124 | 137) failed "Neither done nor failed after $limit s." ;;
	*) failed "Ended with status $status." ;;
	esac
	[ -z "$flapping" ] || wait "$flapping" || failed "The link could not be set down and up."
}

printf '# Ferrule on an RDMA NIC: %s, %s\n' "$role" "$(hostname)"
section "What this is"
describe_host

section "Latency, microseconds: perftest, then Ferrule"
perftest_pair ib_send_lat -a -F
perftest_pair ib_write_lat -a -F
perftest_pair ib_read_lat -a -F
pingpong --test latency --verify

section "Bandwidth: perftest, then Ferrule"
perftest_pair ib_send_bw -a -F --report_gbits
perftest_pair ib_write_bw -a -F --report_gbits
perftest_pair ib_read_bw -a -F --report_gbits
pingpong --test bandwidth

section "Collectives, every element checked"
collectives allreduce --op allreduce --min 8 --max 256M --factor 4
collectives all --op all --min 8 --max 4M --factor 64
collectives wire --op allreduce --wire f16,bf16,int8 --min 64K --max 16M --factor 16

if [ -n "$flap" ]; then
	section "A link that goes down and comes up again"
	flap_test
fi

section "The tests of the API: READ, WRITE, atomics, datagrams, shared receives, windows, events"
api_tests

section "Result"
if [ "$failures" -gt 0 ]; then
	printf '%d of the commands above failed.\n' "$failures"
	exit 1
fi
printf 'All commands above succeeded.\n'
