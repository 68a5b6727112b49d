/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists of requests, and the end of their runs. */
#include "collectives/communicator/communicator.h"

void request_append(struct request_list *list, struct frl_request *request)
{
	request->list = list;
	request->next = NULL;
	request->previous = list->last;
	if (list->last)
		list->last->next = request;
	else
		list->first = request;
	list->last = request;
}

void request_unlink(struct frl_request *request)
{
	struct request_list *list = request->list;

	if (!list)
		return;
	if (request->previous)
		request->previous->next = request->next;
	else
		list->first = request->next;
	if (request->next)
		request->next->previous = request->previous;
	else
		list->last = request->previous;
	request->list = NULL;
}

void request_run_done(struct frl_request *request)
{
	if (--request->left > 0)
		return;
	request_unlink(request);
	request_append(&request->comm->finishing, request);
}
