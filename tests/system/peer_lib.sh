# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Processes that run commands line by line: cm-peer (tests/system/cm_peer.c).
# shellcheck source=tests/system/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

peer_program=${FRL_PEER:-$bin/../tests/cm-peer}
[ -x "$peer_program" ] || skip "$peer_program is not built"

declare -A to from pids
reply=
# A limit of the peers' calls, in milliseconds.
ms=$((event_limit * 1000))

# The command in front of a peer: a namespace, an environment.
peer_run=()

# peer NAME OPTION...: starts a process.
peer() {
	local name=$1 in=$temp/$1.in out=$temp/$1.out fd
	shift
	rm -f "$in" "$out"
	mkfifo "$in" "$out"
	"${peer_run[@]}" "$peer_program" "$@" <"$in" >"$out" 2>>"$temp/$name.err" &
	pids[$name]=$!
	started+=("$!")
	exec {fd}>"$in"
	to[$name]=$fd
	exec {fd}<"$out"
	from[$name]=$fd
	hear "$name" '^ready'
}

say_to() {
	local name=$1
	shift
	echo "$*" >&"${to[$name]}"
}

# hear NAME PATTERN: its next line, in $reply, matches.
hear() {
	reply=
	if ! read -r -t "$program_limit" reply <&"${from[$1]}"; then
		fail "$1 says nothing, where '$2' was expected"
		show "$temp/$1.err" "$FRL_CONTROL.log"
		finish
	fi
	[[ $reply =~ $2 ]] || fail "$1 says '$reply' instead of '$2'"
}

# ask NAME PATTERN COMMAND...
ask() {
	local name=$1 pattern=$2
	shift 2
	say_to "$name" "$*"
	hear "$name" "$pattern"
}

# number: the number of the connection in the last reply.
number() {
	local words
	read -r -a words <<<"$reply"
	echo "${words[1]}"
}

hang_up() {
	local fd=${to[$1]}
	exec {fd}>&-
	fd=${from[$1]}
	exec {fd}<&-
}

# leave NAME: the process ends in good order.
leave() {
	say_to "$1" quit
	hang_up "$1"
	wait "${pids[$1]}" || fail "$1: exit status $?"
	[ ! -s "$temp/$1.err" ] || fail "$1 says: $(cat "$temp/$1.err")"
}

# meet CLIENT SERVER [HOST]: connects them; $c and $s are the numbers.
meet() {
	ask "$1" '^connecting' connect "${3:--}" service "$ms" question
	c=$(number)
	ask "$2" '^request [0-9]+ cm-peer [0-9]+ question$' request "$ms"
	s=$(number)
	ask "$2" '^accepted' accept "$s" answer
	ask "$1" "^established $c [^ ]+ cm-peer answer$" wait "$c" "$ms"
	ask "$2" "^established $s [^ ]+ cm-peer question$" wait "$s" "$ms"
}

# talk FROM N TO M: a message arrives.
talk() {
	local text=m$RANDOM
	ask "$3" '^posted' post "$4"
	ask "$1" '^sent' send "$2" "$text"
	ask "$3" "^received $4 $text$" receive "$4"
}

# both_closed A N B M: A closes its connection N, which is M of B.
both_closed() {
	ask "$1" '^closed' close "$2"
	ask "$3" "^ended $4 ECONNRESET the peer has closed .*; ERR " end "$4" "$ms"
	ask "$3" '^closed' close "$4"
}
