/* SPDX-License-Identifier: BSD-3-Clause */
/* SipHash-1-3 by Aumasson and Bernstein ("SipHash: a fast short-input PRF", 2012). */
#include <string.h>

#include "lib/base/table.h"

static uint64_t hash_key[2];

void hash_seed(uint64_t a, uint64_t b)
{
	/* Entries of existing tables could not be found with another key. */
	if (hash_key[0] || hash_key[1])
		return;
	hash_key[0] = a;
	hash_key[1] = b;
}

static uint64_t rotate(uint64_t word, unsigned bits)
{
	return word << bits | word >> (64 - bits);
}

static void mix(uint64_t v[4])
{
	v[0] += v[1];
	v[1] = rotate(v[1], 13) ^ v[0];
	v[0] = rotate(v[0], 32);
	v[2] += v[3];
	v[3] = rotate(v[3], 16) ^ v[2];
	v[0] += v[3];
	v[3] = rotate(v[3], 21) ^ v[0];
	v[2] += v[1];
	v[1] = rotate(v[1], 17) ^ v[2];
	v[2] = rotate(v[2], 32);
}

unsigned hash_bytes(const void *key, size_t size)
{
	uint64_t v[4] = {
		hash_key[0] ^ UINT64_C(0x736f6d6570736575),
		hash_key[1] ^ UINT64_C(0x646f72616e646f6d),
		hash_key[0] ^ UINT64_C(0x6c7967656e657261),
		hash_key[1] ^ UINT64_C(0x7465646279746573),
	};
	const uint8_t *at = key;
	size_t left = size;
	uint64_t word;

	for (; left >= sizeof(word); left -= sizeof(word), at += sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		v[3] ^= word;
		mix(v);
		v[0] ^= word;
	}
	word = 0;
	memcpy(&word, at, left);
	word |= (uint64_t)size << 56;
	v[3] ^= word;
	mix(v);
	v[0] ^= word;
	v[2] ^= 0xff;
	mix(v);
	mix(v);
	mix(v);
	word = v[0] ^ v[1] ^ v[2] ^ v[3];
	return (unsigned)(word ^ word >> 32);
}
