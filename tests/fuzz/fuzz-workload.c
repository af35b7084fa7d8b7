/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "place/workload/workload.h"

/* A workload as text: what was read can be written, and reads as the same again. */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *name_of(void *self, uint32_t model) {
    static const char *const names[] = {"A", "B", "C"};
    (void) self;
    return model < 3 ? names[model] : NULL;
}

static bool find_name(void *self, const char *name, uint32_t *ret) {
    (void) self;
    *ret = (uint32_t) *name - 'A';
    return name[1] == 0 && *ret < 3;
}

static const struct workload_names names = {NULL, name_of, find_name};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct workload w, again;
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    if (workload_read(&w, &names, (const char *) data, size) < 0)
        return 0;
    if (w.n > WORKLOAD_SHAPES_MAX || w.total > 2 * 65536)
        abort();
    workload_write(&w, &names, &text);
    if (buf_error(&text) < 0 || workload_read(&again, &names, text.data, text.len) < 0 ||
        again.n != w.n || again.total != w.total || again.milli != w.milli)
        abort();
    return 0;
}
