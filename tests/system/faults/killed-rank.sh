#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# A rank is killed in the middle of collectives: the others name it and end, the launcher fails, and
# no process, file or socket stays behind. The same when ranks die as they start, when the launcher
# itself is killed, when ranks meet without a launcher, and when the daemon is killed. Signals that
# the starter of the job ignores do not end it.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"

mkdir -m 700 "$temp/tmp" "$temp/run"
export TMPDIR=$temp/tmp XDG_RUNTIME_DIR=$temp/run

four_children() {
	[ "$(children "$1" | wc -l)" -eq 4 ]
}
prints_sizes() {
	grep -qE '^ +[0-9]+ ' "$1"
}

# Jobs that last until something ends them.
endless=(--min 4K --max 4M --iters 0 --repeat 1000000)

# kill_one RANK: one of four ranks while the benchmark runs.
kill_one() {
	local rank=$1 out=$temp/kill$1.out launcher ranks victim status=0
	"$bench" -n 4 "${endless[@]}" >"$out" 2>&1 &
	launcher=$!
	started+=("$launcher")
	if ! wait_until four_children "$launcher"; then
		fail "there are not four ranks"
		show "$out"
		return
	fi
	mapfile -t ranks < <(children "$launcher" | sort -n)
	started+=("${ranks[@]}")
	job+=("$launcher" "${ranks[@]}")
	# Ranks are started in order, so the smallest process id is rank 0 unless ids wrapped.
	victim=${ranks[$rank]}
	wait_until prints_sizes "$out" || fail "nothing is printed"
	kill -9 "$victim"
	all_end "${ranks[@]}" "$launcher"
	wait "$launcher" || status=$?
	started=()
	echo "rank $rank killed: all have ended, status $status"
	[ "$status" -ne 0 ] || fail "the launcher's exit status is 0"
	grep -qE "rank $rank([^0-9]|$)" "$out" || fail "nobody names rank $rank"
	show_short "$out"
}

# show_short FILE...: the output without the results.
show_short() {
	local file
	for file in "$@"; do
		grep -vE '^ +[0-9]+ ' "$file" | sed "s|^|    $(basename "$file"): |" || true
	done
}

has_children() {
	[ -n "$(children "$1")" ]
}

# kill_early TRY: kills some rank 20 to 90 ms after the start; the first time at once, before it can
# have registered.
kill_early() {
	local out=$temp/early$1.out launcher ranks victim status=0
	"$bench" -n 4 "${endless[@]}" >"$out" 2>&1 &
	launcher=$!
	started+=("$launcher")
	[ "$1" -le 2 ] || sleep "0.0$((RANDOM % 71 + 20))"
	wait_until has_children "$launcher" || fail "there are no ranks"
	mapfile -t ranks < <(children "$launcher" | sort -n)
	started+=("${ranks[@]}")
	victim=${ranks[$((RANDOM % ${#ranks[@]}))]}
	kill -9 "$victim"
	all_end "$launcher"
	wait "$launcher" || status=$?
	[ "$status" -ne 0 ] || fail "early $1: the launcher's exit status is 0"
	all_end "${ranks[@]}"
	job+=("$launcher" "${ranks[@]}")
	started=()
	show_short "$out"
}

# The ranks die with their launcher, however it dies.
kill_launcher() {
	local out=$temp/launcher.out launcher ranks
	"$bench" -n 4 "${endless[@]}" >"$out" 2>&1 &
	launcher=$!
	started+=("$launcher")
	wait_until four_children "$launcher" || fail "there are not four ranks"
	mapfile -t ranks < <(children "$launcher")
	started+=("${ranks[@]}")
	wait_until prints_sizes "$out" || fail "nothing is printed"
	kill -9 "$launcher"
	all_end "${ranks[@]}"
	wait "$launcher" || true
	job+=("$launcher" "${ranks[@]}")
	started=()
}

# join_all RANKS OPTION...: processes that meet without a launcher, in $pids.
join_all() {
	local rank
	pids=()
	rm -f "$temp"/joined?.out
	for rank in $(seq 0 $(($1 - 1))); do
		"$bench" -n "$1" --rank "$rank" --job meet "${@:2}" \
			>"$temp/joined$rank.out" 2>&1 &
		pids+=("$!")
	done
	started+=("${pids[@]}")
	job+=("${pids[@]}")
	wait_until prints_sizes "$temp/joined0.out" || fail "nothing is printed"
}

kill_joined() {
	local rank status
	join_all 5 "${endless[@]}"
	kill -9 "${pids[0]}"
	all_end "${pids[@]}"
	for rank in 1 2 3 4; do
		status=0
		wait "${pids[$rank]}" || status=$?
		[ "$status" -eq 1 ] || fail "joined rank $rank: exit status $status"
		grep -q 'rank 0 is gone' "$temp/joined$rank.out" ||
			fail "joined rank $rank does not name rank 0"
	done
	wait "${pids[0]}" || true
	started=()
	show_short "$temp"/joined?.out
	# The name of their job is free again.
	passes again "$bench" -n 1 --rank 0 --job meet --max 64 --iters 3
}

# A restarted daemon learns of the ranks from them, and the job goes on.
restart_daemon() {
	local rank status repeat
	for repeat in 200 2000 20000 200000; do
		join_all 2 --min 4K --max 512K --iters 0 --repeat "$repeat"
		stop_daemon
		start_daemon "$FRL_CONTROL" "$ferruled" --private --config "$temp/ferruled.conf"
		! ended "${pids[0]}" || {
			echo "daemon restarted: the job was done before"
			continue
		}
		break
	done
	for rank in 0 1; do
		status=0
		wait "${pids[$rank]}" || status=$?
		[ "$status" -eq 0 ] || fail "daemon restarted: exit status $status of rank $rank"
	done
	started=()
	show_short "$temp"/joined[01].out
}

# stop_daemon: it is gone when this returns, with all that it held.
stop_daemon() {
	kill -9 "$daemon"
	wait "$daemon" 2>/dev/null || true
	daemons=()
}

# Ranks that are no longer notified of dead ones do not go on as if all lived.
kill_daemon() {
	local rank status
	local -x FRL_CONTROL_LOST_S=1
	join_all 2 "${endless[@]}"
	stop_daemon
	all_end "${pids[@]}"
	for rank in 0 1; do
		status=0
		wait "${pids[$rank]}" || status=$?
		[ "$status" -eq 1 ] || fail "daemon killed: exit status $status of rank $rank"
		grep -q 'control daemon .* has ended and was not back' "$temp/joined$rank.out" ||
			fail "daemon killed: rank $rank does not say so"
	done
	started=()
	show_short "$temp"/joined[01].out
}

# ignoring SIGNAL: the signal is sent in the middle of a job that was started with it ignored.
ignoring() {
	local launcher status late repeat out=$temp/ignored.out
	for repeat in 100 1000 10000 100000; do
		# Output of the last job must not be taken for this one's.
		rm -f "$out"
		env "--ignore-signal=$1" "$bench" -n 2 --min 4K --max 4K --iters 0 \
			--repeat "$repeat" >"$out" 2>&1 &
		launcher=$!
		started+=("$launcher")
		wait_until prints_sizes "$out" || fail "nothing is printed"
		kill "-$1" "$launcher" || true
		status=0
		late=
		! grep -q '^# OK' "$out" || late=1
		wait "$launcher" || status=$?
		started=()
		[ "$status" -eq 0 ] || fail "ignored $1 ends the job: status $status"
		[ "$late" ] || return 0
		echo "$1 came too late"
	done
	fail "$1 always came too late"
}

# left: files and sockets that the ranks have left behind. Where files of others may be among them,
# those whose names carry the process id of a rank, as all of ours do.
left() {
	local pids
	pids=$(printf '|%s' "${job[@]}")
	{
		find "$temp/tmp" "$temp/run" -mindepth 1
		if [ "${FRL_TEST_MACHINE:-}" = own ]; then
			find /run /dev/shm -mindepth 1
			awk '$8 ~ /^@/ { print $8 }' /proc/net/unix
		fi
		leavings | grep -E "(^|[^0-9])(${pids:1})([^0-9]|$)" || true
	} | sort -u
}
is_folder_of_driver() {
	case $1 in
	/run/hosts | /run/nsswitch.conf | /run/mount | /run/mount/*) true ;; # of the machine itself
	/run/dpdk | /run/dpdk/ferrule | "$temp"/run/dpdk | "$temp"/run/dpdk/ferrule)
		[ -z "$(find "$1" -mindepth 1 ! -name ferrule)" ]
		;;
	*) false ;;
	esac
}

# A rank that aborts and ends at once: the others get the reason each time.
abort_at_once() {
	local peer=$bin/../tests/comm-peer try
	[ -x "$peer" ] || return 0
	for try in 1 2 3 4 5 6 7 8 9 10; do
		passes "abort$try" "$peer" abort 4
		FRL_SHM=0 passes "abort-packets$try" "$peer" abort 4
	done
}

job=()
for rank in 0 2 3; do
	kill_one "$rank"
done
for try in 1 2 3 4 5; do
	kill_early "$try"
done
kill_launcher
kill_joined
if env --ignore-signal=HUP true 2>/dev/null; then
	ignoring HUP
	ignoring INT
	passes no-sigchld env --ignore-signal=CHLD "$bench" -n 2 --max 1K --iters 3
else
	echo "not tried: ignored signals (env has no --ignore-signal)"
fi
abort_at_once
restart_daemon
kill_daemon
# The driver's own folder may stay while it is empty.
new=$(left | while read -r name; do
	is_folder_of_driver "$name" || echo "$name"
done)
[ -z "$new" ] || fail "left behind: $new"
finish
