#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Tests Ferrule on a machine with a GPU: the report of ferrule-info, the test binaries of CI on the
# real driver, collectives of several ranks that share the GPU (checked against long double),
# NVIDIA's sanitizer, and the speed of kernels that move packets. The most telling rows come first.
# Prints a report in markdown: a verdict line for each row, the totals, figures that fit into
# docs/reference/performance-nccl.md, and the end of the logs of failed rows. Skipped (status 77),
# with the reason, where there is no GPU or something is missing that the tests need.
#
# No row runs on the double of the driver (tests/fakes/cuda): the script checks which libcuda.so.1
# the processes of a row had loaded, and the row fails if that is not the system's.
#
# Nobody has run it on a GPU yet.
set -eu

usage() {
	cat <<-'END'
	tests/device/gpu.sh [options] >report.md
	  --build FOLDER   the build of Ferrule, or what tests/device/pack.sh made (default: build)
	  --libs FOLDER    libraries, in folders of any depth, for what the system has not: DPDK,
	                   protobuf-c, Check (default: libs in the build folder)
	  --cuda FOLDER    the CUDA toolkit, for compute-sanitizer (default: where nvcc is, or
	                   /usr/local/cuda*)
	END
	common_usage
	cat <<-'END'

	Settings of Ferrule and of CUDA's double are not taken from the caller, and of
	LD_LIBRARY_PATH only the folder with the driver, for containers where the loader finds it
	by that alone.
	END
}

caller=$PWD
cd "$(dirname "$0")/../.."
source_root=$PWD
# shellcheck source=tests/device/lib.sh
. tests/device/lib.sh

cuda=
take() {
	case $1 in
	--cuda) cuda=$(absolute "$2") ;;
	*) return 1 ;;
	esac
}

rows_total=440
take_options "$@"
caller_libraries=${LD_LIBRARY_PATH:-}
for name in LD_LIBRARY_PATH LD_PRELOAD CUDA_MODULE_LOADING CUDA_LAUNCH_BLOCKING "${!FRL_@}" \
	"${!FERRULE_@}" "${!NCCL_@}" "${!FAKE_@}"; do
	unset "$name"
done

# ---- what is there

find_gpu
find_cuda
find_sanitizer
programs=("$build"/tools/{ferrule-allreduce,ferrule-bench,ferrule-info,ferrule-pingpong}
	"$build/tools/gpu_allreduce" "$build/daemon/ferruled" "$build/daemon/ctl/ferrulectl")
for file in "${programs[@]}"; do
	[ -r "$file" ] || cannot "$file is not built; see --build"
done
tests=()
for file in "$build"/tests/unit/test_{gpu,api_gpu,comm,nccl}; do
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

# Ends a row in which an event never comes.
[ -n "$rehearsal" ] || export FRL_TEST_LIMIT=30
export FRL_BIN=$build/tools
own_machine=unwanted
# shellcheck source=tests/system/lib.sh
. tests/system/lib.sh
at_exit+=(remove_borrowed)
# shellcheck source=tests/device/rows.sh
. tests/device/rows.sh

# ---- rows

# cuda_drivers NAME: the libcuda.so files that the row's processes have loaded.
cuda_drivers() {
	cat "$temp/$1.ld".* 2>/dev/null |
		sed -n 's/.*calling init: \(.*\/libcuda\.so[^ ]*\)$/\1/p' | sort -u |
		while read -r file; do readlink -f "$file"; done | sort -u
}

# skip_reason NAME: what the program gave as its reason.
skip_reason() {
	grep -m 1 -ioE 'skip(ped)?:? .*' "$temp/$1.out" | sed 's/^[^:]*: *//' || true
}

# step NAME COMMAND...: the function of most rows. The processes that use CUDA must have the
# system's driver. Output: $temp/NAME.out.
step() {
	local name=$1 status=0 drivers left
	shift
	LD_DEBUG=files LD_DEBUG_OUTPUT=$temp/$name.ld limited "$row_limit" "$@" \
		>"$temp/$name.out" 2>&1 || status=$?
	drivers=$(cuda_drivers "$name")
	rm -f "$temp/$name.ld".*
	outcome=fail
	if [ -n "$drivers" ] && [ "$drivers" != "$(readlink -f "$driver_library")" ]; then
		said="it had $drivers for libcuda.so.1, which is not the driver"
	elif [ "$status" -eq 77 ]; then
		outcome=skip
		said=$(skip_reason "$name")
	elif [ "$status" -eq 124 ] || [ "$status" -eq 137 ]; then
		outcome=hang
		said=
	elif [ "$status" -ne 0 ] && grep -q '^=====.*not supported' "$temp/$name.out"; then
		outcome=skip
		said=$(grep -m 1 '^=====.*not supported' "$temp/$name.out" | sed 's/^=* *//')
	elif [ "$status" -ne 0 ]; then
		said="status $status"
	elif [ -z "$drivers" ]; then
		said="no process has used CUDA"
	else
		outcome=pass
		said=$(grep -m 1 -oE 'reached by way of: [a-z, ]*[a-z]' "$temp/$name.out" || true)
		left=$(grep -c '^left out: ' "$temp/$name.out" || true)
		[ "$left" -eq 0 ] || said="$left cases left out, which need the double"
	fi
}

# harness_step NAME ARGUMENT...: where there is a GPU, the plugin must take its memory.
harness_step() {
	local name=$1
	shift
	# Without EAGER the plugin takes no memory of GPUs: docs/guide/nccl-gpu.md.
	step "$name" env CUDA_MODULE_LOADING=EAGER FERRULE_GPU=1 FERRULE_DEVICES=local \
		"$harness" --mem cuda --expect pointers=gpu "$@"
	[ "$outcome" != skip ] || outcome=fail
}

# inspect NAME TOOL COMMAND...: runs under compute-sanitizer. Failing calls of the driver are no
# finding: Ferrule recognizes host memory by a call that fails. Test programs run cases in child
# processes.
inspect() {
	local name=$1 tool=$2
	shift 2
	if [ -z "$sanitizer" ]; then
		outcome=skip
		said="there is no compute-sanitizer here"
		return
	fi
	step "$name" "$sanitizer" --tool "$tool" --target-processes all --report-api-errors no \
		--error-exitcode 9 "$@"
	said=$(grep -m 1 -oE '(ERROR|RACECHECK) SUMMARY: .*' "$temp/$name.out" || echo "$said")
	[ "$outcome" != fail ] || grep -E '^=========' "$temp/$name.out" >"$temp/$name.why" || true
}

# unit_row NAME PROGRAM: a file of a test program, as CI runs it on the double.
unit_row() {
	[ -x "$build/tests/unit/test_$2" ] || return 0
	"$build/tests/unit/test_$2" -l | grep -qx "$1" || return 0
	is_done[$1]=1
	row "$1" 90 "the test of CI" step env FRL_CONTROL=off FRL_BUILD_ROOT="$build" \
		FRL_SOURCE_ROOT="$source_root" "$build/tests/unit/test_$2" "$1"
}

# unit_rows PROGRAM: the files of the program that use CUDA and have not been run yet.
unit_rows() {
	local name
	[ -x "$build/tests/unit/test_$1" ] || return 0
	for name in $("$build/tests/unit/test_$1" -l); do
		case $name in
		# These run the kernels' code on the processor, or check nvcc's output and cuda.h:
		# they call no driver.
		gpu_work | gpu_kernels | cuda_abi) ;;
		cuda* | gpu_* | comm_gpu* | nccl_gpu)
			[ -n "${is_done[$name]-}" ] || unit_row "$name" "$1"
			;;
		esac
	done
}
declare -A is_done=()

harness_rows() {
	local rows=(small sizes pipeline group flush)
	if [ ! -x "$harness" ] || [ ! -r "$plugin" ]; then
		skip_row harness "the NCCL plugin" "it is not built, or its harness"
		return
	fi
	row harness 60 "the NCCL plugin, both sides in one process" harness_step \
		--sides threads "$plugin" "${rows[@]}"
	row harness-processes 60 "the NCCL plugin, a process for each side" harness_step \
		--sides processes "$plugin" "${rows[@]}"
}

# collective_rows N: collectives of N processes.
collective_rows() {
	local most=64M
	[ "$1" -lt 8 ] || most=4M
	row "types-$1" 60 "allreduce, $1 processes: all types and reductions" step "$bench" \
		-n "$1" --mem cuda:0 --dtype all --redop all --data random --iters 0 --quiet \
		--count 1,1000,100003
	row "sizes-$1" 60 "allreduce, $1 processes: float32, 4 B and more" step "$bench" -n "$1" \
		--mem cuda:0 --min 4 --max "$most" --factor 16 --iters 0 --data random
}

operation_rows() {
	row operations 60 "3 processes: all operations" step "$bench" -n 3 --mem cuda:0 --op all \
		--count 1,10007 --iters 0 --quiet --offset 3
	row wires 60 "2 processes: wire types" step "$bench" -n 2 --mem cuda:0 --wire all \
		--data random --iters 0 --quiet --count 1000,100003
	row pingpong 60 "single messages, every byte" step "$pingpong" --local --mem cuda:0 \
		--verify --sizes 1,8,4095,4K,64K,1M,16M --iters 50
}

# sanitizer_rows TOOL...: ranks are threads, so one process has all kernels.
sanitizer_rows() {
	local tool count
	for tool in "$@"; do
		# Small operations: bounce buffers, packed and unpacked. Long ones: packets,
		# reductions and an odd end.
		for count in 1000 50001; do
			row "$tool-$count" 60 "$tool, 2 threads, $count elements" inspect "$tool" \
				"$gpu_allreduce" 2 "$count"
		done
	done
}

# sanitizer_reports: the sanitizer runs kernels one after the other, and slowly. A program that
# needs concurrent kernels may never end under it, which is no defect of Ferrule.
sanitizer_reports() {
	local tool
	for tool in memcheck racecheck; do
		[ ! -x "$build/tests/unit/test_comm" ] ||
			report "$tool-comm_gpu" 60 "$tool, the test comm_gpu" inspect "$tool" \
				env FRL_CONTROL=off "$build/tests/unit/test_comm" comm_gpu
	done
}

meter_row() {
	if [ -x "$meter" ]; then
		row meter 90 "how fast kernels move packets" step "$meter"
	else
		skip_row meter "how fast kernels move packets" "$meter is not built"
	fi
}

# times_row N: figures of N processes.
times_row() {
	row "times-$1" 60 "allreduce, $1 processes on one GPU, timed" step "$bench" -n "$1" \
		--mem cuda:0 --min 1K --max 64M --factor 4
}

# ---- the report

about() {
	local commit
	commit=$(cat "$build/commit" 2>/dev/null ||
		git -C "$source_root" rev-parse --short HEAD 2>/dev/null || echo unknown)
	[ -z "$rehearsal" ] ||
		echo "**REHEARSAL: programs of $rehearsal are in the place of NVIDIA's.**"
	echo "$(date +%F): $gpu_name, driver $driver ($driver_library), commit $commit,"
	echo "$(nproc) processors ($(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)),"
	echo "Linux $(uname -r), $(ask pcie.link.gen.current,pcie.link.width.current |
		sed 's/, / x/; s/^/PCIe /'), sanitizer: ${sanitizer:-none}."
}

# probe: prints everything that Ferrule finds; all of it is in the logs.
probe() {
	limited 60 "$build/daemon/ctl/ferrulectl" doctor >"$temp/doctor.out" 2>&1 || true
	limited 60 "$build/tools/ferrule-info" >"$temp/info.out" 2>&1 || true
	keep_logs doctor
	keep_logs info
	grep -iE 'gpu|cuda' "$temp/doctor.out" | sed 's/[[:blank:]]*$//' | head -n 12 || true
	grep -iE -A 8 'gpu' "$temp/info.out" | head -n 20 || true
}

figures() {
	local n
	if grep -q '^|' "$temp/meter.out" 2>/dev/null; then
		echo
		cat "$temp/meter.out"
	fi
	for n in 2 4; do
		[ -s "$temp/times-$n.out" ] || continue
		echo
		echo "Allreduce, $n processes on one GPU:"
		echo
		echo '```'
		sed 's/[[:blank:]]*$//' "$temp/times-$n.out"
		echo '```'
	done
}

echo "## Memory of a GPU"
echo
about
echo
echo '```'
probe
echo

gpu_allreduce=$build/tools/gpu_allreduce
row threads-2 60 "allreduce, 2 threads" step "$gpu_allreduce" 2 1000003
# The rules of the driver that the double follows. All tests rely on them.
unit_row cuda_rules gpu
unit_row cuda_rules_streams gpu
unit_row cuda_rules_memory gpu
harness_rows
row pingpong-small 60 "single messages" step "$pingpong" --local --mem cuda:0 --verify \
	--sizes 1,4K,1M --iters 20
collective_rows 2
sanitizer_rows memcheck racecheck
unit_row comm_gpu comm
unit_row comm_gpu_stream comm
meter_row
times_row 2
operation_rows
unit_rows gpu
unit_rows api_gpu
unit_rows comm
unit_rows nccl
sanitizer_reports
sanitizer_rows initcheck synccheck
# The longest rows: ranks take turns on the GPU.
row threads-4 60 "allreduce, 4 threads" step "$gpu_allreduce" 4 1000003
collective_rows 4
times_row 4
collective_rows 8

echo
print_totals
echo '```'
figures
if [ ${#failed_rows[@]} -gt 0 ]; then
	echo
	echo '```'
	print_failed_logs
	echo '```'
fi
echo
echo "Ended after $(elapsed) s."
rows_are_good || exit 1
