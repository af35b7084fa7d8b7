/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The files of the page (src/cli/web/static), which the build embeds. */

#include <stddef.h>

struct static_file {
    const char *path; /* of the request; the page itself is "/". NULL: the end */
    const char *type;
    const unsigned char *data;
    size_t len;
    const unsigned char *gzip; /* the same, compressed by the build: any client may ask for it */
    size_t gzip_len;
};

extern const struct static_file static_files[];
