/* SPDX-License-Identifier: BSD-3-Clause */
/* The numbers and types that Ferrule has of CUDA's driver API are those of NVIDIA's header. */
#include <stdio.h>
#include <stdlib.h>

#include <check.h>

#include "gpudirect/cuda/cuda_abi.h"
#include "tests/unit/gpudirect/cuda_header.h"
#include "tests/fixtures/program.h"

static const struct cuda_number ours[] = {
#define NUMBER(name) { #name, (long)(name) },
#include "tests/unit/gpudirect/cuda_numbers.h"
#undef NUMBER
};

START_LOOP_TEST(numbers, ROWS(ours))
{
	size_t n;
	const struct cuda_number *theirs = cuda_header_numbers(&n);

	if (!theirs) {
		fprintf(stderr, "skipped: cuda.h here is older than 13.0\n");
		return;
	}
	ck_assert_uint_eq(n, sizeof(ours) / sizeof(ours[0]));
	ck_assert_str_eq(ours[_i].name, theirs[_i].name);
	ck_assert_msg(ours[_i].value == theirs[_i].value, "%s is %ld here, %ld in cuda.h",
		ours[_i].name, ours[_i].value, theirs[_i].value);
}
END_TEST

START_TEST(sizes)
{
	ck_assert_uint_eq(sizeof(cu_result), 4);
	ck_assert_uint_eq(sizeof(cu_device), 4);
	ck_assert_uint_eq(sizeof(cu_deviceptr), 8);
	ck_assert_uint_eq(sizeof(cu_uuid), 16);
	ck_assert_uint_eq(sizeof(cu_device_attribute), 4);
	ck_assert_uint_eq(sizeof(cu_capture_mode), 4);
	ck_assert_uint_eq(sizeof(cu_module_loading_mode), 4);
}
END_TEST

TEST_FILE(cuda_abi)
