/* SPDX-License-Identifier: Apache-2.0 */

/* The amounts of claims: how they are read, compared, and requested of the placement. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "claims/object.h"
#include "claims/provisioner.h"
#include "wire/json.h"

#define GIB (UINT64_C(1) << 30)
#define LONG "0123456789012345678901234567890123456789"
#define LONG_NAME(i) "\"" LONG LONG LONG LONG i "\":1,"
#define NO_QUANTITY(i) "\"elasticgpu.io/" i "\":true,"
#define EIGHT(of) of("1") of("2") of("3") of("4") of("5") of("6") of("7") of("8")

static int read_amount(const char *text, struct claim_amount *ret, struct err *err) {
    _cleanup_json_ struct json_parser *p = NULL;
    struct json root;
    assert_int_equal(json_open(text, strlen(text), &p, &root, NULL), 0);
    return claim_amount_read(root, ret, err);
}

/* Lines that are no requests of Aliquot's do not hide those that are. */
static void lines_that_cannot_be_read_do_not_count(void **state) {
    static const char *const texts[] = {
        "{" EIGHT(LONG_NAME) "\"elasticgpu.io/gpu-core\":10}",
        "{" EIGHT(NO_QUANTITY) "\"elasticgpu.io/gpu-core\":10}",
    };
    (void) state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct claim_amount amount;
        struct err err = {0};
        if (read_amount(texts[i], &amount, &err) < 0)
            fail_msg("%s: %s", texts[i], err.text);
        assert_int_equal(amount.core, 10);
    }
}

static void a_claim_cannot_ask_for_one_percent_of_the_memory(void **state) {
    struct claim_amount amount;
    struct err err = {0};
    (void) state;
    assert_int_equal(
        read_amount("{\"nvidia.com/gpu\":1,\"nvidia.com/gpumem-percentage\":1}", &amount, &err),
        -EINVAL);
    assert_non_null(strstr(err.text, "percent of the memory"));
}

/* What a claim covers, which of two is the smaller one, and what it asks of the placement. */
static void amounts_are_compared(void **state) {
    static const struct claim_amount small = {1, false, 10, 4096, ""},
                                     more_core = {1, false, 20, 4096, ""},
                                     more_memory = {1, false, 10, 8192, ""},
                                     two = {2, false, 10, 4096, ""}, whole = {1, true, 100, 0, ""},
                                     whole_two = {2, true, 100, 0, ""},
                                     part = {1, false, 100, 0, ""};
    static const struct {
        const struct claim_amount *a, *b;
        bool covers; /* a covers b */
        int order;
    } rows[] = {
        {&small, &small, true, 0},         {&more_core, &small, true, 1},
        {&small, &more_core, false, -1},   {&more_memory, &small, true, 1},
        {&small, &more_memory, false, -1}, {&two, &small, false, 1},
        {&small, &two, false, -1},         {&more_core, &more_memory, false, 1},
        {&two, &more_core, false, 1},      {&whole, &whole, true, 0},
        {&whole, &part, false, 0},         {&part, &whole, false, 0},
        {&whole_two, &whole, false, 1},    {&whole, &small, false, 1},
    };
    (void) state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int order = claim_amount_compare(rows[i].a, rows[i].b);
        assert_int_equal(claim_amount_covers(rows[i].a, rows[i].b), rows[i].covers);
        assert_int_equal((order > 0) - (order < 0), rows[i].order);
    }
}

static void an_amount_is_a_request(void **state) {
    static const struct {
        struct claim_amount amount;
        struct container_request want;
    } rows[] = {
        {{1, false, 10, 4096, ""}, {.cards = 1, .core = 10, .memory = 4096}},
        {{2, false, 10, 0, ""}, {.cards = 2, .core = 10}},
        {{1, false, 0, 4096, ""}, {.cards = 1, .memory = 4096, .slot = true}},
        {{2, true, 100, 0, ""}, {.cards = 2, .whole = true}},
        {{1, true, 100, 4096, ""}, {.cards = 1, .whole = true}},
    };
    (void) state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct container_request got = {.memory_percent = 9,
                                        .replicas = 9,
                                        .as_replica = true,
                                        .tflops = 9,
                                        .memory_floor = 9,
                                        .slot = true,
                                        .whole = true};
        const struct container_request *want = &rows[i].want;
        claim_amount_request(&rows[i].amount, &got);
        assert_int_equal(got.cards, want->cards);
        assert_int_equal(got.whole, want->whole);
        assert_int_equal(got.core, want->core);
        assert_int_equal(got.memory, want->memory);
        assert_int_equal(got.memory_percent, 0);
        assert_int_equal(got.replicas, 0);
        assert_false(got.as_replica);
        assert_int_equal(got.tflops, 0);
        assert_int_equal(got.memory_floor, 0);
        assert_int_equal(got.slot, want->slot);
    }
}

static void amounts_are_read(void **unused) {
    static const struct {
        const char *text;
        struct claim_amount want;
    } good[] = {
        {"{\"elasticgpu.io/gpu-core\":10,\"elasticgpu.io/gpu-memory\":\"4Gi\"}",
         {1, false, 10, 4 * GIB, ""}},
        {"{\"tke.cloud.tencent.com/qgpu-core\":\"10\",\"tke.cloud.tencent.com/qgpu-memory\":4}",
         {1, false, 10, 4 * GIB, ""}},
        {"{\"tke.cloud.tencent.com/qgpu-core\":10,\"tke.cloud.tencent.com/qgpu-memory\":\"4Gi\"}",
         {1, false, 10, 4 * GIB, ""}},
        {"{\"tke.cloud.tencent.com/qgpu-core\":10,\"tke.cloud.tencent.com/qgpu-memory\":\"4GB\"}",
         {1, false, 10, 4000000000, ""}},
        {"{\"gpushare.provisioner.elasticgpu.io/gpu-core\":5}", {1, false, 5, 0, ""}},
        {"{\"gpushare.provisioner.elasticgpu.io/gpu-memory\":4}", {1, false, 0, 4 * GIB, ""}},
        {"{\"gpushare.provisioner.elasticgpu.io/gpu-memory\":\"512Mi\"}",
         {1, false, 0, GIB / 2, ""}},
        {"{\"elasticgpu.io/gpu-memory\":\"1Gi\"}", {1, false, 0, GIB, ""}},
        {"{\"elasticgpu.io/gpu-core\":\"200\"}", {2, true, 100, 0, ""}},
        {"{\"nvidia.com/mig-1g.10gb\":1}", {1, false, 0, 0, "1g.10gb"}},
        {"{\"nvidia.com/mig-1g.10gb.me\":\"1\"}", {1, false, 0, 0, "1g.10gb+me"}},
    };
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"{}", "nothing of a GPU"},
        {"{\"cpu\":1}", "nothing of a GPU"},
        {"{\"elasticgpu.io/gpu-core\":150}", "multiple of 100"},
        {"{\"elasticgpu.io/gpu-tflops\":1,\"elasticgpu.io/gpu-memory\":\"1Gi\"}", "not by TFLOPS"},
        {"{\"elasticgpu.io/gpu-core\":10,\"elasticgpu.io/gpu-memory\":\"4096\"}", "4096Mi"},
        {"{\"nvidia.com/mig-1g.10gb\":2}", "one MIG instance"},
        {"{\"nvidia.com/mig-1g.10gb\":1,\"elasticgpu.io/gpu-core\":10}", "one MIG instance"},
        {"{\"nvidia.com/mig-1g.10gb\":1,\"nvidia.com/mig-2g.20gb\":1}", "one MIG instance"},
        {"{\"nvidia.com/mig-large\":1}", "no whole MIG instance"},
    };
    struct claim_amount a;
    struct err err = {0};
    (void) unused;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_int_equal(read_amount(good[i].text, &a, &err), 0);
        assert_int_equal(a.cards, good[i].want.cards);
        assert_int_equal(a.whole, good[i].want.whole);
        assert_int_equal(a.core, good[i].want.core);
        assert_int_equal(a.memory, good[i].want.memory);
        assert_string_equal(a.profile, good[i].want.profile);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(read_amount(bad[i].text, &a, &err), -EINVAL);
        if (!strstr(err.text, bad[i].why))
            fail_msg("%s: %s", bad[i].text, err.text);
    }
}

/* Whole cards are of no client of MPS. */
static void a_share_under_mps_is_of_one_card(void **state) {
    const struct provisioner *p = provisioner_find("elasticgpu.io/mps");
    const struct claim_amount share = {.cards = 1, .core = 30}, whole = {.cards = 2, .whole = true};
    struct egpu_class class = {0};
    struct err err;

    (void) state;
    assert_true(p && p->under_mps && !provisioner_find("elasticgpu.io/qgpu")->under_mps);
    assert_int_equal(p->admit(p, &class, &share, &err), 0);
    assert_int_equal(p->admit(p, &class, &whole, &err), -EINVAL);
    assert_non_null(strstr(err.text, "less than 100 gpu-core"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(amounts_are_read),
        cmocka_unit_test(amounts_are_compared),
        cmocka_unit_test(an_amount_is_a_request),
        cmocka_unit_test(a_share_under_mps_is_of_one_card),
        cmocka_unit_test(lines_that_cannot_be_read_do_not_count),
        cmocka_unit_test(a_claim_cannot_ask_for_one_percent_of_the_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
