/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The driver's functions as the workloads call them: found at run time, so that the same program
 * starts, and can say what is missing, where there is no driver at all. */

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void driver_end(int number) {
    _exit(128 + number);
}

/* PID 1 of a container is not killed by a SIGTERM that it has no handler for: kubelet would wait.
 */
static inline void end_on_sigterm(void) {
    (void) signal(SIGTERM, driver_end);
}

static inline void *driver_symbol(const char *library, const char *name) {
    void *handle = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
    void *found = handle ? dlsym(handle, name) : NULL;

    if (!found) {
        (void) printf("error=%s\n", dlerror());
        exit(EXIT_FAILURE);
    }
    return found;
}

/* CALL(library, name, result type, (parameter types))(arguments) */
#define CALL(library, name, result, params)                                                        \
    (*({                                                                                           \
        result(*function_) params;                                                                 \
        *(void **) (&function_) = driver_symbol(library, #name);                                   \
        function_;                                                                                 \
    }))
