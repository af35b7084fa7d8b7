/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a test defines that takes the place of the client of the API server, by --wrap of the
 * linker. */

#include "kube/api/client.h"
#include "kube/api/reflector.h"

int __wrap_kube_request(struct kube_client *client, const char *method, const char *path,
                        const char *content_type, const char *body, size_t size,
                        unsigned timeout_ms, kube_response_cb on_response, void *userdata,
                        struct kube_call **ret_call, struct err *err);
int __wrap_kube_reflector_start(struct kube_client *client,
                                const struct kube_reflector_options *options,
                                const struct kube_reflector_handlers *handlers, void *userdata,
                                struct kube_reflector **ret_reflector, struct err *err);
void __wrap_kube_reflector_stop(struct kube_reflector *r);
void __wrap_kube_reflector_relist(struct kube_reflector *r);
bool __wrap_kube_reflector_is_synced(const struct kube_reflector *r);
