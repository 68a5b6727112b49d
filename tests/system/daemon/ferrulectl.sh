#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# ferrulectl with a daemon and two connected processes: its output is right, for people and for
# programs; another user sees and kills nothing; why names the cause of a stall; kill-qp and drain
# do their work.
# shellcheck source=tests/system/peer_lib.sh
. "$(dirname "$0")/../peer_lib.sh"

ctl=$bin/../daemon/ctl/ferrulectl
[ -x "$ctl" ] || skip "$ctl is not built"
command -v python3 >/dev/null || skip "python3 is not installed"

# evaluate EXPRESSION: of the JSON in $temp/json, `d`.
evaluate() {
	python3 -c "
import json, sys
d = json.load(open(sys.argv[1]))
print($1)" "$temp/json"
}

# field EXPRESSION COMMAND...: from the JSON that the command prints.
field() {
	local expression=$1
	shift
	"$ctl" --json "$@" >"$temp/json" || true
	evaluate "$expression"
}

# holds EXPRESSION COMMAND...: the expression is true for its JSON.
holds() {
	local expression=$1
	shift
	[ "$(field "$expression" "$@")" = True ] && return
	fail "ferrulectl $*: not $expression"
	show "$temp/json"
}

# status_of EXPECTED COMMAND...
status_of() {
	local expected=$1 status=0
	shift
	"$@" >"$temp/said" 2>&1 || status=$?
	[ "$status" -eq "$expected" ] && return
	fail "exit status $status instead of $expected: $*"
	show "$temp/said"
}

# has PATTERN COMMAND...: the output of ferrulectl matches.
has() {
	local pattern=$1
	shift
	"$ctl" "$@" >"$temp/said" 2>&1 || true
	grep -qE -- "$pattern" "$temp/said" && return
	fail "ferrulectl $* does not say '$pattern'"
	show "$temp/said"
}

test_nobody() {
	local command
	for command in ports qps connections peers; do
		holds "d['$command'] == []" "$command"
		has '^No ' "$command"
	done
	holds "d['daemon']['processes'] == 0" stats
	status_of 4 "$ctl" why 4711
	status_of 2 "$ctl" why
	status_of 2 "$ctl" why much
	status_of 2 "$ctl" conquer
	status_of 2 "$ctl"
	status_of 0 "$ctl" help
	status_of 3 "$ctl" --socket "$temp/none" ports
	status_of 3 env FRL_CONTROL=off "$ctl" ports
	[ "$(FRL_CONTROL=$temp/none field "d['error']['name']" qps)" = ENOTCONN ] ||
		fail "an error is not told as JSON"
}

test_tables() {
	local client_pid=${pids[client]} server_pid=${pids[server]} qpn peer_qpn
	holds "sorted(p['pid'] for p in d['ports']) == sorted([$client_pid, $server_pid])" ports
	holds "all(p['fabric'] == 'local' and p['qps'] == 1 for p in d['ports'])" ports
	holds "all(len(p['addresses']) > 0 and len(p['mac']) == 17 for p in d['ports'])" ports
	holds "len(d['qps']) == 2 and all(q['state'] == 'RTS' for q in d['qps'])" qps
	holds "all(q['type'] == 'RC' and q['published_age_s'] < 1 for q in d['qps'])" qps
	holds "len(d['connections']) == 2" connections
	holds "all(c['state'] == 'established' and c['service'] == 'service'
		for c in d['connections'])" connections
	holds "sorted(c['passive'] for c in d['connections']) == [False, True]" connections
	qpn=$(field "[q['qpn'] for q in d['qps'] if q['pid'] == $client_pid][0]" qps)
	peer_qpn=$(field "[q['qpn'] for q in d['qps'] if q['pid'] == $server_pid][0]" qps)
	holds "[c['peer_qpn'] for c in d['connections'] if c['pid'] == $client_pid] ==
		[$peer_qpn]" connections
	holds "[q['peer_qpn'] for q in d['qps'] if q['pid'] == $server_pid] == [$qpn]" qps
	holds "d['daemon']['connections'] == 2 and d['daemon']['processes'] == 2" stats
	holds "[c['peer_pid'] for c in d['connections'] if c['pid'] == $client_pid] ==
		[$server_pid]" connections --pid "$client_pid"
	has "^ *$qpn +$client_pid .*RTS" qps
	has "cm-peer" connections
	[ "$(COLUMNS=40 "$ctl" qps | awk 'length > 40' | wc -l)" -eq 0 ] ||
		fail "the table does not fit 40 columns"
	[ "$("$ctl" --wide qps | head -1 | wc -w)" -gt \
		"$(COLUMNS=40 "$ctl" qps | head -1 | wc -w)" ] || fail "--wide shows no more"
}

# Sent messages are counted at both ends.
test_traffic() {
	local before
	before=$(field "sum(q['tx_bytes'] for q in d['qps'])" qps)
	ask server '^posted' post "$s"
	ask client '^sent' send "$c" hello
	ask server '^received' receive "$s"
	# A page is published again when it is older than 100 ms.
	counted() {
		[ "$(field "sum(q['$1'] for q in d['qps'])" qps)" -eq $((before + 5)) ]
	}
	wait_until counted tx_bytes || fail "no 5 bytes more are counted than $before as sent"
	wait_until counted rx_bytes || fail "no 5 bytes more are counted than $before as received"
	"$ctl" watch --interval 0.2 --count 3 >"$temp/watched" || fail "watch: exit status $?"
	[ "$(grep -c 'TX/s' "$temp/watched")" -eq 2 ] || {
		fail "watch does not show rates"
		show "$temp/watched"
	}
	[ "$("$ctl" --json watch connections -i 0.1 -n 2 | wc -l)" -eq 2 ] ||
		fail "watch --json does not print an object a line"
}

# On a terminal it refreshes in place, and ^C ends it; the terminal stays as it was.
test_watch() {
	cat >"$temp/terminal.py" <<-'END'
		import fcntl, os, pty, signal, struct, sys, termios
		start = os.pipe()
		pid, fd = pty.fork()
		if pid == 0:
		    os.read(start[0], 1)
		    os.execv(sys.argv[1], sys.argv[1:])
		fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
		before = termios.tcgetattr(fd)
		os.write(start[1], b"!")
		said = b""
		while said.count(b"\x1b[H") < 3:  # three times drawn
		    said += os.read(fd, 65536)
		assert termios.tcgetattr(fd) == before
		os.write(fd, b"\003")
		try:
		    while os.read(fd, 65536):
		        pass
		except OSError:
		    pass
		status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
		assert status == -signal.SIGINT, status
		assert b"TX/s" in said and b"(^C ends)" in said, said
		for line in said.split(b"\x1b[H")[2].split(b"\x1b[K")[2:]:
		    assert len(line.strip()) <= 60, line
	END
	timeout "$program_limit" python3 "$temp/terminal.py" "$ctl" watch --interval 0.1 ||
		fail "watch on a terminal"
}

# The server has posted no receive: the client's message waits for one.
test_why() {
	local qpn=$1
	say_to client "send $c waits"
	stalled() {
		"$ctl" why "$qpn" --pid "${pids[client]}" |
			grep -q '^Diagnosis: .*posted no receive for'
	}
	wait_until stalled || fail "why does not see the stall"
	has '1 request in the send queue' why "$qpn" --pid "${pids[client]}"
	has "Diagnosis: .*has posted no receive.*process ${pids[server]}" \
		why "$qpn" --pid "${pids[client]}"
	holds "d['peer_view']['pid'] == ${pids[server]} and 'no receive' in d['diagnosis']" \
		why "$qpn" --pid "${pids[client]}"
	# A process that is stopped cannot publish: the diagnosis says so.
	kill -STOP "${pids[server]}"
	says_stopped() {
		"$ctl" why "$qpn" --pid "${pids[client]}" >"$temp/said" 2>&1
		grep -qE "Diagnosis: .*process ${pids[server]} .*stopped" "$temp/said"
	}
	wait_until says_stopped || {
		fail "why does not see that a process is stopped"
		show "$temp/said"
	}
	kill -CONT "${pids[server]}"
	ask server '^posted' post "$s"
	ask server '^received' receive "$s"
	hear client '^sent'
}

# Another user, who may use the socket, sees and changes nothing.
test_other_user() {
	local qpn=$1 other command
	[ "$(id -u)" -eq 0 ] || return 0
	other=(setpriv --reuid=65534 --regid=65534 --clear-groups "$temp/open/ferrulectl"
		--socket "$FRL_CONTROL")
	mkdir "$temp/open"
	cp "$ctl" "$temp/open/"
	cp -P "$bin"/../libferrule.so* "$temp/open/" 2>/dev/null || true
	chmod 0711 "$temp" "$temp/open"
	status_of 0 "${other[@]}" stats
	grep -q '^0 processes, 0 ports, 0 listeners, 0 connections' "$temp/said" ||
		fail "another user counts: $(cat "$temp/said")"
	for command in ports qps connections; do
		status_of 0 "${other[@]}" "$command"
		grep -q '^No process of yours' "$temp/said" ||
			fail "another user sees: $(cat "$temp/said")"
	done
	status_of 4 "${other[@]}" kill-qp "$qpn" --pid "${pids[client]}"
	status_of 4 "${other[@]}" why "$qpn" --pid "${pids[client]}"
	status_of 5 "${other[@]}" drain
	holds "all(q['state'] == 'RTS' for q in d['qps'])" qps
	chmod 0700 "$temp" # as it was
}

test_kill() {
	local qpn=$1
	status_of 0 "$ctl" kill-qp "$qpn" --pid "${pids[client]}" --reason "it is a test"
	ask client "^ended $c ECANCELED killed by an operator .*: it is a test; ERR" end "$c" "$ms"
	ask server "^ended $s ECANCELED killed by an operator .*: it is a test; ERR" end "$s" "$ms"
	holds "d['connections'] == []" connections
	holds "d['daemon']['counters']['ends_killed'] == 1" stats
	ask client '^closed' close "$c"
	ask server '^closed' close "$s"
}

# The queue pairs of a job: their owners and peers. An operator ends one of them, and all ranks name
# the reason; no rank is taken for dead.
test_job() {
	local rank qpn job=() up="if q['state'] == 'RTS'" status
	for rank in 0 1 2; do
		FRL_SHM=0 "$bench" -n 3 --rank "$rank" --job sum --min 4K --max 4K --iters 0 \
			--repeat 1000000 >"$temp/job$rank.out" 2>&1 &
		job+=("$!")
	done
	started+=("${job[@]}")
	wait_until grep -qE '^ +[0-9]+ ' "$temp/job0.out" || fail "the job does not run"
	holds "all(q['job'] == 'sum' and q['rank'] in '012' for q in d['qps'] $up)" qps
	holds "all(q['peer_host'] == '$(hostname)' for q in d['qps'] $up)" qps
	holds "{q['peer_rank'] for q in d['qps'] $up and q['rank'] == '1'} <= {'0', '2'}" qps
	has '^ *QPN .* JOB .* PEER RANK' --wide qps
	qpn=$(field "[q['qpn'] for q in d['qps'] $up and
		(q['rank'], q['peer_rank']) == ('1', '2') and q['recv_queue']][0]" qps)
	has 'is rank 1 of job sum' why "$qpn" --pid "${job[1]}"
	has "of rank 2 on $(hostname)" why "$qpn" --pid "${job[1]}"
	status_of 0 "$ctl" kill-qp "$qpn" --pid "${job[1]}" --reason "a new switch"
	for rank in 0 1 2; do
		status=0
		wait "${job[$rank]}" || status=$?
		[ "$status" -eq 1 ] || fail "rank $rank: exit status $status"
		grep -q 'rank 1 to rank 2 was killed by an operator .*: a new switch' \
			"$temp/job$rank.out" || fail "rank $rank does not say why"
		! grep -q 'is gone' "$temp/job$rank.out" ||
			fail "rank $rank takes another one for dead"
	done
	show "$temp/job"?.out
}

test_drain() {
	status_of 0 "$ctl" drain --reason "new kernel"
	has '^draining: new kernel' stats
	has 'WARN +daemon .*draining: new kernel' doctor
	ask client '^connecting' connect - service "$ms"
	ask client '^error EBUSY .*new kernel' wait "$(number)" "$ms"
	ask client '^error EBUSY .*new kernel' listen another
	status_of 0 "$ctl" drain --undo
	meet client server
	ask client '^closed' close "$c"
	ask server '^closed' close "$s"
}

# Waiters for a drained host are notified when the last process has gone.
test_drain_waits() {
	"$ctl" drain --wait >"$temp/waited" &
	local waiting=$!
	started+=("$waiting")
	leave client
	leave server
	wait_until ended "$waiting" || fail "drain --wait does not end"
	wait "$waiting" || fail "drain --wait: exit status $?"
	grep -q '0 connections, 0 ports' "$temp/waited" || fail "$(cat "$temp/waited")"
}

test_doctor() {
	local status=0
	"$ctl" --json doctor >"$temp/doctor" || status=$?
	[ "$status" -le 1 ] || fail "doctor: exit status $status"
	python3 - "$temp/doctor" "$status" <<-'END' || fail "doctor: its JSON is not right"
		import json, sys
		report = json.load(open(sys.argv[1]))
		names = {check["name"] for check in report["checks"]}
		assert {"daemon", "nic", "hugepages", "memlock"} <= names, names
		failed = sum(check["status"] == "FAIL" for check in report["checks"])
		assert failed == report["failed"] and (failed > 0) == (sys.argv[2] == "1")
	END
	has 'OK +daemon ' doctor
}

# The driver's properties of GPUs: that driver is a double.
test_doctor_gpus() {
	local double=${FRL_FAKE_LIBCUDA:-$bin/../tests/fakes/cuda}
	local -x LD_LIBRARY_PATH=$double${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} FAKE_CUDA_DEVICES=2
	[ -r "$double/libcuda.so.1" ] || return 0
	has 'OK +gpu +1: .* 0000:c1:00\.0, .*driver of CUDA 13\.0: usable: NICs by dma-buf' doctor
	FAKE_CUDA_DEVICES=0 has '(SKIP|->) .*CUDA_ERROR_NO_DEVICE .*CUDA_VISIBLE_DEVICES' doctor
	FAKE_CUDA_VERSION=11020 has 'that of CUDA 11\.2; Ferrule needs .*CUDA 11\.3' doctor
	FAKE_CUDA_FAIL=cuInit:1:803:0 has 'CUDA_ERROR_SYSTEM_DRIVER_MISMATCH .*reboot' doctor
	FAKE_CUDA_ATTRIBUTES=20=2 has 'WARN +gpu .*cannot be used' doctor
	grep -q 'nvidia-smi -i 0000:c0:00.0 -c DEFAULT' "$temp/said" || fail "doctor: no advice"
}

run() {
	local before=$failures
	"$@"
	[ "$failures" -eq "$before" ] || echo "in $1"
}

# One daemon for all users: in a private one its user is the operator.
echo 'user = "";' >"$temp/system.conf"
export FRL_CONTROL=$temp/system.sock
start_daemon "$FRL_CONTROL" "$ferruled" --config "$temp/system.conf" --listen none --metrics none
run test_nobody
peer server
ask server '^listening service$' listen service
peer client
meet client server
run test_tables
run test_traffic
run test_watch
qpn=$(field "[q['qpn'] for q in d['qps'] if q['pid'] == ${pids[client]}][0]" qps)
run test_why "$qpn"
run test_other_user "$qpn"
run test_kill "$qpn"
run test_job
run test_drain
run test_doctor
run test_doctor_gpus
run test_drain_waits
[ "$failures" -eq 0 ] || show "$FRL_CONTROL.log"
finish
