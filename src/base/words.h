/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* "a, b or c" from a list macro whose first and last rows are marked: LIST(WORDS_FIRST, WORDS_NEXT,
 * WORDS_LAST) is a string literal. */
#define WORDS_FIRST(id, word) word
#define WORDS_NEXT(id, word) ", " word
#define WORDS_LAST(id, word) " or " word
