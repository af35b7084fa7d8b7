/* SPDX-License-Identifier: Apache-2.0 */

/* Drives a fuzz target without libFuzzer, so that every compiler and sanitizer can: each seed as it
 * is, then ROUNDS deterministic mutations of it (the same ones in every run). */

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"

#define SEED_MAX ((size_t) 1 << 20)
#define ROUNDS 2000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* xorshift64*: small, and the same everywhere. */
static uint64_t draw(uint64_t *state) {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(0x2545f4914f6cdd1d);
}

static size_t mutate(uint8_t *data, size_t size, size_t room, uint64_t *state) {
    uint64_t changes = 1 + draw(state) % 4;
    for (uint64_t i = 0; i < changes; i++) {
        size_t at = size ? (size_t) (draw(state) % size) : 0;
        switch (draw(state) % 5) {
        case 0: /* another byte */
            if (size)
                data[at] = (uint8_t) draw(state);
            break;
        case 1: /* another bit */
            if (size)
                data[at] ^= (uint8_t) (1 << draw(state) % 8);
            break;
        case 2: /* cut off */
            size = at;
            break;
        case 3: /* a byte more */
            if (size < room) {
                memmove(data + at + 1, data + at, size - at);
                data[at] = (uint8_t) draw(state);
                size++;
            }
            break;
        default: /* a part again */
            if (size && size < room) {
                size_t len = (size_t) (draw(state) % (size - at + 1));
                len = len < room - size ? len : room - size;
                memmove(data + size, data + at, len);
                size += len;
            }
        }
    }
    return size;
}

/* The target gets a copy of exactly the input's size, so that a sanitizer sees a read behind it. */
static void run_one(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy)
        abort();
    memcpy(copy, data, size);
    (void) LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static int run_seed(const char *path) {
    struct err err;
    _cleanup_buf_ struct buf seed = BUF_INIT(SEED_MAX);
    if (file_read(path, SEED_MAX, &seed, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return -1;
    }
    run_one((const uint8_t *) buf_str(&seed), seed.len);

    size_t room = 2 * seed.len + 64;
    _cleanup_free_ uint8_t *data = malloc(room);
    if (!data)
        return -1;
    uint64_t state = 0x9e3779b97f4a7c15 ^ seed.len;
    size_t rounds = seed.len > 65536 ? ROUNDS / 100 : ROUNDS;
    for (size_t i = 0; i < rounds; i++) {
        memcpy(data, buf_str(&seed), seed.len);
        run_one(data, mutate(data, seed.len, room, &state));
    }
    return 0;
}

int main(int argc, char **argv) {
    size_t seeds = 0;
    for (int i = 1; i < argc; i++) {
        _cleanup_closedir_ DIR *dir = opendir(argv[i]);
        if (!dir) {
            fprintf(stderr, "cannot open corpus %s\n", argv[i]);
            return 1;
        }
        for (struct dirent *entry; (entry = readdir(dir));) {
            char path[4096];
            if (entry->d_name[0] == '.')
                continue;
            (void) snprintf(path, sizeof(path), "%s/%s", argv[i], entry->d_name);
            if (run_seed(path) < 0)
                return 1;
            seeds++;
        }
    }
    printf("%zu seeds\n", seeds);
    return seeds == 0; /* an empty corpus tests nothing */
}
