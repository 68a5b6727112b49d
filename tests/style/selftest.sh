#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# A check that cannot fail is worth nothing: each one must accept a good tree and must name file and
# line of every bad sample below.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
failures=0
samples=0

complain() {
	echo "selftest: $*"
	failures=$((failures + 1))
}

# new_tree: $tree becomes a small tree that every check accepts.
new_tree() {
	tree=$temp/tree
	rm -rf "$tree"
	mkdir -p "$tree"/lib/{include/ferrule,base,wire,protocol,engine}
	mkdir -p "$tree"/{drivers/dpdk,collectives,examples,scripts,tools/{common,info}}
	cp "$here/../../.clang-format" "$tree/"
	cat >"$tree/lib/include/ferrule/error.h" <<-'END'
		/* SPDX-License-Identifier: BSD-3-Clause */
		#ifndef FERRULE_ERROR_H
		#define FERRULE_ERROR_H

		int frl_ok(int value);

		#endif
	END
	printf '%s\n' >"$tree/lib/wire/good.c" \
		'/* SPDX-License-Identifier: BSD-3-Clause */' \
		'#include <ferrule/error.h>' \
		'' \
		'/* A word like malloc() in a comment is no call, nor is "free(" in a string. */' \
		'int frl_ok(int value)' \
		'{' \
		$'\tconst char *text = "printf( free( time(";' \
		'' \
		$'\treturn value && text[0];' \
		'}'
	cat >"$tree/scripts/good.sh" <<-'END'
		#!/usr/bin/env bash
		# SPDX-License-Identifier: BSD-3-Clause
		set -eu
		cat <<-TEXT
		  free text
		TEXT
	END
}

# rejects CHECK PLACE: the check exits 1 and prints a finding that starts with PLACE.
rejects() {
	local status=0 output
	samples=$((samples + 1))
	output=$("$here/$1.sh" "$tree" 2>&1) || status=$?
	[ "$status" -ne 77 ] || return 0
	if [ "$status" -ne 1 ]; then
		complain "$1 exits $status, not 1, for a bad $2: $output"
	elif ! grep -q "^$2: " <<<"$output"; then
		complain "$1 does not name $2 but says: $output"
	fi
}

# c_sample CHECK FILE LINE-OF-CODE...: a C file of these lines behind the licence; the last is bad.
c_sample() {
	local check=$1 file=$2
	shift 2
	new_tree
	mkdir -p "$(dirname "$tree/$file")"
	{
		echo '/* SPDX-License-Identifier: BSD-3-Clause */'
		printf '%s\n' "$@"
	} >"$tree/$file"
	rejects "$check" "$file:$(($# + 1))"
}

repeat() {
	local i
	for ((i = 0; i < $1; i++)); do
		printf '%s\n' "$2"
	done
}

new_tree
for check in layers folders tokens headers format docs links life man shell symbols kubernetes; do
	status=0
	output=$("$here/check-$check.sh" "$tree" 2>&1) || status=$?
	[ "$status" -eq 0 ] || [ "$status" -eq 77 ] ||
		complain "check-$check rejects a good tree: $output"
done

c_sample check-layers lib/base/a.c '#include "lib/wire/psn.h"'
c_sample check-layers lib/wire/a.c '#include "lib/protocol/qp.h"'
c_sample check-layers lib/protocol/a.c '#include "drivers/port.h"'
c_sample check-layers lib/protocol/a.c '#include "lib/engine/engine.h"'
c_sample check-layers lib/engine/a.c '#include "lib/api/api.h"'
c_sample check-layers lib/engine/a.c '#include "drivers/dpdk/dpdk.h"'
c_sample check-layers lib/api/a.c '#include "drivers/dpdk/internal.h"'
c_sample check-layers lib/api/objects.h '#include "lib/api/cm/cm.h"'
c_sample check-layers lib/api/verbs/a.c '#include "lib/api/memory/memory_gpu.h"'
c_sample check-layers lib/api/memory/a.c '#include "drivers/raw/raw.h"'
c_sample check-layers lib/api/connect/a.c '#include "lib/api/cm/cm.h"'
c_sample check-layers lib/api/cm/a.c '#include "lib/api/connect/endpoint.h"'
c_sample check-layers lib/api/bootstrap/a.c '#include "lib/api/launch/launch.h"'
c_sample check-layers lib/api/launch/a.c '#include "lib/api/objects.h"'
c_sample check-layers lib/api/publish/a.c '#include "lib/api/memory/memory_gpu.h"'
c_sample check-layers drivers/dpdk/a.c '#include "lib/engine/engine.h"'
c_sample check-layers drivers/dpdk/a.c '#include <ferrule/queue.h>'
c_sample check-layers lib/engine/a.c '#include <rte_mbuf.h>'
c_sample check-layers collectives/api/a.c '#include "lib/engine/engine.h"'
c_sample check-layers collectives/plan/a.c '#include "collectives/communicator/run.h"'
c_sample check-layers collectives/plan/a.c '#include <ferrule/queue.h>'
c_sample check-layers collectives/tune/a.c '#include "collectives/communicator/run.h"'
c_sample check-layers collectives/communicator/a.c '#include "collectives/net/channel.h"'
c_sample check-layers collectives/net/a.c '#include "collectives/gpu/compute.h"'
c_sample check-layers collectives/shm/a.c '#include "collectives/net/steps.h"'
c_sample check-layers collectives/gpu/a.c '#include "collectives/net/steps.h"'
c_sample check-layers collectives/net/a.c '#include "collectives/api/internal.h"'
c_sample check-layers dropin/ibverbs/a.c '#include "lib/device/device.h"'
c_sample check-layers examples/a.c '#include "lib/base/error.h"'
c_sample check-layers examples/a.c '#include "tools/common/common.h"'
c_sample check-layers tools/common/a.c '#include "lib/base/error.h"'
c_sample check-layers tools/info/a.c '#include "tools/bench/bench.h"'
c_sample check-layers lib/base/a.c '#include "error.h"'
c_sample check-layers lib/base/a.c '#include "../wire/psn.h"'
new_tree
mkdir "$tree/lib/surprise"
echo '/* SPDX-License-Identifier: BSD-3-Clause */' >"$tree/lib/surprise/a.c"
rejects check-layers lib/surprise/a.c:1
for call in 'malloc(1)' 'free(p)' 'clock_gettime(0, &t)' 'time(NULL)' 'printf("x")' 'getenv("X")' \
	'pthread_self()' 'rte_mb()' 'ibv_poll_cq(c, 1, w)' 'cuMemAlloc(p, 1)' 'frl_log(0, "x")' \
	'frl_fail(-1, "x")' 'socket(1, 2, 3)' 'rand()'; do
	c_sample check-layers lib/protocol/a.c "int a = $call;"
	c_sample check-layers lib/wire/a.c '/* a comment' ' * of lines */' "int a = $call;"
done
for word in GPU cuda_stream Offloads; do
	c_sample check-layers lib/wire/a.h "/* A comment on $word. */"
	c_sample check-layers lib/protocol/a.c "static const char *text = \"$word\";"
done

c_sample check-tokens lib/include/ferrule/a.h '/* The page docs/guide/a.md. */'
c_sample check-tokens lib/base/a.c 'int a = printf("x");'
c_sample check-tokens lib/base/a.c 'int a = fputs("x", stderr);'
c_sample check-tokens drivers/dpdk/a.c 'int a = rte_panic("x");'
c_sample check-tokens collectives/a.c 'int a = exit(1);'
c_sample check-tokens lib/base/a.c 'int a = abort();'
c_sample check-tokens lib/base/a.c 'char *a = getenv("X");'
c_sample check-tokens lib/base/a.c 'char *a = strcpy(b, c);'
c_sample check-tokens lib/base/a.c 'int a = sprintf(b, "x");'
for word in TODO FIXME XXX; do
	c_sample check-tokens lib/base/a.c "/* $word: later */"
done
c_sample check-tokens tools/common/a.c 'int f(void)' '{' '    return 0;'
c_sample check-tokens tools/common/a.c 'int a; '
c_sample check-tokens tools/common/a.c "int $(printf 'a%.0s' {1..100});"
c_sample check-tokens tools/common/a.c "$(printf '\t%.0s' {1..12})int a;"
mapfile -t lines < <(repeat 600 'int a;')
c_sample check-tokens tools/common/a.c "${lines[@]}"
mapfile -t lines < <(repeat 69 $'\ta();')
c_sample check-tokens tools/common/a.c 'static int *f(int a)' '{' "${lines[@]}" '}'
new_tree
echo 'int a;' >"$tree/lib/base/a.c"
rejects check-tokens lib/base/a.c:1
printf '#!/usr/bin/env bash\n# SPDX-License-Identifier: BSD-3-Clause\n  true\n' \
	>"$tree/scripts/a.sh"
rejects check-tokens scripts/a.sh:3

c_sample check-headers lib/base/a.h 'uint32_t a(void);'
c_sample check-headers lib/base/a.h 'struct a { int b; };' # no guard, included twice
if command -v "${CXX:-g++}" >/dev/null; then
	c_sample check-headers lib/include/ferrule/a.h '#include <stddef.h>' 'extern int class;'
fi
c_sample check-format lib/base/a.c 'int  a;'
new_tree
mkdir "$tree/docs"
printf '%s\n' '.TH A 1' '.NOSUCH macro' >"$tree/docs/a.1"
rejects check-man docs/a.1:2
new_tree
mkdir "$tree/docs"
printf '%s\n' 'Call frl_ok(1) first.' 'Then frl_okay().' >"$tree/docs/a.md"
rejects check-docs docs/a.md:2
new_tree
mkdir "$tree/docs"
printf '%s\n' '```console' 'sudo true' '```' >"$tree/docs/a.md"
rejects check-docs docs/a.md:2
for prompt in '$ ' 'sudo ' 'hostA$ '; do
	for folder in docs packaging/a; do
		new_tree
		mkdir -p "$tree/$folder"
		printf '%s\n' '```c' '```' '```' 'text' "${prompt}true" '```' >"$tree/$folder/a.md"
		rejects check-docs "$folder/a.md:5"
	done
done
new_tree
mkdir "$tree/docs"
printf '%s\n' '```console' 'true' '```' >"$tree/CONTRIBUTING.md"
touch "$tree/docs/a.md"
rejects check-docs CONTRIBUTING.md:2
new_tree
printf '%s\n' '```sh' 'scripts/good.sh' '```' >"$tree/README.md"
rejects check-docs README.md:2
new_tree
mkdir -p "$tree/docs/decisions"
printf '%s\n' '# 1. A title' '' '2026-11-20' >"$tree/docs/decisions/0001-a.md"
printf '%s\n' '| 1 | [Another title](0001-a.md) |' >"$tree/docs/decisions/README.md"
rejects check-decisions docs/decisions/README.md:1
for link in b.md a.md#none '#a-title-1'; do
	new_tree
	mkdir "$tree/docs"
	printf '%s\n' '# A title!' "[b]($link)" '[a](a.md#a-title) [c](../scripts/good.sh)' \
		>"$tree/docs/a.md"
	rejects check-links docs/a.md:2
done
c_sample check-language lib/base/a.c '/* Whoever calls this waits. */'
c_sample check-language lib/base/a.c 'static const char *text = "It ends. Of two, one is left";'
words=$(repeat 31 word)
c_sample check-language lib/base/a.c "int a = f(\"${words//$'\n'/ }\");"
c_sample check-language daemon/a.c 'int a = 1;' "int b = f(\"${words//$'\n'/ \" PRIu64 \"}\");"
# language_sample FILE LINE...: the last line opens with a word that hides its subject.
language_sample() {
	local file=$1
	shift
	new_tree
	mkdir -p "$(dirname "$tree/$file")"
	printf '%s\n' "$@" >"$tree/$file"
	rejects check-language "$file:$#"
}
language_sample tests/a.py '"""A module."""' '' '' 'def f():' '    """Of two, the first."""'
language_sample tests/a.py "A = 1  #"' What is first.'
language_sample docs/a.md 'A table:' '' '| What | it is |' '|---|---|' '| a | Whose end it is. |'
language_sample lib/control/a.proto 'uint32 a = 1;' 'uint32 b = 2; // What is sent.'
language_sample lib/meson.build "project('a')" '# What is built.'
language_sample meson.build "project('a')" '# What is built.'
language_sample tests/style/layers.txt '# A row: a folder.' '' '# What a folder includes.'
language_sample daemon/systemd/a.service.in '[Unit]' '# Who starts it waits.'
language_sample daemon/systemd/a.socket '[Socket]' '# Whoever connects waits.'
language_sample daemon/a.conf 'a = 1' '# Those that follow are off.'
c_sample check-links lib/base/a.c '/* docs/a.md */'
# shellcheck disable=SC2016 # Markdown
for named in '`frl_no()` (`lib/wire/good.c`)' '`frl_ok()` (`lib/wire/bad.c`)' '`ok()` first' \
	'`frl_ok()` (`lib/include/ferrule/error.h`)'; do
	new_tree
	mkdir "$tree/docs"
	# shellcheck disable=SC2016
	printf '%s\n' '`frl_ok()`' '(`lib/wire/good.c`) is called.' "$named" \
		>"$tree/docs/life-of-a.md"
	rejects check-life docs/life-of-a.md:3
done
new_tree
printf '#!/usr/bin/env bash\n# SPDX-License-Identifier: BSD-3-Clause\ncd %s\n' "\$1" \
	>"$tree/scripts/a.sh"
rejects check-shell scripts/a.sh:3:1
new_tree
printf '%s\n' 'FRL_API int frl_a(' '	int b);' >"$tree/lib/include/ferrule/a.h"
rejects check-symbols debian/libferrule0.symbols:1
# picture_of ROWS: the tree has the picture of these rows.
picture_of() {
	new_tree
	mkdir -p "$tree/tests/style" "$tree/docs/design"
	echo "$1" >"$tree/tests/style/layers.txt"
	printf '%s' '<svg xmlns="http://www.w3.org/2000/svg">' \
		'<g class="node"><title>lib/base/</title></g></svg>' \
		>"$tree/docs/design/layers.svg"
}
picture_of 'lib/base/: lib/base/'
"$here/check-picture.sh" "$tree" || complain "check-picture rejects a picture of the table"
picture_of $'lib/base/: lib/base/\nlib/wire/: lib/base/'
rejects check-picture docs/design/layers.svg:1
picture_of $'lib/base/: lib/base/ lib/wire/\nlib/wire/: lib/base/'
rejects check-picture tests/style/layers.txt:1

# public_header: the tree has one public header, of these lines.
public_header() {
	new_tree
	mkdir "$tree/debian"
	echo ' frl_a@FERRULE_0 0.1.0' >"$tree/debian/libferrule0.symbols"
	printf '%s\n' '/* SPDX-License-Identifier: BSD-3-Clause */' '/* A header. */' \
		'extern "C" {' '#endif' "$@" '#ifdef __cplusplus' \
		>"$tree/lib/include/ferrule/error.h"
}
public_header '/* Frees a page: \n stays. */' 'FRL_API void frl_a(void);'
"$here/check-api-pages.sh" "$tree" || complain "check-api-pages rejects a good header"
public_header '/* Frees b. */' 'FRL_API void frl_b(void);'
rejects check-api-pages debian/libferrule0.symbols:1
public_header '' 'FRL_API void frl_a(void);'
rejects check-api-pages lib/include/ferrule/error.h:6
public_header '/* Frees a. */' 'FRL_API frl_a;'
rejects check-api-pages lib/include/ferrule/error.h:6

new_tree
mkdir -p "$tree/packaging/kubernetes"
printf '%s\n' 'apiVersion: v1' 'kind: Namespace' 'metaData:' '  name: a' \
	>"$tree/packaging/kubernetes/a.yaml"
rejects check-kubernetes packaging/kubernetes/a.yaml:1

new_tree
touch "$tree"/lib/base/{1..31}
rejects check-folders lib/base

echo "$samples bad samples, $failures complaints"
[ "$failures" -eq 0 ]
