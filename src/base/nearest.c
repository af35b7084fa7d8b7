/* SPDX-License-Identifier: Apache-2.0 */
#include "base/nearest.h"

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define WORD_MAX 64 /* characters of a word that can be a misspelling */

static unsigned least(unsigned a, unsigned b) {
    return a < b ? a : b;
}

static bool same(char a, char b) {
    return tolower((unsigned char) a) == tolower((unsigned char) b);
}

/* How many characters to insert, drop, change or swap with the next one; case costs nothing. */
static unsigned distance(const char *a, size_t na, const char *b, size_t nb) {
    unsigned row[3][WORD_MAX + 1], *now = row[0], *last = row[1], *before = row[2];

    for (unsigned j = 0; j <= nb; j++)
        last[j] = j;
    for (unsigned i = 1; i <= na; i++) {
        unsigned *spare = before;

        now[0] = i;
        for (unsigned j = 1; j <= nb; j++) {
            now[j] = least(least(now[j - 1], last[j]) + 1, last[j - 1] + !same(a[i - 1], b[j - 1]));
            if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]))
                now[j] = least(now[j], before[j - 2] + 1);
        }
        before = last;
        last = now;
        now = spare;
    }
    return last[nb];
}

const char *text_nearest(const char *word, const char *const *words) {
    const char *nearest = NULL;
    size_t n = strlen(word);
    unsigned best = (unsigned) n / 4 + 2; /* above the distance of a misspelling */

    if (n < 2 || n > WORD_MAX)
        return NULL;
    for (; *words; words++) {
        size_t other = strlen(*words);
        unsigned d = other > WORD_MAX ? best : distance(word, n, *words, other);

        if (d >= best)
            continue;
        nearest = *words;
        best = d;
    }
    return nearest;
}
