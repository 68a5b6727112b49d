/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages of the control protocol as JSON, by the descriptors that protoc-c generates. The field
 * names are those of control.proto and stable. Empty lists are included; a negative time ("never")
 * is null; a list of counters is an object; bytes are hexadecimal.
 */
#ifndef FERRULE_DAEMON_CTL_JSON_H
#define FERRULE_DAEMON_CTL_JSON_H

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>

/* Returns a new object that the caller owns; NULL without memory. */
json_t *json_of_message(const ProtobufCMessage *message);

/* Converts a list of messages as protobuf-c stores it. */
json_t *json_of_list(const void *list, size_t count);

#endif
