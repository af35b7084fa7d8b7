/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/kubelet/checkpoint.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/file.h"
#include "base/step.h"
#include "deviceplugin.pb-c.h"
#include "wire/json.h"

#define IDS_MAX ((size_t) 1 << 20) /* of one entry */

static int compare_ids(const void *a, const void *b) {
    return strcmp(*(const char *const *) a, *(const char *const *) b);
}

void ids_sort(const char **ids, size_t n) {
    if (n > 1)
        qsort(ids, n, sizeof(*ids), compare_ids);
}

bool id_sets_equal(const char *const *a, size_t na, const char *const *b, size_t nb) {
    if (na != nb)
        return false;
    for (size_t i = 0; i < na; i++)
        if (strcmp(a[i], b[i]) != 0)
            return false;
    return true;
}

static int base64_value(char c) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;

    return at ? (int) (at - digits) : -1;
}

/* As Go writes []byte: RFC 4648 with padding. Appends the bytes to `out`. */
static bool base64_decode(const char *text, struct buf *out) {
    size_t len = strlen(text), pad = 0;

    while (pad < 2 && pad < len && text[len - 1 - pad] == '=')
        pad++;
    if (len % 4 != 0)
        return false;
    for (size_t i = 0; i < len; i += 4) {
        uint32_t word = 0;
        size_t bytes = i + 4 == len ? 3 - pad : 3;

        for (size_t k = 0; k < 4; k++) {
            int v = i + k >= len - pad ? 0 : base64_value(text[i + k]);

            if (v < 0)
                return false;
            word = word << 6 | (uint32_t) v;
        }
        for (size_t k = 0; k < bytes; k++)
            buf_putc(out, (char) (unsigned char) (word >> (16 - 8 * k)));
    }
    return buf_error(out) == 0;
}

/* What we answered to Allocate, as kubelet keeps it. */
static void nonce_of_answer(const char *base64, char ret_nonce[static NONCE_LEN + 1]) {
    _cleanup_buf_ struct buf bytes = BUF_INIT(1 << 20);
    Deviceplugin__ContainerAllocateResponse *answer;

    ret_nonce[0] = 0;
    if (!base64_decode(base64, &bytes))
        return;
    answer = deviceplugin__container_allocate_response__unpack(NULL, bytes.len,
                                                               (const uint8_t *) buf_str(&bytes));
    for (size_t i = 0; answer && i < answer->n_cdi_devices; i++)
        if (nonce_of_cdi_name(answer->cdi_devices[i]->name, ret_nonce))
            break;
    deviceplugin__container_allocate_response__free_unpacked(answer, NULL);
}

struct id_list {
    const char **ids;
    size_t n, cap;
};

static bool id_list_add(struct id_list *l, struct json array) {
    struct json_iter it = json_iter(array);
    struct json item;

    while (json_next(&it, NULL, &item)) {
        const char *id = json_string(item);

        if (!id || l->n >= IDS_MAX)
            return false;
        if (l->n == l->cap) {
            size_t cap = l->cap ? l->cap * 2 : 128;
            const char **grown = realloc(l->ids, cap * sizeof(*grown));

            if (!grown)
                return false;
            l->ids = grown;
            l->cap = cap;
        }
        l->ids[l->n++] = id;
    }
    return true;
}

/* A list (kubelet <= 1.19) or lists by NUMA node. */
static bool read_ids(struct json v, struct id_list *l) {
    struct json_iter it;
    struct json item;

    l->n = 0;
    if (json_type(v) == JSON_ARRAY)
        return id_list_add(l, v);
    it = json_iter(v);
    while (json_next(&it, NULL, &item))
        if (!id_list_add(l, item))
            return false;
    return true;
}

static bool read_entry(struct json v, struct id_list *l, struct checkpoint_entry *ret) {
    const char *answer = json_string(json_get(v, "AllocResp"));

    ret->pod_uid = json_string(json_get(v, "PodUID"));
    ret->container = json_string(json_get(v, "ContainerName"));
    if (!ret->pod_uid || !ret->container || !read_ids(json_get(v, "DeviceIDs"), l))
        return false;
    ids_sort(l->ids, l->n);
    ret->ids = l->ids;
    ret->nids = l->n;
    nonce_of_answer(answer ? answer : "", ret->nonce);
    return true;
}

int checkpoint_parse(const char *text, size_t len,
                     bool (*wanted)(const char *resource, void *userdata), checkpoint_fn fn,
                     void *userdata, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct id_list ids = {0};
    struct json root, item;
    struct json_iter it;
    int r;

    r = json_open(text, len, &parser, &root, err);
    if (r < 0)
        return r;
    if (json_type(JSON_PATH(root, "Data")) != JSON_OBJECT)
        return err_set(err, EBADMSG, "no Data in it");
    it = json_iter(JSON_PATH(root, "Data", "PodDeviceEntries"));
    while (json_next(&it, NULL, &item)) {
        struct checkpoint_entry e = {.resource = json_string(json_get(item, "ResourceName"))};

        step_end();
        if (e.resource && wanted(e.resource, userdata) && read_entry(item, &ids, &e))
            fn(&e, userdata);
    }
    free(ids.ids);
    return 0;
}

int checkpoint_read(const char *path, bool (*wanted)(const char *resource, void *userdata),
                    checkpoint_fn fn, void *userdata, struct err *err) {
    _cleanup_buf_ struct buf text = BUF_INIT(CHECKPOINT_MAX);
    int r = file_read(path, CHECKPOINT_MAX, &text, err);

    if (r < 0)
        return r;
    r = checkpoint_parse(buf_str(&text), text.len, wanted, fn, userdata, err);
    return r < 0 ? err_wrap(err, "kubelet's checkpoint %s", path) : 0;
}
