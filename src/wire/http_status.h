/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/* Whether the request was served (RFC 9110, 15.3); 0, no answer, is no success. */
static inline bool http_is_success(int status) {
    return status >= 200 && status <= 299;
}
