#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Dependencies point one way: every folder includes only what the table below allows. And the
# protocol core does no I/O: no allocation, clock, log, thread, environment or driver call.
# shellcheck source=tests/style/lib.sh
. "$(dirname "$0")/lib.sh"

mapfile -t files < <(source_files '*.c' '*.h' '*.cu' -- lib drivers gpudirect collectives nccl \
	examples daemon)
[ ${#files[@]} -gt 0 ] || exit 0

awk "$awk_code"'
# Longest matching folder wins. Quoted includes are written from the repository root.
function folder_of(file,    best, f) {
	best = ""
	for (f in allowed)
		if (index(file, f) == 1 && length(f) > length(best))
			best = f
	return best
}
function is_allowed(path, list,    n, i, words) {
	n = split(list, words, " ")
	for (i = 1; i <= n; i++)
		if (path == words[i] || (words[i] ~ /\/$/ && index(path, words[i]) == 1))
			return 1
	return 0
}
function check_include(text,    path, list) {
	path = text
	sub(/^[ \t]*#[ \t]*include[ \t]*["<]/, "", path)
	sub(/[">].*/, "", path)
	list = allowed[folder]
	if (text ~ /include[ \t]*"/) {
		if (folder == "examples/") {
			if (path ~ /^(lib|drivers|collectives|tests)\// || path ~ /\.\./)
				finding("examples see public headers and their own, not " path)
		} else if (path ~ /\.\./ || path !~ /\//) {
			finding("include \"" path "\" is not written from the repository root")
		} else if (folder == "lib/engine/" && path ~ /^lib\/engine\/offload\// && \
				path != "lib/engine/offload/hooks.h") {
			finding("the engine knows of its offloads hooks.h alone, not " path)
		} else if (!is_allowed(path, list)) {
			finding(folder " must not include " path)
		}
		return
	}
	if (path ~ /^ferrule\// && folder == "collectives/plan/" && path != "ferrule/collective.h")
		finding("plans see ferrule/collective.h of the public headers, not " path)
	# Ports know nothing of devices; what makes a device has its public meaning.
	if (path ~ /^ferrule\// && path != "ferrule/error.h" && \
			(folder ~ /^drivers\/(dpdk|local|packet|raw)\/$/ || \
				FILENAME ~ /drivers\/port\.h$/))
		finding("ports see ferrule/error.h of the public headers, not " path)
	if (path ~ /^rte_/ && folder != "drivers/dpdk/")
		finding("only drivers/dpdk includes " path)
	if (path ~ /^infiniband\// && folder != "drivers/verbs/" && folder != "drivers/raw/")
		finding("only drivers/verbs and drivers/raw include " path)
	if (path ~ /^(pthread|threads|semaphore|sys\/socket|sys\/epoll|time)\.h$/ && pure)
		finding(folder " does no I/O and knows no clock or thread, but includes " path)
}
function forbid(text, pattern, reason) {
	if (text ~ ("(^|[^A-Za-z0-9_.>])" pattern))
		finding(folder " is sans-I/O: " reason)
}
function check_pure(text) {
	forbid(text, "(malloc|calloc|realloc|reallocarray|aligned_alloc|posix_memalign)[ \t]*\\(",
		"no allocation")
	forbid(text, "(free|strdup|strndup)[ \t]*\\(", "no allocation")
	forbid(text, "(clock_gettime|gettimeofday|time|nanosleep|usleep|sleep)[ \t]*\\(",
		"no clock; time is passed in as now_ns")
	forbid(text, "(printf|fprintf|dprintf|vprintf|vfprintf|puts|fputs|perror|syslog)[ \t]*\\(",
		"no output")
	forbid(text, "(frl_log|frl_fail)[ \t]*\\(", "no log and no error text; return a code")
	forbid(text, "(getenv|secure_getenv)[ \t]*\\(", "no environment")
	forbid(text, "(random|rand|srand|getrandom)[ \t]*\\(", "randomness is passed in")
	forbid(text, "(socket|connect|bind|listen|accept|epoll_[a-z]+)[ \t]*\\(", "no sockets")
	forbid(text, "(sendto|sendmsg|recvfrom|recvmsg)[ \t]*\\(", "no sockets")
	forbid(text, "pthread_", "no threads")
	forbid(text, "(rte|ibv)_", "no driver calls")
	forbid(text, "cu[A-Z][A-Za-z0-9]*[ \t]*\\(", "no driver calls")
}
BEGIN {
	allowed["lib/include/"] = ""
	allowed["lib/base/"] = "lib/base/"
	allowed["lib/control/"] = "lib/base/ lib/control/"
	allowed["lib/reduce/"] = "lib/base/ lib/reduce/"
	allowed["lib/wire/"] = "lib/base/ lib/wire/"
	allowed["lib/protocol/"] = "lib/base/ lib/wire/ lib/protocol/"
	allowed["lib/engine/"] = \
		"lib/base/ lib/reduce/ lib/wire/ lib/protocol/ lib/engine/ drivers/port.h"
	allowed["lib/engine/offload/"] = allowed["lib/engine/"]
	allowed["lib/device/"] = "lib/base/ lib/wire/ lib/protocol/ lib/device/" \
		" lib/engine/engine.h lib/engine/fragments.h" \
		" lib/engine/offload/attach.h" \
		" lib/control/page.h drivers/port.h drivers/dpdk/dpdk.h" \
		" drivers/local/local.h drivers/raw/raw.h drivers/packet/packet.h"
	# The interface of all devices knows none of them.
	allowed["lib/device/device."] = "lib/base/ lib/device/device.h"
	allowed["lib/api/"] = "lib/base/ lib/reduce/ lib/wire/ lib/api/ lib/control/" \
		" lib/device/device.h lib/device/soft.h lib/engine/offload/offload.h" \
		" drivers/verbs/verbs.h gpudirect/"
	allowed["gpudirect/"] = "lib/base/ lib/reduce/ lib/engine/offload/offload.h gpudirect/"
	# Of drivers: sockets that are opened for processes.
	allowed["daemon/"] = "lib/base/ lib/control/ daemon/ drivers/packet/socket.h"
	allowed["daemon/core/"] = "lib/base/list.h lib/base/bytes.h lib/base/random.h" \
		" lib/base/table.h lib/base/ip.h lib/control/ daemon/core/ daemon/config.h"
	allowed["daemon/ctl/"] = "lib/base/ lib/control/ daemon/ctl/ daemon/config.h" \
		" daemon/tls_check.h"
	allowed["drivers/"] = "lib/base/ drivers/"
	allowed["drivers/dpdk/"] = "lib/base/ drivers/"
	allowed["drivers/local/"] = "lib/base/ drivers/local/ drivers/port.h"
	allowed["drivers/packet/"] = "lib/base/ drivers/"
	allowed["drivers/raw/"] = "lib/base/ drivers/ gpudirect/alloc.h gpudirect/gpu.h" \
		" gpudirect/memory.h gpudirect/probe.h"
	allowed["drivers/verbs/"] = "lib/base/ lib/control/page.h lib/device/device.h drivers/"
	# Plans, and the choice of one, know nothing of communicators. The parts of a communicator
	# (net, shm, gpu) see what they share, and not each other; api joins them.
	allowed["collectives/plan/"] = "collectives/plan/"
	allowed["collectives/tune/"] = "lib/base/error.h collectives/plan/ collectives/tune/"
	allowed["collectives/communicator/"] = "lib/base/clock.h lib/base/error.h" \
		" lib/base/host.h lib/base/settings.h lib/base/text.h lib/base/thread.h" \
		" lib/base/time_budget.h" \
		" collectives/plan/ collectives/tune/tuner.h collectives/communicator/"
	allowed["collectives/net/"] = "lib/base/clock.h lib/base/error.h" \
		" collectives/plan/ collectives/communicator/ collectives/net/"
	allowed["collectives/shm/"] = "lib/base/backoff.h lib/base/copy.h lib/base/error.h" \
		" lib/base/memfd.h lib/base/share.h lib/reduce/past_cache.h gpudirect/cuda.h" \
		" collectives/plan/ collectives/communicator/ collectives/shm/"
	allowed["collectives/gpu/"] = "lib/base/clock.h lib/base/error.h lib/base/settings.h" \
		" gpudirect/ collectives/plan/ collectives/communicator/ collectives/gpu/"
	allowed["collectives/api/"] = "lib/base/backoff.h lib/base/clock.h lib/base/error.h" \
		" lib/base/file_limit.h gpudirect/cuda.h collectives/"
	allowed["nccl/"] = "nccl/ gpudirect/alloc.h gpudirect/gpu.h gpudirect/host.h" \
		" gpudirect/memory.h lib/base/devargs.h lib/base/ip.h lib/base/limit.h" \
		" lib/base/link_speed.h lib/base/time_budget.h"
	allowed["examples/"] = ""
	# ferrule-pcap decodes with the code of the library.
	allowed["examples/pcap"] = "lib/base/bytes.h lib/wire/ examples/pcap_file.h" \
		" examples/pcap_frame.h examples/pcap_ng.h examples/pcap_print.h"
}
FNR == 1 {
	folder = folder_of(FILENAME)
	pure = folder == "lib/wire/" || folder == "lib/protocol/"
	if (folder == "")
		finding("this folder is not in the table of layers (tests/style/check-layers.sh)")
}
{
	text = code($0)
	if (text ~ /^[ \t]*#[ \t]*include/)
		check_include($0)
	else if (pure)
		check_pure(text)
}
' "${files[@]}"
