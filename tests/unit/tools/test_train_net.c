/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The network of ferrule-train: its gradients against finite differences of a second, plain
 * implementation in double precision, what its watcher may rely on, parts of a batch against the
 * whole; and its reader of images, row by row.
 */
#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/train/data.h"
#include "tools/train/net.h"
#include "tools/common/random.h"
#include "tests/fixtures/program.h"

enum { MAX_BATCH = 40, MAX_PARAMETERS = 20000, MAX_INPUTS = 64, MAX_TEXT = 400 };

/* ---- a network and a batch for it */

static const struct {
	struct net_shape shape;
	size_t batch;
} nets[] = {
	{ { 1, { 3, 2 } }, 1 },
	{ { 1, { 8, 10 } }, 5 },
	{ { 2, { 5, 7, 3 } }, 4 },
	{ { 2, { 17, 9, 4 } }, 1 },
	{ { 3, { 16, 12, 8, 10 } }, 6 },
	{ { 5, { 6, 11, 1, 9, 13, 4 } }, 3 },
};

static struct net *net;
static float inputs[MAX_BATCH * MAX_INPUTS];
static uint8_t labels[MAX_BATCH];
static float gradients[MAX_PARAMETERS];

static void make_net(const struct net_shape *shape, size_t batch)
{
	size_t n_inputs = shape->widths[0], n_outputs = shape->widths[shape->n_layers];
	struct train_random random = train_random_init(7, n_inputs);

	ck_assert_uint_le(net_count_parameters(shape), MAX_PARAMETERS);
	ck_assert_int_eq(net_create(shape, batch, 11, &net), 0);
	/* Biases of 0 could hide that they are forgotten. */
	for (size_t l = 0; l < net->n_layers; l++)
		for (size_t o = 0; o < net->layers[l].outputs; o++)
			net->parameters[net->layers[l].first + o] = 0.2f *
				train_random_uniform(&random);
	for (size_t i = 0; i < batch * n_inputs; i++)
		inputs[i] = train_random_uniform(&random);
	for (size_t b = 0; b < batch; b++)
		labels[b] = (uint8_t)train_random_below(&random, (uint32_t)n_outputs);
}

static void tear_down(void)
{
	net_destroy(net);
	net = NULL;
}

/* The sum of the losses, in double: by the definitions, and by nothing of the network's code. */
static double reference_loss(const struct net_shape *shape, const double parameters[],
	const size_t first[], size_t batch)
{
	double loss = 0;

	for (size_t b = 0; b < batch; b++) {
		double value[MAX_INPUTS], next[MAX_INPUTS], sum = 0;

		for (size_t i = 0; i < shape->widths[0]; i++)
			value[i] = (double)inputs[b * shape->widths[0] + i];
		for (size_t l = 0; l < shape->n_layers; l++) {
			size_t n_in = shape->widths[l], n_out = shape->widths[l + 1];

			for (size_t o = 0; o < n_out; o++) {
				next[o] = parameters[first[l] + o];
				for (size_t i = 0; i < n_in; i++)
					next[o] += value[i] *
						parameters[first[l] + n_out + o * n_in + i];
			}
			for (size_t o = 0; o < n_out; o++)
				value[o] = l + 1 < shape->n_layers ? fmax(next[o], 0) : next[o];
		}
		for (size_t o = 0; o < shape->widths[shape->n_layers]; o++)
			sum += exp(value[o]);
		loss += log(sum) - value[labels[b]];
	}
	return loss;
}

static void ignore_final(void *arg, size_t final)
{
	(void)arg;
	(void) final;
}

static const struct net_watcher nobody = { .gradients_final = ignore_final };

START_LOOP_TEST(gradients_are_the_slopes, ROWS(nets))
{
	const struct net_shape *shape = &nets[_i].shape;
	const float scale = 0.37f;
	static double parameters[MAX_PARAMETERS];
	size_t batch = nets[_i].batch, first[NET_MAX_LAYERS], at = 0;
	struct net_score score;

	make_net(shape, batch);
	for (size_t l = shape->n_layers; l-- > 0;) {
		first[l] = at;
		at += shape->widths[l + 1] * (shape->widths[l] + 1);
	}
	ck_assert_uint_eq(at, net->n_parameters);
	for (size_t i = 0; i < at; i++)
		parameters[i] = (double)net->parameters[i];
	score = net_forward(net, inputs, labels, batch);
	ck_assert_double_eq_tol(score.loss, reference_loss(shape, parameters, first, batch), 1e-5);
	memset(gradients, 0xff, sizeof(gradients)); /* NaN */
	net_backward(net, inputs, labels, batch, scale, gradients, &nobody);
	for (size_t i = 0; i < at; i++) {
		const double step = 1e-5, middle = parameters[i];
		double slope;

		parameters[i] = middle + step;
		slope = reference_loss(shape, parameters, first, batch);
		parameters[i] = middle - step;
		slope = (slope - reference_loss(shape, parameters, first, batch)) / (2 * step);
		parameters[i] = middle;
		ck_assert_msg(fabs((double)gradients[i] - (double)scale * slope) < 2e-6,
			"parameter %zu: gradient %g, slope %g", i, (double)gradients[i],
			(double)scale * slope);
	}
}
END_TEST

/* ---- the watcher */

struct seen {
	size_t calls, final;
	float values[MAX_PARAMETERS]; /* of the gradients that were said to be final */
};

static void remember_final(void *arg, size_t final)
{
	struct seen *seen = arg;

	ck_assert_uint_ge(final, seen->final);
	ck_assert_uint_le(final, net->n_parameters);
	memcpy(seen->values + seen->final, gradients + seen->final,
		(final - seen->final) * sizeof(float));
	/* As an allreduce would: who computes with them afterwards gets it wrong. */
	memset(gradients + seen->final, 0xff, (final - seen->final) * sizeof(float));
	seen->final = final;
	seen->calls++;
}

START_TEST(final_gradients_are_left_alone)
{
	static const struct net_shape shape = { 3, { 64, 128, 64, 10 } };
	static struct seen seen;
	static const struct net_watcher watcher = { remember_final, &seen };

	make_net(&shape, MAX_BATCH);
	net_forward(net, inputs, labels, MAX_BATCH);
	net_backward(net, inputs, labels, MAX_BATCH, 1, gradients, &watcher);
	ck_assert_uint_eq(seen.final, net->n_parameters);
	/* 17,226 weights, 40 images, two passes: now and then is at least every 20th thousand. */
	ck_assert_uint_ge(seen.calls, 50);
	net_backward(net, inputs, labels, MAX_BATCH, 1, gradients, &nobody);
	ck_assert_mem_eq(seen.values, gradients, net->n_parameters * sizeof(float));
}
END_TEST

/* ---- batches */

/* A property that ranks rely on: the gradients of the parts add up to those of the whole. */
START_TEST(parts_add_up)
{
	static const struct net_shape shape = { 3, { 64, 24, 16, 10 } };
	static float sum[MAX_PARAMETERS];
	static const size_t cuts[] = { 0, 13, 13, 14, 30, MAX_BATCH };
	struct net_score whole, parts = { 0 };

	make_net(&shape, MAX_BATCH);
	for (size_t i = 0; i + 1 < ROWS(cuts); i++) {
		const float *part = inputs + cuts[i] * 64;
		const uint8_t *names = labels + cuts[i];
		size_t n = cuts[i + 1] - cuts[i];
		struct net_score score = net_forward(net, part, names, n);

		parts.loss += score.loss;
		parts.correct += score.correct;
		net_backward(net, part, names, n, 1.0f / MAX_BATCH, gradients, &nobody);
		for (size_t k = 0; k < net->n_parameters; k++)
			sum[k] += gradients[k];
	}
	whole = net_forward(net, inputs, labels, MAX_BATCH);
	net_backward(net, inputs, labels, MAX_BATCH, 1.0f / MAX_BATCH, gradients, &nobody);
	ck_assert_uint_eq(parts.correct, whole.correct);
	ck_assert_double_eq_tol(parts.loss, whole.loss, 1e-9);
	for (size_t k = 0; k < net->n_parameters; k++)
		ck_assert_float_eq_tol(sum[k], gradients[k], 1e-6f);
}
END_TEST

START_TEST(empty_batch)
{
	static const struct net_shape shape = { 2, { 5, 7, 3 } };
	struct net_score score;

	make_net(&shape, 1);
	memset(gradients, 0xff, sizeof(gradients));
	score = net_forward(net, inputs, labels, 0);
	net_backward(net, inputs, labels, 0, 1, gradients, &nobody);
	ck_assert_uint_eq(score.correct, 0);
	ck_assert_double_eq(score.loss, 0);
	for (size_t i = 0; i < net->n_parameters; i++)
		ck_assert_float_eq(gradients[i], 0);
}
END_TEST

/* Where training goes astray it must show, not be taken for 0 by a comparison. */
START_TEST(nan_shows)
{
	static const struct net_shape shape = { 2, { 5, 7, 3 } };

	make_net(&shape, 1);
	for (size_t i = net->layers[0].first; i < net->n_parameters; i++)
		net->parameters[i] = NAN; /* only before the ReLU */
	ck_assert(isnan(net_forward(net, inputs, labels, 1).loss));
}
END_TEST

START_TEST(large_outputs_do_not_overflow)
{
	static const struct net_shape shape = { 1, { 1, 3 } };

	make_net(&shape, 1);
	memcpy(net->parameters, (const float[]){ 0, 0, 0, 1000, -1000, 0 }, 6 * sizeof(float));
	inputs[0] = 1;
	labels[0] = 1;
	ck_assert_double_eq_tol(net_forward(net, inputs, labels, 1).loss, 2000, 1e-3);
	net_backward(net, inputs, labels, 1, 1, gradients, &nobody);
	ck_assert_float_eq(gradients[0], 1);
	ck_assert_float_eq(gradients[1], -1);
	ck_assert_float_eq(gradients[2], 0);
}
END_TEST

/* ---- parameters */

START_TEST(seeds)
{
	static const struct net_shape shape = { 2, { 64, 32, 10 } };
	struct net *same, *other;
	double sum = 0, squares = 0;
	size_t n = 64 * 32, first;

	ck_assert_int_eq(net_create(&shape, 1, 5, &net), 0);
	ck_assert_int_eq(net_create(&shape, 1, 5, &same), 0);
	ck_assert_int_eq(net_create(&shape, 1, 6, &other), 0);
	ck_assert_mem_eq(net->parameters, same->parameters, net->n_parameters * sizeof(float));
	ck_assert_mem_ne(net->parameters, other->parameters, net->n_parameters * sizeof(float));
	first = net->layers[0].first + 32;
	for (size_t i = 0; i < n; i++) {
		sum += (double)net->parameters[first + i];
		squares += pow((double)net->parameters[first + i], 2);
	}
	ck_assert_double_eq_tol(sum / (double)n, 0, 0.02);
	ck_assert_double_eq_tol(squares / (double)n, 2.0 / 64, 0.003);
	net_destroy(same);
	net_destroy(other);
}
END_TEST

START_TEST(steps_have_momentum)
{
	static const struct net_shape shape = { 1, { 1, 1 } };
	static const float slopes[] = { 1, -2 };

	ck_assert_int_eq(net_create(&shape, 1, 5, &net), 0);
	net->parameters[0] = 10;
	net->parameters[1] = 20;
	net_step(net, slopes, 0.5f, 0.5f);
	ck_assert_float_eq(net->parameters[0], 9.5f);
	ck_assert_float_eq(net->parameters[1], 21);
	net_step(net, slopes, 0.5f, 0.5f); /* velocities 1.5 and -3 */
	ck_assert_float_eq(net->parameters[0], 8.75f);
	ck_assert_float_eq(net->parameters[1], 22.5f);
}
END_TEST

/* ---- rows of images */

#define EIGHT      "1,2,3,4,5,6,7,8,"
#define TIMES_7(x) x x x x x x x
#define PIXELS_56  TIMES_7(EIGHT)

static const struct {
	const char *line, *reason;
} bad_rows[] = {
	{ "", "column 1: '' is not a pixel" },
	{ PIXELS_56 EIGHT, "column 65: '' is not a label" },
	{ PIXELS_56 EIGHT "10", "column 65: '10' is not a label" },
	{ PIXELS_56 EIGHT "1,", "more than 65 columns" },
	{ PIXELS_56 EIGHT "1,1", "more than 65 columns" },
	{ PIXELS_56 "1,2,3,4,5,6,7,8", "64 columns instead of 65" },
	{ "1", "1 columns instead of 65" },
	{ "1,17,", "column 2: '17' is not a pixel" },
	{ "1,,", "column 2: '' is not a pixel" },
	{ "-1,", "column 1: '-1' is not a pixel" },
	{ "+1,", "column 1: '+1' is not a pixel" },
	{ " 1,", "column 1: ' 1' is not a pixel" },
	{ "1 ,", "column 1: '1 ' is not a pixel" },
	{ "1.0,", "column 1: '1.0' is not a pixel" },
	{ "0x1,", "column 1: '0x1' is not a pixel" },
	{ "0001,", "column 1: '0001' is not a pixel" },
	{ "4294967297,", "column 1: '4294967297' is not a pixel" },
	{ "pixel_0_0,pixel_0_1", "column 1: 'pixel_0_0' is not a pixel" },
	{ "1;2;3", "column 1: '1;2;3' is not a pixel" },
	{ "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "column 1: 'aaaaaaaaaaaaaaaaaaaa' is not" },
};

START_LOOP_TEST(bad_row, ROWS(bad_rows))
{
	size_t length = strlen(bad_rows[_i].line);
	char *line = malloc(length + 1), reason[200] = "";
	float image[IMAGE_PIXELS];
	uint8_t label;

	/* Without a zero behind it: what is beyond the line is not the parser's. */
	ck_assert_ptr_nonnull(line);
	memcpy(line, bad_rows[_i].line, length);
	line[length] = '7';
	ck_assert_int_eq(
		dataset_parse_row(line, length, image, &label, reason, sizeof(reason)), -EINVAL);
	ck_assert_msg(strstr(reason, bad_rows[_i].reason) != NULL, "'%s' not in: %s",
		bad_rows[_i].reason, reason);
	free(line);
}
END_TEST

START_TEST(good_row)
{
	const char *line = PIXELS_56 "0,16,00,8,5,6,7,8,9";
	float image[IMAGE_PIXELS];
	uint8_t label = 0;

	ck_assert_int_eq(dataset_parse_row(line, strlen(line), image, &label, NULL, 0), 0);
	ck_assert_float_eq(image[0], 1 / 16.0f);
	ck_assert_float_eq(image[55], 0.5f);
	ck_assert_float_eq(image[56], 0);
	ck_assert_float_eq(image[57], 1);
	ck_assert_float_eq(image[58], 0);
	ck_assert_uint_eq(label, 9);
}
END_TEST

/* ---- files */

#define LINE(label) PIXELS_56 EIGHT #label "\n"
#define FIVE        LINE(0) LINE(1) LINE(2) LINE(3) LINE(4)

static char path[] = "/tmp/test_train_net.XXXXXX";

static int read_text(const char *text, struct dataset *ret_data, struct dataset_error *error)
{
	int fd, rc;

	strcpy(path + sizeof(path) - 7, "XXXXXX");
	fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	rc = dataset_read(path, ret_data, error);
	unlink(path);
	return rc;
}

static const struct {
	const char *text, *reason;
} bad_files[] = {
	{ "", "0 images; there must be 5 at least" },
	{ LINE(0) LINE(1) LINE(2) LINE(3), "4 images; there must be 5 at least" },
	{ FIVE "\n", "line 6: column 1: ''" },
	{ LINE(0) "\n" LINE(1), "line 2: column 1: ''" },
	{ FIVE "1,2\n" FIVE, "line 6: there are 2 columns instead of 65" },
	{ FIVE "1,2", "line 6: there are 2 columns instead of 65" },
	{ "label\n" FIVE, "line 1: column 1: 'label'" },
};

START_LOOP_TEST(bad_file, ROWS(bad_files))
{
	struct dataset_error error = { "" };
	struct dataset data = { 0 };

	ck_assert_int_eq(read_text(bad_files[_i].text, &data, &error), -EINVAL);
	ck_assert_msg(strstr(error.text, path) == error.text, "no file name: %s", error.text);
	ck_assert_msg(strstr(error.text, bad_files[_i].reason) != NULL, "'%s' not in: %s",
		bad_files[_i].reason, error.text);
	ck_assert_ptr_null(data.train.images);
}
END_TEST

START_TEST(every_fifth_is_for_testing)
{
	static const char *const texts[] = { FIVE LINE(5) LINE(6), FIVE LINE(5) PIXELS_56 EIGHT "6",
		FIVE LINE(5) PIXELS_56 EIGHT "6\r\n" };
	uint64_t digest = 0;

	for (size_t i = 0; i < ROWS(texts); i++) {
		struct dataset_error error;
		struct dataset data;

		ck_assert_int_eq(read_text(texts[i], &data, &error), 0);
		ck_assert_uint_eq(data.train.count, 5);
		ck_assert_uint_eq(data.test.count, 2);
		ck_assert_mem_eq(data.train.labels, ((uint8_t[]){ 1, 2, 3, 4, 6 }), 5);
		ck_assert_mem_eq(data.test.labels, ((uint8_t[]){ 0, 5 }), 2);
		ck_assert_float_eq(data.test.images[127], 0.5f);
		ck_assert(i == 0 || data.digest == digest);
		digest = data.digest;
		dataset_free(&data);
	}
}
END_TEST

START_TEST(digests_differ)
{
	struct dataset_error error;
	struct dataset one, other;

	ck_assert_int_eq(read_text(FIVE, &one, &error), 0);
	ck_assert_int_eq(read_text(LINE(0) LINE(1) LINE(2) LINE(4) LINE(3), &other, &error), 0);
	ck_assert(one.digest != other.digest);
	dataset_free(&one);
	dataset_free(&other);
}
END_TEST

START_TEST(no_file)
{
	struct dataset_error error;
	struct dataset data;

	ck_assert_int_eq(dataset_read("/nonexistent/x.csv", &data, &error), -ENOENT);
	ck_assert_str_eq(error.text, "/nonexistent/x.csv: No such file or directory");
	ck_assert_int_eq(dataset_read("/", &data, &error), -EISDIR);
	ck_assert_str_eq(error.text, "/: Is a directory");
	ck_assert_int_eq(dataset_read("/dev/zero", &data, &error), -EINVAL);
	ck_assert_str_eq(error.text, "/dev/zero: line 1: longer than 1024 bytes");
}
END_TEST

TEST_MAIN(train_net)
{
	return run_suite(all_tests(NULL, tear_down));
}
