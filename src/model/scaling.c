/* SPDX-License-Identifier: Apache-2.0 */
#include "model/scaling.h"

#include <errno.h>

#include "base/units.h"

#define u128 unsigned __int128

int scaling_parse(const char *text, uint32_t *ret) {
    uint32_t value = 0, digits = 0;

    for (; *text >= '0' && *text <= '9' && digits < 3; text++, digits++)
        value = value * 10 + (uint32_t) (*text - '0');
    if (digits == 0)
        return -EINVAL;
    value *= SCALING_ONE;
    if (*text == '.') {
        uint32_t weight = SCALING_ONE / 10;

        text++;
        if (*text == 0)
            return -EINVAL;
        for (; *text >= '0' && *text <= '9' && weight > 0; text++, weight /= 10)
            value += (uint32_t) (*text - '0') * weight;
    }
    if (*text || value < SCALING_ONE || value > SCALING_MAX)
        return -EINVAL;
    *ret = value;
    return 0;
}

uint64_t scaling_capacity(uint64_t memory, uint32_t factor) {
    u128 scaled = (u128) memory * factor / SCALING_ONE / MIB * MIB;

    if (factor == 0 || factor == SCALING_ONE || (factor > SCALING_ONE && scaled < memory))
        return memory;
    if (factor < SCALING_ONE && scaled == 0)
        return memory < MIB ? memory : MIB;
    return scaled > INT64_MAX ? INT64_MAX : (uint64_t) scaled;
}

uint64_t scaling_physical(uint64_t bytes, uint64_t memory, uint64_t capacity, uint32_t factor) {
    u128 part, wanted;

    if (capacity <= memory || bytes == 0)
        return bytes;
    part = (u128) bytes * memory / capacity;
    wanted = factor >= SCALING_ONE ? (u128) bytes * SCALING_ONE / factor : 0;
    if (wanted > part)
        part = wanted;
    return part > 0 ? (uint64_t) part : 1;
}

uint64_t scaling_charge(uint64_t bytes, uint64_t physical, uint64_t memory, uint64_t capacity) {
    u128 charge;

    if (capacity <= memory || memory == 0)
        return bytes;
    charge = ((u128) physical * capacity + memory - 1) / memory;
    if (charge > UINT64_MAX)
        return UINT64_MAX;
    return charge > bytes ? (uint64_t) charge : bytes;
}
