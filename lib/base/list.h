/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A circular doubly linked list of nodes embedded in other structs. Head and nodes have the same
 * type, and a node in no list points to itself. No locking: the owner of the list owns its nodes.
 */
#ifndef FERRULE_BASE_LIST_H
#define FERRULE_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *next, *prev;
};

/* The struct of `type` whose `member` is at `ptr`. */
#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

/* Visits each struct of `type` whose `member` is in the list. The body may remove and free the
 * current entry, but not the next one. `ENTRY_next` is the next entry; the body may change it. */
#define LIST_EACH(type, entry, list, member)                                      \
	for (type *entry = container_of((list)->next, type, member),              \
		  *entry##_next = container_of(entry->member.next, type, member); \
		&entry->member != (list); entry = entry##_next,                   \
		  entry##_next = container_of(entry->member.next, type, member))

static inline void list_init(struct list *list)
{
	list->next = list;
	list->prev = list;
}

static inline bool list_empty(const struct list *list)
{
	return list->next == list;
}

static inline unsigned list_length(const struct list *list)
{
	unsigned length = 0;

	for (const struct list *node = list->next; node != list; node = node->next)
		length++;
	return length;
}

static inline void list_add_tail(struct list *head, struct list *node)
{
	node->next = head;
	node->prev = head->prev;
	head->prev->next = node;
	head->prev = node;
}

/* Also valid for a node that is in no list. */
static inline void list_remove(struct list *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	list_init(node);
}

#endif
