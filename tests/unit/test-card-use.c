/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/run/card_use.h"

#define MIB ((uint64_t) 1 << 20)

/* ---- the driver ---- */

static uint64_t used;
static nvmlProcessInfo_t computing[4], drawing[4];
static unsigned int ncomputing, ndrawing;

static nvmlReturn_t get_memory(nvmlDevice_t device, nvmlMemory_t *ret) {
    (void) device;
    *ret = (nvmlMemory_t){.used = used};
    return NVML_SUCCESS;
}

static nvmlReturn_t put_list(const nvmlProcessInfo_t *from, unsigned int n, unsigned int *count,
                             nvmlProcessInfo_t *to) {
    if (*count < n)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(to, from, n * sizeof(*from));
    *count = n;
    return NVML_SUCCESS;
}

static nvmlReturn_t list_computing(nvmlDevice_t device, unsigned int *n, nvmlProcessInfo_t *to) {
    (void) device;
    return put_list(computing, ncomputing, n, to);
}

static nvmlReturn_t list_drawing(nvmlDevice_t device, unsigned int *n, nvmlProcessInfo_t *to) {
    (void) device;
    return put_list(drawing, ndrawing, n, to);
}

void *__wrap_dlsym(void *library, const char *symbol);
void *__wrap_dlsym(void *library, const char *symbol) {
    (void) library;
    if (strcmp(symbol, "nvmlDeviceGetMemoryInfo") == 0)
        return (void *) get_memory;
    if (strcmp(symbol, "nvmlDeviceGetComputeRunningProcesses_v3") == 0)
        return (void *) list_computing;
    if (strcmp(symbol, "nvmlDeviceGetGraphicsRunningProcesses_v3") == 0)
        return (void *) list_drawing;
    return NULL;
}

/* ---- tests ---- */

static int begin(void **state) {
    (void) state;
    used = 1000 * MIB;
    ncomputing = ndrawing = 0;
    return 0;
}

static struct card_use look(void) {
    struct card_use use;
    assert_true(card_use_read(NULL, NULL, &use));
    return use;
}

static nvmlProcessInfo_t process(uint32_t pid, uint64_t bytes) {
    return (nvmlProcessInfo_t){.pid = pid, .usedGpuMemory = bytes};
}

/* This process is alive; of the highest PID there is none. */
static void test_a_process_that_ends(void **state) {
    (void) state;
    computing[ncomputing++] = process((uint32_t) getpid(), 300 * MIB);
    computing[ncomputing++] = process(INT32_MAX, 200 * MIB);
    struct card_use use = look();
    assert_int_equal(use.most, 700 * MIB);
    assert_int_equal(use.least, 500 * MIB);
    assert_int_equal(use.npids, 2);
}

/* It is in both lists, each time with all of its memory. */
static void test_a_process_that_computes_and_draws(void **state) {
    (void) state;
    computing[ncomputing++] = process((uint32_t) getpid(), 300 * MIB);
    drawing[ndrawing++] = process((uint32_t) getpid(), 301 * MIB);
    struct card_use use = look();
    assert_int_equal(use.most, 699 * MIB);
    assert_int_equal(use.least, 699 * MIB);
    assert_int_equal(use.npids, 1);
    assert_int_equal(use.bytes[0], 301 * MIB);
}

static void test_a_process_of_which_the_driver_does_not_say(void **state) {
    (void) state;
    computing[ncomputing++] = process((uint32_t) getpid(), NVML_VALUE_NOT_AVAILABLE_ULL);
    drawing[ndrawing++] = process((uint32_t) getpid(), 300 * MIB);
    struct card_use use = look();
    assert_int_equal(use.most, 700 * MIB);
    assert_int_equal(use.least, 0);
    assert_int_equal(use.npids, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_a_process_that_ends, begin),
        cmocka_unit_test_setup(test_a_process_that_computes_and_draws, begin),
        cmocka_unit_test_setup(test_a_process_of_which_the_driver_does_not_say, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
