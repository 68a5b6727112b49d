#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The output of ferrule-bench and ferrule-pingpong, and errors of writing it: the table, JSON, CSV,
# a picture; invalid combinations of options; ranks with other options than rank 0.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"

small=(-n 2 --min 8 --max 64 --iters 3)

# lines PATTERN NUMBER FILE: that many lines match.
lines() {
	local n
	n=$(grep -cE -- "$1" "$3" || true)
	[ "$n" -eq "$2" ] && return
	fail "$n lines of $(basename "$3") match '$1', not $2"
	show "$3"
}

test_table() {
	passes sweep "$bench" -n 3 --min 4 --max 100000 --factor 7 --iters 3 --warmup 1
	lines '^ +[0-9]+ +[0-9]+ +float32 +sum +-1( +[0-9.]+){8}$' 6 "$temp/sweep.out"
	lines '^# OK: every result was right \(12\)$' 1 "$temp/sweep.out"
	passes all "$bench" -n 4 --op all --max 64K --factor 64 --iters 2
	lines '^# [a-z_]+, algorithm auto$' 11 "$temp/all.out"
	# --min and --max are sizes of a rank's longer buffer.
	lines '^ +65536 +16384 +float32' 0 "$temp/all.out"
	lines '^ +32768 +8192 ' 4 "$temp/all.out"
	lines '^ +32768 +2048 ' 6 "$temp/all.out"
passes places "$bench" "${small[@]}" --in-place on
	lines '^ +64 .*sum +-1 +- +- +- +-( +[0-9.]+){4}$' 1 "$temp/places.out"
	passes quiet "$bench" "${small[@]}" --quiet
	lines '^ ' 0 "$temp/quiet.out"
	passes inflight "$bench" -n 3 --op all --count 0,1,1000 --iters 20 --inflight 5 --malloc
	passes roots "$bench" -n 3 --op gather,scatter,reduce --root all --count 5 --iters 0
	lines 'none +2 ' 2 "$temp/roots.out"
	passes shared "$bench" "${small[@]}" --explain
	lines 'ranks of this machine share .FRL_SHM., in one exchange' 4 "$temp/shared.out"
	lines '^#   thresholds: ranks 16, short 32720 bytes, ' 4 "$temp/shared.out"
	FRL_SHM=0 passes explain "$bench" "${small[@]}" --explain
	lines '^#   (ring|tree) +[0-9.]+ us' 8 "$temp/explain.out"
	lines '^#   thresholds: eager 4064 bytes, ' 4 "$temp/explain.out"
	passes algos "$bench" -n 4 --op allreduce,barrier --count 1000 --iters 2 --algo ring,tree
	lines '^# allreduce, algorithm (ring|tree)$' 2 "$temp/algos.out"
}

# csv NAME COLUMN PATTERN: of each line but the first.
csv() {
	awk -F, -v c="$2" -v p="$3" 'NR > 1 && $c !~ p { bad = 1 } NF != 15 { bad = 1 }
		END { exit bad || NR < 2 }' "$temp/$1" && return
	fail "$1: column $2 is not always $3"
	show "$temp/$1"
}

test_numbers() {
	passes json "$bench" "${small[@]}" --json "$temp/numbers.json"
	lines '"busbw_gbps": [0-9.e-]+$' 8 "$temp/numbers.json"
	passes json-stdout "$bench" "${small[@]}" --op all --json -
	lines '^[{}]$' 2 "$temp/json-stdout.out"
	lines '#' 0 "$temp/json-stdout.out"
	lines '"op": "alltoallv"' 4 "$temp/json-stdout.out"
	passes csv.out "$bench" "${small[@]}" --op reduce,barrier --csv "$temp/csv"
	csv csv 1 '^(reduce|barrier)$'
	csv csv 11 '^3$'
	csv csv 12 '^[0-9.e-]+$'
	csv csv 15 '^0$'
	lines '^reduce,float32,sum,same,auto,0,2,64,16,in,' 1 "$temp/csv"
	passes csv-untimed "$bench" -n 2 --count 3,5 --dtype all --iters 0 --csv -
	csv csv-untimed.out 13 '^$'
}

# Read by a parser, with the names that docs/guide/bench.md lists.
test_parsers() {
	if ! command -v python3 >/dev/null; then
		echo "not tried: parsers (there is no python3)"
		return
	fi
	passes parsed "$bench" -n 2 --rails 2 --op all --min 64 --max 4K --factor 64 --iters 2 \
		--json "$temp/parsed.json" --csv "$temp/parsed.csv"
	passes parser python3 - "$temp/parsed.json" "$temp/parsed.csv" <<-'SCRIPT'
		import csv, json, sys
		run = json.load(open(sys.argv[1]))
		assert set(run) == {"schema", "version", "ranks", "port", "path_mtu", "rails",
		    "in_flight", "checked", "left_out", "alike", "results"}, run.keys()
		assert run["schema"] == 1 and run["ranks"] == 2 and run["checked"] and run["alike"]
		assert len(run["rails"]) == 2
		for rail in run["rails"]:
		    assert set(rail) == {"port", "up", "tx_bytes", "rx_bytes", "retransmits"}
		    assert rail["up"] and rail["tx_bytes"] > 0 and rail["rx_bytes"] > 0, rail
		want = []
		for row in run["results"]:
		    assert set(row) == {"op", "dtype", "redop", "wire", "algo", "root", "size",
		        "count", "out_of_place", "in_place"}, row.keys()
		    for place in "out", "in":
		        block = row["out_of_place" if place == "out" else "in_place"]
		        if block is not None:
		            assert set(block) == {"wrong", "iters", "time_us", "algbw_gbps",
		                "busbw_gbps"}, block.keys()
		            assert block["wrong"] == 0 and block["time_us"] > 0
		            want.append((row["op"], str(row["size"]), place,
		                float(block["time_us"])))
		lines = list(csv.DictReader(open(sys.argv[2], newline="")))
		assert list(lines[0]) == ["op", "dtype", "redop", "wire", "algo", "root", "ranks",
		    "size", "count", "place", "iters", "time_us", "algbw_gbps", "busbw_gbps",
		    "wrong"], lines[0].keys()
		have = [(l["op"], l["size"], l["place"], float(l["time_us"])) for l in lines]
		assert [w[:3] for w in want] == [h[:3] for h in have]
		for w, h in zip(want, have):
		    assert abs(w[3] - h[3]) < 1e-6 * w[3], (w, h)
		assert len({l["op"] for l in lines}) == 11
	SCRIPT
}

# A file that is not a regular one is written to and stays. (Not the true /dev/null: the test may be
# root.)
test_files() {
	local name
	for name in json csv plot; do
		refuses "$name-new" "new/folder/x: its folder does not exist" -- \
			"$bench" "${small[@]}" "--$name" "$temp/new/folder/x"
	done
	[ ! -e "$temp/new" ] || fail "a folder was made"
	refuses json-folder 'is a directory' -- "$bench" "${small[@]}" --json "$temp"
	: >"$temp/file"
	refuses json-nowhere "$temp/file/numbers" -- \
		"$bench" "${small[@]}" --json "$temp/file/numbers"
	refuses csv-nowhere "$temp/file/numbers" -- \
		"$bench" "${small[@]}" --csv "$temp/file/numbers"
	lines '^ |#' 0 "$temp/json-folder.out"
	ln -s /proc/self/fd/1 "$temp/stdout"
	passes json-link "$bench" "${small[@]}" --json "$temp/stdout"
	[ -L "$temp/stdout" ] || fail "the link to standard output was replaced"
	lines 'busbw_gbps|# OK' 9 "$temp/json-link.out"
	mkfifo "$temp/fifo"
	timeout "$program_limit" cat "$temp/fifo" >"$temp/from-fifo" &
	started+=("$!")
	passes json-fifo "$bench" "${small[@]}" --json "$temp/fifo"
	wait "${started[@]}" || fail "nobody wrote to the FIFO"
	started=()
	[ -p "$temp/fifo" ] || fail "the FIFO was replaced"
	lines busbw_gbps 8 "$temp/from-fifo"
	mkdir "$temp/elsewhere"
	for name in dangling there; do
		ln -s "elsewhere/$name.json" "$temp/$name"
	done
	echo old >"$temp/elsewhere/there.json"
	for name in dangling there; do
		passes "json-$name" "$bench" "${small[@]}" --json "$temp/$name"
		[ -L "$temp/$name" ] || fail "json-$name: the link was replaced"
		lines busbw_gbps 8 "$temp/elsewhere/$name.json"
	done
}

# Implausible numbers are a failure.
full() {
	"$@" >/dev/full
}
export -f full

test_full() {
	local ctl=$bin/../daemon/ctl/ferrulectl name
	[ -c /dev/full ] || return 0
	refuses full-bench 'standard output' -- bash -c 'full "$@"' - "$bench" "${small[@]}"
	refuses full-csv 'standard output' -- bash -c 'full "$@"' - "$bench" "${small[@]}" --csv -
	refuses full-pingpong 'standard output' -- \
		bash -c 'full "$@"' - "$pingpong" --local --sizes 8 --iters 10
	refuses full-help 'standard output' -- bash -c 'full "$@"' - "$bench" --help
	refuses full-ctl-help 'standard output' -- bash -c 'full "$@"' - "$ctl" help
	refuses full-ferruled 'standard output' -- bash -c 'full "$@"' - "$ferruled" --help
	for name in qps 'watch --interval 0.1' doctor; do
		# shellcheck disable=SC2086
		refuses "full-${name%% *}" 'standard output' -- \
			bash -c 'full "$@"' - "$ctl" $name
	done
}

is_picture() {
	[ "$(head -c 8 "$temp/$1" | od -An -tx1 | tr -d ' \n')" = 89504e470d0a1a0a ] ||
		fail "$1 is no PNG"
	[ "$(stat -c %s "$temp/$1")" -gt 10000 ] || fail "there is little in $1"
}

test_plot() {
	local width
	mkdir "$temp/empty"
	refuses no-gnuplot 'needs gnuplot' 'gnuplot-nox' -- \
		env PATH="$temp/empty" "$bench" "${small[@]}" --plot "$temp/a.png"
	if ! command -v gnuplot >/dev/null; then
		echo "not tried: --plot (there is no gnuplot)"
		return
	fi
	passes plot "$bench" "${small[@]}" --op allreduce,allgather,barrier \
		--plot "$temp/plot.png" --json "$temp/plot.json"
	is_picture plot.png
	cp "$temp/plot.json" "$temp/$(printf 'n%.0s' {1..70}).json"
	passes beside "$bench" "${small[@]}" --compare "$temp/plot.json" --plot "$temp/beside.png"
	is_picture beside.png
	passes files "$bench" --compare "$temp/plot.json" --compare "$temp/plot.json" \
		--plot "$temp/files.png"
	is_picture files.png
	[ ! -s "$temp/files.out" ] || fail "something is said where files are drawn"
	# With many lines each has a style of its own, and the names fit.
	mkdir "$temp/script"
	# shellcheck disable=SC2016
	printf '#!/bin/sh\nexec tee "%s" | "%s"\n' "$temp/script/text" "$(command -v gnuplot)" \
		>"$temp/script/gnuplot"
	chmod +x "$temp/script/gnuplot"
	passes many env PATH="$temp/script:$PATH" "$bench" -n 2 --min 8 --max 64 --iters 1 \
		--op allreduce,reduce,reduce_scatter --redop sum,max,min,prod,avg \
		--plot "$temp/many.png"
	is_picture many.png
	sed -n 's/^set linetype \([0-9]*\) \(.*\)/\1 \2/p' "$temp/script/text" | head -n 15 |
		cut -d' ' -f2- | sort -u >"$temp/styles"
	[ "$(wc -l <"$temp/styles")" -eq 15 ] || fail "lines of a plot share a style"
	grep -q '^set linetype cycle 0$' "$temp/script/text" || fail "styles begin anew"
	[ "$(grep -o 'linetype 15 dashtype' "$temp/script/text" | wc -l)" -eq 2 ] ||
		fail "a line has no style of its own"
	passes long env PATH="$temp/script:$PATH" "$bench" --plot "$temp/long.png" \
		--compare "$temp/plot.json" --compare "$temp/$(printf 'n%.0s' {1..70}).json"
	is_picture long.png
	width=$(sed -n 's/^set terminal.* size \([0-9]*\),.*/\1/p' "$temp/script/text")
	[ "$width" -ge $((870 + 60 + 70 * 9)) ] || fail "long names are cut: $width pixels"
	refuses compare-alone '--compare needs --plot' -- "$bench" --compare "$temp/plot.json"
	refuses compare-gone 'gone.json' -- \
		"$bench" --compare "$temp/gone.json" --plot "$temp/none.png"
	echo '{"schema": 1, "results": [{"op": "dance"}]}' >"$temp/strange.json"
	refuses compare-strange 'result 1: an operation' -- \
		"$bench" --compare "$temp/strange.json" --plot "$temp/none.png"
	echo '{"schema": 77, "results": []}' >"$temp/strange.json"
	refuses compare-schema 'not a JSON file of this version' -- \
		"$bench" --compare "$temp/strange.json" --plot "$temp/none.png"
	refuses plot-nothing 'nothing to plot' -- \
		"$bench" -n 2 --op barrier --iters 2 --plot "$temp/none.png"
	[ ! -e "$temp/none.png" ] || fail "none.png is there"
}

test_options() {
	refuses op "--op 'broadcats': use allreduce, .*sendrecv, or all" -- \
		"$bench" -n 2 --op allreduce,broadcats
	refuses dtype "--dtype 'int9'" 'float8_e5m2' -- "$bench" -n 2 --dtype int9
	refuses redop "--redop ''" 'premul_sum' -- "$bench" -n 2 --redop sum,
	refuses algo "--algo 'rign'" 'halving-doubling' -- "$bench" -n 2 --algo rign
	refuses wire '--wire is for float32' -- "$bench" -n 2 --wire int8 --dtype float64
	refuses sizes '--min is more than --max' -- "$bench" -n 2 --min 9 --max 8
	refuses root '--root 2: ranks are 0 to 1' -- "$bench" -n 2 --root 2
	refuses stdout 'both use standard output' -- "$bench" -n 2 --json - --csv -
	refuses idle 'leave nothing to do' -- "$bench" -n 2 --check off --iters 0
	refuses empty '--csv: the file name is empty' -- "$bench" -n 2 --csv ''
	refuses ranks '-n is missing' -- "$bench"
	refuses rails '--rails .5.: not a whole number from 1 to 4' -- "$bench" -n 2 --rails 5
	refuses shared 'share a --port' -- \
		"$bench" -n 2 --port net_af_packet0,iface=e0 --ip 10.1.1.1/24
	refuses ips '2 --port and 1 --ip' -- "$bench" -n 1 --port net_af_packet0,iface=e0 \
		--ip 10.1.1.1/24 --port net_af_packet1,iface=e1
	refuses both 'exclude each other' -- "$bench" -n 1 --fabric blue \
		--port net_af_packet0,iface=e0 --ip 10.1.1.1/24
	refuses one 'uses one port' -- "$pingpong" --listen a --fabric blue --fabric red
	refuses places 'needs a place for each message' -- "$pingpong" --local --verify --places 2
	refuses places "--places '65'" -- "$pingpong" --local --places 65
	refuses wait "--wait '0'" -- "$pingpong" --local --wait 0
	refuses memory 'buffers need 256.0 TiB and this machine has [0-9.]+ .iB' -- \
		"$bench" -n 2 --min 1024G --inflight 64
	lines '' 1 "$temp/memory.out"
}

# Nothing to measure is a failure: an algorithm that cannot, one rank, a sample without a case.
test_nothing() {
	refuses unable 'nothing was measured: with 2 ranks here algorithm ring cannot do alltoall' \
		'# FAILED: nothing was measured' -- "$bench" "${small[@]}" --op alltoall --algo ring
	refuses unable-all 'none of the algorithms of --algo' -- \
		"$bench" "${small[@]}" --op sendrecv,barrier --algo ring,tree --check off
	refuses unable-one 'nothing was measured: one rank needs no algorithm' -- \
		"$bench" -n 1 --max 64 --algo ring
	refuses unsampled 'nothing was measured: --sample 100000 has left out all 4 cases' -- \
		"$bench" "${small[@]}" --sample 100000 --csv "$temp/unsampled"
	[ "$(wc -l <"$temp/unsampled")" -eq 1 ] || fail "unsampled: there are rows"
	passes unable-some "$bench" "${small[@]}" --op alltoall,allreduce --algo ring
	lines '^# [0-9]+ left out: their algorithm' 1 "$temp/unable-some.out"
}

# A misspelt setting is named once, by rank 0.
test_misspelt() {
	FRL_FARBIC=x passes misspelt "$bench" -n 4 --max 8 --iters 1
	lines 'not a setting, so ignored: FRL_FARBIC .nearest: FRL_FABRIC.$' 1 "$temp/misspelt.out"
	lines 'FRL_FARBIC' 1 "$temp/misspelt.out"
	refuses misspelt-rank 'FRL_RNAK .nearest: FRL_RANK.' -- env FRL_RNAK=0 "$bench"
}

# Ranks that were started separately may have other options.
test_terms() {
	"$bench" -n 2 --rank 1 --job terms --redop max >"$temp/terms.1" 2>&1 &
	started+=("$!")
	refuses terms.0 'rank 1 and rank 0 differ in --redop' -- \
		"$bench" -n 2 --rank 0 --job terms --redop min
	wait "${started[0]}" && fail "rank 1 does not fail"
	started=()
}

passes pingpong "$pingpong" --local --op all --verify --sizes 1,64,4095,4096,4097,1000000
passes malloc "$pingpong" --local --op all --verify --malloc --sizes 1,1023,1024,1027,64K,1000000
passes places "$pingpong" --local --op all --places 1 --sizes 8,64K --iters 100
for name in table numbers parsers files full plot options nothing misspelt terms; do
	before=$failures
	"test_$name"
	[ "$failures" -eq "$before" ] || echo "in test_$name"
done
finish
