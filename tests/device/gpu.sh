#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Memory of a GPU, on a machine that has one: what Ferrule finds there, the test binaries of CI
# unchanged on the real driver, collectives of several ranks that share the GPU, checked against
# long double, NVIDIA's sanitizer, and how fast kernels move packets. Prints a report in markdown
# that fits into docs/performance.md. Skipped (status 77), with the reason, where there is no GPU or
# something is missing that the tests need.
#
# What runs against the double of the driver (tests/fake_libcuda) is no row here: it is looked
# which libcuda.so.1 a row's processes had, and the row fails if that is not the system's.
#
# Not yet run on a GPU by anybody.
set -eu

usage() {
	cat <<-'END'
	tests/device/gpu.sh [options] >report.md
	  --build FOLDER   the build of Ferrule, or what tests/device/pack.sh made (default: build)
	  --libs FOLDER    libraries, in folders of any depth, for what the system has not: DPDK,
	                   ISA-L, protobuf-c, Check (default: libs in the build folder)
	  --seconds N      nothing is started later than that (500); one step takes 120 at the most
	  --keep FOLDER    keeps what programs have said there

	Settings of Ferrule and of CUDA's double are not taken from the caller, and of
	LD_LIBRARY_PATH only the folder with the driver, for containers where the loader finds it
	by that alone.
	A machine without DPDK and without internet: tests/device/pack.sh makes a folder to take
	along where Ferrule was built.
	END
}

caller=$PWD
cd "$(dirname "$0")/../.."
source_root=$PWD
# shellcheck source=tests/device/lib.sh
. tests/device/lib.sh

# There are no other options.
take() {
	return 1
}

seconds=500
take_options "$@"
caller_libraries=${LD_LIBRARY_PATH:-}
for name in LD_LIBRARY_PATH LD_PRELOAD "${!FRL_@}" "${!FERRULE_@}" "${!NCCL_@}" "${!FAKE_@}"; do
	unset "$name"
done

# ---- what is there

find_gpu
programs=("$build"/examples/{ferrule-allreduce,ferrule-bench,ferrule-info,ferrule-pingpong}
	"$build/examples/gpu_allreduce" "$build/daemon/ferruled" "$build/daemon/ctl/ferrulectl")
for file in "${programs[@]}"; do
	[ -r "$file" ] || cannot "$file is not built; see --build"
done
tests=()
for file in "$build"/tests/unit/test_{gpu,comm,nccl}; do
	[ ! -f "$file" ] || tests+=("$file")
done
meter=$build/tests/bench/bench_gpu
harness=$build/tests/nccl/nccl-harness
plugin=$build/libnccl-net-ferrule.so
for file in "$meter" "$harness" "$plugin"; do
	[ ! -r "$file" ] || tests+=("$file")
done
borrow "$libs" "" "${programs[@]}" "${tests[@]}"
find_driver "$caller_libraries"
export LD_LIBRARY_PATH=$own_libraries${driver_folder:+:$driver_folder}
export CUDA_VISIBLE_DEVICES=$gpu_number

export FRL_BIN=$build/examples
own_machine=unwanted
# shellcheck source=tests/system/lib.sh
. tests/system/lib.sh
at_exit+=(remove_borrowed)
[ -z "$keep" ] || mkdir -p "$keep"

# ---- steps

limit=120
n_steps=0
n_right=0
n_skipped=0
n_not_run=0

# step NAME COMMAND...: runs it within the limit. What it says: $temp/NAME.out. $outcome is "right",
# with the number of cases that the program has left out, "skipped: REASON", "not run: REASON" or
# "failed: ..."; processes that use CUDA have the system's driver.
step() {
	local name=$1 status=0 left=$((seconds - SECONDS)) most drivers said
	shift
	n_steps=$((n_steps + 1))
	: >"$temp/$name.out"
	if [ "$left" -le 0 ]; then
		outcome="not run: $seconds s are over"
		n_not_run=$((n_not_run + 1))
		return 0
	fi
	rm -f "$temp/$name.ld".*
	most=$((left < limit ? left + 5 : limit))
	LD_DEBUG=files LD_DEBUG_OUTPUT=$temp/$name.ld timeout -k 5 "$most" "$@" \
		>"$temp/$name.out" 2>&1 || status=$?
	drivers=$(cat "$temp/$name.ld".* 2>/dev/null |
		sed -n 's/.*calling init: \(.*\/libcuda\.so[^ ]*\)$/\1/p' | sort -u |
		while read -r file; do readlink -f "$file"; done | sort -u)
	rm -f "$temp/$name.ld".*
	[ -z "$keep" ] || cp "$temp/$name.out" "$keep/"
	if [ -n "$drivers" ] && [ "$drivers" != "$(readlink -f "$driver_library")" ]; then
		outcome="failed: it had $drivers for libcuda.so.1, which is not the driver"
	elif [ "$status" -eq 77 ]; then
		outcome="skipped: $(grep -m 1 -ioE 'skip(ped)?:? .*' "$temp/$name.out" |
			sed 's/^[^:]*: *//' || true)"
	elif [ "$status" -ne 0 ] &&
		said=$(grep -m 1 '^=====.*not supported' "$temp/$name.out"); then
		outcome="skipped: ${said#*= }"
	elif [ "$status" -eq 124 ] || [ "$status" -eq 137 ]; then
		outcome="failed: no end within $most s"
	elif [ "$status" -ne 0 ]; then
		outcome="failed: status $status"
	elif [ -z "$drivers" ]; then
		outcome="failed: it has not used CUDA"
	else
		outcome=right
	fi
	if [ "$name" = harness ] && [ "${outcome%%:*}" = skipped ]; then
		outcome="failed: there is a GPU, and the plugin takes none of its memory"
	fi
	left=$(grep -c '^left out: ' "$temp/$name.out" || true)
	[ "$outcome" != right ] || [ "$left" -eq 0 ] || outcome="right, left out: $left"
	case $outcome in
	right*) n_right=$((n_right + 1)) ;;
	skipped*) n_skipped=$((n_skipped + 1)) ;;
	failed*)
		fail "$name: ${outcome#failed: }: $*" >&2
		tail -n 30 "$temp/$name.out" | sed "s|^|    $name: |" >&2
		;;
	esac
}

# row WHAT NAME COMMAND...: a step, as a line of a table.
row() {
	local what=$1 begin=$SECONDS
	shift
	step "$@"
	echo "| $what | $outcome | $((SECONDS - begin)) |"
}

table() {
	echo
	echo "| $1 | result | s |"
	echo "|---|---|---:|"
}

about() {
	local commit
	commit=$(cat "$build/commit" 2>/dev/null ||
		git -C "$source_root" rev-parse --short HEAD 2>/dev/null || echo unknown)
	echo "$(date +%F): $gpu_name, driver $driver ($driver_library), commit $commit,"
	echo "$(nproc) processors ($(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)),"
	echo "Linux $(uname -r), $(ask pcie.link.gen.current,pcie.link.width.current |
		sed 's/, / x/; s/^/PCIe /')."
}

probe() {
	echo
	echo '```'
	timeout -k 5 60 "$build/daemon/ctl/ferrulectl" doctor 2>&1 | sed 's/[[:blank:]]*$//' || true
	timeout -k 5 60 "$build/examples/ferrule-info" 2>&1 | grep -iE -A 8 'gpu' || true
	echo '```'
}

same_tests() {
	local program name
	table "test of CI"
	# The rules that the double follows come first.
	for program in gpu comm nccl; do
		program=$build/tests/unit/test_$program
		[ -x "$program" ] || continue
		for name in $("$program" -l); do
			case $name in
			# The kernels' code on the processor, and the output of nvcc: no CUDA.
			gpu_work | gpu_kernels) ;;
			cuda* | gpu_* | comm_gpu* | nccl_gpu)
				row "$name" "$name" env FRL_CONTROL=off FRL_BUILD_ROOT="$build" \
					FRL_SOURCE_ROOT="$source_root" "$program" "$name"
				;;
			esac
		done
	done
	[ ! -x "$harness" ] || [ ! -r "$plugin" ] ||
		row "NCCL plugin, harness" harness env FERRULE_GPU=1 FERRULE_DEVICES=local \
			"$harness" --mem cuda --expect pointers=gpu --sides threads "$plugin" \
			small sizes pipeline group flush
}

collectives() {
	local n
	table "collectives on one GPU: allreduce of $*, where nothing else is said"
	for n in "$@"; do
		row "$n processes: all types and reductions" "types-$n" "$bench" -n "$n" \
			--mem cuda:0 --dtype all --redop all --data random --iters 0 --quiet \
			--count 1,1000,100003
		row "$n processes: float32, 4 B and more" "sizes-$n" "$bench" -n "$n" \
			--mem cuda:0 --min 4 --max "$([ "$n" -lt 8 ] && echo 64M || echo 4M)" \
			--factor 16 --iters 0 --data random
		row "$n threads" "threads-$n" "$build/examples/gpu_allreduce" "$n" 1000003
	done
}

operations() {
	table "more of them"
	row "3 processes: all operations" operations "$bench" -n 3 --mem cuda:0 --op all \
		--count 1,10007 --iters 0 --quiet --offset 3
	row "2 processes: wire types" wires "$bench" -n 2 --mem cuda:0 --wire all --data random \
		--iters 0 --quiet --count 1000,100003
	row "single messages, every byte" pingpong "$pingpong" --local --mem cuda:0 --verify \
		--sizes 1,8,4095,4K,64K,1M,16M --iters 50
}

# The ways of work to the GPU that are not the default.
launches() {
	local mode
	table "FRL_GPU_LAUNCH"
	for mode in memop persistent; do
		row "$mode, 2 threads" "threads-$mode" env FRL_GPU_LAUNCH="$mode" \
			"$build/examples/gpu_allreduce" 2 1000003
		row "$mode, 2 processes" "processes-$mode" env FRL_GPU_LAUNCH="$mode" "$bench" \
			-n 2 --mem cuda:0 --min 4 --max 16M --factor 16 --iters 0 --data random
	done
}

# Without kernels.
staged() {
	table "FRL_GPU_TIER=staged"
	row "staged, 2 threads" threads-staged env FRL_GPU_TIER=staged \
		"$build/examples/gpu_allreduce" 2 1000003
	row "staged, 2 processes: all operations" operations-staged env FRL_GPU_TIER=staged \
		"$bench" -n 2 --mem cuda:0 --op all --count 1,1000003 --iters 0 --quiet
	row "staged, 2 processes: all types" types-staged env FRL_GPU_TIER=staged "$bench" -n 2 \
		--mem cuda:0 --dtype all --redop all --data random --iters 0 --quiet \
		--count 1000,100003
	row "staged, single messages" pingpong-staged env FRL_GPU_TIER=staged "$pingpong" \
		--local --mem cuda:0 --verify --sizes 1,4095,64K,16M --iters 20
}

sanitized() {
	local tool sanitizer count program
	sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer \
		2>/dev/null || true)
	if [ -z "$sanitizer" ]; then
		echo
		echo "Not run: there is no compute-sanitizer here."
		return
	fi
	table "compute-sanitizer"
	for tool in memcheck racecheck initcheck synccheck; do
		# Small: shadows, packed and unpacked. Long: packets, reductions and an odd end.
		for count in 1000 50001; do
			inspected "$tool: 2 threads, $count elements" "$tool-$count" "$tool" \
				"$build/examples/gpu_allreduce" 2 "$count"
		done
	done
	# Ranks are threads there.
	program=$build/tests/unit/test_comm
	[ -f "$program" ] || return 0
	limit=240
	inspected "memcheck: comm_gpu" memcheck-tests memcheck \
		env FRL_CONTROL=off "$program" comm_gpu
	limit=120
}

# inspected WHAT NAME TOOL COMMAND...: a row under compute-sanitizer. Calls of the driver that fail
# are no finding: host memory is known by one that does.
inspected() {
	local what=$1 name=$2 tool=$3 begin=$SECONDS
	shift 3
	# Test programs run their cases in a process of their own.
	step "$name" "$sanitizer" --tool "$tool" --target-processes all --report-api-errors no \
		--error-exitcode 9 "$@"
	echo "| $what | $outcome | $((SECONDS - begin)) |"
}

speeds() {
	local n
	echo
	if [ -x "$meter" ]; then
		step meter "$meter"
		cat "$temp/meter.out"
		[ "$outcome" = right ] || echo "$outcome"
	else
		echo "Not run: $meter is not built."
	fi
	for n in 2 4; do
		echo
		echo "Allreduce, $n processes on one GPU:"
		echo
		echo '```'
		step "times-$n" "$bench" -n "$n" --mem cuda:0 --min 1K --max 64M --factor 4
		sed 's/[[:blank:]]*$//' "$temp/times-$n.out"
		echo '```'
	done
}

echo "## Memory of a GPU"
echo
about
probe
same_tests
collectives 2
operations
launches
staged
speeds
sanitized
# These take turns on the GPU, and so the longest.
collectives 4 8
echo
echo "$n_right of $n_steps steps right, $n_skipped skipped, $n_not_run not run," \
	"$failures failed, in $SECONDS s."
[ "$n_not_run" -eq 0 ] || fail "$n_not_run steps were not run: $seconds s are over" >&2
finish >&2
