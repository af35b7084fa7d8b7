/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/driver/ldcache.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What comes out is a cache again, and has no less than what went in. (Where an extension claims
 * that its offsets lie in other parts of the file, moving them damages those.) */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct ldcache_library add[] = {
        {"libcuda.so.1", "/usr/lib/libcuda.so.1"},
        {"libnvidia-ml.so.1", "/usr/lib/libnvidia-ml.so.1"}};
    size_t len, more;
    uint32_t extension;
    void *made = ldcache_merge(data, size, add, 2, &len), *again;
    char path[64];

    (void) ldcache_find(data, size, "libc.so.6", path, sizeof(path));
    if (!made)
        return 0;
    if (!ldcache_find(made, len, add[0].name, path, sizeof(path)))
        abort();
    again = ldcache_merge(made, len, add, 2, &more);
    memcpy(&extension, (const char *) made + 32, sizeof(extension));
    if (again ? more <= len : extension == 0)
        abort();
    free(again);
    free(made);
    return 0;
}
