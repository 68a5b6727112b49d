/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NCCL itself, as far as it runs without a GPU. `real-nccl PLUGIN.so` makes a unique id (NCCL's
 * bootstrap), loads the plugin into the process as NCCL does, beside NCCL and its libraries, and
 * then begins a communicator. NCCL asks CUDA for its device before it looks at net plugins. Without
 * a driver the communicator ends there, and the program says so (status 77). With one it has a rank
 * of its own, and NCCL's log must say that it took the plugin.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nccl.h>

#include "tests/nccl/caller/plugin.h"

static void log_line(
	int level, unsigned long flags, const char *file, int line, const char *format, ...)
{
	/* The test reads NCCL's log. */
}

static int fail(const char *what, const char *why)
{
	printf("FAILED: %s: %s\n", what, why);
	return 1;
}

/* Loads, initialises and drops it while NCCL's own libraries are in the process. */
static const char *load_beside_nccl(const char *path)
{
	static char text[64];
	struct plugin net;
	const char *error = plugin_load(&net, path, 0);
	void *context;
	int n = 0;

	if (error)
		return error;
	if (plugin_init(&net, &context, log_line, NULL) != NCCL_SUCCESS)
		return "init failed";
	if (net.devices(&n) != NCCL_SUCCESS || n < 1)
		return "there are no devices";
	snprintf(text, sizeof(text), "table v%d", net.version);
	printf("%s, %s, beside NCCL: %d devices\n", net.name, text, n);
	if (plugin_finalize(&net, context) != NCCL_SUCCESS)
		return "finalize failed";
	plugin_close(&net);
	return NULL;
}

int main(int argc, char **argv)
{
	ncclUniqueId id;
	ncclComm_t comm;
	ncclResult_t result;
	const char *error;
	int version = 0;

	if (argc != 2)
		return fail("usage", "real-nccl PLUGIN.so");
	setenv("NCCL_DEBUG", "INFO", 0);
	setenv("NCCL_NET_PLUGIN", argv[1], 1);
	ncclGetVersion(&version);
	printf("NCCL %d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
	result = ncclGetUniqueId(&id);
	if (result != ncclSuccess)
		return fail("ncclGetUniqueId", ncclGetLastError(NULL));
	error = load_beside_nccl(argv[1]);
	if (error)
		return fail(argv[1], error);
	fflush(stdout);
	result = ncclCommInitRank(&comm, 1, id, 0);
	if (result == ncclUnhandledCudaError) {
		printf("SKIP: NCCL asks CUDA before it loads net plugins: %s\n",
			ncclGetLastError(NULL));
		return 77;
	}
	if (result != ncclSuccess)
		return fail("ncclCommInitRank", ncclGetLastError(NULL));
	result = ncclCommDestroy(comm);
	return result == ncclSuccess ? 0 : fail("ncclCommDestroy", ncclGetErrorString(result));
}
