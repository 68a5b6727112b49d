#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# NCCL itself over libnccl-net-ferrule.so, on a machine with one GPU: ranks are processes that share
# it, each a host of its own to NCCL (NCCL_HOSTID), so that all between them goes by the network.
# Every collective is checked in every protocol, a killed rank has to be noticed, PyTorch's DDP has
# to learn what one process learns, and NCCL's own Socket transport runs in turns with it. Prints a
# report in markdown, with a summary at the end that says how the ratios came about. Skipped (status
# 77), with the reason, where there is no GPU or something is missing that the tests need.
#
# What one GPU cannot show: grouped receives. NCCL makes them for several GPUs behind one proxy
# (PXN) only; the harness (tests/nccl) has them.
#
# Not yet run on a GPU by anybody.
set -eu

usage() {
	cat <<-'END'
	tests/device/nccl.sh [options] >report.md
	  --build FOLDER   the build of Ferrule, or what tests/device/pack.sh made (default: build)
	  --libs FOLDER    libraries, in folders of any depth, for what the system has not: DPDK,
	                   ISA-L, protobuf-c (default: libs in the build folder)
	  --cuda FOLDER    the CUDA toolkit (default: where nvcc is, or /usr/local/cuda)
	  --nccl FOLDER    NCCL, with include/nccl.h and lib/ (default: the toolkit's, Python's or
	                   the system's)
	  --ranks LIST     numbers of ranks (2,3)
	  --rounds N       timed runs of each transport, in turns (5)
	  --bytes LIST     of the timed allreduce (4096,1048576,33554432)
	  --python NAME    a Python with PyTorch for the DDP run (python3)
	  --seconds N      no job is started later than that (450); one takes 60 at the most
	                   (DDP: 120), and after one that did not end there is no other
	  --keep FOLDER    keeps NCCL's logs there

	Times say what one transport is beside the other here. Ranks take turns on the GPU, so they
	say nothing about what it does with a GPU for each.

	A machine without DPDK and without internet: tests/device/pack.sh makes a folder to take
	along where Ferrule was built.
	END
}

caller=$PWD
caller_libraries=${LD_LIBRARY_PATH:-}
cd "$(dirname "$0")/../.."
source_root=$PWD

# shellcheck source=tests/device/lib.sh
. tests/device/lib.sh

cuda=
nccl=
rank_counts=2,3
rounds=5
bytes=4096,1048576,33554432
python=python3
rows_total=450

take() {
	case $1 in
	--cuda) cuda=$(absolute "$2") ;;
	--nccl) nccl=$(absolute "$2") ;;
	--ranks) rank_counts=$2 ;;
	--rounds) rounds=$2 ;;
	--bytes) bytes=$2 ;;
	--python)
		python=$2
		[[ $python != */* ]] || python=$(absolute "$python")
		;;
	*) return 1 ;;
	esac
}

take_options "$@"

# What the caller's shell says to NCCL is not what is tested here.
for name in "${!NCCL_@}" "${!FERRULE_@}"; do
	unset "$name"
done

# ---- what is there

find_gpu

if [ -z "$cuda" ]; then
	cuda=/usr/local/cuda
	! nvcc=$(command -v nvcc) || cuda=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
fi
nccl_of_python() {
	"$python" -c 'import importlib.util as u
print(list(u.find_spec("nvidia.nccl").submodule_search_locations)[0])' 2>/dev/null || true
}
places=("$nccl")
[ -n "$nccl" ] || places=("$cuda" "$(nccl_of_python)" /usr /usr/local)
library=
for nccl in "${places[@]}"; do
	for file in "$nccl"/lib64/libnccl.so* "$nccl"/lib/libnccl.so* \
		"$nccl"/lib/*-linux-gnu/libnccl.so*; do
		[ ! -e "$file" ] || library=${library:-$file}
	done
	[ -z "$library" ] || break
done
[ -n "$library" ] || cannot "there is no libnccl in: ${places[*]}; see --nccl"

plugin=$build/libnccl-net-ferrule.so
programs=("$build"/examples/ferrule-{allreduce,bench,pingpong} "$build/daemon/ferruled")
for file in "$plugin" "${programs[@]}"; do
	[ -r "$file" ] || cannot "$file is not built; see --build"
done

# ---- libraries that the system has not

# The caller's come first.
borrow "$libs" "$caller_libraries" "$plugin" "${programs[@]}"
export LD_LIBRARY_PATH=$own_libraries

export FRL_BIN=$build/examples
own_machine=unwanted
# shellcheck source=tests/system/lib.sh
. tests/system/lib.sh

ranks_running=()
# Each is a process group, with `timeout` at its head.
end_ranks() {
	local pid
	for pid in "${ranks_running[@]}"; do
		kill -9 -- "-$pid" 2>/dev/null || kill -9 "$pid" 2>/dev/null || true
	done
}
at_exit+=(end_ranks remove_borrowed)

# ---- what can be said before the first job

nccl_libraries=$(dirname "$library"):$cuda/lib64:$cuda/lib:$own_libraries
check=$temp/nccl_check
compiler=("$cuda/bin/nvcc")
[ -x "${compiler[0]}" ] || compiler=(cc -L"$cuda/lib64" -L"$cuda/lib")
runtime=()
[ "${compiler[0]}" != cc ] || runtime=(-lcudart)
if ! LD_LIBRARY_PATH=$caller_libraries "${compiler[@]}" -O2 -D_GNU_SOURCE -I"$cuda/include" \
	-I"$nccl/include" -o "$check" tests/device/nccl_check.c "$library" "${runtime[@]}" \
	>"$temp/compile.out" 2>&1; then
	# Built along with Ferrule, where NCCL was there.
	check=$build/tests/nccl/nccl-check
	if [ ! -x "$check" ]; then
		show "$temp/compile.out"
		cannot "tests/device/nccl_check.c cannot be compiled; see --cuda and --nccl"
	fi
fi
if ! LD_LIBRARY_PATH=$nccl_libraries CUDA_VISIBLE_DEVICES=$gpu_number timeout -k 5 60 \
	"$check" --about >"$temp/about.out" 2>&1; then
	fail "CUDA or NCCL does not start"
	show "$temp/about.out"
	finish
fi
passes local "$pingpong" --local --test latency --sizes 8,64K --iters 200 --verify
[ "$failures" -eq 0 ] || finish

# ---- jobs

# The plugin's own time to give up a peer.
export FERRULE_TIMEOUT_S=5
# Within which a dead rank has to be noticed: twice that, and NCCL's own ways.
notice_s=15
limit=60
job=0
stopped=
ferrule_settings=("LD_LIBRARY_PATH=$nccl_libraries" NCCL_NET=Ferrule "NCCL_NET_PLUGIN=$plugin")
# As docs/nccl.md has it.
unpack_settings=(FERRULE_UNPACK=1 NCCL_NET_GDR_LEVEL=SYS NCCL_NET_GDR_READ=0 NCCL_PROTO=^LL128)
socket_settings=("LD_LIBRARY_PATH=$nccl_libraries" NCCL_NET=Socket NCCL_NET_PLUGIN=none)

# is_over: no further job is started.
is_over() {
	[ -n "$stopped" ] || [ "$SECONDS" -lt "$rows_total" ] || stopped="$rows_total s are over"
	[ -n "$stopped" ]
}

# launch NAME RANKS SETTING... -- COMMAND...: runs the ranks; `%r` in the command is the rank.
# Standard output and error of rank R: $temp/NAME-R.out, NCCL's log: $temp/NAME-R.log. The exit
# statuses are in $statuses.
launch() {
	local name=$1 n=$2 settings=() command pid rank status
	shift 2
	while [ "$1" != -- ]; do
		settings+=("$1")
		shift
	done
	shift
	job=$((job + 1))
	statuses=()
	for ((rank = 0; rank < n; rank++)); do
		command=("${@//%r/$rank}")
		: >"$temp/$name-$rank.log"
		timeout -k 5 "$limit" env CUDA_VISIBLE_DEVICES="$gpu_number" \
			NCCL_HOSTID="ferrule-$rank" \
			NCCL_SOCKET_IFNAME=lo NCCL_MNNVL_ENABLE=0 NCCL_NVLS_ENABLE=0 \
			NCCL_MAX_CTAS=4 NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH \
			NCCL_DEBUG_FILE="$temp/$name-$rank.log" RANK="$rank" WORLD_SIZE="$n" \
			LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((29500 + job % 400)) \
			"${settings[@]}" "${command[@]}" >"$temp/$name-$rank.out" 2>&1 &
		ranks_running+=($!)
	done
	for pid in "${ranks_running[@]}"; do
		status=0
		wait "$pid" || status=$?
		statuses+=("$status")
		case $status in
		124 | 137) stopped="$name did not end within $limit s" ;;
		esac
	done
	ranks_running=()
	[ -z "$keep" ] || { mkdir -p "$keep" && cp "$temp/$name"-* "$keep"; }
}

# took NAME RANKS TRANSPORT: all ranks ended well, and NCCL's logs say by which way they spoke.
took() {
	local name=$1 n=$2 wanted=$3 rank
	if [[ ${statuses[*]} =~ [1-9] ]]; then
		fail "$name: ranks ended with ${statuses[*]}"
		for ((rank = 0; rank < n; rank++)); do
			show "$temp/$name-$rank.out"
			tail -n 8 "$temp/$name-$rank.log" | sed "s|^|    $name-$rank.log: |"
			grep -E 'WARN' "$temp/$name-$rank.log" | tail -n 5 || true
		done
		return 1
	fi
	for ((rank = 0; rank < n; rank++)); do
		if ! grep -qE "via NET/$wanted/" "$temp/$name-$rank.log"; then
			fail "$name: NCCL's log of rank $rank has no \"via NET/$wanted\""
			grep -E 'NET/|via ' "$temp/$name-$rank.log" | head -n 10 || true
			return 1
		fi
		if grep -E 'Channel .* via ' "$temp/$name-$rank.log" |
			grep -vqE "via NET/$wanted/"; then
			fail "$name: rank $rank has connections beside NET/$wanted"
			return 1
		fi
	done
}

n_rows=0
n_right=0
# row NAME RANKS WHAT SETTING...: a job whose results are checked; a line of the report.
row() {
	local name=$1 n=$2 what=$3 begin=$SECONDS way
	local arguments=(--rank %r --ranks "$2" --id "$temp/$1.id")
	shift 3
	n_rows=$((n_rows + 1))
	if is_over; then
		echo "| $what | $n | not run | | |"
		return
	fi
	launch "$name" "$n" "${ferrule_settings[@]}" "$@" -- "$check" "${arguments[@]}"
	if ! took "$name" "$n" Ferrule; then
		echo "| $what | $n | failed | $((SECONDS - begin)) | |"
		return
	fi
	n_right=$((n_right + 1))
	way=$(grep -ohE 'via NET/[^ ]*' "$temp/$name"-*.log | sort -u | tr '\n' ' ')
	echo "| $what | $n | right | $((SECONDS - begin)) | $way|"
}

# is_shared NAME WANTED: are there connections that several channels share?
is_shared() {
	local is=no
	! grep -qE 'via NET/Ferrule/.*/Shared' "$temp/$1"-*.log || is=yes
	[ "$is" = "$2" ] || fail "$1: shared connections: $is, wanted: $2"
}

rows() {
	local n=$1 proto right
	echo
	echo "| run | ranks | results | s | connections |"
	echo "|---|---|---|---|---|"
	right=$n_right
	row "default-$n" "$n" "NCCL's own choice"
	[ "$n_right" -eq "$right" ] || is_shared "default-$n" yes
	for proto in LL LL128 Simple; do
		row "$proto-$n" "$n" "NCCL_PROTO=$proto" NCCL_PROTO=$proto
	done
	row "ring-$n" "$n" "NCCL_ALGO=Ring" NCCL_ALGO=Ring
	right=$n_right
	row "unshared-$n" "$n" "a connection for each channel" NCCL_NET_SHARED_COMMS=0 \
		NCCL_NET_SHARED_BUFFERS=0
	[ "$n_right" -eq "$right" ] || is_shared "unshared-$n" no
	right=$n_right
	row "unpack-$n" "$n" "FERRULE_UNPACK=1" "${unpack_settings[@]}"
	[ "$n_right" -eq "$right" ] || is_unpacked "unpack-$n"
}

# is_unpacked NAME: NCCL's kernels have fetched what came. Not where NCCL receives into memory of
# the host, because it finds no GPUDirect RDMA.
is_unpacked() {
	if grep -qF "NCCL's kernels unpack what comes, up to" "$temp/$1"-*.log; then
		return 0
	elif grep -qF GDRDMA "$temp/$1"-*.log; then
		fail "$1: no connection has unpacked anything"
	else
		echo
		echo "NCCL received into memory of the host: with FERRULE_UNPACK=1, nothing was" \
			"unpacked."
	fi
}

# deaths: rank 1 ends after five allreduces. $death is for the summary.
deaths() {
	local line
	death="not run"
	is_over && return
	death=missed
	launch die 2 "${ferrule_settings[@]}" -- "$check" --rank %r --ranks 2 \
		--id "$temp/die.id" --die
	line=$(grep -m 1 '^noticed' "$temp/die-0.out") || line="it did not notice"
	if [ "${statuses[0]}" -ne 4 ] || [ "${statuses[1]}" -ne 0 ]; then
		fail "a rank that dies: ranks ended with ${statuses[*]}, not with 4 0; $line"
		show "$temp/die-0.out" "$temp/die-1.out"
	elif ! awk -v line="$line" -v most="$notice_s" \
		'BEGIN { split(line, part, ", "); exit !(part[2] + 0 <= most) }'; then
		fail "a rank that dies: $line; $notice_s s are the most"
	elif ! grep -qE 'NET/Ferrule : .*QP 0x[0-9a-f]+ to QP 0x[0-9a-f]+, .*PSN [0-9]+: ' \
		"$temp/die-0.log"; then
		fail "a rank that dies: the plugin names no peer and no QP in NCCL's log"
		grep -E 'WARN|NET/Ferrule' "$temp/die-0.log" | tail -n 5 || true
	else
		death=${line##*, }
		death=${death% later}
		echo "Rank 0 has $line:"
		echo
		grep -hoE 'NET/Ferrule : .* PSN .*' "$temp/die-0.log" | head -n 3 |
			sed 's/^/    /'
	fi
}

# unpack_death: the same with FERRULE_UNPACK=1. It is known that NCCL's kernels may not end then:
# the report says what happened, which is no failure of Ferrule's.
unpack_death() {
	local before=$limit
	is_over && return
	limit=30
	launch die-unpack 2 "${ferrule_settings[@]}" "${unpack_settings[@]}" -- "$check" \
		--rank %r --ranks 2 --id "$temp/die-unpack.id" --die
	limit=$before
	stopped=
	echo
	echo "With FERRULE_UNPACK=1 the ranks ended with ${statuses[*]}: 4 0 is right, 124 or 137" \
		"that a kernel which was aborted did not end within 30 s."
}

# ddp: PyTorch brings an NCCL of its own, and must not get another one's library.
ddp() {
	local status=0 before=$limit settings
	settings=("LD_LIBRARY_PATH=$own_libraries" NCCL_NET=Ferrule "NCCL_NET_PLUGIN=$plugin")
	trained="not run"
	is_over && return
	"$python" -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("torch"))' \
		>"$temp/torch.out" 2>&1 || status=$?
	if [ "$status" -ne 0 ]; then
		echo "Not run: $python has no PyTorch; see --python."
		return
	fi
	trained=failed
	limit=120
	launch ddp 2 "${settings[@]}" -- "$python" tests/device/nccl_ddp.py
	limit=$before
	took ddp 2 Ferrule || return 0
	trained=right
	cat "$temp/ddp-0.out"
}

# timed NAME TRANSPORT ROUND SETTING...: its lines go to $temp/times.
timed() {
	local name=$1 transport=$2 round=$3
	shift 3
	is_over && return
	launch "$name" 2 "$@" -- "$check" --rank %r --ranks 2 --id "$temp/$name.id" --bench "$bytes"
	took "$name" 2 "$transport" || return 0
	awk -v transport="$transport" -v round="$round" '
		/^allreduce/ { print transport, round, $2, $4, $7 }' "$temp/$name-0.out" \
		>>"$temp/times"
}

# speeds: the table of them, from $temp/times.
speeds() {
	awk '
	function median(list, values, n, i, k, x) {
		n = split(list, values, " ")
		for (i = 2; i <= n; i++) {
			x = values[i] + 0
			for (k = i - 1; k > 0 && values[k] + 0 > x; k--)
				values[k + 1] = values[k]
			values[k + 1] = x
		}
		return n % 2 ? values[(n + 1) / 2] : (values[n / 2] + values[n / 2 + 1]) / 2
	}
	{
		if (!($3 in seen))
			sizes[++n_sizes] = $3
		seen[$3] = 1
		us[$1, $3] = us[$1, $3] " " $4
		bw[$1, $3] = bw[$1, $3] " " $5
		at[$1, $2, $3] = $4
		rounds = $2 > rounds ? $2 : rounds
	}
	END {
		print "| bytes | Ferrule us | Socket us | Ferrule GB/s | Socket GB/s " \
			"| Ferrule / Socket | in single rounds |"
		print "|---|---|---|---|---|---|---|"
		for (i = 1; i <= n_sizes; i++) {
			s = sizes[i]
			low = high = 0
			for (r = 1; r <= rounds; r++) {
				if (!(("Ferrule", r, s) in at) || !(("Socket", r, s) in at))
					continue
				ratio = at["Socket", r, s] / at["Ferrule", r, s]
				low = !low || ratio < low ? ratio : low
				high = ratio > high ? ratio : high
			}
			if (!low)
				continue
			a = median(us["Ferrule", s])
			b = median(us["Socket", s])
			printf "| %d | %.1f | %.1f | %.3f | %.3f | %.2f | %.2f to %.2f |\n", s, \
				a, b, median(bw["Ferrule", s]), median(bw["Socket", s]), b / a, \
				low, high
		}
	}' "$temp/times"
}

# What was packed is what is run.
if [ -r "$build/commit" ]; then
	commit=$(cat "$build/commit")
elif commit=$(git rev-parse --short HEAD 2>/dev/null); then
	git diff --quiet HEAD 2>/dev/null || commit="$commit, changed"
fi
version=$(sed -n 's/^NCCL //p' "$temp/about.out")
cat <<-END
# NCCL over Ferrule

- date: $(date -u +%Y-%m-%d)
- commit: ${commit:-unknown}
- GPU, driver: $gpu_name, $driver
- $(sed -n 's/^CUDA/CUDA:/p' "$temp/about.out")
- NCCL: $version ($library)
- kernel: $(uname -r), $(nproc) processors, load $(cut -d ' ' -f 1 /proc/loadavg)

## Results

AllReduce, AllGather, ReduceScatter, Broadcast, Send/Recv and alltoall, 1 element a rank to 32 MiB.
END
IFS=, read -r -a rank_counts <<<"$rank_counts"
rows "${rank_counts[0]}"

echo
echo "## A rank that dies"
echo
deaths
unpack_death

echo
echo "## AllReduce, 2 ranks on one GPU, Ferrule and Socket in turns"
echo
: >"$temp/times"
for ((i = 1; i <= rounds; i++)); do
	timed "time-ferrule-$i" Ferrule "$i" "${ferrule_settings[@]}"
	timed "time-socket-$i" Socket "$i" "${socket_settings[@]}"
done
speeds >"$temp/speeds"
cat "$temp/speeds"

echo
echo "## PyTorch DDP"
echo
ddp

if [ ${#rank_counts[@]} -gt 1 ]; then
	echo
	echo "## Results with more ranks"
	for n in "${rank_counts[@]:1}"; do
		rows "$n"
	done
fi
[ -z "$stopped" ] || fail "not everything was run: $stopped"

cat <<-END

## Summary

| date | commit | GPU | driver | NCCL | results right | death noticed after | DDP |
|---|---|---|---|---|---|---|---|
| $(date -u +%Y-%m-%d) | ${commit:-unknown} | $gpu_name | $driver | $version | $n_right of $n_rows \
| $death | $trained |

AllReduce of 2 ranks that share the GPU, over Ferrule's local fabric and over NCCL's Socket
transport, median of up to $rounds rounds in turns; above 1 Ferrule is faster. Ranks take turns
on the GPU, so only the ratios say something.

END
cat "$temp/speeds"
echo
finish
