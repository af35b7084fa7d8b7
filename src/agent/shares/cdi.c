/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/shares/cdi.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/shares/nonce.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/file.h"
#include "wire/json_write.h"

#define FILE_PREFIX "elasticgpu.io-share-"
#define FILE_SUFFIX ".json"
#define GUARD_FILE "elasticgpu.io-guard.json"
#define HOOK_TIMEOUT_S 30 /* it ends sooner by itself */

static void put_env(struct json_writer *w, const struct gpu_edits *edits) {
    json_array_begin(w, "env");
    for (size_t i = 0; i < edits->count; i++)
        if (edits->list[i].kind == GPU_EDIT_ENV)
            json_put_string(w, NULL, edits->list[i].container);
    json_array_end(w);
}

static void put_nodes(struct json_writer *w, const struct gpu_edits *edits) {
    json_array_begin(w, "deviceNodes");
    for (size_t i = 0; i < edits->count; i++) {
        const struct gpu_edit *e = &edits->list[i];

        if (e->kind != GPU_EDIT_NODE)
            continue;
        json_object_begin(w, NULL);
        json_put_string(w, "path", e->container);
        json_put_string(w, "hostPath", e->host);
        json_put_string(w, "permissions", "rw");
        json_object_end(w);
    }
    json_array_end(w);
}

static void put_mounts(struct json_writer *w, const struct gpu_edits *edits) {
    json_array_begin(w, "mounts");
    for (size_t i = 0; i < edits->count; i++) {
        const struct gpu_edit *e = &edits->list[i];

        if (e->kind != GPU_EDIT_MOUNT && e->kind != GPU_EDIT_MOUNT_RW)
            continue;
        json_object_begin(w, NULL);
        json_put_string(w, "hostPath", e->host);
        json_put_string(w, "containerPath", e->container);
        json_array_begin(w, "options");
        json_put_string(w, NULL, "bind");
        json_put_string(w, NULL, e->kind == GPU_EDIT_MOUNT ? "ro" : "rw");
        json_put_string(w, NULL, "nosuid");
        json_put_string(w, NULL, "nodev");
        json_array_end(w);
        json_object_end(w);
    }
    json_array_end(w);
}

static void put_arguments(struct json_writer *w, const char *lines) {
    while (*lines) {
        size_t len = strcspn(lines, "\n");
        char argument[256];

        (void) snprintf(argument, sizeof(argument), "%.*s", (int) len, lines);
        json_put_string(w, NULL, argument);
        lines += len + (lines[len] == '\n');
    }
}

/* When the container's control group is there and its program is not: with the host's namespaces;
 * when its mounts are there, too: with its own. */
static void put_hooks(struct json_writer *w, const char *nonce, const struct gpu_edits *edits) {
    json_array_begin(w, "hooks");
    for (size_t i = 0; i < edits->count; i++) {
        const struct gpu_edit *e = &edits->list[i];
        bool inside = e->kind == GPU_EDIT_HOOK_INSIDE;
        const char *slash = strrchr(e->host, '/');

        if (e->kind != GPU_EDIT_HOOK && !inside)
            continue;
        json_object_begin(w, NULL);
        json_put_string(w, "hookName", inside ? "createContainer" : "createRuntime");
        json_put_string(w, "path", e->host);
        json_array_begin(w, "args");
        json_put_string(w, NULL, slash ? slash + 1 : e->host);
        put_arguments(w, e->container);
        if (!inside)
            json_put_string(w, NULL, nonce);
        json_array_end(w);
        /* A hook without an environment of its own is run with the container's by runc. */
        json_array_begin(w, "env");
        json_put_string(w, NULL, "LC_ALL=C");
        json_array_end(w);
        json_put_u64(w, "timeout", HOOK_TIMEOUT_S);
        json_object_end(w);
    }
    json_array_end(w);
}

static void encode(const char *kind, const char *name, const struct gpu_edits *edits,
                   struct buf *out) {
    struct json_writer w = {.out = out};

    json_object_begin(&w, NULL);
    json_put_string(&w, "cdiVersion", "0.5.0");
    json_put_string(&w, "kind", kind);
    json_array_begin(&w, "devices");
    json_object_begin(&w, NULL);
    json_put_string(&w, "name", name);
    json_object_begin(&w, "containerEdits");
    put_env(&w, edits);
    put_nodes(&w, edits);
    put_mounts(&w, edits);
    put_hooks(&w, name, edits);
    json_object_end(&w);
    json_object_end(&w);
    json_array_end(&w);
    json_object_end(&w);
    buf_putc(out, '\n');
}

void cdi_encode(const char *nonce, const struct gpu_edits *edits, struct buf *out) {
    encode(CDI_KIND, nonce, edits, out);
}

static void spec_path(const char *dir, const char *nonce, char *ret, size_t size) {
    (void) snprintf(ret, size, "%s/" FILE_PREFIX "%s" FILE_SUFFIX, dir, nonce);
}

static void guard_path(const char *dir, char *ret, size_t size) {
    (void) snprintf(ret, size, "%s/" GUARD_FILE, dir);
}

static int write_file(const char *dir, const char *path, const struct buf *text, struct err *err) {
    int r;

    if (buf_error(text) < 0)
        return err_set(err, ENOMEM, "out of memory");
    r = dir_make(dir, 0755, err);
    return r < 0 ? r : file_replace(path, text->data, text->len, 0644, err);
}

int cdi_write(const char *dir, const char *nonce, const struct gpu_edits *edits, struct err *err) {
    _cleanup_buf_ struct buf text = BUF_INIT(1 << 20);
    char path[512];

    cdi_encode(nonce, edits, &text);
    spec_path(dir, nonce, path, sizeof(path));
    return write_file(dir, path, &text, err);
}

int cdi_write_guard(const char *dir, const struct gpu_edits *edits, struct err *err) {
    _cleanup_buf_ struct buf text = BUF_INIT(1 << 20);
    char path[512];

    encode(CDI_GUARD_KIND, CDI_GUARD_DEVICE, edits, &text);
    guard_path(dir, path, sizeof(path));
    return write_file(dir, path, &text, err);
}

bool cdi_has_guard(const char *dir) {
    char path[512];

    guard_path(dir, path, sizeof(path));
    return access(path, F_OK) == 0;
}

static int remove_file(const char *path, struct err *err) {
    if (unlink(path) < 0 && errno != ENOENT)
        return err_errno(err, errno, "cannot remove %s", path);
    return 0;
}

int cdi_remove(const char *dir, const char *nonce, struct err *err) {
    char path[512];

    spec_path(dir, nonce, path, sizeof(path));
    return remove_file(path, err);
}

/* What comes after the name of a file for that nonce; NULL: it is none. */
static const char *after_share(const char *name, char ret_nonce[static NONCE_LEN + 1]) {
    const char *end = name + strlen(FILE_PREFIX) + NONCE_LEN;

    if (strlen(name) < strlen(FILE_PREFIX) + NONCE_LEN + strlen(FILE_SUFFIX) ||
        strncmp(name, FILE_PREFIX, strlen(FILE_PREFIX)) != 0 ||
        strncmp(end, FILE_SUFFIX, strlen(FILE_SUFFIX)) != 0)
        return NULL;
    memcpy(ret_nonce, name + strlen(FILE_PREFIX), NONCE_LEN);
    ret_nonce[NONCE_LEN] = 0;
    return nonce_valid(ret_nonce) ? end + strlen(FILE_SUFFIX) : NULL;
}

int cdi_each(const char *dir, void (*fn)(const char *nonce, void *userdata), void *userdata,
             struct err *err) {
    _cleanup_closedir_ DIR *d = opendir(dir);
    struct dirent *e;

    if (!d)
        return errno == ENOENT ? 0 : err_errno(err, errno, "cannot read %s", dir);
    while ((e = readdir(d))) {
        char nonce[NONCE_LEN + 1];
        const char *rest = after_share(e->d_name, nonce);

        if (rest && rest[0] == '\0')
            fn(nonce, userdata);
    }
    return 0;
}

/* Also what file_replace() makes beside it. */
static bool is_ours(const char *name) {
    char nonce[NONCE_LEN + 1];
    const char *rest = strncmp(name, GUARD_FILE, strlen(GUARD_FILE)) == 0
                           ? name + strlen(GUARD_FILE)
                           : after_share(name, nonce);

    return rest && (rest[0] == '\0' || (rest[0] == '.' && strlen(rest) == strlen(".XXXXXX")));
}

int cdi_remove_all(const char *dir, struct err *err) {
    _cleanup_closedir_ DIR *d = opendir(dir);
    struct dirent *e;
    int r = 0;

    if (!d)
        return errno == ENOENT ? 0 : err_errno(err, errno, "cannot read %s", dir);
    while ((e = readdir(d)))
        if (is_ours(e->d_name) && unlinkat(dirfd(d), e->d_name, 0) < 0 && errno != ENOENT && r == 0)
            r = err_errno(err, errno, "cannot remove %s/%s", dir, e->d_name);
    return r;
}
