/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/mig.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

/* NVML's numbers of the profiles: 1, 2, 3, 4 and 7 slices are 0 to 4; media extensions 7, double
 * memory 9. */
#define ONE 0
#define TWO 1
#define THREE 2
#define FOUR 3
#define SEVEN 4
#define ONE_MEDIA 7
#define ONE_DOUBLE 9

static const struct mig_profile a100_40[] = {
    {"1g.5gb", ONE, 19, 1, 1, 0x7f, 7, 14, 1, 0, 0, 0, 0, 4864},
    {"1g.5gb+me", ONE_MEDIA, 20, 1, 1, 0x7f, 1, 14, 1, 1, 0, 1, 1, 4864},
    {"1g.10gb", ONE_DOUBLE, 15, 1, 2, 0x55, 4, 14, 1, 1, 0, 0, 0, 9856},
    {"2g.10gb", TWO, 14, 2, 2, 0x15, 3, 28, 2, 1, 0, 0, 0, 9856},
    {"3g.20gb", THREE, 9, 3, 4, 0x11, 2, 42, 3, 2, 0, 0, 0, 19968},
    {"4g.20gb", FOUR, 5, 4, 4, 0x01, 1, 56, 4, 2, 0, 0, 0, 19968},
    {"7g.40gb", SEVEN, 0, 7, 8, 0x01, 1, 98, 7, 5, 0, 1, 1, 40192},
};

static const struct mig_profile a100_80[] = {
    {"1g.10gb", ONE, 19, 1, 1, 0x7f, 7, 14, 1, 0, 0, 0, 0, 9728},
    {"1g.10gb+me", ONE_MEDIA, 20, 1, 1, 0x7f, 1, 14, 1, 1, 0, 1, 1, 9728},
    {"1g.20gb", ONE_DOUBLE, 15, 1, 2, 0x55, 4, 14, 1, 1, 0, 0, 0, 19968},
    {"2g.20gb", TWO, 14, 2, 2, 0x15, 3, 28, 2, 1, 0, 0, 0, 19968},
    {"3g.40gb", THREE, 9, 3, 4, 0x11, 2, 42, 3, 2, 0, 0, 0, 40192},
    {"4g.40gb", FOUR, 5, 4, 4, 0x01, 1, 56, 4, 2, 0, 0, 0, 40192},
    {"7g.80gb", SEVEN, 0, 7, 8, 0x01, 1, 98, 7, 5, 0, 1, 1, 80640},
};

static const struct mig_profile h100[] = {
    {"1g.10gb", ONE, 19, 1, 1, 0x7f, 7, 16, 1, 1, 0, 1, 0, 9984},
    {"1g.10gb+me", ONE_MEDIA, 20, 1, 1, 0x7f, 1, 16, 1, 1, 0, 1, 1, 9984},
    {"1g.20gb", ONE_DOUBLE, 15, 1, 2, 0x55, 4, 26, 1, 1, 0, 1, 0, 20096},
    {"2g.20gb", TWO, 14, 2, 2, 0x15, 3, 32, 2, 2, 0, 2, 0, 20096},
    {"3g.40gb", THREE, 9, 3, 4, 0x11, 2, 60, 3, 3, 0, 3, 0, 40448},
    {"4g.40gb", FOUR, 5, 4, 4, 0x01, 1, 64, 4, 4, 0, 4, 0, 40448},
    {"7g.80gb", SEVEN, 0, 7, 8, 0x01, 1, 132, 8, 7, 0, 7, 1, 80896},
};

static const struct mig_profile h200[] = {
    {"1g.18gb", ONE, 19, 1, 1, 0x7f, 7, 16, 1, 1, 0, 1, 0, 16384},
    {"1g.18gb+me", ONE_MEDIA, 20, 1, 1, 0x7f, 1, 16, 1, 1, 0, 1, 1, 16384},
    {"1g.35gb", ONE_DOUBLE, 15, 1, 2, 0x55, 4, 26, 1, 1, 0, 1, 0, 33280},
    {"2g.35gb", TWO, 14, 2, 2, 0x15, 3, 32, 2, 2, 0, 2, 0, 33280},
    {"3g.71gb", THREE, 9, 3, 4, 0x11, 2, 60, 3, 3, 0, 3, 0, 71168},
    {"4g.71gb", FOUR, 5, 4, 4, 0x01, 1, 64, 4, 4, 0, 4, 0, 71168},
    {"7g.141gb", SEVEN, 0, 7, 8, 0x01, 1, 132, 8, 7, 0, 7, 1, 143360},
};

static const struct mig_profile a30[] = {
    {"1g.6gb", ONE, 14, 1, 1, 0x0f, 4, 14, 1, 0, 0, 0, 0, 5888},
    {"1g.6gb+me", ONE_MEDIA, 21, 1, 1, 0x0f, 1, 14, 1, 1, 0, 1, 1, 5888},
    {"2g.12gb", TWO, 5, 2, 2, 0x05, 2, 28, 2, 2, 0, 0, 0, 12032},
    {"4g.24gb", FOUR, 0, 4, 4, 0x01, 1, 56, 4, 4, 0, 1, 1, 24192},
};

#define FAMILY(name, rows)                                                                         \
    { name, rows, sizeof(rows) / sizeof(rows[0]) }

static const struct {
    const char *name; /* as of the model */
    const struct mig_profile *rows;
    size_t count;
} families[] = {
    FAMILY("NVIDIA A100-SXM4-80GB", a100_80),
    FAMILY("NVIDIA A100-SXM4-40GB", a100_40),
    FAMILY("NVIDIA H100 80GB HBM3", h100),
    FAMILY("NVIDIA H200", h200),
    FAMILY("NVIDIA A30", a30),
};

const struct mig_profile *mig_profiles_by_name(const char *name, size_t *ret_count) {
    *ret_count = 0;
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        if (strcmp(families[i].name, name) != 0)
            continue;
        *ret_count = families[i].count;
        return families[i].rows;
    }
    return NULL;
}

const struct mig_profile *mig_profiles(const struct sim_model *model, size_t *ret_count) {
    return mig_profiles_by_name(model->name, ret_count);
}

const struct mig_profile *mig_find(const struct sim_model *model, const char *name, size_t len) {
    size_t n;
    const struct mig_profile *rows = mig_profiles(model, &n);
    for (size_t i = 0; i < n; i++)
        if (strlen(rows[i].name) == len && memcmp(rows[i].name, name, len) == 0)
            return &rows[i];
    return NULL;
}

uint8_t mig_bits(const struct mig_profile *profile, int start) {
    return (uint8_t) (((1u << profile->memory_slices) - 1) << start);
}

static bool fits_at(const struct mig_profile *profile, int start, uint8_t taken) {
    return (profile->starts & (1u << start)) && !(taken & mig_bits(profile, start));
}

/* In how many ways an instance of any profile could still be placed. */
static uint32_t choice(const struct mig_profile *rows, size_t n, uint8_t taken) {
    uint32_t sum = 0;
    for (size_t i = 0; i < n; i++)
        for (int start = 0; start < 8; start++)
            sum += fits_at(&rows[i], start, taken);
    return sum;
}

static int place_among(const struct mig_profile *rows, size_t n, const struct mig_profile *profile,
                       uint8_t taken) {
    int best = -ENOSPC;
    uint32_t most = 0;
    for (int start = 0; start < 8; start++) {
        if (!fits_at(profile, start, taken))
            continue;
        uint32_t left = choice(rows, n, taken | mig_bits(profile, start));
        if (best >= 0 && left <= most)
            continue;
        best = start;
        most = left;
    }
    return best;
}

int mig_place(const struct sim_model *model, const struct mig_profile *profile, uint8_t taken) {
    size_t n;
    const struct mig_profile *rows = mig_profiles(model, &n);
    return place_among(rows, n, profile, taken);
}

uint32_t mig_room_among(const struct mig_profile *rows, size_t n, const struct mig_profile *profile,
                        uint8_t taken) {
    uint32_t room = 0;
    for (int start; room < profile->most && (start = place_among(rows, n, profile, taken)) >= 0;
         room++)
        taken |= mig_bits(profile, start);
    return room;
}

uint32_t mig_room(const struct sim_model *model, const struct mig_profile *profile, uint8_t taken) {
    size_t n;
    const struct mig_profile *rows = mig_profiles(model, &n);
    return mig_room_among(rows, n, profile, taken);
}
