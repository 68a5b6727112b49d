/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/fuzz/fuzz_message.h"

#include <string.h>

#include "lib/base/bytes.h"

enum {
	IDENTITIES = 4, /* of ports: MAC, nonce and address belong together */
	MAX_RAW = 2000,
	LIST_MAX = 3,
	DEPTH_MAX = 4,
	TAG_BODY = 10, /* the first of the bodies of an Envelope */
};

uint32_t script_take(struct script *script, int bytes)
{
	uint32_t value = 0;

	while (bytes--)
		value = value << 8 | (script->at < script->end ? *script->at++ : 0);
	return value;
}

/* Keeps packed bytes: a message needs few of these. */
struct packed {
	uint8_t bytes[16384];
	size_t size;
};

static void put_byte(struct packed *to, uint8_t byte)
{
	if (to->size < sizeof(to->bytes))
		to->bytes[to->size++] = byte;
}

static void put_varint(struct packed *to, uint64_t value)
{
	for (; value > 0x7f; value >>= 7)
		put_byte(to, (uint8_t)(0x80 | (value & 0x7f)));
	put_byte(to, (uint8_t)value);
}

static void put_bytes(struct packed *to, uint32_t tag, const void *bytes, size_t size)
{
	put_varint(to, tag << 3 | 2);
	put_varint(to, size);
	for (size_t i = 0; i < size; i++)
		put_byte(to, ((const uint8_t *)bytes)[i]);
}

/* ---- values */

static void identity_bytes(uint32_t identity, uint8_t mac[6], uint8_t nonce[16])
{
	memset(mac, 0, 6);
	mac[0] = 2;
	mac[5] = (uint8_t)identity;
	memset(nonce, (int)identity + 1, 16);
}

/* A struct frl_endpoint of such a port. */
static void endpoint_bytes(uint32_t identity, uint32_t qpn, uint8_t endpoint[ENDPOINT_BYTES])
{
	uint8_t *ip = endpoint + 24;

	memset(endpoint, 0, ENDPOINT_BYTES);
	put_be32(endpoint, 0x46524c45);
	put_be16(endpoint + 4, 2);
	put_be16(endpoint + 6, 1);
	put_be32(endpoint + 8, qpn);
	put_be32(endpoint + 12, 0x123456);
	put_be16(endpoint + 22, 4096);
	ip[10] = ip[11] = 0xff;
	ip[12] = 10;
	ip[13] = 9;
	ip[15] = (uint8_t)(identity + 1);
	identity_bytes(identity, endpoint + 16, endpoint + 44);
	endpoint[60] = 2;
	endpoint[61] = 1;
	endpoint[62] = 16;
}

static void put_text(
	struct script *script, struct packed *to, const ProtobufCFieldDescriptor *field)
{
	static const char *const texts[] = { "", "local", "eth0", "svc", "job", "host2", "x",
		"localhost", "10.0.0.2", "host3:7777", "[::1]:1", "10.9.0.1/24", "10.9.0.2/24",
		"net_af_packet0,iface=x", "a longer sentence that says why", "me", "10.1.0.1/24",
		"host4", "memif", "Gr\xc3\xb6\xc3\x9f" };
	char longest[1025];
	uint32_t which = script_take(script, 1);
	const char *text = texts[which % (sizeof(texts) / sizeof(texts[0]))];

	if (which >= 250) {
		/* Has the maximum length, and characters of more than one byte. */
		size_t size = strcmp(field->name, "text") && strcmp(field->name, "reason") ? 64
			: which & 1                                                        ? 1024
											   : 300;

		for (size_t i = 0; i + 1 < size; i += 2)
			memcpy(longest + i, "\xc3\xb6", 2);
		longest[size] = '\0';
		text = longest;
	}
	put_bytes(to, field->id, text, strlen(text));
}

static void put_blob(
	struct script *script, struct packed *to, const ProtobufCFieldDescriptor *field)
{
	uint8_t bytes[256], mac[6], nonce[16];
	uint32_t which = script_take(script, 1);

	identity_bytes(which % IDENTITIES, mac, nonce);
	if (strcmp(field->name, "mac") == 0) {
		put_bytes(to, field->id, mac, sizeof(mac));
	} else if (strcmp(field->name, "endpoint") == 0) {
		endpoint_bytes(which % IDENTITIES, 16 + which / IDENTITIES % 8, bytes);
		put_bytes(to, field->id, bytes, ENDPOINT_BYTES);
	} else if (strcmp(field->name, "private_data") == 0 || strcmp(field->name, "data") == 0 ||
		strcmp(field->name, "mail") == 0) {
		memset(bytes, 'p', sizeof(bytes));
		put_bytes(to, field->id, bytes, which % (PRIVATE_BYTES + 1));
	} else {
		put_bytes(to, field->id, nonce, sizeof(nonce));
	}
}

static void put_number(
	struct script *script, struct packed *to, const ProtobufCFieldDescriptor *field)
{
	uint32_t byte = script_take(script, 1);
	uint64_t value = byte < 200 ? byte & 7 : byte < 230 ? 16 + (byte & 7) : 1000 + (byte & 1);

	if (byte == 255)
		value = script_take(script, 4);
	else if (byte == 254)
		value = UINT32_MAX;
	if (strcmp(field->name, "error") == 0)
		value = 1 + byte;
	if (field->type == PROTOBUF_C_TYPE_ENUM)
		value = 1 + byte % 6;
	if (field->type == PROTOBUF_C_TYPE_FIXED64 || field->type == PROTOBUF_C_TYPE_DOUBLE) {
		put_varint(to, field->id << 3 | 1);
		for (int i = 0; i < 8; i++)
			put_byte(to, i ? 0 : (uint8_t)value);
		return;
	}
	put_varint(to, field->id << 3);
	put_varint(to, field->type == PROTOBUF_C_TYPE_BOOL ? byte & 1 : value);
}

/* ---- messages */

static void put_fields(struct script *script, struct packed *to,
	const ProtobufCMessageDescriptor *descriptor, int depth);

static void put_field(
	struct script *script, struct packed *to, const ProtobufCFieldDescriptor *field, int depth)
{
	struct packed inner = { .size = 0 };

	switch (field->type) {
	case PROTOBUF_C_TYPE_STRING: put_text(script, to, field); break;
	case PROTOBUF_C_TYPE_BYTES: put_blob(script, to, field); break;
	case PROTOBUF_C_TYPE_MESSAGE:
		if (depth == DEPTH_MAX)
			break;
		put_fields(script, &inner, field->descriptor, depth + 1);
		put_bytes(to, field->id, inner.bytes, inner.size);
		break;
	default: put_number(script, to, field); break;
	}
}

/* Most fields are set: a message without its uuid is ignored. */
static void put_fields(struct script *script, struct packed *to,
	const ProtobufCMessageDescriptor *descriptor, int depth)
{
	uint32_t left_out = script_take(script, 1);

	for (unsigned i = 0; i < descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *field = &descriptor->fields[i];
		uint32_t times = 1;

		if (left_out >= 128 && left_out % 128 == i)
			continue;
		if (field->label == PROTOBUF_C_LABEL_REPEATED)
			times = script_take(script, 1) % (LIST_MAX + 1);
		while (times--)
			put_field(script, to, field, depth);
	}
}

static Ctl__Envelope *unpack(struct packed *payload)
{
	uint8_t *frame = malloc(FRAME_HEADER + payload->size);
	Ctl__Envelope *envelope;
	const char *why;

	MUST(frame);
	put_be32(frame, (uint32_t)payload->size);
	memcpy(frame + FRAME_HEADER, payload->bytes, payload->size);
	envelope = frame_unpack(frame, FRAME_HEADER + payload->size, &why);
	free(frame);
	return envelope;
}

Ctl__Envelope *message_build(struct script *script)
{
	const ProtobufCMessageDescriptor *envelope = &ctl__envelope__descriptor;
	struct packed payload = { .size = 0 };
	uint32_t which = script_take(script, 1) % (envelope->n_fields - 2);
	uint32_t seq = script_take(script, 1);

	put_varint(&payload, 1 << 3);
	put_varint(&payload, seq == 200 ? CONTROL_VERSION + 1 : CONTROL_VERSION);
	put_varint(&payload, 2 << 3);
	put_varint(&payload, seq & 15);
	put_field(script, &payload, &envelope->fields[2 + which], 0);
	return unpack(&payload);
}

Ctl__Envelope *message_take(struct script *script)
{
	struct packed payload = { .size = 0 };
	uint32_t size = script_take(script, 2) % MAX_RAW;

	while (payload.size < size && script->at < script->end)
		put_byte(&payload, *script->at++);
	return unpack(&payload);
}

/* ---- configuration */

struct config *message_config(void)
{
	struct config *config = config_new();
	struct config_fabric *fabric = calloc(1, sizeof(*fabric));
	struct config_port *port = calloc(1, sizeof(*port));
	struct config_range *range = calloc(1, sizeof(*range));

	if (!config || !fabric || !port || !range)
		return NULL;
	config->fabrics = fabric;
	config->n_fabrics = 1;
	config->max_sessions = 6;
	config->max_sessions_per_user = 3;
	config->max_ports_per_user = 3;
	config->max_connections_per_user = 4;
	config->max_listeners_per_user = 2;
	config->max_groups_per_user = 2;
	config->max_peers = 3;
	fabric->name = strdup("eth0");
	fabric->ports = port;
	fabric->n_ports = 1;
	port->devargs = strdup("net_af_packet0,iface=x");
	fabric->addresses = range;
	fabric->n_addresses = 1;
	range->first = (struct frl_ip){ { [10] = 0xff, 0xff, 10, 1, 0, 1 } };
	range->last = (struct frl_ip){ { [10] = 0xff, 0xff, 10, 1, 0, 2 } };
	range->prefix_len = 24;
	fabric->qpns = 16;
	fabric->any_user = true;
	return config;
}
