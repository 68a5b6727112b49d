/* SPDX-License-Identifier: BSD-3-Clause */
/* frl_gpu_list(): its entry for each GPU, and its result without one. Against the double of the
 * driver; nothing else here needs a GPU. */
#include <dlfcn.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <check.h>

#include <ferrule/gpu.h>

#include "gpudirect/kernels/image.h"
#include "gpudirect/probe.h"
#include "lib/base/error.h"
#include "tests/fakes/cuda/fake_libcuda.h"
#include "tests/fixtures/program.h"
#include "tests/fixtures/run_self.h"

enum { TEXT = 4096, SKIPPED = 77 };

static const struct fake_cuda *fake;
static char root[64];

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *where)
{
	return remove(path);
}

/* A machine without any module of NVIDIA's. */
static void set_up(void)
{
	fake->reset();
	cuda_reset();
	snprintf(root, sizeof(root), "%s/XXXXXX", test_folder());
	ck_assert_ptr_nonnull(mkdtemp(root));
	probe_set_root(root);
	frl_fail(-EINVAL, "nothing yet");
}

static void tear_down(void)
{
	probe_set_root(NULL);
	nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* A folder below the root. */
static void put(const char *path)
{
	char whole[256];
	size_t start = strlen(root);

	snprintf(whole, sizeof(whole), "%s%s", root, path);
	for (char *at = whole + start + 1; *at; at++) {
		if (*at != '/')
			continue;
		*at = '\0';
		mkdir(whole, 0700);
		*at = '/';
	}
	ck_assert_int_eq(mkdir(whole, 0700), 0);
}

/* The list, of which the caller knows how long it is. */
static struct frl_gpu_info *list(size_t expected)
{
	struct frl_gpu_info *infos = NULL;
	size_t n = 0;

	ck_assert_int_eq(frl_gpu_list(&infos, &n), 0);
	ck_assert_uint_eq(n, expected);
	ck_assert_ptr_nonnull(infos);
	/* The call has not failed, and nothing was made on the way. */
	ck_assert_str_eq(frl_last_error(), "nothing yet");
	ck_assert_uint_eq(fake->calls("cuDevicePrimaryCtxRetain"), 0);
	ck_assert_str_eq(fake->leaks(), "");
	return infos;
}

/* ---- none */

static void check_none(const char *words)
{
	struct frl_gpu_info *infos = list(1);

	ck_assert_int_eq(infos[0].ordinal, -1);
	ck_assert(!infos[0].usable);
	ck_assert_msg(strstr(infos[0].reason, words), "it does not say \"%s\": %s", words,
		infos[0].reason);
	ck_assert(!infos[0].exports_dmabuf && !infos[0].has_kernels);
	frl_gpu_list_free(infos);
}

START_TEST(no_device)
{
	fake->set_devices(0);
	check_none("cuInit: CUDA_ERROR_NO_DEVICE (100): ");
}
END_TEST

START_TEST(old_driver)
{
	fake->set_version(11020);
	check_none("that of CUDA 11.2; Ferrule needs the driver of CUDA 11.3");
}
END_TEST

START_TEST(devices_that_cannot_be_counted)
{
	fake->fail_call("cuDeviceGetCount", 1, CUDA_ERROR_UNKNOWN, 1);
	check_none("cuDeviceGetCount: CUDA_ERROR_UNKNOWN (999)");
}
END_TEST

START_TEST(freeing_nothing)
{
	frl_gpu_list_free(NULL);
}
END_TEST

/* ---- what is said of one */

START_TEST(two_of_them)
{
	struct frl_gpu_info *infos;
	const char *why = image_why_not(9, 0, 13000);

	fake->set_devices(2);
	fake->set_memory(UINT64_C(3) << 30);
	fake->set_attribute(1, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 8);
	fake->set_attribute(1, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 6);
	fake->set_attribute(1, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING,
		CU_GPU_DIRECT_RDMA_WRITES_ORDERING_NONE);
	infos = list(2);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(infos[i].ordinal, i);
		ck_assert_str_ne(infos[i].name, "");
		ck_assert_uint_eq(infos[i].memory_bytes, UINT64_C(3) << 30);
		ck_assert_int_eq(infos[i].driver_version, 13000);
		ck_assert(infos[i].usable);
		ck_assert(infos[i].exports_dmabuf);
		ck_assert(!infos[i].has_peermem);
		ck_assert_int_eq(infos[i].has_kernels, !why);
		ck_assert_str_eq(infos[i].reason, why ? why : "");
	}
	ck_assert_str_eq(infos[0].pci, "0000:c0:00.0"); /* in small letters */
	ck_assert_str_eq(infos[1].pci, "0000:c1:00.0");
	ck_assert_int_eq(infos[0].compute_major, 9);
	ck_assert_int_eq(infos[0].compute_minor, 0);
	ck_assert_int_eq(infos[1].compute_major, 8);
	ck_assert_int_eq(infos[1].compute_minor, 6);
	ck_assert(!infos[0].needs_flush);
	ck_assert(infos[1].needs_flush);
	frl_gpu_list_free(infos);
}
END_TEST

START_TEST(one_that_is_not_there_any_more)
{
	struct frl_gpu_info *infos;

	fake->set_devices(2);
	fake->fail_call("cuDeviceGet", 1, CUDA_ERROR_DEVICE_UNAVAILABLE, 1);
	infos = list(2);
	ck_assert_int_eq(infos[0].ordinal, 0);
	ck_assert(!infos[0].usable);
	ck_assert_ptr_nonnull(strstr(infos[0].reason, "CUDA_ERROR_DEVICE_UNAVAILABLE (46)"));
	ck_assert(infos[1].usable);
	frl_gpu_list_free(infos);
}
END_TEST

/* The entry if the driver does not answer: nothing for that, and the rest all the same. */
START_LOOP_TEST(questions_that_fail, 4)
{
	static const char *const calls[] = { "cuDeviceGetName", "cuDeviceGetPCIBusId",
		"cuDeviceTotalMem", "cuDeviceGetAttribute" };
	struct frl_gpu_info *infos;

	fake->fail_call(calls[_i], 1, CUDA_ERROR_UNKNOWN, 0);
	infos = list(1);
	ck_assert_int_eq(infos[0].ordinal, 0);
	ck_assert_int_eq(infos[0].name[0] == '\0', _i == 0);
	ck_assert_int_eq(infos[0].pci[0] == '\0', _i == 1);
	ck_assert_int_eq(infos[0].memory_bytes == 0, _i == 2);
	ck_assert_int_eq(infos[0].usable, _i != 3);
	ck_assert(infos[0].usable || infos[0].reason[0]);
	frl_gpu_list_free(infos);
}
END_TEST

/* A missing feature of a GPU, one row each; -1: as usual. */
static const struct {
	int version;
	cu_device_attribute attribute;
	int value;
	const char *folder; /* of a kernel module, or NULL */
	bool exports_dmabuf, has_peermem;
	int usable;        /* -1: if there are kernels */
	const char *words; /* of the reason, or NULL */
} ways_rows[] = {
	{ 13000, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 1, NULL, true, false, true, NULL },
	{ 13000, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 1, "/sys/module/nvidia_peermem", true, true,
		true, NULL },
	{ 13000, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0, NULL, false, false, -1,
		"open kernel modules, or load nvidia-peermem" },
	{ 13000, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0, "/sys/module/nvidia_peermem", false,
		true, true, NULL },
	{ 13000, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0, "/sys/kernel/mm/memory_peers/nv_mem",
		false, true, true, NULL },
	{ 13000, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0, "/sys/kernel/mm/memory_peers/nv_mem_nc",
		false, true, true, NULL },
	{ 13000, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0, "/sys/kernel/mm/memory_peers/amd", false,
		false, -1, "nvidia-peermem" },
	{ 13000, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, 0, "/sys/module/nvidia_peermem",
		true, false, true, NULL },
	{ 11060, CU_DEVICE_ATTRIBUTE_INTEGRATED, 0, NULL, false, false, false,
		"driver of CUDA 11.7 (515)" },
	{ 11060, CU_DEVICE_ATTRIBUTE_INTEGRATED, 0, "/sys/module/nvidia_peermem", false, true, true,
		NULL },
	{ 13000, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 0, NULL, true, false, true,
		"host memory cannot be registered" },
	{ 13000, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 6, NULL, true, false, true,
		"kernels" },
	{ 13000, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, CU_COMPUTEMODE_PROHIBITED, NULL, false, false,
		false, "compute mode is prohibited: nvidia-smi -i 0000:c0:00.0 -c DEFAULT" },
	{ 13000, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, CU_COMPUTEMODE_EXCLUSIVE_PROCESS, NULL, true,
		false, true, NULL },
};

START_LOOP_TEST(ways, ROWS(ways_rows))
{
	struct frl_gpu_info *infos;

	fake->set_version(ways_rows[_i].version);
	fake->set_attribute(-1, ways_rows[_i].attribute, ways_rows[_i].value);
	if (ways_rows[_i].folder)
		put(ways_rows[_i].folder);
	infos = list(1);
	ck_assert_int_eq(infos[0].exports_dmabuf, ways_rows[_i].exports_dmabuf);
	ck_assert_int_eq(infos[0].has_peermem, ways_rows[_i].has_peermem);
	ck_assert_msg(infos[0].usable ==
			(ways_rows[_i].usable < 0 ? infos[0].has_kernels : ways_rows[_i].usable),
		"usable: %d, %s", infos[0].usable, infos[0].reason);
	if (ways_rows[_i].words)
		ck_assert_msg(strstr(infos[0].reason, ways_rows[_i].words), "%s", infos[0].reason);
	else if (image_is_built() && ways_rows[_i].version == 13000)
		ck_assert_str_eq(infos[0].reason, "");
	frl_gpu_list_free(infos);
}
END_TEST

/* Images of two compilers, of which the second one is newer than the driver: that compiles no PTX
 * of such a one. */
static const struct image_data same_cuda = { .bytes = "for the double of the driver",
	.size = 28,
	.toolkit = 13000,
	.codes = { 75, 80, 90, 100, 120 },
	.ptx = 75 };
static const struct image_data newer_cuda = { .bytes = "for the double of the driver",
	.size = 28,
	.toolkit = 13010,
	.codes = { 75, 80, 90, 100, 120 },
	.ptx = 75 };

static const struct {
	const struct image_data *image;
	int major, minor;
	const char *words; /* NULL: kernels run */
} capability_rows[] = {
	{ &same_cuda, 7, 0, "compute capability 7.0, Ferrule's kernels are for 7.5 and later" },
	{ &same_cuda, 7, 2, "compute capability 7.2" },
	{ &newer_cuda, 7, 5, NULL },
	{ &newer_cuda, 8, 9, NULL },
	{ &newer_cuda, 10, 3, NULL },
	{ &newer_cuda, 12, 1, NULL },
	{ &newer_cuda, 8, 7, "need a driver of CUDA 13.1 or later" },
	{ &same_cuda, 8, 7, NULL },
	{ &newer_cuda, 11, 0, "need a driver of CUDA 13.1 or later" },
	{ &same_cuda, 11, 0, NULL },
	{ &same_cuda, 13, 0, NULL },
};

START_LOOP_TEST(capabilities, ROWS(capability_rows))
{
	const char *words = capability_rows[_i].words;
	struct frl_gpu_info *infos;

	image_use(capability_rows[_i].image, NULL);
	fake->set_attribute(
		-1, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, capability_rows[_i].major);
	fake->set_attribute(
		-1, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, capability_rows[_i].minor);
	infos = list(1);
	ck_assert_int_eq(infos[0].has_kernels, !words);
	ck_assert_msg(words ? strstr(infos[0].reason, words) != NULL : !infos[0].reason[0], "%s",
		infos[0].reason);
	frl_gpu_list_free(infos);
	image_use(NULL, NULL);
}
END_TEST

/* How modules are loaded: a fact, no reason why a GPU could not be used. */
static const struct {
	int version;
	const char *missing, *failing;
	bool is_lazy;
} loading_rows[] = {
	{ 12010, NULL, NULL, false },
	{ 12020, NULL, NULL, true },
	{ 13000, "cuModuleGetLoadingMode", NULL, false },
	{ 13000, NULL, "cuModuleGetLoadingMode", true },
};

START_LOOP_TEST(loading, ROWS(loading_rows))
{
	struct frl_gpu_info *infos;

	fake->set_version(loading_rows[_i].version);
	fake->set_missing(loading_rows[_i].missing);
	if (loading_rows[_i].failing)
		fake->fail_call(loading_rows[_i].failing, 1, CUDA_ERROR_UNKNOWN, 0);
	infos = list(1);
	ck_assert_int_eq(infos[0].loads_lazily, loading_rows[_i].is_lazy);
	ck_assert(infos[0].usable);
	ck_assert_ptr_null(strstr(infos[0].reason, "lazily"));
	frl_gpu_list_free(infos);
}
END_TEST

/* The attribute says yes, and the function is not there. */
START_TEST(dma_bufs_without_their_function)
{
	struct frl_gpu_info *infos;

	fake->set_missing("cuMemGetHandleForAddressRange");
	infos = list(1);
	ck_assert(!infos[0].exports_dmabuf);
	ck_assert_ptr_nonnull(strstr(infos[0].reason, "driver of CUDA 11.7 (515)"));
	frl_gpu_list_free(infos);
}
END_TEST

START_TEST(no_way_at_all)
{
	struct frl_gpu_info *infos;

	fake->set_attribute(-1, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0);
	fake->set_attribute(-1, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, 0);
	fake->set_attribute(-1, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 0);
	infos = list(1);
	ck_assert(!infos[0].usable);
	ck_assert_ptr_nonnull(strstr(infos[0].reason, "host memory cannot be registered"));
	ck_assert_ptr_nonnull(strstr(infos[0].reason, "; NICs cannot access its memory"));
	frl_gpu_list_free(infos);
}
END_TEST

/* ---- settings, in processes of their own */

/* "usable reason" of the first. */
static int run_list(void)
{
	struct frl_gpu_info *infos;
	size_t n;

	if (frl_gpu_list(&infos, &n))
		return EXIT_FAILURE;
	printf("%d %d %s %s\n", infos[0].ordinal, infos[0].usable,
		cuda_is_loaded() ? "loaded" : "untouched", infos[0].reason);
	frl_gpu_list_free(infos);
	return EXIT_SUCCESS;
}

static const struct {
	const char *tier;
	bool needs_kernels;
	const char *begin, *words;
} tier_rows[] = {
	{ "auto", false, "0 1 loaded", "" },
	{ "dma-buf", false, "0 1 loaded", "" },
	{ "peermem", false, "0 0 loaded", "FRL_GPU_TIER=peermem excludes all available ways" },
	{ "mapped", true, "0 1 loaded", "" },
	{ "off", false, "-1 0 untouched", "FRL_GPU_TIER is off" },
};

START_LOOP_TEST(tiers, ROWS(tier_rows))
{
	char text[TEXT];

	if (tier_rows[_i].needs_kernels && !image_is_built())
		return;
	/* A machine that has the module would be usable. */
	probe_set_root(NULL);
	if (strcmp(tier_rows[_i].tier, "peermem") == 0 && probe_has_peermem())
		return;
	ck_assert_int_eq(run_self("list", "FRL_GPU_TIER", tier_rows[_i].tier, text, TEXT), 0);
	ck_assert_msg(strncmp(text, tier_rows[_i].begin, strlen(tier_rows[_i].begin)) == 0 &&
			strstr(text, tier_rows[_i].words),
		"%s", text);
}
END_TEST

/* Whether a device's primary context was made, by any caller. */
static bool has_context(int ordinal)
{
	cu_result (*get_state)(cu_device, unsigned int *, int *) = NULL;
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	unsigned int flags;
	int is_active = 0;

	if (library)
		*(void **)(void *)&get_state = dlsym(library, "cuDevicePrimaryCtxGetState");
	return get_state && get_state(ordinal, &flags, &is_active) == CUDA_SUCCESS && is_active;
}

/* Facts about all GPUs, also those of NVIDIA's driver; the text lists the exceptions. */
static int run_any_driver(void)
{
	struct frl_gpu_info *infos;
	size_t n;

	if (frl_gpu_list(&infos, &n) || n < 1)
		return EXIT_FAILURE;
	for (size_t i = 0; i < n; i++) {
		unsigned domain, bus, device, function;

		printf("%d: %s, %s, usable %d: %s\n", infos[i].ordinal, infos[i].name, infos[i].pci,
			infos[i].usable, infos[i].reason);
		if (infos[i].ordinal != (int)i || !infos[i].name[0] || has_context((int)i) ||
			sscanf(infos[i].pci, "%4x:%2x:%2x.%1x", &domain, &bus, &device,
				&function) != 4 ||
			infos[i].memory_bytes < 1 << 20 || infos[i].compute_major < 3 ||
			infos[i].driver_version < 11030 ||
			(!infos[i].usable && !infos[i].reason[0]))
			return EXIT_FAILURE;
	}
	frl_gpu_list_free(infos);
	return EXIT_SUCCESS;
}

START_TEST(any_driver)
{
	char text[TEXT];

	ck_assert_msg(run_self("any-driver", "FRL_GPU_TIER", NULL, text, TEXT) == 0, "%s", text);
	fputs(text, stdout);
}
END_TEST

START_TEST(after_fork)
{
	struct frl_gpu_info *infos = list(1);
	int status;
	pid_t pid;

	ck_assert(infos[0].usable);
	frl_gpu_list_free(infos);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		size_t n;

		if (frl_gpu_list(&infos, &n) || n != 1)
			_exit(1);
		_exit(infos[0].ordinal == -1 && strstr(infos[0].reason, "fork()") ? 0 : 2);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

TEST_MAIN(gpu_list)
{
	Suite *suite;
	TCase *tests;

	if (argc > 1 && strcmp(argv[1], "list") == 0)
		return run_list();
	if (argc > 1 && strcmp(argv[1], "any-driver") == 0)
		return run_any_driver();
	if (!dlopen("libcuda.so.1", RTLD_NOW)) {
		fprintf(stderr, "skipped: there is no libcuda.so.1\n");
		return SKIPPED;
	}
	fake = fake_cuda_find();
	if (fake)
		return run_suite(all_tests(set_up, tear_down));
	fprintf(stderr, "left out: what needs the double of the driver\n");
	suite = suite_create("gpu_list");
	tests = tcase_create("any");
	tcase_add_test(tests, any_driver);
	suite_add_tcase(suite, tests);
	return run_suite(suite);
}
