/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Pods that request GPUs and are on no node. */

#include <time.h>

#include "base/err.h"

/* Texts are borrowed, and are valid during the call. */
struct waiting_pod {
    const char *namespace, *name;
    const char *wants;  /* what its largest container requests */
    const char *reason; /* why it waits, as the API server's object of it says */
    time_t since;       /* 0: not known */
};

/* Reads them, of the namespace or (NULL) of all, and calls `each` for one after the other. 0 or a
 * negative errno. */
int waiting_read(const char *namespace, void (*each)(const struct waiting_pod *pod, void *userdata),
                 void *userdata, struct err *err);
