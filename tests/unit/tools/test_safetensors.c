/* SPDX-License-Identifier: BSD-3-Clause */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/allreduce/safetensors.h"

#include "tests/fixtures/program.h"

static char folder[64];
static char path[sizeof(folder) + 32];

static void set_up(void)
{
	snprintf(folder, sizeof(folder), "%s/XXXXXX", test_folder());
	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/t.safetensors", folder);
}

/* Nothing but the files of the test may be there. */
static void tear_down(void)
{
	unlink(path);
	ck_assert_int_eq(rmdir(folder), 0);
}

/* A file of a header and `data_size` bytes 0, 1, 2, ... Returns its size. */
static size_t make_file(const char *header, size_t data_size)
{
	uint64_t length = strlen(header);
	FILE *file = fopen(path, "wb");

	ck_assert_ptr_nonnull(file);
	for (int i = 0; i < 8; i++)
		fputc((int)(length >> 8 * i & 0xff), file);
	fputs(header, file);
	for (size_t i = 0; i < data_size; i++)
		fputc((int)(i & 0xff), file);
	ck_assert_int_eq(fclose(file), 0);
	return 8 + length + data_size;
}

static void expect_error(int err, const char *one, const char *other)
{
	struct safetensors_error error = { "" };
	struct safetensors *file = NULL;
	int rc = safetensors_open(path, &file, &error);

	ck_assert_int_eq(rc, -err);
	ck_assert_ptr_null(file);
	ck_assert_msg(strstr(error.text, path) == error.text, "no file name: %s", error.text);
	ck_assert_msg(strstr(error.text, one) != NULL, "'%s' not in: %s", one, error.text);
	if (other)
		ck_assert_msg(
			strstr(error.text, other) != NULL, "'%s' not in: %s", other, error.text);
}

#define T(dtype, shape, begin, end) \
	"{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"
#define A T("F32", "[2]", 0, 8)

static const struct {
	const char *header;
	size_t data_size;
	const char *reason, *tensor;
} bad_rows[] = {
	/* the header */
	{ "", 0, "not valid JSON", NULL },
	{ "{", 0, "not valid JSON", NULL },
	{ "{\"a\":" A "} x", 8, "not valid JSON", NULL },
	{ "{\"a\":" A ",}", 8, "not valid JSON", NULL },
	{ "nonsense", 0, "not valid JSON", NULL },
	{ "{\"\xff\":" A "}", 8, "not valid JSON", NULL },
	{ "{\"a\\u0000b\":" A "}", 8, "not valid JSON", NULL },
	{ "[]", 0, "not a JSON object", NULL },
	{ "[1, 2]", 0, "not a JSON object", NULL },
	{ "{\"a\":" A ",\"a\":" A "}", 8, "duplicate", "\"a\"" },
	{ "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 8, "duplicate", NULL },
	/* metadata */
	{ "{\"__metadata__\":1}", 0, "__metadata__ is not an object", NULL },
	{ "{\"__metadata__\":{\"k\":1}}", 0, "'k' is not a string", NULL },
	/* entries */
	{ "{\"a\":1}", 0, "entry is no object", "tensor 'a'" },
	{ "{\"a\":null}", 0, "entry is no object", "tensor 'a'" },
	{ "{\"a\":{}}", 0, "no dtype", "tensor 'a'" },
	{ "{\"a\":{\"dtype\":3,\"shape\":[],\"data_offsets\":[0,4]}}", 4, "no dtype",
		"tensor 'a'" },
	{ "{\"a\":" T("F31", "[2]", 0, 8) "}", 8, "unknown dtype 'F31'", "tensor 'a'" },
	{ "{\"a\":" T("f32", "[2]", 0, 8) "}", 8, "unknown dtype 'f32'", "tensor 'a'" },
	/* shapes */
	{ "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "no shape", "tensor 'a'" },
	{ "{\"a\":" T("F32", "2", 0, 8) "}", 8, "no shape", "tensor 'a'" },
	{ "{\"a\":" T("F32", "[-2]", 0, 8) "}", 8, "dimension 0", "tensor 'a'" },
	{ "{\"a\":" T("F32", "[2, 1.0]", 0, 8) "}", 8, "dimension 1", "tensor 'a'" },
	{ "{\"a\":" T("F32", "[\"2\"]", 0, 8) "}", 8, "dimension 0", "tensor 'a'" },
	{ "{\"a\":" T("F32", "[4294967296, 4294967296]", 0, 8) "}", 8, "overflows", "tensor 'a'" },
	{ "{\"a\":" T("F32", "[4611686018427387904, 4, 0]", 0, 0) "}", 0, "overflows",
		"tensor 'a'" },
	{ "{\"a\":" T("F32", "[1152921504606846976]", 0, 8) "}", 8, "overflows", "tensor 'a'" },
	{ "{\"a\":" T("F32", "[99999999999999999999]", 0, 8) "}", 8, "not valid JSON", NULL },
	{ "{\"a\":" T("F32", "[3]", 0, 8) "}", 8, "dtype and shape say 12", "tensor 'a'" },
	{ "{\"a\":" T("F32", "[]", 0, 8) "}", 8, "dtype and shape say 4", "tensor 'a'" },
	{ "{\"a\":" T("F64", "[2]", 0, 8) "}", 8, "dtype and shape say 16", "tensor 'a'" },
	{ "{\"a\":" T("F4", "[3]", 0, 1) "}", 1, "and a part", "tensor 'a'" },
	/* offsets */
	{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "not two whole numbers", "tensor 'a'" },
	{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", 8,
		"not two whole numbers", "tensor 'a'" },
	{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,8]}}", 8,
		"not two whole numbers", "tensor 'a'" },
	{ "{\"a\":" T("F32", "[2]", -8, 0) "}", 8, "not two whole numbers", "tensor 'a'" },
	{ "{\"a\":" T("F32", "[2]", 0, 8.0) "}", 8, "not two whole numbers", "tensor 'a'" },
	{ "{\"a\":" T("F32", "[2]", 8, 0) "}", 8, "reversed: [8, 0]", "tensor 'a'" },
	{ "{\"a\":" T("F32", "[2]", 0, 8) "}", 7, "out of range", "tensor 'a'" },
	{ "{\"a\":" T("F32", "[2]", 9223372036854775799, 9223372036854775807) "}", 8,
		"out of range", "tensor 'a'" },
	{ "{\"a\":" A ",\"b\":" T("F32", "[2]", 4, 12) "}", 12, "overlaps that of tensor 'a'",
		"tensor 'b'" },
	{ "{\"a\":" A ",\"b\":" A "}", 8, "overlaps", "tensor 'b'" },
	{ "{\"a\":" T("F32", "[4]", 0, 16) ",\"b\":" T("F32", "[1]", 4, 8) "}", 16, "overlaps",
		"tensor 'b'" },
	{ "{\"a\":" A ",\"b\":" T("F32", "[1]", 12, 16) "}", 16, "a gap of 4 bytes", "tensor 'b'" },
	{ "{\"a\":" T("F32", "[2]", 4, 12) "}", 12, "a gap of 4 bytes", "tensor 'a'" },
	{ "{\"a\":" A "}", 9, "1 bytes after the last tensor", NULL },
	{ "{}", 1, "1 bytes after the last tensor", NULL },
	/* control characters of a name stay out of the error */
	{ "{\"a\\u001b[31m\":1}", 0, "tensor 'a?[31m'", NULL },
	{ "{\"a\\u009b31m\\u00e9\":1}", 0, "tensor 'a??31m\xc3\xa9'", NULL },
};

START_LOOP_TEST(malformed, ROWS(bad_rows))
{
	make_file(bad_rows[_i].header, bad_rows[_i].data_size);
	expect_error(EINVAL, bad_rows[_i].reason, bad_rows[_i].tensor);
}
END_TEST

static const char two_tensors[] =
	"{\"__metadata__\":{\"format\":\"pt\",\"by\":\"\xc3\xa9\"},\"second\":" T("F32", "[2, 3]",
		8, 32) ",\"first\":" A
		       ",\"e\":" T("U8", "[0]", 32, 32) ",\"d\":" T("I64", "[0, 7]", 32, 32) "}   ";

/* Cut off anywhere, the file is refused, and an error names it. */
START_TEST(truncated)
{
	size_t size = make_file(two_tensors, 32);

	for (size_t length = size; length-- > 0;) {
		ck_assert_int_eq(truncate(path, (off_t)length), 0);
		expect_error(EINVAL, "truncated", NULL);
	}
}
END_TEST

START_LOOP_TEST(header_lengths, 3)
{
	static const unsigned char huge[3][8] = {
		{ 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff },
		{ 0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff },
		{ 0, 0, 0, 0x10, 0, 0, 0, 0 },
	};
	FILE *file = fopen(path, "wb");

	ck_assert_uint_eq(fwrite(huge[_i], 1, 8, file), 8);
	fputs("{}", file);
	fclose(file);
	expect_error(EINVAL, "more than the format allows", NULL);
}
END_TEST

START_TEST(no_such_file)
{
	expect_error(ENOENT, "cannot open it", NULL);
}
END_TEST

START_TEST(not_a_file)
{
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	expect_error(EINVAL, "not a regular file", NULL);
	unlink(path);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	expect_error(EINVAL, "not a regular file", NULL);
	ck_assert_int_eq(rmdir(path), 0);
}
END_TEST

static void check_two_tensors(const struct safetensors *file)
{
	static const char *const order[] = { "first", "second", "e", "d" };
	struct safetensors_error error;
	uint8_t data[32];
	char text[40];

	ck_assert_uint_eq(file->n_tensors, 4);
	for (size_t i = 0; i < 4; i++)
		ck_assert_str_eq(file->tensors[i].name, order[i]);
	ck_assert_uint_eq(file->tensors[0].count, 2);
	ck_assert_uint_eq(file->tensors[1].count, 6);
	ck_assert_uint_eq(file->tensors[1].begin, 8);
	ck_assert_uint_eq(file->tensors[1].end, 32);
	ck_assert_uint_eq(file->tensors[3].count, 0);
	ck_assert_uint_eq(file->data_size, 32);
	ck_assert_int_eq(safetensors_read(file, 0, data, sizeof(data), &error), 0);
	for (size_t i = 0; i < 32; i++)
		ck_assert_uint_eq(data[i], i);
	ck_assert_int_eq(safetensors_read(file, 30, data, 2, &error), 0);
	ck_assert_uint_eq(data[1], 31);
	ck_assert_str_eq(safetensors_metadata(file, "format"), "pt");
	ck_assert_str_eq(safetensors_metadata(file, "by"), "\xc3\xa9");
	ck_assert_ptr_null(safetensors_metadata(file, "none"));
	ck_assert_ptr_eq(safetensors_find(file, "second"), &file->tensors[1]);
	ck_assert_ptr_null(safetensors_find(file, "third"));
	safetensors_describe(&file->tensors[1], text, sizeof(text));
	ck_assert_str_eq(text, "F32 [2, 3]");
	safetensors_describe(&file->tensors[1], text, 6);
	ck_assert_str_eq(text, "F32 [");
}

/* Read, written over itself, read again: the same. */
START_TEST(round_trip)
{
	struct safetensors_error error;
	struct safetensors *file;
	uint8_t data[32];
	struct stat st;

	make_file(two_tensors, 32);
	ck_assert_int_eq(safetensors_open(path, &file, &error), 0);
	check_two_tensors(file);
	ck_assert_int_eq(safetensors_read(file, 0, data, sizeof(data), &error), 0);
	ck_assert_int_eq(safetensors_write(path, file, data, &error), 0);
	safetensors_close(file);
	ck_assert_int_eq(safetensors_open(path, &file, &error), 0);
	check_two_tensors(file);
	ck_assert_uint_eq(file->data_start % 8, 0);
	safetensors_close(file);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_ne(st.st_mode & 0400, 0);
}
END_TEST

START_LOOP_TEST(no_tensors, 2)
{
	static const char *const headers[] = { "{}", "{\"__metadata__\":{}}" };
	struct safetensors_error error;
	struct safetensors *file;

	make_file(headers[_i], 0);
	ck_assert_int_eq(safetensors_open(path, &file, &error), 0);
	ck_assert_uint_eq(file->n_tensors, 0);
	ck_assert_int_eq(safetensors_write(path, file, "", &error), 0);
	safetensors_close(file);
	ck_assert_int_eq(safetensors_open(path, &file, &error), 0);
	safetensors_close(file);
}
END_TEST

/* The file is cut off by another process while it is read: an error, and no signal. */
START_TEST(truncated_later)
{
	struct safetensors_error error;
	struct safetensors *file;
	size_t size = make_file(two_tensors, 32);
	uint8_t data[32];

	ck_assert_int_eq(safetensors_open(path, &file, &error), 0);
	ck_assert_int_eq(truncate(path, (off_t)size - 20), 0);
	ck_assert_int_eq(safetensors_read(file, 0, data, 12, &error), 0);
	ck_assert_int_eq(safetensors_read(file, 0, data, sizeof(data), &error), -EINVAL);
	ck_assert_ptr_eq(strstr(error.text, path), error.text);
	ck_assert_ptr_nonnull(strstr(error.text, "truncated while it was read"));
	safetensors_close(file);
}
END_TEST

static void expect_contents(const char *name, const char *contents)
{
	char text[32] = "";
	FILE *file = fopen(name, "r");

	ck_assert_msg(file != NULL, "%s", name);
	ck_assert_ptr_nonnull(fgets(text, sizeof(text), file));
	fclose(file);
	ck_assert_str_eq(text, contents);
}

/* A link stays and what it points to is made or replaced; relative to the link's own folder. */
START_TEST(write_through_links)
{
	const struct outfile_part part = { "new", 3 };
	char link[sizeof(path) + 16], loop[sizeof(path) + 16];
	struct stat st;

	snprintf(link, sizeof(link), "%s/link", folder);
	snprintf(loop, sizeof(loop), "%s/loop", folder);
	ck_assert_int_eq(symlink("t.safetensors", link), 0);
	for (int round = 0; round < 2; round++) { /* dangling, then not */
		ck_assert_int_eq(outfile_check(link), 0);
		ck_assert_int_eq(access(path, F_OK), round == 0 ? -1 : 0);
		ck_assert_int_eq(outfile_write(link, &part, 1), 0);
		expect_contents(path, "new");
		ck_assert_int_eq(lstat(link, &st), 0);
		ck_assert(S_ISLNK(st.st_mode));
	}
	ck_assert_int_eq(symlink("loop", loop), 0);
	ck_assert_int_eq(outfile_write(loop, &part, 1), -ELOOP);
	ck_assert_int_eq(unlink(loop), 0);
	ck_assert_int_eq(unlink(link), 0);
}
END_TEST

/* A file that is not a regular one is not replaced. */
START_TEST(write_to_special_files)
{
	const struct outfile_part part = { "new", 3 };
	char text[4] = "";
	struct stat st;
	int fd;

	ck_assert_int_eq(mkfifo(path, 0600), 0);
	fd = open(path, O_RDWR | O_CLOEXEC);
	ck_assert_int_eq(outfile_write(path, &part, 1), 0);
	ck_assert_int_eq(read(fd, text, 3), 3);
	ck_assert_str_eq(text, "new");
	close(fd);
	ck_assert_int_eq(lstat(path, &st), 0);
	ck_assert(S_ISFIFO(st.st_mode));
	ck_assert_int_eq(outfile_write(folder, &part, 1), -EISDIR);
	ck_assert_int_eq(outfile_check(folder), -EISDIR);
}
END_TEST

START_TEST(two_steps)
{
	const struct outfile_part part = { "new", 3 };
	struct outfile file;

	ck_assert_int_eq(outfile_prepare(&file, path, &part, 1), 0);
	ck_assert_int_ne(access(path, F_OK), 0);
	outfile_discard(&file);
	outfile_discard(&file);
	ck_assert_int_eq(rmdir(folder), 0); /* nothing is left in it */
	ck_assert_int_eq(mkdir(folder, 0700), 0);
	ck_assert_int_eq(outfile_prepare(&file, path, &part, 1), 0);
	ck_assert_int_eq(outfile_commit(&file), 0);
	expect_contents(path, "new");
}
END_TEST

/* Where the name cannot be taken, there is an error and no temporary file. */
START_TEST(failed_write)
{
	struct safetensors_error error;
	struct safetensors *file;
	char other[sizeof(path) + 16];
	static const uint8_t zeros[32];

	make_file(two_tensors, 32);
	ck_assert_int_eq(safetensors_open(path, &file, &error), 0);
	snprintf(other, sizeof(other), "%s/none/t", folder);
	ck_assert_int_eq(safetensors_write(other, file, zeros, &error), -ENOENT);
	ck_assert_ptr_nonnull(strstr(error.text, other));
	/* A folder has the name: rename fails after everything was written. */
	snprintf(other, sizeof(other), "%s/folder", folder);
	ck_assert_int_eq(mkdir(other, 0700), 0);
	ck_assert_int_eq(safetensors_write(other, file, zeros, &error), -EISDIR);
	ck_assert_int_eq(rmdir(other), 0);
	safetensors_close(file); /* tear_down() finds the folder empty but for the input */
}
END_TEST

START_TEST(close_nothing)
{
	safetensors_close(NULL);
}
END_TEST

TEST_MAIN(safetensors)
{
	return run_suite(all_tests(set_up, tear_down));
}
