#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# ferrule-pcap: the counts of every recorded capture, decoded packets, and files that are no capture
# or a damaged one.
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/../lib.sh"

pcap=$bin/ferrule-pcap
vectors=${FRL_VECTORS:-$system_root/tests/vectors}
[ -x "$pcap" ] || skip "$pcap is not built"
export LC_ALL=C

# says NAME LINE: the output of NAME has exactly this line.
says() {
	grep -qxF -- "$2" "$temp/$1.out" && return
	fail "$1: no line '$2'"
	show "$temp/$1.out"
}

cd "$vectors"
passes vectors "$pcap" ./*.pcap
sed 's|^\./||' "$temp/vectors.out" | diff expected.txt - >"$temp/differ" || {
	fail "the counts are not those of expected.txt"
	show "$temp/differ"
}

# A line a packet, and the same counts after them.
passes verbose "$pcap" --verbose ./*.pcap
grep -v '^#' "$temp/verbose.out" | cmp -s - "$temp/vectors.out" || fail "verbose: other counts"
packets=$(sed -nE 's/^.*: roce=([0-9]+) .*/\1/p' "$temp/vectors.out" |
	awk '{ n += $1 } END { print n }')
lines=$(grep -c '^#' "$temp/verbose.out")
[ "$lines" -eq "$packets" ] || fail "verbose: $lines lines of $packets packets"
bad=$(grep -c '^#.* icrc=BAD$' "$temp/verbose.out")
[ "$bad" -eq 21 ] || fail "verbose: $bad bad ICRCs"

# Some packets as an independent dissector shows them, one line each; a + breaks the line.
while read -r line; do
	says verbose "$line"
done < <(sed -e :a -e '/+$/{N;s/+\n\t*//;ba' -e '}' <<-'END'
	#5 6.980066000 10.9.0.1:56805 > 239.9.9.9:4791 UD_SEND_ONLY_IMM qpn=0xffffff psn=0x000000 +
	qkey=0x01234567 src_qpn=0x000055 imm=0x00000055 payload=100 pad=0 icrc=ok
	#18 0.119574000 [fd09::1]:50464 > [fd09::2]:4791 RC_CMP_SWAP qpn=0x000029 psn=0xb21f9e A +
	va=0x00007fb4748d2000 rkey=0x00003216 swap=0x0000000000000006 +
	compare=0x0000000000000005 payload=0 pad=0 icrc=ok
	#57 0.497201000 10.10.0.1:57600 > 10.10.0.2:4791 vlan=10 pcp=0 RC_SEND_LAST qpn=0x000060 +
	psn=0x60f598 A payload=1024 pad=0 icrc=ok
	#52 0.057413000 [fd09::1]:58177 > [fd09::2]:4791 tos=0x6a RC_SEND_LAST_IMM qpn=0x00002b +
	psn=0x40f140 A SE imm=0xabcd0013 payload=1 pad=3 icrc=ok
	END
)

passes stdin "$pcap" - <peer_resp_basic.pcap
says stdin "-: roce=9 bad_icrc=0 RC_ACKNOWLEDGE=4 RC_SEND_ONLY=5"

# Unreadable files are named, and the others are still read.
ends missing 1 "$pcap" "$temp/none" peer_resp_basic.pcap "$temp" README.md
says missing "ferrule-pcap: $temp/none: No such file or directory"
says missing "ferrule-pcap: $temp: Is a directory"
says missing "ferrule-pcap: README.md: unknown file format"
says missing "peer_resp_basic.pcap: roce=9 bad_icrc=0 RC_ACKNOWLEDGE=4 RC_SEND_ONLY=5"

: >"$temp/empty"
ends empty 1 "$pcap" "$temp/empty"
says empty "ferrule-pcap: $temp/empty: the file is empty"

# Without packets, of a link type that is known (Ethernet) and of one that is not (802.11).
header='\xd4\xc3\xb2\xa1\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x00\x00'
printf '%b' "$header" '\x01\x00\x00\x00' >"$temp/no-packets"
passes no-packets "$pcap" "$temp/no-packets"
says no-packets "$temp/no-packets: roce=0 bad_icrc=0"
printf '%b' "$header" '\x69\x00\x00\x00' >"$temp/wireless"
tail -c +25 peer_resp_basic.pcap >>"$temp/wireless"
refuses wireless 'wireless: 9 frames were not looked at: link type 105 \(IEEE802_11\)' -- \
	"$pcap" "$temp/wireless"

# Truncated files: complete packets count.
head -c 300 peer_resp_basic.pcap >"$temp/cut"
ends cut 1 "$pcap" "$temp/cut"
grep -qE "cut: roce=[1-8] bad_icrc=0 RC_" "$temp/cut.out" || fail "cut: nothing is counted"
grep -q "^ferrule-pcap: $temp/cut: " "$temp/cut.out" || fail "cut: no message"

# Wherever it is cut, and whatever its bytes are: a message, no crash.
size=$(wc -c <peer_resp_keys.pcap)
for ((at = 0; at < size; at += 7)); do
	head -c "$at" peer_resp_keys.pcap >"$temp/cut$at"
	{
		head -c "$at" peer_resp_keys.pcap
		printf '\xff\xff\xff'
		tail -c +$((at + 4)) peer_resp_keys.pcap
	} >"$temp/changed$at"
done
status=0
timeout -k 5 "$program_limit" "$pcap" -v "$temp"/cut* "$temp"/changed* \
	>"$temp/damaged.out" 2>&1 || status=$?
[ "$status" -eq 1 ] || fail "damaged files: exit status $status"

ends help 0 "$pcap" --help
ends usage 2 "$pcap"
ends option 2 "$pcap" --no-such-option
if [ -w /dev/full ]; then
	ends full 1 bash -c "'$pcap' peer_resp_basic.pcap >/dev/full"
fi
finish
