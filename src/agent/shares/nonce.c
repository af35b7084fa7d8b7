/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/shares/nonce.h"

#include <string.h>

bool nonce_valid(const char *nonce) {
    return strspn(nonce, "0123456789abcdef") == NONCE_LEN && nonce[NONCE_LEN] == 0;
}

bool nonce_of_cdi_name(const char *name, char ret_nonce[static NONCE_LEN + 1]) {
    ret_nonce[0] = 0;
    if (strncmp(name, CDI_PREFIX, strlen(CDI_PREFIX)) != 0)
        return false;
    name += strlen(CDI_PREFIX);
    if (!nonce_valid(name))
        return false;
    memcpy(ret_nonce, name, NONCE_LEN + 1);
    return true;
}

/* 8-4-4-4-12 digits. */
bool nonce_of_claim(const char *uid, char ret_nonce[static NONCE_LEN + 1]) {
    size_t n = 0, i;

    ret_nonce[0] = 0;
    for (i = 0; uid[i] && n < NONCE_LEN; i++) {
        bool hyphen = i == 8 || i == 13 || i == 18 || i == 23;

        if ((uid[i] == '-') != hyphen)
            break;
        if (!hyphen)
            ret_nonce[n++] = uid[i];
    }
    ret_nonce[n] = 0;
    if (uid[i] || !nonce_valid(ret_nonce))
        ret_nonce[0] = 0;
    return ret_nonce[0] != 0;
}
