/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ferrule-train: a multi-layer perceptron in float32. Fully connected layers, ReLU between them,
 * softmax and cross entropy at the end, stochastic gradient descent with momentum. It does not
 * depend on ranks and communication. For one thread.
 *
 * Parameters, gradients and velocities are three vectors with the same layout: the last layer
 * first; in each layer the biases, then the weights of each output. The backward pass goes through
 * the layers in this order, so gradients become final from the front of the vector on. A watcher
 * can send them meanwhile.
 *
 * Sources: He et al., "Delving deep into rectifiers", 2015 (initial weights); Sutskever et al., "On
 * the importance of initialization and momentum in deep learning", 2013.
 */
#ifndef FERRULE_TOOLS_TRAIN_NET_H
#define FERRULE_TOOLS_TRAIN_NET_H

#include <stddef.h>
#include <stdint.h>

enum { NET_MAX_LAYERS = 9 };

struct net_shape {
	size_t n_layers;                   /* at least 1 */
	size_t widths[NET_MAX_LAYERS + 1]; /* widths of the input and of each layer's output */
};

struct net_layer {
	size_t inputs, outputs;
	size_t first;  /* index of its biases, then its weights, among the parameters */
	float *output; /* of the latest forward pass, batch x outputs; after ReLU but in the last */
};

struct net {
	struct net_layer layers[NET_MAX_LAYERS];
	size_t n_layers;
	size_t n_parameters;
	size_t max_batch;
	float *parameters;
	float *velocity;
	float *deltas[2]; /* derivatives by a layer's output and input, batch x width */
};

/* Called by the backward pass from time to time: the first `final` gradients are final. */
struct net_watcher {
	void (*gradients_final)(void *arg, size_t final);
	void *arg;
};

/* Sums over a batch. */
struct net_score {
	double loss;
	size_t correct;
};

size_t net_count_parameters(const struct net_shape *shape);

/*
 * Creates a network for batches of up to `max_batch`. The same seed gives the same parameters on
 * every machine. Returns 0 or -ENOMEM.
 */
int net_create(
	const struct net_shape *shape, size_t max_batch, uint64_t seed, struct net **ret_net);
void net_destroy(struct net *net);

/* Computes the outputs of `batch` (0 to max_batch) inputs and compares them with the labels. */
struct net_score net_forward(
	struct net *net, const float *inputs, const uint8_t *labels, size_t batch);

/*
 * After net_forward() with the same inputs: sets all gradients to `scale` times the derivative of
 * the sum of the losses. A batch of 0 has gradients of 0.
 */
void net_backward(struct net *net, const float *inputs, const uint8_t *labels, size_t batch,
	float scale, float *gradients, const struct net_watcher *watcher);

/*
 * Does one step of gradient descent: velocity = momentum * velocity + gradient, p -= rate *
 * velocity.
 */
void net_step(struct net *net, const float *gradients, float rate, float momentum);

#endif
