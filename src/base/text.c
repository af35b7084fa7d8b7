/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

void text_copy(char *to, size_t size, const char *from) {
    size_t len = strnlen(from, size - 1);
    memmove(to, from, len);
    to[len] = '\0';
}

bool text_is_same_secret(const char *a, const char *b) {
    size_t len = strlen(a);
    unsigned differ = 0;

    if (strlen(b) != len)
        return false;
    for (size_t i = 0; i < len; i++)
        differ |= (unsigned) (a[i] ^ b[i]);
    return differ == 0;
}

void text_wipe(char *secret) {
    if (secret)
        explicit_bzero(secret, strlen(secret));
    free(secret);
}

bool text_item(const char **list, const char **ret_item, size_t *ret_len) {
    if (!*list || !**list)
        return false;
    *ret_item = *list;
    *ret_len = strcspn(*list, ",");
    *list += *ret_len + ((*list)[*ret_len] == ',');
    return true;
}

bool text_has_item(const char *list, const char *wanted) {
    const char *item;
    size_t len;

    while (text_item(&list, &item, &len))
        if (strlen(wanted) == len && strncmp(item, wanted, len) == 0)
            return true;
    return false;
}
