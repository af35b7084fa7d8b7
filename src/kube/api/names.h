/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Sizes of buffers for the names of API objects, terminator included. */

#define KUBE_UID_MAX 64
#define KUBE_LABEL_MAX 64 /* an RFC 1123 label: namespace, container */
#define KUBE_NAME_MAX 254 /* an RFC 1123 subdomain: pod, node and most other objects */
