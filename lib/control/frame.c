/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames of the control protocol. Tables by field name describe valid messages; a field name means
 * the same in each message. The checks walk the descriptors that protoc-c generates, so a new
 * message needs no new code here.
 */
#include "lib/control/frame.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/text.h"
#include "lib/base/thread_text.h"

enum {
	MAX_ERRNO = 4095,
	MAX_TEXT = 1024,
	MAX_DATA = 1 << 20,   /* in a GroupPiece */
	MAX_LEFT = 32768 / 8, /* in a GroupJoin: one bit for each rank */
	/*
	 * Limit for the unpacked size of a message: a message of two bytes may become a struct of
	 * hundreds. Valid messages stay below this limit; a larger one was made to exhaust memory.
	 */
	MEMORY_FACTOR = 16,
	MEMORY_BASE = 4096,
};

struct size_row {
	const char *field;
	size_t min, max;
	bool or_empty;
};

static const struct size_row bytes_rows[] = {
	{ "uuid", UUID_SIZE, UUID_SIZE, false },
	{ "member", UUID_SIZE, UUID_SIZE, false },
	{ "nonce", UUID_SIZE, UUID_SIZE, false },
	{ "endpoint", ENDPOINT_BYTES, ENDPOINT_BYTES, false },
	{ "mac", 6, 6, true },
	{ "private_data", 0, PRIVATE_BYTES, true },
	{ "data", 0, MAX_DATA, true },
	{ "mail", 0, MAIL_BYTES, true },
	{ "left", 0, MAX_LEFT, true },
	{ NULL, 0, 0, true },
};

static const struct size_row text_rows[] = {
	{ "fabric", 0, 64, true },
	{ "service", 0, 64, true },
	{ "job", 0, 64, true },
	{ "program", 0, 64, true },
	{ "release", 0, 64, true },
	{ "name", 0, 255, true }, /* of a host, or in a Hello */
	{ "host", 0, 255, true },
	{ "peer_host", 0, 255, true },
	{ NULL, 0, MAX_TEXT, true },
};

/* Submessages that receivers use without a check for NULL. */
static const struct {
	const ProtobufCMessageDescriptor *message;
	const char *field;
} needed[] = {
	{ &ctl__conn_request__descriptor, "params" },
	{ &ctl__conn_reply__descriptor, "params" },
	{ &ctl__port_opened__descriptor, "lease" },
	{ &ctl__report__descriptor, "daemon" },
};

static bool invalid(const char *format, ...) __attribute__((format(printf, 1, 2)));

static bool invalid(const char *format, ...)
{
	char *why = thread_text(THREAD_TEXT_FRAME);
	va_list arguments;

	va_start(arguments, format);
	if (why)
		vsnprintf(why, THREAD_TEXT_SIZE, format, arguments);
	va_end(arguments);
	return false;
}

size_t frame_size(const Ctl__Envelope *envelope)
{
	return FRAME_HEADER + ctl__envelope__get_packed_size(envelope);
}

void frame_pack(const Ctl__Envelope *envelope, uint8_t *to)
{
	put_be32(to, (uint32_t)ctl__envelope__pack(envelope, to + FRAME_HEADER));
}

int frame_length(const uint8_t *bytes, size_t size, size_t limit)
{
	uint32_t payload;

	if (size < FRAME_HEADER)
		return 0;
	payload = get_be32(bytes);
	if (payload > limit || payload > FRAME_MAX)
		return -EMSGSIZE;
	return size - FRAME_HEADER < payload ? 0 : (int)(FRAME_HEADER + payload);
}

/* ---- text */

void frame_clean_text(char *text)
{
	text_clean(text);
}

static bool check_text(const char *field, const char *text)
{
	const uint8_t *at = (const uint8_t *)text;

	while (*at) {
		uint32_t code = 0;
		unsigned length = text_character(at, &code);

		if (!length)
			return invalid("its field %s is not UTF-8", field);
		if (!text_is_printable(code))
			return invalid("its field %s has control characters", field);
		at += length;
	}
	return true;
}

/* ---- fields */

static bool check_size(const struct size_row *row, const char *field, size_t size)
{
	while (row->field && strcmp(row->field, field))
		row++;
	if ((size == 0 && row->or_empty) || (size >= row->min && size <= row->max))
		return true;
	if (row->min == row->max)
		return invalid("its field %s has %zu bytes, not %zu", field, size, row->max);
	return invalid(
		"its field %s has %zu bytes, more than the %zu allowed", field, size, row->max);
}

static bool check_message(ProtobufCMessage *message);

/* Checks one value, or one element of a list. */
static bool check_value(const ProtobufCFieldDescriptor *field, const void *value)
{
	const ProtobufCBinaryData *bytes = value;
	const char *text;
	int number;

	switch (field->type) {
	case PROTOBUF_C_TYPE_STRING:
		memcpy(&text, value, sizeof(text));
		return check_size(text_rows, field->name, strlen(text)) &&
			check_text(field->name, text);
	case PROTOBUF_C_TYPE_BYTES: return check_size(bytes_rows, field->name, bytes->len);
	case PROTOBUF_C_TYPE_ENUM:
		memcpy(&number, value, sizeof(number));
		if (number && protobuf_c_enum_descriptor_get_value(field->descriptor, number))
			return true;
		return invalid("its field %s has the unknown value %d", field->name, number);
	case PROTOBUF_C_TYPE_UINT32:
		memcpy(&number, value, sizeof(number));
		if (strcmp(field->name, "error") || (number > 0 && number <= MAX_ERRNO))
			return true;
		return invalid("its field error is not an errno: %u", (unsigned)number);
	case PROTOBUF_C_TYPE_MESSAGE: return check_message(*(ProtobufCMessage *const *)value);
	default: return true;
	}
}

static bool check_field(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
	const uint8_t *base = (const uint8_t *)message, *list;
	const void *value = base + field->offset;
	size_t count, element;

	if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
		uint32_t chosen;

		memcpy(&chosen, base + field->quantifier_offset, sizeof(chosen));
		return chosen != field->id || check_value(field, value);
	}
	if (field->label != PROTOBUF_C_LABEL_REPEATED) {
		if (field->type == PROTOBUF_C_TYPE_MESSAGE &&
			!*(const ProtobufCMessage *const *)value)
			return true;
		return check_value(field, value);
	}
	switch (field->type) {
	case PROTOBUF_C_TYPE_STRING: element = sizeof(char *); break;
	case PROTOBUF_C_TYPE_MESSAGE: element = sizeof(ProtobufCMessage *); break;
	case PROTOBUF_C_TYPE_BYTES: element = sizeof(ProtobufCBinaryData); break;
	default: return true; /* numbers in lists are not checked */
	}
	memcpy(&count, base + field->quantifier_offset, sizeof(count));
	memcpy(&list, value, sizeof(list));
	for (size_t i = 0; i < count; i++)
		if (!check_value(field, list + i * element))
			return false;
	return true;
}

/* Drops fields that this release does not know, so that daemons forward only checked fields. */
static void drop_unknown(ProtobufCMessage *message)
{
	for (unsigned i = 0; i < message->n_unknown_fields; i++)
		free(message->unknown_fields[i].data);
	free(message->unknown_fields);
	message->unknown_fields = NULL;
	message->n_unknown_fields = 0;
}

static bool check_message(ProtobufCMessage *message)
{
	const ProtobufCMessageDescriptor *descriptor = message->descriptor;

	drop_unknown(message);
	for (unsigned i = 0; i < descriptor->n_fields; i++)
		if (!check_field(message, &descriptor->fields[i]))
			return false;
	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
		const ProtobufCFieldDescriptor *field;
		const void *part;

		if (needed[i].message != descriptor)
			continue;
		field = protobuf_c_message_descriptor_get_field_by_name(
			descriptor, needed[i].field);
		part = (const uint8_t *)message + field->offset;
		if (!*(void *const *)part)
			return invalid("its field %s is missing", field->name);
	}
	return true;
}

static bool check_envelope(Ctl__Envelope *envelope)
{
	/* A body of a later release is an unknown field here. */
	if (envelope->body_case == CTL__ENVELOPE__BODY__NOT_SET && !envelope->base.n_unknown_fields)
		return invalid("it has no body");
	if (envelope->version != CONTROL_VERSION &&
		envelope->body_case != CTL__ENVELOPE__BODY_HELLO &&
		envelope->body_case != CTL__ENVELOPE__BODY_FAILURE)
		return invalid("its version is %u, not %u", envelope->version, CONTROL_VERSION);
	return check_message(&envelope->base);
}

/* ---- memory */

static void *budget_alloc(void *left, size_t size)
{
	size_t *budget = left;

	if (size > *budget) {
		invalid("it unpacks to more memory than any valid message");
		return NULL;
	}
	*budget -= size;
	return malloc(size);
}

static void budget_free(void *left, void *memory)
{
	free(memory);
}

Ctl__Envelope *frame_unpack(const uint8_t *frame, size_t size, const char **ret_why)
{
	size_t payload = size - FRAME_HEADER;
	size_t budget = MEMORY_BASE + payload * MEMORY_FACTOR;
	ProtobufCAllocator allocator = { budget_alloc, budget_free, &budget };
	Ctl__Envelope *envelope;
	const char *why;

	invalid("it is not a message of the control protocol");
	why = thread_text(THREAD_TEXT_FRAME);
	*ret_why = why ? why : "it is invalid";
	envelope = ctl__envelope__unpack(&allocator, payload, frame + FRAME_HEADER);
	if (!envelope || check_envelope(envelope))
		return envelope;
	/* budget_alloc() allocates by malloc(), so the default allocator can free it. */
	ctl__envelope__free_unpacked(envelope, NULL);
	return NULL;
}
