/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/model.h"

#include <strings.h>

#define GIB ((uint64_t) 1 << 30)
#define MIB ((uint64_t) 1 << 20)

/* NVML's architecture numbers: Volta 5, Turing 6, Ampere 7, Ada 8, Hopper 9.
 * Brands: Tesla 2, NVIDIA 14, GeForce RTX 15. */
static const struct sim_model models[] = {
    {"NVIDIA A100-SXM4-80GB", "A100", 80 * GIB, 416, 8, 0, 108, 64, 1410, 1593, 5120, 40, 164,
     400, 62, 2039, 0x20b2, 0x1463, 7, 14, 4, 1},
    {"NVIDIA A100-SXM4-40GB", "A100-40GB", 40 * GIB, 416, 8, 0, 108, 64, 1410, 1215, 5120, 40, 164,
     400, 54, 1555, 0x20b0, 0x1450, 7, 14, 4, 1},
    {"NVIDIA H100 80GB HBM3", "H100", 81559 * MIB, 526, 9, 0, 132, 128, 1980, 2619, 5120, 50, 228,
     700, 70, 3352, 0x2330, 0x16c1, 9, 14, 5, 1},
    {"NVIDIA H200", "H200", 143771 * MIB, 526, 9, 0, 132, 128, 1980, 3201, 6144, 50, 228,
     700, 75, 4800, 0x2335, 0x18be, 9, 14, 5, 1},
    {"NVIDIA A40", "A40", 46068 * MIB, 324, 8, 6, 84, 128, 1740, 7251, 384, 6, 100,
     300, 30, 696, 0x2235, 0x145a, 7, 14, 4, 1},
    {"NVIDIA A30", "A30", 24576 * MIB, 358, 8, 0, 56, 64, 1440, 1215, 3072, 24, 164,
     165, 28, 933, 0x20b7, 0x1532, 7, 14, 4, 1},
    {"NVIDIA A10", "A10", 23028 * MIB, 302, 8, 6, 72, 128, 1695, 6251, 384, 6, 100,
     150, 16, 600, 0x2236, 0x1482, 7, 14, 4, 1},
    {"NVIDIA L4", "L4", 23034 * MIB, 256, 8, 9, 58, 128, 2040, 6251, 192, 48, 100,
     72, 12, 300, 0x27b8, 0x16ca, 8, 14, 4, 1},
    {"NVIDIA L40S", "L40S", 46068 * MIB, 336, 8, 9, 142, 128, 2520, 9001, 384, 96, 100,
     350, 34, 864, 0x26b9, 0x1851, 8, 14, 4, 1},
    {"Tesla T4", "T4", 15360 * MIB, 104, 7, 5, 40, 64, 1590, 5001, 256, 4, 64,
     70, 9, 320, 0x1eb8, 0x12a2, 6, 2, 3, 1},
    {"Tesla V100-SXM2-32GB", "V100", 32768 * MIB, 306, 7, 0, 80, 64, 1530, 877, 4096, 6, 96,
     300, 42, 898, 0x1db5, 0x1249, 5, 2, 3, 1},
    {"NVIDIA GeForce RTX 4090", "RTX4090", 24564 * MIB, 378, 8, 9, 128, 128, 3105, 10501, 384, 72,
     100, 450, 21, 1008, 0x2684, 0x0000, 8, 15, 4, 0},
};

const struct sim_model *model_find(const char *name) {
    if (!name)
        return &models[0];
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++)
        if (strcasecmp(models[i].name, name) == 0 || strcasecmp(models[i].alias, name) == 0)
            return &models[i];
    return NULL;
}

const struct sim_model *model_at(size_t i) {
    return i < sizeof(models) / sizeof(models[0]) ? &models[i] : NULL;
}
