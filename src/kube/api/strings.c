/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/api/strings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool strings_have(const struct strings *s, const char *text) {
    for (uint32_t i = 0; i < s->n; i++)
        if (strcmp(s->v[i], text) == 0)
            return true;
    return false;
}

void strings_done(struct strings *s) {
    for (uint32_t i = 0; i < s->n; i++)
        free(s->v[i]);
    free(s->v);
    *s = (struct strings){0};
}

static int add(struct strings *s, const char *key, const char *value) {
    char *text = NULL;
    if (s->n == STRINGS_MAX)
        return 0;
    if (!s->v && !(s->v = calloc(STRINGS_MAX, sizeof(char *))))
        return -ENOMEM;
    if (asprintf(&text, "%s%s%s", key, value ? "=" : "", value ? value : "") < 0)
        return -ENOMEM;
    s->v[s->n++] = text;
    return 0;
}

int strings_add(struct strings *s, const char *text) {
    return add(s, text, NULL);
}

int strings_read(struct json list, struct strings *ret) {
    struct json_iter it = json_iter(list);
    struct json value;
    const char *key;
    int r = 0;
    while (r == 0 && json_next(&it, &key, &value)) {
        const char *text = json_string(value);
        if (text && (!it.object || key))
            r = it.object ? add(ret, key, text) : add(ret, text, NULL);
    }
    return r;
}
