/* SPDX-License-Identifier: Apache-2.0 */
#include "model/gpu_model.h"

#include <stddef.h>
#include <string.h>

/* FP16 on tensor cores without sparsity (before Volta: FP16), rounded down, by NVIDIA's data sheet
 * of each card. Those of Ada, Hopper and Blackwell give the figure with sparsity: half of it (H100
 * SXM 1979, PCIe 1513, NVL 1671; L40S 733; B200 4500; each GPU of a GB200 5000). NVIDIA publishes
 * none for A10G, A800, H800, H20, L20 and L2: these are from resellers. The first row whose words
 * are all in the name applies, so variants precede the base model. */
static const struct {
    const char *word, *also; /* also: NULL, or another word that must be there */
    uint32_t tflops;
} models[] = {
    {"GB200", NULL, 2500},    {"B200", NULL, 2250},
    {"B100", NULL, 1750},     {"H200", "NVL", 835},
    {"H200", NULL, 989},      {"GH200", NULL, 989},
    {"H100", "NVL", 835},     {"H100", "PCIe", 756},
    {"H100", NULL, 989},      {"H800", "PCIe", 756},
    {"H800", NULL, 989},      {"H20", NULL, 148},
    {"A100", NULL, 312},      {"A800", NULL, 312},
    {"A30", NULL, 165},       {"A40", NULL, 149},
    {"A16", NULL, 17},        {"A10G", NULL, 70},
    {"A10", NULL, 125},       {"A2", NULL, 18},
    {"L40S", NULL, 362},      {"L40", NULL, 181},
    {"L20", NULL, 119},       {"L4", NULL, 121},
    {"L2", NULL, 96},         {"V100S", NULL, 130},
    {"V100", "PCIE", 112},    {"V100", NULL, 125},
    {"T4", NULL, 65},         {"P100", "PCIE", 18},
    {"P100", NULL, 21},       {"RTX 6000 Ada", NULL, 364},
    {"RTX A6000", NULL, 154},
};

static int is_word(char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/* Whether the name contains the whole word: "A10" is not in "A100". */
static int has_word(const char *name, const char *word) {
    size_t len = strlen(word);
    for (const char *at = name; (at = strstr(at, word)); at++)
        if ((at == name || !is_word(at[-1])) && !is_word(at[len]))
            return 1;
    return 0;
}

uint32_t gpu_model_tflops(const char *name) {
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++)
        if (has_word(name, models[i].word) && (!models[i].also || strstr(name, models[i].also)))
            return models[i].tflops;
    return 0;
}
