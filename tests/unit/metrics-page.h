/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Checks of a page of metrics against the tables of its names. */

#include <stdbool.h>
#include <stddef.h>

#include "wire/metrics.h"

/* What a page says of one metric. */
struct expected {
    const char *name, *value;
};

/* How many samples of that name the page has, of that value unless it is NULL. Those of a histogram
 * are named with their suffix. */
size_t page_samples(const char *page, const char *name, const char *value);

/* The sum of the samples of a family, from the second line of the page on. */
double page_sum(const char *page, const char *family);

/* How many samples of a family have that text in their labels. */
unsigned page_labelled(const char *page, const char *family, const char *label);

/* Fails unless every metric of the vocabularies is expected and on the page with its value, and
 * nothing else is. Values of different figures of a vocabulary must differ, but for "0" and "1".
 * Sets can be of the same samples: figures at the same offset count as one. */
void assert_page(const char *page, const struct vocabulary *const *vocabularies, size_t n,
                 const struct expected *expected, size_t nexpected);

/* Fails unless the metrics without a sample on the page are exactly those whose row says when they
 * are absent, and the page has no family of another name. */
void assert_absent(const char *page, const struct vocabulary *const *vocabularies, size_t n);
