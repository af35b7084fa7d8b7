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
