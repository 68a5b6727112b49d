/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/train/net.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/random.h"

enum {
	LANES = 8, /* partial sums of a dot product, for vectorisation by the compiler */
	/*
	 * Multiplications between two calls of the watcher. They take some microseconds, much
	 * longer than a call without work.
	 */
	WORK_BETWEEN_CALLS = 16384,
};

static float dot(const float *a, const float *b, size_t n)
{
	float lanes[LANES] = { 0 }, sum = 0;
	size_t i = 0;

	for (; i + LANES <= n; i += LANES)
		for (size_t k = 0; k < LANES; k++)
			lanes[k] += a[i + k] * b[i + k];
	for (; i < n; i++)
		sum += a[i] * b[i];
	for (size_t k = 0; k < LANES; k++)
		sum += lanes[k];
	return sum;
}

static void add_scaled(float *restrict to, float factor, const float *restrict from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] += factor * from[i];
}

size_t net_count_parameters(const struct net_shape *shape)
{
	size_t count = 0;

	for (size_t l = 0; l < shape->n_layers; l++)
		count += (shape->widths[l] + 1) * shape->widths[l + 1];
	return count;
}

static float *biases_of(const struct net_layer *layer, float *vector)
{
	return vector + layer->first;
}

static float *weights_of(const struct net_layer *layer, float *vector, size_t output)
{
	return vector + layer->first + layer->outputs + output * layer->inputs;
}

/* Initial parameters: biases are 0, weights are uniform with the variance 2 / inputs. */
static void draw_parameters(struct net *net, uint64_t seed)
{
	for (size_t l = 0; l < net->n_layers; l++) {
		struct net_layer *layer = &net->layers[l];
		struct train_random random = train_random_init(seed, l);
		float *weights = weights_of(layer, net->parameters, 0);
		float limit = sqrtf(6.0f / (float)layer->inputs);

		for (size_t i = 0; i < layer->inputs * layer->outputs; i++)
			weights[i] = limit * train_random_uniform(&random);
	}
}

static int allocate(struct net *net, size_t widest)
{
	net->parameters = calloc(net->n_parameters, sizeof(float));
	net->velocity = calloc(net->n_parameters, sizeof(float));
	net->deltas[0] = calloc(net->max_batch * widest, sizeof(float));
	net->deltas[1] = calloc(net->max_batch * widest, sizeof(float));
	if (!net->parameters || !net->velocity || !net->deltas[0] || !net->deltas[1])
		return -ENOMEM;
	for (size_t l = 0; l < net->n_layers; l++) {
		struct net_layer *layer = &net->layers[l];

		layer->output = calloc(net->max_batch * layer->outputs, sizeof(float));
		if (!layer->output)
			return -ENOMEM;
	}
	return 0;
}

int net_create(const struct net_shape *shape, size_t max_batch, uint64_t seed, struct net **ret_net)
{
	struct net *net = calloc(1, sizeof(*net));
	size_t first = 0, widest = 0;

	if (!net)
		return -ENOMEM;
	net->n_layers = shape->n_layers;
	net->n_parameters = net_count_parameters(shape);
	net->max_batch = max_batch;
	for (size_t l = shape->n_layers; l-- > 0;) {
		struct net_layer *layer = &net->layers[l];

		layer->inputs = shape->widths[l];
		layer->outputs = shape->widths[l + 1];
		layer->first = first;
		first += (layer->inputs + 1) * layer->outputs;
		widest = layer->outputs > widest ? layer->outputs : widest;
	}
	if (allocate(net, widest)) {
		net_destroy(net);
		return -ENOMEM;
	}
	draw_parameters(net, seed);
	*ret_net = net;
	return 0;
}

void net_destroy(struct net *net)
{
	if (!net)
		return;
	for (size_t l = 0; l < net->n_layers; l++)
		free(net->layers[l].output);
	free(net->deltas[0]);
	free(net->deltas[1]);
	free(net->velocity);
	free(net->parameters);
	free(net);
}

static const float *input_of(const struct net *net, size_t layer, const float *inputs)
{
	return layer == 0 ? inputs : net->layers[layer - 1].output;
}

static void layer_forward(
	struct net *net, const struct net_layer *layer, const float *input, size_t batch)
{
	const float *biases = biases_of(layer, net->parameters);
	float least = layer == &net->layers[net->n_layers - 1] ? -INFINITY : 0;

	for (size_t b = 0; b < batch; b++) {
		for (size_t o = 0; o < layer->outputs; o++) {
			const float *weights = weights_of(layer, net->parameters, o);
			float sum = biases[o] +
				dot(weights, input + b * layer->inputs, layer->inputs);

			/* Keep NaN, so that a diverged training is visible. */
			layer->output[b * layer->outputs + o] = sum < least ? least : sum;
		}
	}
}

static size_t largest(const float *values, size_t n)
{
	size_t at = 0;

	for (size_t i = 1; i < n; i++)
		at = values[i] > values[at] ? i : at;
	return at;
}

/* Returns the sum of exp(values[i] - shift). It is at least 1 if `shift` is the largest value. */
static float sum_of_exps(const float *values, size_t n, float shift)
{
	float sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += expf(values[i] - shift);
	return sum;
}

struct net_score net_forward(
	struct net *net, const float *inputs, const uint8_t *labels, size_t batch)
{
	const struct net_layer *last = &net->layers[net->n_layers - 1];
	struct net_score score = { 0 };

	for (size_t l = 0; l < net->n_layers; l++)
		layer_forward(net, &net->layers[l], input_of(net, l, inputs), batch);
	for (size_t b = 0; b < batch; b++) {
		const float *values = last->output + b * last->outputs;
		size_t guess = largest(values, last->outputs);
		float sum = sum_of_exps(values, last->outputs, values[guess]);

		score.loss += log((double)sum) + (double)(values[guess] - values[labels[b]]);
		score.correct += guess == labels[b];
	}
	return score;
}

/* Computes the derivatives of the losses by the last layer's outputs. */
static void output_deltas(
	const struct net *net, const uint8_t *labels, size_t batch, float scale, float *deltas)
{
	const struct net_layer *last = &net->layers[net->n_layers - 1];
	size_t n = last->outputs;

	for (size_t b = 0; b < batch; b++) {
		const float *values = last->output + b * n;
		float shift = values[largest(values, n)];
		float sum = sum_of_exps(values, n, shift);

		for (size_t o = 0; o < n; o++)
			deltas[b * n + o] = scale *
				(expf(values[o] - shift) / sum - (o == labels[b]));
	}
}

/* Calls the watcher after every WORK_BETWEEN_CALLS multiplications. */
struct pace {
	const struct net_watcher *watcher;
	size_t work;
};

static void worked(struct pace *pace, size_t multiplications, size_t final)
{
	pace->work += multiplications;
	if (pace->work < WORK_BETWEEN_CALLS)
		return;
	pace->work = 0;
	pace->watcher->gradients_final(pace->watcher->arg, final);
}

static void layer_gradients(const struct net_layer *layer, const float *input, const float *deltas,
	size_t batch, float *gradients, struct pace *pace)
{
	float *biases = biases_of(layer, gradients);

	memset(biases, 0, layer->outputs * sizeof(float));
	for (size_t b = 0; b < batch; b++)
		add_scaled(biases, 1, deltas + b * layer->outputs, layer->outputs);
	for (size_t o = 0; o < layer->outputs; o++) {
		float *weights = weights_of(layer, gradients, o);

		memset(weights, 0, layer->inputs * sizeof(float));
		for (size_t b = 0; b < batch; b++)
			add_scaled(weights, deltas[b * layer->outputs + o],
				input + b * layer->inputs, layer->inputs);
		worked(pace, batch * layer->inputs, (size_t)(weights + layer->inputs - gradients));
	}
}

/*
 * Computes the derivatives by a layer's input. The input is the output of a ReLU: where it is 0,
 * the derivative is 0.
 */
static void input_deltas(struct net *net, const struct net_layer *layer, const float *input,
	const float *deltas, size_t batch, float *ret_deltas, struct pace *pace)
{
	size_t final = layer->first + (layer->inputs + 1) * layer->outputs;

	for (size_t b = 0; b < batch; b++) {
		const float *from = deltas + b * layer->outputs;
		const float *gate = input + b * layer->inputs;
		float *to = ret_deltas + b * layer->inputs;

		memset(to, 0, layer->inputs * sizeof(float));
		for (size_t o = 0; o < layer->outputs; o++)
			add_scaled(
				to, from[o], weights_of(layer, net->parameters, o), layer->inputs);
		for (size_t i = 0; i < layer->inputs; i++)
			to[i] = gate[i] > 0 ? to[i] : 0;
		worked(pace, layer->inputs * layer->outputs, final);
	}
}

void net_backward(struct net *net, const float *inputs, const uint8_t *labels, size_t batch,
	float scale, float *gradients, const struct net_watcher *watcher)
{
	struct pace pace = { .watcher = watcher };
	float *deltas = net->deltas[0], *next = net->deltas[1];

	output_deltas(net, labels, batch, scale, deltas);
	for (size_t l = net->n_layers; l-- > 0;) {
		const struct net_layer *layer = &net->layers[l];
		const float *input = input_of(net, l, inputs);
		float *swap = deltas;

		layer_gradients(layer, input, deltas, batch, gradients, &pace);
		/*
		 * Called before the next layer is computed, so that these gradients can be sent
		 * meanwhile.
		 */
		watcher->gradients_final(
			watcher->arg, layer->first + (layer->inputs + 1) * layer->outputs);
		if (l == 0)
			break;
		input_deltas(net, layer, input, deltas, batch, next, &pace);
		deltas = next;
		next = swap;
	}
}

void net_step(struct net *net, const float *gradients, float rate, float momentum)
{
	for (size_t i = 0; i < net->n_parameters; i++) {
		net->velocity[i] = momentum * net->velocity[i] + gradients[i];
		net->parameters[i] -= rate * net->velocity[i];
	}
}
