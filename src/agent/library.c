/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/library.h"

#include <elf.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/file.h"
#include "gpu/driver.h"

#define LIBRARY_MAX ((size_t) 32 << 20)

static int write_once(const char *dir, const char *name, const void *data, size_t len, mode_t mode,
                      struct err *err) {
    char path[320];

    (void) snprintf(path, sizeof(path), "%s/%s", dir, name);
    return access(path, F_OK) == 0 ? 0 : file_replace(path, data, len, mode, err);
}

int library_install(const char *source, const char *state_dir, struct library *ret,
                    struct err *err) {
    static const char preload[] = LIBRARY_IN_CONTAINER "\n";
    _cleanup_buf_ struct buf content = BUF_INIT(2 * LIBRARY_MAX);
    unsigned char digest[32];
    struct library l;
    int n, r;

    r = file_read(source, LIBRARY_MAX, &content, err);
    if (r < 0)
        return err_wrap(err, "the interception library (--library)");
    if (content.len < SELFMAG || memcmp(content.data, ELFMAG, SELFMAG) != 0)
        return err_set(err, ENOEXEC, "%s (--library) is not a shared object", source);
    if (gnutls_hash_fast(GNUTLS_DIG_SHA256, content.data, content.len, digest) < 0)
        return err_set(err, EIO, "cannot compute a hash");
    n = snprintf(l.dir, sizeof(l.dir), "%s/lib/%02x%02x%02x%02x%02x%02x%02x%02x", state_dir,
                 digest[0], digest[1], digest[2], digest[3], digest[4], digest[5], digest[6],
                 digest[7]);
    if (n < 0 || (size_t) n >= sizeof(l.dir) - 32)
        return err_set(err, ENAMETOOLONG, "the state directory's path is too long");
    r = dir_make(l.dir, 0755, err);
    if (r == 0)
        r = write_once(l.dir, "libaliquot.so", content.data, content.len, 0755, err);
    if (r == 0)
        r = write_once(l.dir, "ld.so.preload", preload, sizeof(preload) - 1, 0644, err);
    if (r == 0)
        *ret = l;
    return r;
}

int library_edits(const struct library *l, const char *limits, const char *ledger,
                  struct gpu_edits *edits) {
    char path[320];
    int r;

    (void) snprintf(path, sizeof(path), "%s/libaliquot.so", l->dir);
    r = gpu_edits_add(edits, GPU_EDIT_MOUNT, path, LIBRARY_IN_CONTAINER);
    (void) snprintf(path, sizeof(path), "%s/ld.so.preload", l->dir);
    if (r == 0)
        r = gpu_edits_add(edits, GPU_EDIT_MOUNT, path, "/etc/ld.so.preload");
    if (r == 0)
        r = gpu_edits_add(edits, GPU_EDIT_MOUNT, limits, SHARE_IN_CONTAINER "/limits");
    if (r == 0)
        r = gpu_edits_add(edits, GPU_EDIT_MOUNT_RW, ledger, SHARE_IN_CONTAINER "/ledger");
    return r;
}
