/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages of the control protocol as JSON, by the descriptors that protoc-c makes: field names are
 * those of control.proto and stay. Lists are there even when they are empty; times that never were
 * (negative) are null; lists of counters are objects; bytes are hexadecimal.
 */
#ifndef FERRULE_DAEMON_CTL_JSON_H
#define FERRULE_DAEMON_CTL_JSON_H

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>

/* A new object, the caller's; NULL: no memory. */
json_t *json_of_message(const ProtobufCMessage *message);

/* A list of messages, as protobuf-c keeps them. */
json_t *json_of_list(const void *list, size_t count);

#endif
