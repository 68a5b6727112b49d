#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Allreduce of float32 sums: Ferrule over its local fabric against Open MPI and MPICH (Debian's
# packages) over shared memory, in turns, on the same processors. Prints markdown: the median bus
# bandwidth by size, and Ferrule's ratio to the best of the others.
#
# Open MPI yields when idle where there are more ranks than processors; of MPICH's settings,
# MPIR_CVAR_POLLS_BEFORE_YIELD at 0 and 1 and binding to cores did not help there. Otherwise peers
# run with their own defaults; --tuned adds Open MPI's other allreduce algorithms as peers, which
# beat its default at some sizes: a claim about the best peer needs it. Nobody binds ranks to
# processors: all run unbound on the same set. Numbers from a busy machine mean nothing; the load
# is printed.
set -eu

usage() {
	cat <<-'END'
	tests/bench/bench-allreduce.sh [options]
	  -n LIST          numbers of ranks (2,4)
	  --rounds K       runs of each peer, in turns (5)
	  --min SIZE       first size (1K)
	  --max SIZE       last size (64M)
	  --cpus LIST      processors to run on (the first n of those there are)
	  --peers LIST     of ferrule,openmpi,mpich (all three)
	  --tuned          further peers: openmpi-ring, openmpi-segmented, openmpi-rabenseifner
	  --json FILE      every single measurement
	END
}

rank_counts=2,4
rounds=5
min=1K
max=64M
cpus=
peers=ferrule,openmpi,mpich
tuned=
json=
while [ $# -gt 0 ]; do
	case $1 in
	-h | --help)
		usage
		exit 0
		;;
	--tuned)
		tuned=1
		shift
		continue
		;;
	esac
	if [ $# -lt 2 ]; then
		usage >&2
		exit 2
	fi
	case $1 in
	-n) rank_counts=$2 ;;
	--rounds) rounds=$2 ;;
	--min) min=$2 ;;
	--max) max=$2 ;;
	--cpus) cpus=$2 ;;
	--peers) peers=$2 ;;
	--json) json=$2 ;;
	*)
		usage >&2
		exit 2
		;;
	esac
	shift 2
done
[ -z "$tuned" ] || peers=$peers,openmpi-ring,openmpi-segmented,openmpi-rabenseifner
IFS=, read -r -a peers <<<"$peers"
IFS=, read -r -a rank_counts <<<"$rank_counts"

cd "$(dirname "$0")/../.."
scripts/install-deps.sh build bench
ferrule=${FRL_BUILD_DIR:-.}/build/examples/ferrule-bench
load=$(cut -d ' ' -f 1 /proc/loadavg)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [[ " ${peers[*]} " == *" ferrule "* ]]; then
	build=${FRL_BUILD_DIR:-.}/build
	[ -f "$build/build.ninja" ] || meson setup "$build" >/dev/null
	ninja -C "$build" --quiet examples/ferrule-bench
fi
mpicc.openmpi -O2 -o "$work/openmpi" tests/bench/mpi_allreduce.c
mpicc.mpich -O2 -o "$work/mpich" tests/bench/mpi_allreduce.c

# run PEER RANKS CPUS: one sweep on standard output.
run() {
	local peer=$1 ranks=$2 set=$3 idle=0 tune=()
	local n_cpus
	n_cpus=$(taskset -c "$set" nproc)
	[ "$ranks" -le "$n_cpus" ] || idle=1
	case $peer in
	openmpi-ring) tune=(4) ;;
	openmpi-segmented) tune=(5) ;;
	openmpi-rabenseifner) tune=(6) ;;
	esac
	[ ${#tune[@]} -eq 0 ] || tune=(--mca coll_tuned_use_dynamic_rules 1
		--mca coll_tuned_allreduce_algorithm "${tune[0]}")
	case $peer in
	ferrule)
		taskset -c "$set" "$ferrule" -n "$ranks" --min "$min" --max "$max"
		;;
	openmpi*)
		taskset -c "$set" mpirun.openmpi --allow-run-as-root --oversubscribe \
			--bind-to none --mca pml ob1 --mca btl vader,self \
			--mca mpi_yield_when_idle "$idle" "${tune[@]}" -n "$ranks" \
			"$work/openmpi" --min "$min" --max "$max"
		;;
	mpich)
		taskset -c "$set" mpirun.mpich -bind-to none -n "$ranks" \
			"$work/mpich" --min "$min" --max "$max"
		;;
	*)
		echo "unknown peer $peer" >&2
		return 2
		;;
	esac
}

# Lines of: ranks peer round size mode time_us algbw busbw wrong
: >"$work/all"
for ranks in "${rank_counts[@]}"; do
	available=$(nproc)
	set=${cpus:-0-$(((ranks < available ? ranks : available) - 1))}
	for ((round = 1; round <= rounds; round++)); do
		for peer in "${peers[@]}"; do
			echo "n=$ranks round $round of $rounds: $peer" >&2
			if ! run "$peer" "$ranks" "$set" >"$work/run" 2>"$work/err"; then
				echo "$peer failed for n=$ranks:" >&2
				cat "$work/run" "$work/err" >&2
				exit 1
			fi
			awk -v head="$ranks $peer $round" '/^ *[0-9]+ / && NF >= 12 {
				print head, $1, "out", $(NF - 7), $(NF - 6), $(NF - 5), $(NF - 4)
				print head, $1, "in", $(NF - 3), $(NF - 2), $(NF - 1), $NF
			}' "$work/run" >>"$work/all"
		done
	done
done
if awk '$9 != 0 { bad = 1 } END { exit !bad }' "$work/all"; then
	echo "wrong results:" >&2
	awk '$9 != 0' "$work/all" >&2
	exit 1
fi

if [ -n "$json" ]; then
	awk 'BEGIN { print "[" }
	{
		printf "%s{\"ranks\": %d, \"peer\": \"%s\", \"round\": %d, \"size\": %d, " \
			"\"mode\": \"%s_place\", \"time_us\": %s, \"algbw_gbps\": %s, " \
			"\"busbw_gbps\": %s}", (NR > 1 ? ",\n" : ""), $1, $2, $3, $4, \
			($5 == "out" ? "out_of" : "in"), $6, $7, $8
	}
	END { print "\n]" }' "$work/all" >"$json"
fi

# table RANKS MODE: markdown of the medians.
table() {
	awk -v ranks="$1" -v mode="$2" -v names="${peers[*]}" '
	function median(text,    n, v, i, j, t) {
		n = split(text, v, " ")
		for (i = 2; i <= n; i++)
			for (j = i; j > 1 && v[j - 1] + 0 > v[j] + 0; j--) {
				t = v[j]
				v[j] = v[j - 1]
				v[j - 1] = t
			}
		return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
	}
	function human(size) {
		if (size % 1048576 == 0)
			return size / 1048576 " MiB"
		return size % 1024 == 0 ? size / 1024 " KiB" : size " B"
	}
	$1 == ranks && $5 == mode {
		if (!seen[$4]++)
			sizes[++n_sizes] = $4
		values[$2, $4] = values[$2, $4] " " $8
	}
	END {
		n = split(names, peer, " ")
		line = "| size |"
		rule = "|---:|"
		for (p = 1; p <= n; p++) {
			line = line " " peer[p] " |"
			rule = rule "---:|"
		}
		print line " Ferrule / best other |"
		print rule "---:|"
		for (s = 1; s <= n_sizes; s++) {
			line = "| " human(sizes[s]) " |"
			mine = best = 0
			for (p = 1; p <= n; p++) {
				m = median(values[peer[p], sizes[s]])
				line = line sprintf(" %.3f |", m)
				if (peer[p] == "ferrule")
					mine = m
				else if (m > best)
					best = m
			}
			if (mine > 0 && best > 0) {
				line = line sprintf(" %.2f |", mine / best)
				all += log(mine / best)
				n_all++
				if (sizes[s] >= 1048576) {
					large += log(mine / best)
					n_large++
				}
			} else {
				line = line " - |"
			}
			print line
		}
		if (n_all)
			printf "\nGeometric mean of the ratios: %.2f", exp(all / n_all)
		if (n_large)
			printf "; from 1 MiB on: %.2f", exp(large / n_large)
		print ""
	}' "$work/all"
}

model=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
echo "$(nproc) processors, ${model:-unknown}; $rounds rounds, medians; load at the start $load."
mpirun.openmpi --version 2>/dev/null | head -n 1
mpichversion 2>/dev/null | sed -n 's/^\(MPICH Version\|MPICH Device\):[ \t]*/\1: /p'
for ranks in "${rank_counts[@]}"; do
	for mode in out in; do
		name="in place"
		[ "$mode" = in ] || name="out of place"
		printf '\n### n = %d, %s: bus bandwidth, GB/s\n\n' "$ranks" "$name"
		table "$ranks" "$mode"
	done
done
