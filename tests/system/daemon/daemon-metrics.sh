#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The metrics of a daemon, while processes move data and when they have ended: valid for promtool,
# right, fresh, and never decreasing. Each name that the dashboard uses exists.
# shellcheck source=tests/system/daemon_lib.sh
. "$(dirname "$0")/../daemon_lib.sh"

for program in curl jq; do
	command -v "$program" >/dev/null || skip "$program is not installed"
done

# A certificate that is its own CA.
if command -v openssl >/dev/null; then
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=ca \
		-keyout "$temp/tls.key" -out "$temp/tls.crt" 2>/dev/null
	cat >"$temp/metrics.conf" <<-CONF
		tls_certificate = "$temp/tls.crt";
		tls_key = "$temp/tls.key";
		tls_ca = "$temp/tls.crt";
	CONF
else
	: >"$temp/metrics.conf"
fi
port=$(free_port 1)
url=http://127.0.0.1:$port
run_daemon metrics --config "$temp/metrics.conf" --metrics "127.0.0.1:$port"
says metrics "metrics on 127.0.0.1:$port"
export FRL_CONTROL=$temp/metrics.sock

# scrape NAME: reads the metrics into $temp/NAME.
scrape() {
	curl -sS --max-time "$event_limit" "$url/metrics" >"$temp/$1" 2>"$temp/$1.err" && return
	fail "no metrics"
	show "$temp/$1.err"
	finish
}

# value FILE METRIC [LABEL...]: the sum of the samples that have these labels.
value() {
	local file=$temp/$1 metric=$2
	shift 2
	grep -E "^${metric}[{ ]" "$file" | {
		local label lines
		lines=$(cat)
		for label in "$@"; do
			lines=$(grep -F "$label" <<<"$lines" || true)
		done
		awk '{ sum += $NF } END { printf "%.0f\n", sum }' <<<"$lines"
	}
}

# expect NAME OPERATOR NUMBER FILE METRIC [LABEL...]
expect() {
	local what=$1 operator=$2 number=$3 found
	shift 3
	found=$(value "$@")
	test "$found" "$operator" "$number" || fail "$what: $* is $found, not $operator $number"
}

check() {
	command -v promtool >/dev/null || return 0
	promtool check metrics <"$temp/$1" >"$temp/$1.promtool" 2>&1 && return
	fail "promtool finds fault with $1"
	show "$temp/$1.promtool"
}

# No process is connected yet.
scrape empty
check empty
expect empty -eq 0 empty ferrule_ports
expect empty -eq 1 empty ferrule_build_info
expect empty -gt 0 empty process_resident_memory_bytes
expect empty -gt 5 empty process_open_fds

# Two that measure, until one of them is killed.
"$pingpong" --server --wait "$event_limit" >"$temp/server.out" 2>&1 &
server=$!
started+=("$server")
two_ports() {
	scrape now
	[ "$(value now ferrule_ports 'fabric="local"')" -eq "$1" ]
}
wait_until two_ports 1 || fail "the server's port does not show"
expect server -eq 1 now ferrule_listeners
expect server -eq 1 now ferrule_sessions 'role="process"'
"$pingpong" --connect :pingpong --wait "$event_limit" --op send --test bandwidth --sizes 1M \
	--iters 100000000 >"$temp/client.out" 2>&1 &
client=$!
started+=("$client")
# moved NUMBER: waits for a scrape with that many bytes at least.
moved() {
	scrape now
	[ "$(value now ferrule_port_tx_bytes_total "uid=\"$(id -u)\"")" -gt "$1" ]
}
wait_until moved 10000000 || fail "the metrics do not show that data moves"
check now
before=$(value now ferrule_port_tx_bytes_total)
wait_until moved "$((before + 10000000))" || fail "the metrics do not become newer"
expect moving -eq 2 now ferrule_ports 'fabric="local"'
# Both ends of each of its connections are here.
connects=$(value now ferrule_connects_total 'result="established"')
[ "$connects" -ge 1 ] || fail "no connection was made"
expect moving -eq "$((connects * 2))" now ferrule_connections 'state="established"'
expect moving -eq "$((connects * 2))" now ferrule_queue_pairs 'type="RC"' 'state="RTS"'
expect moving -eq "$((connects * 2))" now ferrule_queue_pairs_waiting
expect moving -eq "$connects" now ferrule_connect_duration_seconds_count
expect moving -eq "$connects" now ferrule_connect_duration_seconds_bucket 'le="+Inf"'
expect moving -gt 0 now ferrule_port_rx_bytes_total
expect moving -gt 0 now ferrule_port_placed_bytes_total

# One of them dies. The counts of both stay, and the other one gets the reason.
scrape last
kill -9 "$client"
one_death() {
	scrape dead
	[ "$(value dead ferrule_connection_ends_total 'cause="died"')" -ge 1 ]
}
wait_until one_death || fail "the metrics do not show that a process died"
ended_both() {
	! alive "$server" && two_ports 0
}
wait_until ended_both || fail "the server goes on, or its port stays"
scrape gone
check gone
expect gone -eq 0 gone ferrule_queue_pairs
expect gone -eq 0 gone ferrule_connections
for metric in ferrule_port_tx_bytes_total ferrule_port_rx_packets_total ferrule_connects_total; do
	expect "after the end" -ge "$(value last "$metric")" gone "$metric"
done

# A process that was never queried while it lived has been counted as well.
passes short "$pingpong" --local --op send --test latency --sizes 8 --iters 1000
scrape short.metrics
expect "a short life" -gt "$(($(value gone ferrule_port_tx_packets_total) + 1000))" \
	short.metrics ferrule_port_tx_packets_total

# Every metric of the dashboard exists, and nearly all metrics are in it.
dashboard=$system_root/daemon/prometheus/grafana.json
jq -e . "$dashboard" >/dev/null || fail "the dashboard is no JSON"
sed -n 's/^# TYPE \([a-z_]*\) histogram$/\1_bucket\n\1_sum\n\1_count/p
	s/^# TYPE \([a-z_]*\) .*/\1/p' "$temp/short.metrics" | sort -u >"$temp/names"
jq -r '.. | objects | .expr, .query | strings' "$dashboard" |
	grep -oE '\b(ferrule|process)_[a-z_]+' | sort -u >"$temp/asked"
[ "$(wc -l <"$temp/asked")" -ge 20 ] || fail "the dashboard asks for too little"
unknown=$(comm -13 "$temp/names" "$temp/asked")
[ -z "$unknown" ] || fail "the dashboard asks for what is not there: $unknown"

# So are those of the alerts.
rules=$system_root/daemon/prometheus/ferruled.rules.yml
grep -oE '\b(ferrule|process)_[a-z_]+' "$rules" | sort -u >"$temp/asked"
[ "$(wc -l <"$temp/asked")" -ge 10 ] || fail "the alerts ask for too little"
if [ -s "$temp/metrics.conf" ]; then
	expires=$(date -d "$(openssl x509 -enddate -noout -in "$temp/tls.crt" | cut -d= -f2)" +%s)
	expect certificate -eq "$expires" short.metrics \
		ferrule_tls_certificate_expiry_timestamp_seconds
else
	echo "not tried: the certificate's metric (there is no openssl)"
	sed -i /tls_certificate/d "$temp/asked"
fi
unknown=$(comm -13 "$temp/names" "$temp/asked")
[ -z "$unknown" ] || fail "the alerts ask for what is not there: $unknown"
if command -v promtool >/dev/null; then
	passes rules promtool check rules "$rules"
fi

# Nothing else is served, and nothing stays open.
[ "$(curl -s -o "$temp/post" -w '%{http_code}' -X POST "$url/metrics")" = 405 ] ||
	fail "POST is not refused by 405"
[ "$(curl -s -o "$temp/other" -w '%{http_code}' "$url/other")" = 404 ] || fail "no 404"
curl -s "$url/" | grep -q /metrics || fail "/ does not point to /metrics"
stop_daemon "$daemon"
finish
