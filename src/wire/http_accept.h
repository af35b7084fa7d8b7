/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a client would rather have: headers of the form "gzip;q=0.5, br" (RFC 9110, 12.5). No state.
 */

/* The quality of the item `name` of the header's value, in thousandths: 1000 where it has none of
 * its own, 0 where the header is NULL, does not list it, or refuses it. Names are compared without
 * regard to case; `*` is no wildcard here. Of several items of a name the best one counts. */
unsigned http_accept_quality(const char *header, const char *name);
