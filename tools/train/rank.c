/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The work of one rank. All ranks have the same network and images, and the same shuffled sequence
 * of batches. Each rank takes a contiguous part of each batch. Its gradients are those of the
 * batch's mean loss. The sum over the ranks is therefore what a single process would compute,
 * except for rounding, and all ranks make the same step.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/train/train.h"
#include "tools/common/random.h"
#include "tools/common/session.h"

static const float momentum = 0.9f;

struct worker {
	struct training *training;
	struct session *session;
	struct net *net;
	float *gradients;
	size_t gradient_bytes;
	struct train_sync sync;
	size_t max_part; /* the most images of this rank in a batch */
	uint32_t *order; /* order of the training images in this epoch */
	float *images;   /* images of this rank's part of a batch */
	uint8_t *labels;
};

/* Everything that must be equal on all ranks, in the order of `term_names`. */
enum { TERMS = 7 };

static const char *const term_names[TERMS] = { "--data", "--hidden", "--epochs", "--batch",
	"--seed", "--lr", "--bucket" };

static void fill_terms(const struct training *t, uint64_t terms[TERMS])
{
	const struct train_options *o = t->options;

	terms[0] = t->data->digest;
	terms[1] = train_digest(o->shape.n_layers, o->shape.widths,
		(o->shape.n_layers + 1) * sizeof(o->shape.widths[0]));
	terms[2] = o->epochs;
	terms[3] = o->batch;
	terms[4] = o->seed;
	terms[5] = train_digest(0, &o->rate, sizeof(o->rate));
	terms[6] = o->bucket_bytes;
}

/* Checks that all ranks have the same options. Ranks that were started separately may differ. */
static int agree_on_terms(const struct training *t, struct session *session)
{
	struct frl_bootstrap *bootstrap = &session->bootstrap;
	uint64_t mine[TERMS], all[MAX_RANKS][TERMS];
	int rc;

	fill_terms(t, mine);
	rc = bootstrap->allgather(bootstrap->ctx, mine, sizeof(mine), all);
	if (rc) {
		say_failure(rc, "comparing the options with the other ranks");
		return rc;
	}
	for (uint64_t r = 1; r < t->options->ranks; r++) {
		for (size_t i = 0; i < TERMS; i++) {
			if (all[r][i] == all[0][i])
				continue;
			say("rank %d and rank 0 differ in %s: all ranks need the same%s", (int)r,
				term_names[i], i == 0 ? " images" : "");
			return -EINVAL;
		}
	}
	return 0;
}

static int prepare(struct worker *w)
{
	const struct train_options *o = w->training->options;
	size_t n_train = w->training->data->train.count;
	size_t batch = o->batch < n_train ? (size_t)o->batch : n_train;

	w->max_part = (batch + o->ranks - 1) / o->ranks;
	w->order = calloc(n_train, sizeof(*w->order));
	w->images = calloc(w->max_part, IMAGE_PIXELS * sizeof(*w->images));
	w->labels = calloc(w->max_part, sizeof(*w->labels));
	if (!w->order || !w->images || !w->labels ||
		net_create(&o->shape, w->max_part, o->seed, &w->net)) {
		say("no memory for the network");
		return -ENOMEM;
	}
	w->gradient_bytes = w->net->n_parameters * sizeof(float);
	w->gradients = frl_mem_alloc(w->gradient_bytes);
	if (!w->gradients) {
		say_failure(-ENOMEM, "no memory for %zu bytes of gradients", w->gradient_bytes);
		return -ENOMEM;
	}
	w->sync = (struct train_sync){
		.comm = w->session->comm,
		.gradients = w->gradients,
		.count = w->net->n_parameters,
		.bucket = (size_t)o->bucket_bytes / sizeof(float),
		.overlap = o->overlap,
	};
	return 0;
}

static void release(struct worker *w)
{
	if (w->gradients)
		frl_mem_free(w->gradients, w->gradient_bytes);
	net_destroy(w->net);
	free(w->order);
	free(w->images);
	free(w->labels);
}

/* Shuffles as Fisher and Yates do. All ranks compute the same order. */
static void shuffle(uint32_t order[], size_t n, uint64_t seed, uint64_t epoch)
{
	struct train_random random = train_random_init(seed, NET_MAX_LAYERS + epoch);

	for (size_t i = 0; i < n; i++)
		order[i] = (uint32_t)i;
	for (size_t i = n - 1; i > 0; i--) {
		uint32_t other = train_random_below(&random, (uint32_t)i + 1);
		uint32_t swap = order[i];

		order[i] = order[other];
		order[other] = swap;
	}
}

/*
 * Returns the size of this rank's share of `n` items, and its first item. Shares differ by at most
 * one.
 */
static size_t share(const struct worker *w, size_t n, size_t *ret_first)
{
	size_t rank = (size_t)w->session->rank, ranks = (size_t)w->training->options->ranks;

	*ret_first = n * rank / ranks;
	return n * (rank + 1) / ranks - *ret_first;
}

static void load_images(struct worker *w, const uint32_t which[], size_t n)
{
	const struct image_set *train = &w->training->data->train;

	for (size_t i = 0; i < n; i++) {
		memcpy(w->images + i * IMAGE_PIXELS,
			train->images + (size_t)which[i] * IMAGE_PIXELS,
			IMAGE_PIXELS * sizeof(float));
		w->labels[i] = train->labels[which[i]];
	}
}

/* Learns a batch of `size` images. Adds the losses of this rank's images to *loss. */
static int learn_batch(struct worker *w, const uint32_t which[], size_t size, double *loss)
{
	const struct net_watcher watcher = { train_sync_gradients_final, &w->sync };
	size_t first, n = share(w, size, &first);
	int rc;

	load_images(w, which + first, n);
	*loss += net_forward(w->net, w->images, w->labels, n).loss;
	net_backward(w->net, w->images, w->labels, n, 1 / (float)size, w->gradients, &watcher);
	rc = train_sync_finish(&w->sync);
	if (!rc)
		net_step(w->net, w->gradients, (float)w->training->options->rate, momentum);
	return rc;
}

static int learn(struct worker *w, uint64_t epoch, double *ret_loss)
{
	const struct train_options *o = w->training->options;
	size_t n = w->training->data->train.count;
	int rc = 0;

	*ret_loss = 0;
	train_sync_resume(&w->sync);
	shuffle(w->order, n, o->seed, epoch);
	for (size_t first = 0, size; first < n && !rc; first += size) {
		size = n - first < o->batch ? n - first : (size_t)o->batch;
		rc = learn_batch(w, w->order + first, size, ret_loss);
	}
	train_sync_pause(&w->sync);
	return rc;
}

/* Returns how many test images of this rank's share the network classifies correctly. */
static size_t count_correct(struct worker *w)
{
	const struct image_set *test = &w->training->data->test;
	size_t first, left = share(w, test->count, &first), correct = 0;

	while (left > 0) {
		size_t n = left < w->max_part ? left : w->max_part;

		correct += net_forward(
			w->net, test->images + first * IMAGE_PIXELS, test->labels + first, n)
				   .correct;
		first += n;
		left -= n;
	}
	return correct;
}

static int run_epoch(struct worker *w, uint64_t epoch)
{
	struct training *t = w->training;
	double loss;
	float sums[2]; /* counts are small enough to be exact */
	int rc = learn(w, epoch, &loss);

	if (!rc) {
		sums[0] = (float)loss;
		sums[1] = (float)count_correct(w);
		rc = frl_allreduce(w->session->comm, sums, sums, 2, FRL_FLOAT32, FRL_SUM);
	}
	if (rc) {
		say_failure(rc, "allreduce failed in epoch %d", (int)epoch + 1);
		return rc;
	}
	t->epochs[epoch].loss = (double)sums[0] / (double)t->data->train.count;
	t->epochs[epoch].correct = (uint64_t)sums[1];
	if (!isfinite(sums[0])) {
		/* All ranks have the same result. */
		if (w->session->rank == 0)
			say("epoch %d: the loss is not finite any more; try a smaller --lr",
				(int)epoch + 1);
		return -ERANGE;
	}
	if (w->session->rank == 0)
		train_print_epoch(t, epoch);
	return 0;
}

static int train(struct worker *w, struct train_report *report)
{
	const struct train_options *o = w->training->options;
	uint64_t start;
	int rc = frl_barrier(w->session->comm);

	if (rc) {
		say_failure(rc, "waiting for the other ranks");
		return rc;
	}
	start = now_ns();
	for (uint64_t epoch = 0; epoch < o->epochs && !rc; epoch++)
		rc = run_epoch(w, epoch);
	report->total_ns = now_ns() - start;
	report->times = w->sync.times;
	report->digest = train_digest(0, w->net->parameters, w->gradient_bytes);
	return rc;
}

bool train_ranks_agree(const struct training *training)
{
	for (uint64_t r = 1; r < training->options->ranks; r++)
		if (training->reports[r].digest != training->reports[0].digest)
			return false;
	return true;
}

/* Exchanges the reports of the ranks. */
static int conclude(struct training *t, struct session *session, const struct train_report *mine)
{
	int rc = session->bootstrap.allgather(
		session->bootstrap.ctx, mine, sizeof(*mine), t->reports);

	if (rc) {
		say_failure(rc, "comparing the results with the other ranks");
		return rc;
	}
	if (session->rank == 0)
		rc = train_print_result(t);
	if (rc)
		say("no memory for the results");
	return rc ? rc : train_ranks_agree(t) ? 0 : -EIO;
}

static int run(struct training *t, struct session *session)
{
	struct worker worker = { .training = t, .session = session };
	struct train_report mine = { 0 };
	int rc = agree_on_terms(t, session);

	if (!rc)
		rc = session_connect(session);
	if (!rc)
		rc = prepare(&worker);
	if (!rc) {
		t->n_parameters = worker.net->n_parameters;
		if (session->rank == 0)
			train_print_heading(t);
		rc = train(&worker, &mine);
	}
	if (rc)
		session_give_up(session);
	session_disconnect(session); /* before the gradients are freed; frees the bootstrap */
	release(&worker);
	return rc ? rc : conclude(t, session, &mine);
}

int train_rank(struct training *training, int rank, const char *job)
{
	const struct train_options *o = training->options;
	struct job_options options = {
		.ranks = (int)o->ranks,
		.rank = rank,
		.launch = o->launch,
		.is_launched = o->is_launched,
		.device = o->device,
	};
	struct session session = { .options = &options, .rank = rank };
	int rc;

	training->epochs = calloc(o->epochs, sizeof(*training->epochs));
	if (!training->epochs) {
		say("no memory");
		return -ENOMEM;
	}
	rc = session_join(&session, job);
	if (!rc)
		rc = run(training, &session);
	session_close(&session, rc);
	free(training->epochs);
	training->epochs = NULL;
	return rc;
}
