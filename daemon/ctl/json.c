/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/ctl/json.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/control/control.pb-c.h"

static json_t *json_of_unsigned(uint64_t value)
{
	if (value > INT64_MAX)
		return json_real((double)value);
	return json_integer((json_int_t)value);
}

static json_t *json_of_enum(const ProtobufCEnumDescriptor *descriptor, int value)
{
	const ProtobufCEnumValue *entry = protobuf_c_enum_descriptor_get_value(descriptor, value);
	char name[64];
	size_t i;

	if (!entry)
		return json_integer(value);
	for (i = 0; entry->name[i] && i + 1 < sizeof(name); i++)
		name[i] = (char)tolower((unsigned char)entry->name[i]);
	name[i] = '\0';
	return json_string(name);
}

static json_t *json_of_bytes(const ProtobufCBinaryData *bytes)
{
	static const char digits[] = "0123456789abcdef";
	char *text = malloc(2 * bytes->len + 1);
	json_t *json;
	size_t i;

	if (!text)
		return NULL;
	for (i = 0; i < bytes->len; i++) {
		text[2 * i] = digits[bytes->data[i] >> 4];
		text[2 * i + 1] = digits[bytes->data[i] & 15];
	}
	json = json_stringn(text, 2 * bytes->len);
	free(text);
	return json;
}

static size_t size_of_value(ProtobufCType type)
{
	switch (type) {
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_FIXED64:
	case PROTOBUF_C_TYPE_DOUBLE: return 8;
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_MESSAGE: return sizeof(void *);
	case PROTOBUF_C_TYPE_BYTES: return sizeof(ProtobufCBinaryData);
	default: return 4;
	}
}

static json_t *json_of_value(const ProtobufCFieldDescriptor *field, const void *value)
{
	double real = 0;

	switch (field->type) {
	case PROTOBUF_C_TYPE_BOOL: return json_boolean(*(const protobuf_c_boolean *)value);
	case PROTOBUF_C_TYPE_STRING: return json_string(*(const char *const *)value);
	case PROTOBUF_C_TYPE_BYTES: return json_of_bytes(value);
	case PROTOBUF_C_TYPE_ENUM: return json_of_enum(field->descriptor, *(const int *)value);
	case PROTOBUF_C_TYPE_MESSAGE:
		return json_of_message(*(const ProtobufCMessage *const *)value);
	case PROTOBUF_C_TYPE_DOUBLE: real = *(const double *)value; break;
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_FIXED64: return json_of_unsigned(*(const uint64_t *)value);
	default: return json_integer(*(const uint32_t *)value);
	}
	/* JSON has no NaN and no infinity; json_real() returns NULL for them. */
	return real < 0 || real != real || real > 1e300 ? json_null() : json_real(real);
}

static json_t *json_of_counters(const Ctl__Counter *const *counters, size_t count)
{
	json_t *object = json_object();
	size_t i;

	for (i = 0; object && i < count; i++)
		json_object_set_new(
			object, counters[i]->name, json_of_unsigned(counters[i]->value));
	return object;
}

static json_t *json_of_repeated(
	const ProtobufCFieldDescriptor *field, const uint8_t *values, size_t count)
{
	size_t size = size_of_value(field->type), i;
	json_t *list;

	if (field->descriptor == &ctl__counter__descriptor)
		return json_of_counters((const Ctl__Counter *const *)(const void *)values, count);
	list = json_array();
	for (i = 0; list && i < count; i++)
		json_array_append_new(list, json_of_value(field, values + i * size));
	return list;
}

/* Returns true for a field of a oneof that is not selected, and for a missing message. */
static bool is_absent(const ProtobufCFieldDescriptor *field, const uint8_t *base)
{
	if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
		return *(const uint32_t *)(const void *)(base + field->quantifier_offset) !=
			field->id;
	return field->type == PROTOBUF_C_TYPE_MESSAGE &&
		!*(const void *const *)(const void *)(base + field->offset);
}

json_t *json_of_message(const ProtobufCMessage *message)
{
	const ProtobufCMessageDescriptor *descriptor = message->descriptor;
	const uint8_t *base = (const uint8_t *)message;
	json_t *object = json_object(), *value;
	unsigned i;

	for (i = 0; object && i < descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *field = &descriptor->fields[i];
		const void *at = base + field->offset;

		if (field->label == PROTOBUF_C_LABEL_REPEATED)
			value = json_of_repeated(field, *(const uint8_t *const *)at,
				*(const size_t *)(const void *)(base + field->quantifier_offset));
		else if (is_absent(field, base))
			continue;
		else
			value = json_of_value(field, at);
		json_object_set_new(object, field->name, value);
	}
	return object;
}

json_t *json_of_list(const void *list, size_t count)
{
	const ProtobufCMessage *const *messages = list;
	json_t *array = json_array();
	size_t i;

	for (i = 0; array && i < count; i++)
		json_array_append_new(array, json_of_message(messages[i]));
	return array;
}
