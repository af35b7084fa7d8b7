/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cluster/advice.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define SMALL (4 * GIB) /* below it memory is rounded finer */
#define THROTTLED 0.05  /* less is what a limit does in ordinary use */
#define WHOLE 100

static uint64_t round_up(uint64_t value, uint64_t step) {
    return (value + step - 1) / step * step;
}

static uint64_t with_headroom(double seen, double headroom) {
    double wanted = seen * (1 + headroom);
    uint64_t whole = (uint64_t) wanted;
    return whole + ((double) whole < wanted);
}

static uint64_t advise_memory(const struct advice_figures *f, double headroom) {
    if (f->memory == ADVICE_UNKNOWN)
        return ADVICE_UNKNOWN;
    uint64_t wanted = with_headroom((double) f->memory, headroom);
    wanted = round_up(wanted > MIB ? wanted : MIB, wanted < SMALL ? 256 * MIB : GIB);
    if (wanted > f->asks_memory && !f->refused && f->memory <= f->asks_memory)
        return f->asks_memory;
    return wanted;
}

static uint64_t advise_core(const struct advice_figures *f, double headroom) {
    if (f->core < 0 || f->asks_core == 0)
        return ADVICE_UNKNOWN;
    uint64_t wanted = with_headroom(f->core, headroom);
    if (f->throttled >= THROTTLED) {
        uint64_t more = with_headroom((double) f->asks_core, f->throttled);
        wanted = more > wanted ? more : wanted;
    }
    wanted = wanted <= 5 ? 5 : round_up(wanted, 10);
    return wanted < WHOLE ? wanted : WHOLE;
}

struct advice advice_make(const struct advice_figures *figures, double headroom) {
    return (struct advice){.core = advise_core(figures, headroom),
                           .memory = advise_memory(figures, headroom)};
}
