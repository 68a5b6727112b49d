/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Starts EAL as a guest in the application's process:
 * - in a temporary thread, because EAL binds the thread that starts it and makes it the main lcore;
 * - with all signals blocked, because its control threads inherit the mask, and the application's
 *   handlers must not run there;
 * - without files and telemetry, and without huge pages unless a device needs them.
 */
#include "drivers/dpdk/internal.h"
#include "drivers/dpdk/pci.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_log.h>

#include "lib/base/error.h"
#include "lib/base/memory/share.h"

#define CPU_FOLDER "/sys/devices/system/cpu"

enum {
	MAX_ARGS = 64,
	ARG_TEXT = 4096,
	MEMORY_MB = 128,
	KEPT_OVERHEAD = 1024, /* headers and the mbuf */
};

static struct {
	pthread_mutex_t lock; /* protects the members below */
	bool tried;
	int err;
	char text[400]; /* reason of the failure */
	pid_t pid;
} eal = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* EAL keeps pointers to its arguments. */
struct arguments {
	int n;
	size_t used;
	bool too_many;
	char *argv[MAX_ARGS + 1];
	char text[ARG_TEXT];
};

struct start {
	const struct dpdk_port_config *config;
	int err;
	char detail[300];
};

static void add(struct arguments *args, const char *text, size_t len)
{
	if (args->n == MAX_ARGS || args->used + len + 1 > sizeof(args->text)) {
		args->too_many = true;
		return;
	}
	args->argv[args->n] = args->text + args->used;
	memcpy(args->argv[args->n], text, len);
	args->argv[args->n][len] = '\0';
	args->used += len + 1;
	args->n++;
	args->argv[args->n] = NULL;
}

static void add_word(struct arguments *args, const char *word)
{
	add(args, word, strlen(word));
}

/* "0@(0-3,8)": one lcore that may run on every CPU allowed to the process. */
static void add_lcores(struct arguments *args)
{
	char text[1024] = "0@(";
	size_t at = strlen(text);
	cpu_set_t set;
	int cpu = 0;

	if (sched_getaffinity(0, sizeof(set), &set) || CPU_COUNT(&set) == 0)
		return;
	while (cpu < CPU_SETSIZE && at < sizeof(text) - 24) {
		int first = cpu;

		if (!CPU_ISSET(cpu, &set)) {
			cpu++;
			continue;
		}
		while (cpu < CPU_SETSIZE && CPU_ISSET(cpu, &set))
			cpu++;
		at += snprintf(
			text + at, sizeof(text) - at, at > 3 ? ",%d-%d" : "%d-%d", first, cpu - 1);
	}
	snprintf(text + at, sizeof(text) - at, ")");
	add_word(args, "--lcores");
	add_word(args, text);
}

static bool has_word(const char *text, const char *word)
{
	size_t len = strlen(word);

	for (const char *at = text; at && (at = strstr(at, word)); at += len) {
		bool starts = at == text || at[-1] == ' ';
		bool ends = at[len] == '\0' || at[len] == ' ' || at[len] == '=';

		if (starts && ends)
			return true;
	}
	return false;
}

static void add_extra(struct arguments *args, const char *text)
{
	while (text && *text) {
		size_t len = strcspn(text, " \t\n");

		if (len)
			add(args, text, len);
		text += len;
		text += strspn(text, " \t\n");
	}
}

/* Returns the default size plus room for the frames that the first port keeps. Not used if
 * FRL_EAL_ARGS has -m. A buffer is at most twice as large as payload and headers: see set_up(). */
static uint32_t memory_mb(const struct dpdk_port_config *config)
{
	uint64_t kept = (uint64_t)config->max_kept * 2 * (config->max_payload + KEPT_OVERHEAD);

	return MEMORY_MB + (uint32_t)((kept + (1 << 20) - 1) >> 20);
}

static void build(struct arguments *args, const struct dpdk_port_config *config)
{
	const char *extra = config->eal_args;
	bool lists_devices = has_word(extra, "-a") || has_word(extra, "--allow") ||
		has_word(extra, "-b") || has_word(extra, "--block");
	bool hugepages = has_word(extra, "--huge-dir") || has_word(extra, "--socket-mem") ||
		has_word(extra, "--in-memory");
	struct pci_device device = { 0 };
	char address[PCI_ADDRESS], text[64];
	bool pci = lists_devices;

	if (pci_address(config->devargs, address)) {
		pci = true;
		pci_look("", address, &device);
	}

	add_word(args, "ferrule");
	add_lcores(args);
	add_word(args, "--no-shconf");
	add_word(args, "--no-telemetry");
	/* With --no-shconf, the memif driver warns at each port that other processes are
	 * excluded. */
	add_word(args, "--log-level=pmd.net.memif:error");
	/* The prefix names a folder that EAL creates even if it stays empty. All processes use one
	 * name, so that processes killed during the start leave no more than one folder. Huge pages
	 * are files. */
	snprintf(text, sizeof(text), "--file-prefix=ferrule%ld", (long)getpid());
	add_word(args, hugepages ? text : "--file-prefix=ferrule");
	if (!has_word(extra, "--iova-mode"))
		add_word(args, device.by_physical ? "--iova-mode=pa" : "--iova-mode=va");
	/* With physical addresses, only huge pages stay at theirs. */
	if (device.by_physical && !hugepages && !has_word(extra, "--no-huge")) {
		hugepages = true;
		add_word(args, "--in-memory");
	}
	if (!hugepages)
		add_word(args, "--no-huge");
	if (!hugepages && !has_word(extra, "-m")) {
		snprintf(text, sizeof(text), "-m%u", memory_mb(config));
		add_word(args, text);
	}
	if (!pci) {
		add_word(args, "--no-pci");
	} else if (!lists_devices) {
		/* EAL would probe every device that it has a driver for. Allow none: each port
		 * requests its own. */
		add_word(args, "-a");
		add_word(args, "0000:00:00.0");
	}
	add_extra(args, extra);
}

/* EAL creates the folder and its parent, even if they stay empty. A folder in use by others is not
 * empty and stays. */
static void remove_runtime_folder(void)
{
	char path[PATH_MAX];
	char *slash;

	snprintf(path, sizeof(path), "%s", rte_eal_get_runtime_dir());
	slash = strrchr(path, '/');
	if (!slash || rmdir(path))
		return;
	*slash = '\0';
	rmdir(path);
}

static void *start_thread(void *arg)
{
	static struct arguments args;
	struct start *start = arg;

	build(&args, start->config);
	if (args.too_many) {
		start->err = -E2BIG;
		snprintf(start->detail, sizeof(start->detail), "the EAL arguments are too long");
		return NULL;
	}
	log_clear_error();
	start->err = capture_begin();
	if (start->err) {
		snprintf(start->detail, sizeof(start->detail), "no memory for its output");
		return NULL;
	}
	if (rte_eal_init(args.n, args.argv) < 0) {
		/* EALREADY: the application is a DPDK program, and we use its EAL. */
		start->err = rte_errno == EALREADY ? 0 : -(rte_errno ? rte_errno : EINVAL);
		snprintf(start->detail, sizeof(start->detail), "%s (%s)", log_error(),
			frl_strerror(rte_errno));
	}
	capture_end();
	remove_runtime_folder();
	if (!start->err)
		start->err = pool_register_ops();
	/* Devices must be able to reach payload that the application allocates. */
	if (!start->err && rte_eal_iova_mode() == RTE_IOVA_PA)
		share_prefer_huge();
	return NULL;
}

static void log_reason(const struct dpdk_port_config *config, const char *detail)
{
	char address[PCI_ADDRESS], cause[256] = "";
	struct pci_device device;

	if (pci_address(config->devargs, address)) {
		pci_look("", address, &device);
		pci_explain("", &device, cause, sizeof(cause));
	}
	/* EAL detects the processors from this folder. */
	if (!cause[0] && access(CPU_FOLDER, F_OK))
		snprintf(cause, sizeof(cause),
			CPU_FOLDER " is not there, where DPDK looks for processors: mount sysfs at "
				   "/sys");
	if (cause[0])
		snprintf(eal.text, sizeof(eal.text), "%s (DPDK's EAL did not start: %.100s)", cause,
			detail);
	else
		snprintf(eal.text, sizeof(eal.text),
			"DPDK's EAL did not start: %s; check FRL_EAL_ARGS (\"%s\")", detail,
			config->eal_args ? config->eal_args : "");
}

static int start_once(const struct dpdk_port_config *config)
{
	struct start start = { .config = config };
	sigset_t all, saved;
	pthread_t thread;
	int err;

	err = log_open();
	if (err) {
		snprintf(eal.text, sizeof(eal.text), "no memory for EAL's log stream");
		return err;
	}
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &saved);
	err = pthread_create(&thread, NULL, start_thread, &start);
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	if (err) {
		snprintf(eal.text, sizeof(eal.text), "cannot create the thread that starts EAL: %s",
			frl_strerror(err));
		return -err;
	}
	pthread_join(thread, NULL);
	if (start.err)
		log_reason(config, start.detail);
	return start.err;
}

int eal_start(const struct dpdk_port_config *config)
{
	int err;

	pthread_mutex_lock(&eal.lock);
	if (!eal.tried) {
		eal.tried = true;
		eal.pid = getpid();
		eal.err = start_once(config);
	}
	err = eal.err;
	if (eal.pid != getpid())
		err = frl_fail(-ENOTSUP,
			"DPDK ports do not survive fork: process %ld is a child of process %ld, "
			"which opened one; open it after fork, or exec in the child",
			(long)getpid(), (long)eal.pid);
	else if (err)
		frl_fail(err, "%s", eal.text);
	pthread_mutex_unlock(&eal.lock);
	return err;
}
