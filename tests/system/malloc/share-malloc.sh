#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# ferrule-run --share-malloc: programs run unchanged, their large allocations behave as those of
# malloc(), and ranks read each other's in place.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"

[ -z "${FRL_SANITIZED:-}" ] || skip "a sanitizer has its own malloc()"
run=$bin/ferrule-run
checks=$bin/../tests/malloc-checks
for program in "$run" "$checks" "$bin/../libferrule-malloc.so"; do
	[ -e "$program" ] || skip "$program is not built"
done

# The program's own status and arguments, and the statuses of env(1).
ends status 3 "$run" --share-malloc sh -c 'exit 3'
ends signal 137 "$run" --share-malloc sh -c 'kill -9 $$'
ends arguments 0 "$run" --share-malloc -- echo --share-malloc -h a 'b c'
says arguments '^--share-malloc -h a b c$'
ends help 0 "$run" --help
says help 'ferrule-run \[OPTIONS\]'
ends version 0 "$run" --version
ends none 2 "$run" --share-malloc
says none 'no program given'
ends no-verbs 1 env -u LD_LIBRARY_PATH "$run" --share-malloc printenv LD_LIBRARY_PATH
ends bad-option 2 "$run" --shared-malloc true
ends missing 127 "$run" --share-malloc "$temp/no such program"
says missing 'No such file or directory: is it in PATH'
ends folder 126 "$run" --share-malloc "$temp"
says folder 'Permission denied'
mkdir "$temp/alone"
cp "$run" "$temp/alone/"
if ! "$temp/alone/ferrule-run" --share-malloc true >/dev/null 2>&1; then
	ends alone 2 "$temp/alone/ferrule-run" --share-malloc true
	says alone 'no libferrule-malloc.so in .*: install Ferrule completely'
fi
ends others 0 env LD_PRELOAD=libm.so.6 "$run" --share-malloc printenv LD_PRELOAD
says others '/libferrule-malloc.so:libm.so.6$'

if command -v mpirun.openmpi >/dev/null; then
	mpirun=(mpirun.openmpi --oversubscribe)
	[ "$(id -u)" -ne 0 ] || mpirun+=(--allow-run-as-root)
	ends mpirun 0 "${mpirun[@]}" -n 2 "$run" --share-malloc "$checks" shared
fi

# The calls, with few and with many kept blocks.
for keep in 0 64; do
	export FRL_SHARE_MALLOC_KEEP_MB=$keep
	for name in sizes zeros alignments realloc growth madvise mprotect fork atfork closed \
		threads limits file-limit address-limit shared; do
		ends "$name-$keep" 0 "$run" --share-malloc "$checks" "$name"
	done
done
unset FRL_SHARE_MALLOC_KEEP_MB
ends trim 0 "$run" --share-malloc "$checks" trim
ends exit 42 "$run" --share-malloc "$checks" exit
# The check itself tells shared memory from other memory.
ends plain 1 "$checks" shared
ends from 1 env FRL_SHARE_MALLOC_KB=2000 "$run" --share-malloc "$checks" shared
ends log 0 env FERRULE_LOG=info "$run" --share-malloc "$checks" limits
says log 'ferrule-malloc: 1048576 bytes are not shareable: .*errno 24'

# Large programs give the same output.
if command -v python3 >/dev/null; then
	cat >"$temp/program.py" <<-'PYTHON'
		import multiprocessing, subprocess, threading

		def work(n):
		    data = bytearray(n << 20)
		    data[:] = bytes(range(256)) * (n << 12)
		    shared[:4] = b"mine"
		    return sum(data[::4097])

		shared = bytearray(b"base" + bytes(3 << 20))
		if __name__ == "__main__":
		    with multiprocessing.get_context("fork").Pool(2) as pool:
		        print(pool.map(work, range(1, 9)))
		    print(bytes(shared[:4]))
		    threads = [threading.Thread(target=work, args=(i,)) for i in (1, 2, 3)]
		    for thread in threads:
		        thread.start()
		    print(subprocess.run(["sh", "-c", "exit 5"]).returncode)
		    for thread in threads:
		        thread.join()
		    text = "".join(str(i) for i in range(1000000))
		    print(hash(len(text)), len(text.encode() * 5))
	PYTHON
	ends python 0 "$run" --share-malloc python3 "$temp/program.py"
	python3 "$temp/program.py" >"$temp/python.plain"
	cmp "$temp/python.out" "$temp/python.plain" || fail "python3 prints something else"
fi
if python3 -c 'import numpy' 2>/dev/null; then
	cat >"$temp/numpy.py" <<-'PYTHON'
		import numpy

		array = numpy.ones(1 << 20) * 2
		array.resize(1 << 21, refcheck=False)
		address, shared = array.ctypes.data, False
		for line in open("/proc/self/maps"):
		    start, end = (int(number, 16) for number in line.split()[0].split("-"))
		    if start <= address < end and "ferrule-malloc" in line:
		        shared = True
		print(shared, array.sum())
	PYTHON
	ends numpy 0 "$run" --share-malloc python3 "$temp/numpy.py"
	says numpy '^True 2097152.0$'
fi
if command -v clang >/dev/null; then
	source=$system_root/tools/run/files.c
	options=(-O2 -S "-I$system_root" -D_GNU_SOURCE '-DRUN_LIBRARY_UP=""'
		'-DRUN_LIBRARY_INSTALLED=""' "$source" -o)
	ends clang 0 "$run" --share-malloc clang "${options[@]}" "$temp/shared.s"
	clang "${options[@]}" "$temp/plain.s"
	cmp "$temp/shared.s" "$temp/plain.s" || fail "clang writes something else"
fi

# Ranks map each other's buffers. With FRL_SHM_WRITE=0 these mappings are read-only, unlike their
# own.
maps_another() {
	local rank
	for rank in "$@"; do
		grep -qE ' r--s .*/memfd:ferrule-malloc' "/proc/$rank/maps" 2>/dev/null || return 1
	done
}
two_children() {
	[ "$(children "$1" | wc -l)" -eq 2 ]
}
FRL_SHM_WRITE=0 "$run" --share-malloc "$bench" -n 2 --malloc --min 1M --max 1M --iters 0 \
	--repeat 1000000 >"$temp/bench.out" 2>&1 &
launcher=$!
started+=("$launcher")
if wait_until two_children "$launcher"; then
	mapfile -t ranks < <(children "$launcher")
	started+=("${ranks[@]}")
	if ! wait_until maps_another "${ranks[@]}"; then
		fail "the ranks do not read each other's memory"
		show "$temp/bench.out"
	fi
else
	fail "there are not two ranks"
	show "$temp/bench.out"
fi
kill -9 "${ranks[@]}" "$launcher" 2>/dev/null || true
all_end "${ranks[@]}" "$launcher"
started=()
# Results are right, also over connections, which pass descriptors instead of paths.
passes right "$run" --share-malloc "$bench" -n 2 --malloc --min 256K --max 4M --iters 0
FRL_SHM=0 passes connections "$run" --share-malloc "$bench" -n 2 --malloc --min 256K --max 4M \
	--iters 0
# fork() in the middle of collectives.
passes forks "$run" --share-malloc "$bin/../tests/malloc-fork-peer"
finish
