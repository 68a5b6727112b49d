#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# NCCL itself over libnccl-net-ferrule.so, on a machine with one GPU. Ranks are processes that share
# the GPU. Each is a host of its own to NCCL (NCCL_HOSTID), so all traffic between them goes by the
# network. The rows check every collective with NCCL's buffers in memory of the host, in memory of
# the GPU (FERRULE_GPU=1), and with receives that NCCL's kernels unpack (FERRULE_UNPACK=1). They
# also show a killed rank, a second communicator, PyTorch's DDP, and times beside NCCL's own Socket
# transport. The most telling rows come first. Prints a report in markdown: a verdict line for each
# row, the totals, the times, and the end of the logs of failed rows. Skipped (status 77), with the
# reason, where there is no GPU or something is missing that all rows need.
#
# One GPU cannot show grouped receives: NCCL makes them only for several GPUs behind one proxy
# (PXN). The harness (tests/nccl) has them. LL128 needs 128 bytes that become visible together.
# Nothing guarantees that for receives in memory of the host, so its rows report and never fail.
#
# Nobody has run it on a GPU yet.
set -eu

usage() {
	cat <<-'END'
	tests/device/nccl.sh [options] >report.md
	  --build FOLDER   the build of Ferrule, or what tests/device/pack.sh made (default: build)
	  --libs FOLDER    libraries, in folders of any depth, for what the system has not: DPDK,
	                   protobuf-c (default: libs in the build folder)
	  --cuda FOLDER    the CUDA toolkit (default: where nvcc is, or /usr/local/cuda*)
	  --nccl FOLDER    NCCL, with include/nccl.h and lib/; the word pip: the one that pip has
	                   brought (nvidia-nccl-cu12 or -cu13) for the Python of --python
	                   (default: the toolkit's, pip's or the system's, the first that is there)
	  --ranks LIST     numbers of ranks: all rows with the first, some with the others (2,3)
	  --rounds N       timed runs of each transport, in turns (3)
	  --bytes LIST     of the timed allreduce (4096,1048576,33554432)
	  --python NAME    a Python with PyTorch for the DDP rows (python3)
	END
	common_usage
	cat <<-'END'

	Times say what one transport is beside the other here. Ranks take turns on the GPU, so they
	say nothing about what it does with a GPU for each.
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
rounds=3
bytes=4096,1048576,33554432
python=python3

take() {
	case $1 in
	--cuda) cuda=$(absolute "$2") ;;
	--nccl)
		nccl=$2
		[ "$nccl" = pip ] || nccl=$(absolute "$2")
		;;
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

rows_total=440
take_options "$@"

# Remove the settings of the caller's shell for NCCL and CUDA: they are not under test.
for name in CUDA_MODULE_LOADING CUDA_LAUNCH_BLOCKING "${!NCCL_@}" "${!FERRULE_@}"; do
	unset "$name"
done

# ---- what is there

find_gpu
find_cuda

# pip's package has include/ and lib/ in nvidia/nccl, beside other packages of Python.
nccl_of_python() {
	"$python" - 2>/dev/null <<'END' || true
import os, sys
for place in sys.path:
    folder = os.path.join(place or ".", "nvidia", "nccl")
    if os.path.isdir(os.path.join(folder, "lib")):
        print(os.path.realpath(folder))
        break
END
}
case $nccl in
'') places=("$cuda" "$(nccl_of_python)" /usr /usr/local) ;;
pip) places=("$(nccl_of_python)") ;;
*) places=("$nccl") ;;
esac
library=
for nccl in "${places[@]}"; do
	[ -n "$nccl" ] || continue
	for file in "$nccl"/lib64/libnccl.so* "$nccl"/lib/libnccl.so* \
		"$nccl"/lib/*-linux-gnu/libnccl.so*; do
		[ ! -e "$file" ] || library=${library:-$file}
	done
	[ -z "$library" ] || break
done
[ -n "$library" ] || cannot "there is no libnccl in: ${places[*]:-(no folder)}; see --nccl"

plugin=$build/libnccl-net-ferrule.so
programs=("$build"/tools/ferrule-{allreduce,bench,pingpong} "$build/daemon/ferruled")
for file in "$plugin" "${programs[@]}"; do
	[ -r "$file" ] || cannot "$file is not built; see --build"
done

# ---- libraries that the system has not

# The caller's settings come first.
borrow "$libs" "$caller_libraries" "$plugin" "${programs[@]}"
export LD_LIBRARY_PATH=$own_libraries

# Ends a row in which an event never comes.
[ -n "$rehearsal" ] || export FRL_TEST_LIMIT=30
export FRL_BIN=$build/tools
own_machine=unwanted
# shellcheck source=tests/system/lib.sh
. tests/system/lib.sh
# shellcheck source=tests/device/rows.sh
. tests/device/rows.sh

ranks_running=()
# Each is a process group, with `timeout` at its head.
end_ranks() {
	local pid
	for pid in "${ranks_running[@]}"; do
		kill -9 -- "-$pid" 2>/dev/null || kill -9 "$pid" 2>/dev/null || true
	done
}
at_exit+=(end_ranks remove_borrowed)

# ---- the program of a rank

nccl_libraries=$(dirname "$library"):$cuda/lib64:$cuda/lib:$own_libraries
check=$temp/nccl_check

# compile_check: links libnccl by its full path, as pip's package has no libnccl.so beside
# libnccl.so.2. nvcc takes no such name, so it goes to the host's linker, and so does RPATH, which
# counts before LD_LIBRARY_PATH.
compile_check() {
	local linked=(-Xlinker --disable-new-dtags -Xlinker --no-as-needed
		-Xlinker -rpath -Xlinker "$(dirname "$library")" -Xlinker "$library")
	local compiler=("$cuda/bin/nvcc") runtime=()
	if [ ! -x "${compiler[0]}" ]; then
		compiler=(cc -L"$cuda/lib64" -L"$cuda/lib")
		runtime=(-lcudart)
	fi
	LD_LIBRARY_PATH=$caller_libraries limited 120 "${compiler[@]}" -O2 -D_GNU_SOURCE \
		-I"$nccl/include" -I"$cuda/include" -o "$check" tests/device/nccl_check.c \
		"${linked[@]}" "${runtime[@]}" >"$temp/compile.out" 2>&1
}

if [ -n "$rehearsal" ]; then
	check=$rehearsal/nccl_check
elif ! compile_check; then
	show "$temp/compile.out"
	# Built along with Ferrule, where NCCL was there.
	check=$build/tests/nccl/nccl-check
	[ -x "$check" ] ||
		cannot "tests/device/nccl_check.c cannot be compiled; see --cuda and --nccl"
	echo "tests/device/nccl_check.c cannot be compiled here: the one of the build is used"
fi

# ---- jobs

# The time after which the plugin gives up a peer.
export FERRULE_TIMEOUT_S=5
# The limit for noticing a dead rank: twice that time, and NCCL's own mechanisms.
notice_s=15
n_jobs=0
# For rows that need not move much.
few=(--most 1048576)
ferrule_settings=(NCCL_NET=Ferrule "NCCL_NET_PLUGIN=$plugin")
socket_settings=(NCCL_NET=Socket NCCL_NET_PLUGIN=none)
# The settings that docs/guide/nccl.md recommends.
gpu_settings=(FERRULE_GPU=1 CUDA_MODULE_LOADING=EAGER NCCL_NET_GDR_LEVEL=SYS)
unpack_settings=(FERRULE_UNPACK=1 NCCL_NET_GDR_LEVEL=SYS NCCL_NET_GDR_READ=0)

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
	n_jobs=$((n_jobs + 1))
	statuses=()
	for ((rank = 0; rank < n; rank++)); do
		command=("${@//%r/$rank}")
		: >"$temp/$name-$rank.log"
		limited_rank env CUDA_VISIBLE_DEVICES="$gpu_number" \
			LD_LIBRARY_PATH="$nccl_libraries" NCCL_HOSTID="ferrule-$rank" \
			NCCL_SOCKET_IFNAME=lo NCCL_MNNVL_ENABLE=0 NCCL_NVLS_ENABLE=0 \
			NCCL_MAX_CTAS=4 NCCL_DEBUG=INFO \
			NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH,ENV,TUNING \
			NCCL_DEBUG_FILE="$temp/$name-$rank.log" RANK="$rank" WORLD_SIZE="$n" \
			LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 \
			MASTER_PORT=$((29500 + n_jobs % 400)) \
			"${settings[@]}" "${command[@]}" >"$temp/$name-$rank.out" 2>&1 &
		ranks_running+=($!)
	done
	for pid in "${ranks_running[@]}"; do
		status=0
		# The shell would report ranks that were killed.
		{ wait "$pid" || status=$?; } 2>/dev/null
		statuses+=("$status")
	done
	ranks_running=()
}

# limited_rank COMMAND...: replaces the rank's shell, so that end_ranks finds the process.
limited_rank() {
	exec timeout -k 5 "$(limit_of "$row_limit")" "$@"
}

# explain NAME RANKS: the lines that are shown of a failed job.
explain() {
	local name=$1 n=$2 rank file
	for ((rank = 0; rank < n; rank++)); do
		file=$temp/$name-$rank
		echo "rank $rank ended with ${statuses[$rank]}:"
		tail -n 3 "$file.out"
		grep -hE 'WARN|NET/Ferrule : ' "$file.log" |
			grep -vE 'Ferrule : (version|settings|device [0-9])' | tail -n 3 || true
	done >"$temp/$name.why" 2>/dev/null
}

# took NAME RANKS TRANSPORT: sets $outcome and $said: all ranks ended well, and NCCL's logs name
# this transport. Returns false otherwise.
took() {
	local name=$1 n=$2 wanted=$3 rank
	outcome=fail
	explain "$name" "$n"
	if [[ " ${statuses[*]} " =~ \ (124|137)\  ]]; then
		outcome=hang
		said="ranks ended with ${statuses[*]}"
		return 1
	elif [[ ${statuses[*]} =~ [1-9] ]]; then
		said="ranks ended with ${statuses[*]}; $(first_reason "$name")"
		return 1
	fi
	for ((rank = 0; rank < n; rank++)); do
		if ! grep -qE "via NET/$wanted/" "$temp/$name-$rank.log"; then
			said="NCCL's log of rank $rank has no \"via NET/$wanted\""
		elif grep -E 'Channel .* via ' "$temp/$name-$rank.log" |
			grep -vqE "via NET/$wanted/"; then
			said="rank $rank has connections beside NET/$wanted: $(grep -ohE \
				'via [A-Za-z/0-9]+' "$temp/$name-$rank.log" | sort -u |
				grep -v "NET/$wanted" | head -n 1)"
		else
			continue
		fi
		return 1
	done
	outcome=pass
	said=$(describe "$name")
}

# first_reason NAME: the first line of a rank or of NCCL's log that names an error.
first_reason() {
	{
		grep -hE 'NCCL WARN|NET/Ferrule : .*(cannot|takes no|off, though)' \
			"$temp/$1"-*.log |
			sed 's/^.*NCCL WARN //; s/^.*NET\/Ferrule : /NET\/Ferrule: /'
		grep -hvE '^(NCCL [0-9]|loaded: |rank [0-9]+: .*right)' "$temp/$1"-*.out
	} 2>/dev/null | head -n 1 | cut -c 1-140
}

# describe NAME: the kinds of connections, protocols and tuner of NCCL's logs, in one line.
describe() {
	local text
	text=$(grep -ohE 'via NET/[^ ]*' "$temp/$1"-*.log | sed 's/^via //' | sort -u |
		tr '\n' ' ')
	text+=$(grep -ohiE 'proto (LL128|LL|SIMPLE)' "$temp/$1"-*.log | sed 's/^proto //I' |
		sort -u | tr '\n' ' ' || true)
	text+=$(grep -ohE 'TUNER/Plugin: Using .*' "$temp/$1"-*.log | sed 's/^TUNER.*Using //' |
		sort -u | tr '\n' ' ' || true)
	echo "${text% }"
}

# job NAME RANKS JUDGE SETTING... [-- ARGUMENT...]: the function of most rows: a job whose results
# are checked. JUDGE, a function, is called with NAME after a job that succeeded.
job() {
	local name=$1 n=$2 judge=$3 settings=()
	shift 3
	while [ $# -gt 0 ] && [ "$1" != -- ]; do
		settings+=("$1")
		shift
	done
	[ $# -eq 0 ] || shift
	launch "$name" "$n" "${ferrule_settings[@]}" "${settings[@]}" -- "$check" --rank %r \
		--ranks "$n" --id "$temp/$name.id" "$@"
	took "$name" "$n" Ferrule || return 0
	$judge "$name"
}

# Judges of jobs: they change $outcome and $said.

any() {
	:
}

# in_gpu NAME: NCCL has registered memory of the GPU.
in_gpu() {
	! grep -qF /GDRDMA "$temp/$1"-*.log || return 0
	outcome=fail
	said="NCCL's buffers are in memory of the host; $(first_reason "$1")"
	[ "$has_rdma" = no ] || return 0
	outcome=skip
	said="CUDA says that this GPU has no GPUDirect RDMA: NCCL's buffers are the host's"
}

in_host() {
	grep -qF /GDRDMA "$temp/$1"-*.log || return 0
	outcome=fail
	said="NCCL's buffers are in memory of the GPU: $said"
}

is_unpacked() {
	grep -qF "NCCL's kernels unpack receives, up to" "$temp/$1"-*.log
}

# unpacked NAME: NCCL's kernels have unpacked the received data.
unpacked() {
	! is_unpacked "$1" || return 0
	in_gpu "$1"
	[ "$outcome" = pass ] || return 0
	outcome=fail
	said="no connection has unpacked anything; $(unpack_reason "$1")"
}

# by_tuner NAME: the same, and NCCL has used only Simple, the protocol that the tuner allows.
by_tuner() {
	unpacked "$1"
	[ "$outcome" = pass ] || return 0
	! grep -qE 'proto LL' "$temp/$1"-*.log || {
		outcome=fail
		said="NCCL used LL, which its kernels do not unpack: $said"
	}
}

# unpack_reason NAME: the plugin's message about UNPACK.
unpack_reason() {
	grep -hE 'NET/Ferrule : .*(UNPACK|unpack)' "$temp/$1"-*.log | grep -v ' settings: ' |
		sed 's/^.*NET\/Ferrule : //' | head -n 1 | cut -c 1-120 || true
}

# seen_unpack NAME: only reports whether anything was unpacked.
seen_unpack() {
	if is_unpacked "$1"; then
		said="unpacked, $said"
	else
		said="nothing unpacked, $said; $(unpack_reason "$1")"
	fi
}

shared() {
	grep -qE 'via NET/Ferrule/.*/Shared' "$temp/$1"-*.log || {
		outcome=fail
		said="no connections are shared: $said"
	}
}

unshared() {
	! grep -qE 'via NET/Ferrule/.*/Shared' "$temp/$1"-*.log || {
		outcome=fail
		said="connections are shared: $said"
	}
}

# lazy NAME: whether the plugin refuses memory of GPUs, and names the setting to change.
lazy() {
	if grep -q 'NET/Ferrule : .*CUDA_MODULE_LOADING' "$temp/$1"-*.log; then
		said="refused, and the log says what to set; $said"
	else
		said="not refused; $said"
	fi
}

# start NAME: CUDA and NCCL start, and the libnccl of the process is the one that was chosen.
start() {
	local name=$1 status=0 wanted
	LD_LIBRARY_PATH=$nccl_libraries CUDA_VISIBLE_DEVICES=$gpu_number limited "$row_limit" \
		"$check" --about >"$temp/$name.out" 2>&1 || status=$?
	case $status in
	0) ;;
	124 | 137) outcome=hang && return ;;
	*) said="$(tail -n 1 "$temp/$name.out")" && return ;;
	esac
	version=$(sed -n 's/^NCCL //p' "$temp/$name.out")
	loaded=$(sed -n 's/^loaded: //p' "$temp/$name.out" | tr '\n' ' ')
	loaded=${loaded% }
	! grep -qx 'GPUDirect RDMA: 0' "$temp/$name.out" || has_rdma=no
	wanted=$(readlink -f "$library")
	said="NCCL $version from $loaded"
	if [ "$loaded" = "$wanted" ] || [ "$check" = "$build/tests/nccl/nccl-check" ]; then
		outcome=pass
	else
		said="$said, not from $wanted"
	fi
}

# fabric NAME: the local fabric works without NCCL.
fabric() {
	local status=0
	limited "$row_limit" "$pingpong" --local --test latency --sizes 8,64K --iters 200 --verify \
		>"$temp/$1.out" 2>&1 || status=$?
	said=
	case $status in
	0) outcome=pass ;;
	124 | 137) outcome=hang ;;
	*) said="status $status" ;;
	esac
}

# death NAME SETTING...: rank 1 ends after five allreduces, and rank 0 must notice.
death() {
	local name=$1 line
	shift
	launch "$name" 2 "${ferrule_settings[@]}" "$@" -- "$check" --rank %r --ranks 2 \
		--id "$temp/$name.id" --die
	explain "$name" 2
	line=$(grep -m 1 '^noticed' "$temp/$name-0.out") || line="it did not notice"
	said="ranks ended with ${statuses[*]}, not with 4 0; $line"
	outcome=fail
	if [[ " ${statuses[*]} " =~ \ (124|137)\  ]]; then
		outcome=hang
	elif [ "${statuses[*]}" != "4 0" ]; then
		:
	elif ! awk -v line="$line" -v most="$notice_s" \
		'BEGIN { split(line, part, ", "); exit !(part[2] + 0 <= most) }'; then
		said="$line; $notice_s s are the most"
	elif ! grep -qE 'NET/Ferrule : .*QP 0x[0-9a-f]+ to QP 0x[0-9a-f]+, .*PSN [0-9]+: ' \
		"$temp/$name-0.log"; then
		said="$line; but the plugin names no peer and no QP in NCCL's log"
	else
		outcome=pass
		said=$line
	fi
}

# again NAME SETTING...: create, destroy, create. NCCL 2.28 and 2.29 forget the plugin's name with
# the last communicator (nccl issue 1978), and the next one would use sockets. NCCL_NET is not set,
# as it would turn that into an error.
again() {
	local name=$1 n
	shift
	launch "$name" 2 NCCL_NET_PLUGIN="$plugin" FERRULE_REQUIRE=1 "$@" -- "$check" --rank %r \
		--ranks 2 --id "$temp/$name.id" --lives 2 --most 65537
	took "$name" 2 Ferrule || return 0
	n=$(grep -cE 'Using network Ferrule' "$temp/$name-0.log" || true)
	[ "$n" -ge 2 ] && return
	outcome=fail
	said="NCCL's log has \"Using network Ferrule\" $n times for two communicators"
}

# ddp NAME SETTING...: PyTorch brings its own NCCL and must not get another library.
ddp() {
	local name=$1
	shift
	if ! limited 60 "$python" -c \
		'import importlib.util as u, sys; sys.exit(not u.find_spec("torch"))' \
		>"$temp/$name.out" 2>&1; then
		outcome=skip
		said="$python has no PyTorch; see --python"
		return
	fi
	launch "$name" 2 "${ferrule_settings[@]}" LD_LIBRARY_PATH="$own_libraries" "$@" -- \
		"$python" tests/device/nccl_ddp.py
	took "$name" 2 Ferrule || return 0
	said="$(grep -h '^DDP: ' "$temp/$name-0.out" | sed 's/^DDP: //'); $said"
	said+="; $(grep -h '^loaded: ' "$temp/$name-0.out")"
	[[ " $* " != *" FERRULE_GPU=1 "* ]] || in_gpu "$name"
}

# timed NAME TRANSPORT COLUMN ROUND SETTING...: its lines go to $temp/times.
timed() {
	local name=$1 transport=$2 column=$3 round=$4
	shift 4
	launch "$name" 2 "$@" -- "$check" --rank %r --ranks 2 --id "$temp/$name.id" --bench "$bytes"
	took "$name" 2 "$transport" || return 0
	awk -v column="$column" -v round="$round" '
		/^allreduce/ { print column, round, $2, $4 }' "$temp/$name-0.out" >>"$temp/times"
	said=$(awk '/^allreduce/ { printf "%s%s B %s us", n++ ? ", " : "", $2, $4 }' \
		"$temp/$name-0.out")
}

# times_rows ROUND: all transports once.
times_rows() {
	local i=$1
	row "time-host-$i" 45 "timed, memory of the host" timed Ferrule host "$i" \
		"${ferrule_settings[@]}"
	row "time-socket-$i" 45 "timed, Socket" timed Socket Socket "$i" "${socket_settings[@]}"
	row "time-gpu-$i" 45 "timed, FERRULE_GPU=1" timed Ferrule GPU "$i" \
		"${ferrule_settings[@]}" "${gpu_settings[@]}"
	row "time-unpack-$i" 45 "timed, UNPACK" timed Ferrule UNPACK "$i" \
		"${ferrule_settings[@]}" "${unpack_settings[@]}" NCCL_PROTO=Simple
}

# speeds: the table of the times in $temp/times.
speeds() {
	awk '
	function cell(format, value) {
		return value ? sprintf(" " format " |", value) : " |"
	}
	function median(list, values, n, i, k, x) {
		n = split(list, values, " ")
		if (!n)
			return 0
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
	}
	END {
		n = split("host GPU UNPACK Socket", columns, " ")
		line = "| bytes |"
		rule = "|---:|"
		for (c = 1; c <= n; c++) {
			line = line " " columns[c] " us |"
			rule = rule "---:|"
		}
		for (c = 1; c < n; c++) {
			line = line " Socket / " columns[c] " |"
			rule = rule "---:|"
		}
		print line
		print rule
		for (i = 1; i <= n_sizes; i++) {
			s = sizes[i]
			line = "| " s " |"
			for (c = 1; c <= n; c++) {
				at[c] = median(us[columns[c], s])
				line = line cell("%.1f", at[c])
			}
			for (c = 1; c < n; c++)
				line = line cell("%.2f", at[c] ? at[n] / at[c] : 0)
			print line
		}
	}' "$temp/times"
}

# ---- rows

# first_rows N: the rows that a release must pass.
first_rows() {
	local n=$1
	row "host-$n" 60 "memory of the host" job "$n" in_host
	row "gpu-simple-$n" 60 "FERRULE_GPU=1, Simple" job "$n" in_gpu "${gpu_settings[@]}" \
		NCCL_PROTO=Simple
	row "unpack-simple-$n" 60 "UNPACK, Simple" job "$n" unpacked "${unpack_settings[@]}" \
		NCCL_PROTO=Simple
}

gpu_rows() {
	local n=$1
	row "again-$n" 45 "create, destroy, create" again
	row "gpu-$n" 45 "FERRULE_GPU=1, NCCL's own protocols" job "$n" in_gpu \
		"${gpu_settings[@]}"
	# NCCL receives LL into memory of the host then, and does not unpack it.
	row "unpack-ll-$n" 45 "UNPACK, LL in memory of the host" job "$n" unpacked \
		"${unpack_settings[@]}" NCCL_ALLOC_P2P_NET_LL_BUFFERS=1 NCCL_PROTO=^LL128 -- \
		"${few[@]}"
	row "unpack-tuner-$n" 45 "UNPACK, NCCL's own protocols" job "$n" by_tuner \
		"${unpack_settings[@]}" -- "${few[@]}"
	row "unpack-alone-$n" 45 "FERRULE_UNPACK=1 and nothing else" job "$n" seen_unpack \
		FERRULE_UNPACK=1 -- "${few[@]}"
}

death_rows() {
	row die 45 "a rank that dies" death
	row die-gpu 45 "a rank that dies, FERRULE_GPU=1" death "${gpu_settings[@]}"
}

ddp_rows() {
	row ddp 90 "PyTorch DDP" ddp
	row ddp-gpu 60 "PyTorch DDP, FERRULE_GPU=1" ddp "${gpu_settings[@]}"
}

# more_rows N: NCCL's other ways.
more_rows() {
	local n=$1
	row "gpu-ll-$n" 45 "FERRULE_GPU=1, LL" job "$n" in_gpu "${gpu_settings[@]}" \
		NCCL_PROTO=LL -- "${few[@]}"
	row "host-ll-$n" 45 "memory of the host, LL" job "$n" in_host NCCL_PROTO=LL -- "${few[@]}"
	row "host-simple-$n" 45 "memory of the host, Simple" job "$n" in_host \
		NCCL_PROTO=Simple -- "${few[@]}"
	row "shared-$n" 45 "connections that channels share" job "$n" shared -- "${few[@]}"
	row "unshared-$n" 45 "a connection for each channel" job "$n" unshared \
		NCCL_NET_SHARED_COMMS=0 NCCL_NET_SHARED_BUFFERS=0 -- "${few[@]}"
	row "ring-$n" 45 "NCCL_ALGO=Ring, FERRULE_GPU=1" job "$n" in_gpu "${gpu_settings[@]}" \
		NCCL_ALGO=Ring -- "${few[@]}"
	row "tree-$n" 45 "NCCL_ALGO=allreduce:Tree, FERRULE_GPU=1" job "$n" in_gpu \
		"${gpu_settings[@]}" NCCL_ALGO=allreduce:Tree -- "${few[@]}"
}

# reports N: rows without a guarantee. With UNPACK NCCL's kernels may not end after an abort.
reports() {
	local n=$1
	report "lazy-$n" 30 "FERRULE_GPU=1, lazy loading" job "$n" lazy FERRULE_GPU=1 \
		CUDA_MODULE_LOADING=LAZY NCCL_NET_GDR_LEVEL=SYS -- "${few[@]}"
	report "host-ll128-$n" 30 "memory of the host, LL128" job "$n" any NCCL_PROTO=LL128 -- \
		"${few[@]}"
	report "gpu-ll128-$n" 30 "FERRULE_GPU=1, LL128" job "$n" any "${gpu_settings[@]}" \
		NCCL_PROTO=LL128 -- "${few[@]}"
	report again-counted 30 "create, destroy, create, NCCL_NET_PLUGIN_REF_COUNT=1" again \
		NCCL_NET_PLUGIN_REF_COUNT=1
	report die-unpack 30 "a rank that dies, UNPACK" death "${unpack_settings[@]}" \
		NCCL_PROTO=Simple
}

# ---- the report

# The report names the packed versions.
if [ -r "$build/commit" ]; then
	commit=$(cat "$build/commit")
elif commit=$(git rev-parse --short HEAD 2>/dev/null); then
	git diff --quiet HEAD 2>/dev/null || commit="$commit, changed"
fi
has_rdma=yes
version=unknown
loaded=unknown
IFS=, read -r -a rank_counts <<<"$rank_counts"
: >"$temp/times"

echo "## NCCL over Ferrule"
echo
[ -z "$rehearsal" ] ||
	echo "**REHEARSAL: programs of $rehearsal are in the place of NVIDIA's.**"
echo "$(date -u +%F): $gpu_name, driver $driver, commit ${commit:-unknown},"
echo "Linux $(uname -r), $(nproc) processors, load $(cut -d ' ' -f 1 /proc/loadavg)."
echo
echo '```'
# Other rows need its findings.
selected=$only
only=
row start 60 "CUDA and NCCL start" start
only=$selected
if [ "$n_failed" -gt 0 ]; then
	print_totals
	print_failed_logs
	echo '```'
	exit 1
fi
sed -n '/^CUDA/p; /^GPU/p' "$temp/start.out" 2>/dev/null || true
row fabric 30 "the local fabric, without NCCL" fabric
n=${rank_counts[0]}
first_rows "$n"
gpu_rows "$n"
death_rows
ddp_rows
times_rows 1
more_rows "$n"
for n in "${rank_counts[@]:1}"; do
	first_rows "$n"
done
reports "${rank_counts[0]}"
for ((i = 2; i <= rounds; i++)); do
	times_rows "$i"
done
echo
print_totals
echo '```'

if [ -s "$temp/times" ]; then
	cat <<-'END'

	AllReduce of 2 ranks that share the GPU, over Ferrule's local fabric with NCCL's buffers in
	memory of the host, in memory of the GPU, and unpacked by NCCL's kernels, and over NCCL's
	Socket transport: medians of runs in turns; a ratio above 1: Ferrule is faster. Ranks take
	turns on the GPU, so only the ratios say something.

	END
	speeds || true
fi
if [ ${#failed_rows[@]} -gt 0 ]; then
	echo
	echo '```'
	print_failed_logs
	echo '```'
fi
echo
echo "NCCL $version, loaded from $loaded; ended after $(elapsed) s."
rows_are_good || exit 1
