/* SPDX-License-Identifier: BSD-3-Clause */
/* The double of libcuda: cuGetProcAddress(). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fakes/cuda/fake_exports.h"
#include "tests/fakes/cuda/fake_internal.h"

static const struct {
	const char *name;
	const char *exported;
	int since, until;
	void *function;
} procs[] = {
#define DRIVER_CALL(name, exported, since, until, args) \
	{ #name, #exported, since, until, (void *)exported },
#include "tests/fakes/cuda/driver_calls.h"
#undef DRIVER_CALL
};

static char missing[1024]; /* ",name,name," */

void fake_set_missing(const char *name)
{
	if (name)
		snprintf(missing, sizeof(missing), ",%s,", name);
	else
		missing[0] = '\0';
}

static bool is_missing(const char *name)
{
	char word[128];

	snprintf(word, sizeof(word), ",%s,", name);
	return strstr(missing, word) != NULL;
}

/* The library would otherwise be called with other arguments than it expects. */
static cu_result other_signature(void)
{
	fprintf(stderr,
		"fake_libcuda: a function was asked for by a version of CUDA in which it "
		"had other arguments, and called\n");
	abort();
}

static void *find(const char *symbol, int version, cu_proc_status *ret_status)
{
	*ret_status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	for (unsigned i = 0; i < sizeof(procs) / sizeof(procs[0]); i++) {
		if (strcmp(procs[i].name, symbol) != 0 || is_missing(symbol))
			continue;
		*ret_status = CU_GET_PROC_ADDRESS_SUCCESS;
		if (version >= procs[i].since && (procs[i].until == 0 || version < procs[i].until))
			return procs[i].function;
		if (version >= procs[i].since || strcmp(procs[i].exported, symbol) != 0)
			return (void *)other_signature;
		*ret_status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
	}
	return NULL;
}

cu_result cuGetProcAddress_v2(const char *symbol, void **ret_function, int version, uint64_t flags,
	cu_proc_status *ret_status)
{
	cu_result result = fake_enter("cuGetProcAddress", FAKE_NO_INIT | FAKE_QUIET);
	cu_proc_status status;

	if (result != CUDA_SUCCESS)
		return result;
	if (!symbol || !ret_function || flags > 2 || version > fake.version)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	/* A driver of that version does not have this function. */
	if (fake.version < 12000)
		return fake_leave(CUDA_ERROR_NOT_SUPPORTED);
	*ret_function = find(symbol, version, &status);
	if (ret_status)
		*ret_status = status;
	return fake_leave(*ret_function || ret_status ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
}

cu_result cuGetProcAddress(const char *symbol, void **ret_function, int version, uint64_t flags)
{
	cu_result result = fake_enter("cuGetProcAddress", FAKE_NO_INIT | FAKE_QUIET);
	cu_proc_status status;

	if (result != CUDA_SUCCESS)
		return result;
	if (!symbol || !ret_function || flags > 2 || version > fake.version)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	*ret_function = find(symbol, version, &status);
	return fake_leave(*ret_function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
}
