/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/buf.h"

/* Replaces the content by its gzip form (RFC 1952). -ENOMEM, and the content is as it was. */
int gzip_buf(struct buf *b);
