/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The one of `words` (ends with NULL) that `word` is probably a misspelling of, or NULL. */
const char *text_nearest(const char *word, const char *const *words);
