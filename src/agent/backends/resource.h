/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The resources that the agent serves to kubelet on every node: the table in resource.c. One that
 * depends on the node's devices, such as a MIG profile, is added by kubelet_add(). */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct backend;

#define RESOURCE_SOCKET_MAX 16

struct resource {
    const char *name;   /* "elasticgpu.io/gpu-core" */
    const char *socket; /* part of the socket's name, at most RESOURCE_SOCKET_MAX; unique */
    const struct backend *backend;
    const void *data;  /* of the back end: what it knows of this row; NULL: nothing */
    char letter;       /* of shares: IDs are "<letter>-0001" ... */
    uint32_t per_card; /* of shares: IDs for each card */
};

/* A part of the socket's name for a resource of any name, as "mig-1g.-5d1c02fe": its beginning and
 * a hash of the whole, since the path of a socket has only 107 bytes. */
void resource_socket(const char *name, char ret[static RESOURCE_SOCKET_MAX + 1]);

extern const struct resource resources[];
extern const size_t resources_count;

#define RESOURCE_ID_SIZE 16

/* Text of the n-th ID, from 0. Short: kubelet repeats every one in the pod's status. */
void resource_id(const struct resource *r, uint32_t n, char ret[static RESOURCE_ID_SIZE]);

/* The reverse; UINT32_MAX for what is no ID of this resource. */
uint32_t resource_id_number(const struct resource *r, const char *id);

/* Bytes of the ListAndWatch message for n IDs. kubelet refuses more than RESOURCE_MESSAGE_MAX. */
size_t resource_message_size(const struct resource *r, uint32_t n);
#define RESOURCE_MESSAGE_MAX ((size_t) 4 << 20)
