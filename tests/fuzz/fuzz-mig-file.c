/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "mig/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What was read can be printed, and what was printed is read as the same. JSON is YAML. */
static void check_again(const struct mig_file *file,
                        void (*print)(const struct mig_file *, struct buf *)) {
    _cleanup_buf_ struct buf text = BUF_INIT((size_t) 16 << 20),
                             again = BUF_INIT((size_t) 16 << 20);
    _cleanup_mig_file_ struct mig_file other = {0};
    struct err err;

    print(file, &text);
    if (buf_error(&text) < 0 || text.len > ((size_t) 1 << 20))
        return;
    if (mig_file_parse(text.data, text.len, &other, &err) < 0)
        abort();
    print(&other, &again);
    if (other.nspecs != file->nspecs || strcmp(buf_str(&text), buf_str(&again)) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    _cleanup_mig_file_ struct mig_file file = {0};
    struct err err = {0};

    if (mig_file_parse((const char *) data, size, &file, &err) < 0) {
        if (file.specs || !err.text[0])
            abort();
        return 0;
    }
    if (file.nspecs == 0)
        abort();
    for (size_t i = 0; i < file.nspecs; i++) {
        const struct mig_spec *first = mig_file_select(&file, file.specs[i].config, &err);

        /* A name may be empty; it selects the only configuration. */
        if (!first ? file.specs[i].config[0] != 0
                   : strcmp(first->config, file.specs[i].config) != 0 && file.specs[i].config[0])
            abort();
        if (first)
            (void) mig_file_match(&file, first, 0, (struct mig_pci){0x20B010DE, 0});
    }
    check_again(&file, mig_file_write_yaml);
    check_again(&file, mig_file_write_json);
    return 0;
}
