# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Functions that the scripts for machines with a GPU share: find the GPU, the toolkit, and libraries
# that the machine lacks. Sourced with the caller's folder in $caller.

# absolute FOLDER: the folder's absolute path, relative to the caller's.
absolute() {
	case $1 in
	/*) echo "$1" ;;
	*) echo "${caller:?}/$1" ;;
	esac
}

# take_options OPTION VALUE...: sets $build, $libs, $keep, $only and $rehearsal, and $rows_total,
# whose default the caller has set. Passes other options to take(), a function of the caller, which
# returns 1 for unknown ones.
take_options() {
	build=${source_root:?}/build
	libs=
	keep=
	only=
	rehearsal=
	while [ $# -gt 0 ]; do
		case $1 in
		-h | --help)
			usage
			exit 0
			;;
		esac
		if [ $# -lt 2 ]; then
			usage >&2
			exit 2
		fi
		# shellcheck disable=SC2034
		case $1 in
		--build) build=$(absolute "$2") ;;
		--libs) libs=$(absolute "$2") ;;
		--seconds) rows_total=$2 ;;
		--keep) keep=$(absolute "$2") ;;
		--only) only=$2 ;;
		--rehearse)
			rehearsal=$(absolute "$2")
			PATH=$rehearsal:$PATH
			;;
		*)
			take "$1" "$2" || {
				usage >&2
				exit 2
			}
			;;
		esac
		shift 2
	done
	libs=${libs:-$build/libs}
	if [[ ! $rows_total =~ ^[1-9][0-9]{0,4}$ ]]; then
		echo "--seconds is a number of seconds, not $rows_total" >&2
		exit 2
	fi
}

# The common end of the usage texts.
common_usage() {
	cat <<-'END'
	  --seconds N      the total time: no row runs longer, or starts within its last 5 s (440)
	  --only REGEX     only rows with such a name (an extended regular expression for the whole
	                   name)
	  --keep FOLDER    puts the logs of all rows there
	  --rehearse FOLDER
	                   for the self-test: programs of the FOLDER are used in the place of
	                   NVIDIA's, and rows have no limits. The report says that it is none

	Exit status: 0 all rows passed, 1 a row failed or was not run for want of time, 77 there is
	no GPU, or something is missing that all rows need.

	A machine without DPDK and without internet: tests/device/pack.sh makes a folder to take
	along where Ferrule was built.
	END
}

cannot() {
	echo "SKIP: $*"
	exit 77
}

# ask FIELDS: queries the GPU.
ask() {
	timeout 60 nvidia-smi -i "$gpu_number" --query-gpu="$1" --format=csv,noheader 2>&1
}

# find_gpu: sets $gpu_number, $gpu_name and $driver for the first GPU that CUDA may show.
find_gpu() {
	local gpu
	gpu_number=${CUDA_VISIBLE_DEVICES:-0}
	gpu_number=${gpu_number%%,*}
	command -v nvidia-smi >/dev/null || cannot "no GPU: there is no nvidia-smi"
	gpu=$(ask name,driver_version) || cannot "no GPU: ${gpu:-nvidia-smi fails}"
	[ -n "$gpu" ] || cannot "no GPU: nvidia-smi names none"
	# shellcheck disable=SC2034
	gpu_name=${gpu%,*}
	# shellcheck disable=SC2034
	driver=${gpu##*, }
	case $(ask compute_mode) in
	*xclusive* | *rohibited*)
		cannot "the GPU lets no two processes share it: nvidia-smi --compute-mode=DEFAULT"
		;;
	esac
}

# find_cuda: the toolkit's folder in $cuda, unless the caller has set it: where nvcc is, or the
# newest of /usr/local.
find_cuda() {
	local nvcc folder folders
	[ -z "$cuda" ] || return 0
	if nvcc=$(command -v nvcc); then
		cuda=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
		return
	fi
	cuda=/usr/local/cuda
	mapfile -t folders < <(compgen -G '/usr/local/cuda-*' | sort -rV)
	for folder in /usr/local/cuda "${folders[@]}"; do
		if [ -x "$folder/bin/nvcc" ]; then
			cuda=$folder
			return
		fi
	done
}

# find_sanitizer: NVIDIA's compute-sanitizer in $sanitizer; empty where there is none.
find_sanitizer() {
	local file
	sanitizer=$(command -v compute-sanitizer || true)
	[ -z "$sanitizer" ] || return 0
	for file in "$cuda"/bin/compute-sanitizer "$cuda"/compute-sanitizer/compute-sanitizer \
		/usr/local/cuda*/bin/compute-sanitizer /opt/nvidia/*/compute-sanitizer \
		/opt/nvidia/*/*/compute-sanitizer; do
		if [ -x "$file" ] && [ ! -d "$file" ]; then
			sanitizer=$file
			return
		fi
	done
}

# find_driver CALLERS: the driver in $driver_library, and its folder in $driver_folder if the loader
# does not search there by itself. The driver of a container is often in LD_LIBRARY_PATH alone,
# which is CALLERS here. It is never the double of Ferrule's tests, nor one of the toolkit's stubs.
find_driver() {
	local folder places
	driver_folder=
	if [ -n "${rehearsal:-}" ] && [ -r "$rehearsal/libcuda.so.1" ]; then
		driver_folder=$rehearsal
		driver_library=$rehearsal/libcuda.so.1
		return
	fi
	IFS=: read -r -a places <<<"$1"
	for folder in "${places[@]}"; do
		is_driver "$folder/libcuda.so.1" || continue
		# shellcheck disable=SC2034
		driver_folder=$folder
		driver_library=$folder/libcuda.so.1
		return
	done
	driver_library=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p |
		awk '$1 == "libcuda.so.1" && /x86-64|AArch64/ { print $NF; exit }')
	! is_driver "$driver_library" || return 0
	[ -z "$driver_library" ] ||
		cannot "$driver_library is the double of Ferrule's tests, and no driver"
	for folder in /usr/local/nvidia/lib64 /usr/lib64-nvidia; do
		is_driver "$folder/libcuda.so.1" || continue
		# shellcheck disable=SC2034
		driver_folder=$folder
		driver_library=$folder/libcuda.so.1
		return
	done
	cannot "nvidia-smi is there, but no libcuda.so.1: neither the loader nor LD_LIBRARY_PATH" \
		"leads to one"
}

is_driver() {
	case $1 in
	/*/stubs/*) return 1 ;;
	/*) [ -r "$1" ] && ! grep -q fake_cuda_control "$1" ;;
	*) return 1 ;;
	esac
}

remove_borrowed() {
	rm -rf "$borrowed"
}

# borrow LIBS CALLERS FILE...: lets programs find libraries that the system lacks in LIBS, a folder
# with libraries at any depth. CALLERS, a path as in LD_LIBRARY_PATH, comes first. Skips if the
# FILEs still lack something. Sets $borrowed and $own_libraries. The driver of the GPU is the
# system's in any case.
borrow() {
	local libs=$1 callers=$2 missing
	shift 2
	borrowed=$(mktemp -d)
	trap remove_borrowed EXIT
	if [ -d "$libs" ]; then
		PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | awk '{ print $1 }' \
			>"$borrowed/.system"
		find -L "$libs" -type f -name '*.so*' ! -name 'libcuda.so*' | while read -r file; do
			grep -qxF "$(basename "$file")" "$borrowed/.system" ||
				ln -sf "$file" "$borrowed/"
		done
	fi
	own_libraries=${callers:+$callers:}$borrowed
	missing=$(LD_LIBRARY_PATH=$own_libraries ldd "$@" 2>&1 |
		grep 'not found' | grep -v 'libferrule\.so' |
		sed 's/^[[:blank:]]*//; s/ (0x.*//' | sort -u) || true
	if [ -n "$missing" ]; then
		echo "$missing"
		cannot "libraries are missing on this machine. Where Ferrule was built," \
			"\"tests/device/pack.sh BUILD FOLDER\" makes a folder to take along for" \
			"--build; or unpack the distribution's packages into a folder: --libs"
	fi
}
