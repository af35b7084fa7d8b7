/* SPDX-License-Identifier: Apache-2.0 */

/* Machine files: what they say, and where they are wrong; what goes wrong on demand. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sim/daemon/channel.h"
#include "sim/daemon/config.h"
#include "sim/daemon/control.h"
#include "sim/daemon/fault.h"
#include "sim/daemon/session.h"
#include "sim/daemon/xid.h"
#include "sim/mig.h"

static struct sim_config config;

static int parse(const char *text, struct err *err) {
    return config_parse("m", text, strlen(text), &config, err);
}

static void expect_error(const char *text, const char *message) {
    struct err err = {0};
    assert_true(parse(text, &err) < 0);
    assert_string_equal(err.text, message);
}

static void a_machine_as_described(void **state) {
    (void) state;
    struct err err;
    assert_int_equal(parse("# a comment\n"
                           "[machine]\n"
                           "driver = 535.161.08   # an old one\n"
                           "kernels = timing-only\n"
                           "slice=5ms\n"
                           "context-switch = 300us\n"
                           "sample = 1s\r\n"
                           "numa = 2\n"
                           "cpus-per-node = 16\n"
                           "accounting = on\n"
                           "fork = close\n"
                           "dead-pids = listed\n"
                           "\n"
                           "[gpu 0-2]\n"
                           "model = A100\n"
                           "[ gpu 1 ]\n"
                           "memory = 40Gi\n"
                           "context = 300Mi\n"
                           "uuid = GPU-01234567-89ab-cdef-0123-456789abcdef\n"
                           "serial = 42\n"
                           "pci = 0001:3b:1c.0\n"
                           "numa = 1\n"
                           "ecc = off\n"
                           "[gpu 2]\n"
                           "model = T4\n"
                           "[nvlink]\n"
                           "0-1 = 4",
                           &err),
                     0);
    assert_string_equal(config.driver, "535.161.08");
    assert_int_equal(config.cuda, 12020);
    assert_true(config.host_pids && config.timing_only && config.accounting);
    assert_true(config.fork_closes && config.lists_dead);
    assert_int_equal(config.slice_ns, 5000000);
    assert_int_equal(config.switch_ns, 300000);
    assert_int_equal(config.sample_ns, 1000000000);
    assert_int_equal(config.ngpus, 3);
    assert_int_equal(config.gpu[0].memory, (uint64_t) 80 << 30);
    assert_int_equal(config.gpu[1].memory, (uint64_t) 40 << 30);
    assert_string_equal(config.gpu[2].model->name, "Tesla T4");
    struct sim_page page = {0};
    config_describe_gpu(&config, 1, "seed", &page);
    assert_string_equal(page.uuid, "GPU-01234567-89ab-cdef-0123-456789abcdef");
    static const uint8_t bytes[16] = {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef,
                                      0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef};
    assert_memory_equal(page.uuid_bytes, bytes, sizeof(bytes));
    assert_string_equal(page.serial, "42");
    assert_int_equal(page.pci_domain, 1);
    assert_int_equal(page.pci_bus, 0x3b);
    assert_int_equal(page.pci_device, 0x1c);
    assert_int_equal(page.context_bytes, 300 << 20);
    assert_int_equal(page.ecc, 0);
    assert_int_equal(page.nvlinks, 4);
    assert_int_equal(page.nvlink_peer[3], 0);
}

static void defaults_follow_the_driver(void **state) {
    (void) state;
    struct err err;
    assert_int_equal(parse("[gpu 0]\nmodel = H100\n", &err), 0);
    assert_string_equal(config.driver, SIM_DRIVER_VERSION);
    assert_int_equal(config.cuda, SIM_CUDA_VERSION);
    assert_false(config.host_pids || config.fork_closes || config.lists_dead);
    assert_int_equal(parse("[machine]\ndriver = 545.23.06\n[gpu 0]\nmodel = H100\n", &err), 0);
    assert_false(config.host_pids);
    assert_int_equal(
        parse("[machine]\ndriver = 580.65\npids = host\n[gpu 0]\nmodel = H100\n", &err), 0);
    assert_true(config.host_pids);
    assert_int_equal(config.cuda, 13000);
}

static void mistakes_are_told_with_their_line(void **state) {
    (void) state;
    expect_error("", "m: no [gpu]");
    expect_error("model = T4\n", "m:1: 'model' is before the first section");
    expect_error("\n[gpus 0]\n",
                 "m:2: no section [gpus 0]; there are [machine], [gpu N] and [nvlink]");
    expect_error("[gpu 0\n", "m:1: a section ends with ']'");
    expect_error("[gpu 1]\n", "m:1: GPU 0 is missing: they are described in their order");
    expect_error("[gpu 3-1]\n", "m:1: GPUs are numbered 0 to 63");
    expect_error("[gpu 0-64]\n", "m:1: GPUs are numbered 0 to 63");
    expect_error("[gpu x]\n", "m:1: 'x' is neither a GPU nor a range such as 0-7");
    expect_error("[gpu 0]\n\nmemory = 1Gi\n", "m:3: the model of GPU 0 comes first");
    expect_error("[gpu 0]\nmodel = B9000\n",
                 "m:2: no model 'B9000'; `aliquot sim --help` lists them");
    expect_error("[gpu 0]\nmodel T4\n", "m:2: 'model T4' is neither a section nor 'key = value'");
    expect_error("[gpu 0]\nmodel = T4\ncolour = red\n", "m:3: [gpu] has no key 'colour'");
    expect_error("[gpu 0-1]\nmodel = T4\n[gpu 0]\nserial = 1\n[gpu 1]\nserial = 1\n",
                 "m: GPUs 0 and 1 have the same serial");
    expect_error("[gpu 0-1]\nmodel = T4\n[gpu 0]\npci = 0000:0b:00.0\n",
                 "m: GPUs 0 and 1 have the same pci"); /* the other's by default */
    expect_error("[gpu 0-1]\nmodel = T4\nserial = 1\n", "m:3: no two GPUs have the same serial");
    expect_error("[gpu 0]\nmodel = T4\nnuma = 1\n",
                 "m: GPU 0: no NUMA node 1; [machine] says numa = 1");
    expect_error("[machine]\nslice = 5\n", "m:2: '5' is not a time with its unit: ns, us, ms or s");
    expect_error("[machine]\nslice = 2s\n", "m:2: '2s' is not between 10 us and 1000 ms");
    expect_error("[machine]\nslice = 99999999999999999999s\n",
                 "m:2: '99999999999999999999s' is not between 10 us and 1000 ms");
    expect_error("[machine]\npids = mine\n", "m:2: 'mine' is neither 'namespace' nor 'host'");
    expect_error("[machine]\ndriver = 470.1\n",
                 "m:2: driver 470.1: branches 525 to 615 can be simulated");
    expect_error("[machine]\ndriver = new\n",
                 "m:2: 'new' is not a driver version such as 570.124.06");
    expect_error("[gpu 0]\nmodel = T4\n[machine]\n",
                 "m:3: [machine] comes once, before all other sections");
    expect_error("[gpu 0-1]\nmodel = T4\n[nvlink]\n0-1 = 1\n", "m:4: GPU 0 (T4) has 0 NVLinks");
    expect_error("[gpu 0-1]\nmodel = A30\n[nvlink]\n0-1 = 5\n", "m:4: GPU 0 (A30) has 4 NVLinks");
    expect_error("[gpu 0-1]\nmodel = A30\n[nvlink]\n0-2 = 4\n",
                 "m:4: there is no GPU 2 above this line");
    expect_error("[gpu 0-1]\nmodel = A30\n[nvlink]\n0-1 = 4\n1-0 = 4\n",
                 "m:5: the links of GPUs 1 and 0 are given twice");
    expect_error("[gpu 0]\nmodel = T4\n[nvlink]\nswitches = 2\n",
                 "m: GPU 0 (T4) has no NVLink for the switches");
    expect_error("[gpu 0]\nmodel = T4\nmig = on\n", "m: Tesla T4 cannot be divided");
    expect_error("[gpu 0]\nmodel = A100\nmig = 1g.5gb\n",
                 "m: NVIDIA A100-SXM4-80GB has no MIG profile '1g.5gb'");
    expect_error("[gpu 0]\nmodel = A100\nmig = 4g.40gb,3g.40gb,1g.10gb\n",
                 "m: no room for 1g.10gb beside the instances before it");
}

static void failure_leaves_what_was(void **state) {
    (void) state;
    struct err err;
    assert_int_equal(parse("[gpu 0]\nmodel = T4\n", &err), 0);
    assert_true(parse("[gpu 0]\nmodel = nothing\n", &err) < 0);
    assert_string_equal(config.gpu[0].model->name, "Tesla T4");
}

static void topology_follows_the_positions(void **state) {
    (void) state;
    struct err err;
    static struct sim_host host;
    memset(&host, 0, sizeof(host));
    assert_int_equal(parse("[machine]\nnuma = 2\n"
                           "[gpu 0-4]\nmodel = H100\n"
                           "[gpu 0-1]\npcie-root = 0\npcie-switch = 0\n"
                           "[gpu 2]\npcie-root = 0\npcie-switch = 1\n"
                           "[gpu 4]\nnuma = 1\n"
                           "[nvlink]\nswitches = 4\n",
                           &err),
                     0);
    config_describe_host(&config, &host);
    assert_int_equal(host.level[0][0], 0);
    assert_int_equal(host.level[0][1], 10);
    assert_int_equal(host.level[0][2], 30);
    assert_int_equal(host.level[0][3], 40);
    assert_int_equal(host.level[0][4], 50);
    assert_int_equal(host.level[4][0], 50);
    struct sim_page page = {0};
    config_describe_gpu(&config, 0, "seed", &page);
    assert_int_equal(page.nvlinks, 18);
    assert_int_equal(page.nvlink_peer[5], SIM_LINK_SWITCH | 1);
}

static void instances_are_placed_as_on_the_card(void **state) {
    (void) state;
    const struct sim_model *a100 = model_find("A100");
    const struct mig_profile *three = mig_find(a100, "3g.40gb", 7);
    assert_non_null(three);
    assert_int_equal(mig_place(a100, three, 0), 4); /* where one of 1g or 4g can still begin at 0 */
    assert_int_equal(mig_place(a100, three, mig_bits(three, 4)), 0);
    assert_int_equal(mig_place(a100, three, 0x11), -ENOSPC);
    assert_null(mig_find(a100, "3g", 2));
    static const char *const possible[] = {
        "off",
        "on",
        "3g.40gb,3g.40gb",
        "3g.40gb,2g.20gb,1g.10gb,1g.10gb",
        "3g.40gb,2g.20gb,2g.20gb",
        "1g.10gb,4g.40gb,2g.20gb",
        "1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb",
        "1g.20gb,1g.20gb,1g.20gb,1g.20gb",
    };
    for (size_t i = 0; i < sizeof(possible) / sizeof(possible[0]); i++) {
        char text[200];
        struct err err;
        (void) snprintf(text, sizeof(text), "[gpu 0]\nmodel = A100\nmig = %s\n", possible[i]);
        assert_int_equal(parse(text, &err), 0);
    }
    expect_error("[gpu 0]\nmodel = A100\nmig = 7g.80gb,1g.10gb\n",
                 "m: no room for 1g.10gb beside the instances before it");
    expect_error("[gpu 0]\nmodel = A100\nmig = 1g.10gb,\n",
                 "m: NVIDIA A100-SXM4-80GB has no MIG profile ''");
    expect_error("[gpu 0]\nmodel = A100\nmemory = 40Gi\nmig = 1g.10gb\n",
                 "m: NVIDIA A100-SXM4-80GB is divided only with its own memory");
    /* Every table: as many instances fit as it says, and they fit into the card's memory. */
    for (size_t i = 0; model_at(i); i++) {
        size_t n;
        const struct mig_profile *p = mig_profiles(model_at(i), &n);
        for (size_t k = 0; k < n; k++) {
            assert_int_equal(mig_room(model_at(i), &p[k], 0), p[k].most);
            assert_true(p[k].most * (uint64_t) p[k].memory_mib << 20 <= model_at(i)->memory);
            assert_true(p[k].most * p[k].sms <= model_at(i)->sm_count);
        }
    }
}

/* -- faults ---------------------------------------------------------------------------------- */

static struct sim_machine machine;
static struct sim_host host_page;

static int set_up(void **state) {
    (void) state;
    memset(&machine, 0, sizeof(machine));
    memset(&host_page, 0, sizeof(host_page));
    machine.host = &host_page;
    machine.ngpus = machine.nunits = 1;
    machine.gpu[0].page = calloc(1, 4096);
    machine_describe(machine.gpu[0].page, 0, model_find("T4"), "test");
    return 0;
}

static int tear_down(void **state) {
    (void) state;
    while (machine.sessions)
        session_end(machine.sessions);
    free(machine.gpu[0].page);
    return 0;
}

static struct sim_session *process(pid_t pid) {
    const uint64_t token[2] = {(uint64_t) pid, 0};
    struct sim_session *s = session_begin(&machine, pid, token);
    uint64_t bytes;
    session_attach(s, 0);
    assert_int_equal(channel_context_create(session_channel(s, 0), &bytes), 0);
    return s;
}

static void an_xid_does_what_it_does(void **state) {
    (void) state;
    struct sim_page *page = machine.gpu[0].page;
    struct sim_session *a = process(1), *b = process(2);
    fault_xid(&machine, 0, 31, 1);
    assert_int_equal(a->broken[0], 700);
    assert_int_equal(b->broken[0], 0);
    assert_int_equal(page->state, SIM_HEALTHY);
    fault_xid(&machine, 0, 63, 0);
    assert_int_equal(b->broken[0], 0);
    fault_xid(&machine, 0, 48, 2);
    assert_int_equal(b->broken[0], 214);
    assert_int_equal(page->state, SIM_NEEDS_RESET);
    assert_int_equal(fault_reset(&machine, 0), -EBUSY);
    fault_xid(&machine, 0, 79, 0);
    assert_int_equal(page->state, SIM_LOST);
    assert_int_equal(page->memory_used, 0);
    assert_int_equal(fault_reset(&machine, 0), 0);
    assert_int_equal(page->state, SIM_HEALTHY);
    assert_int_equal(host_page.events, 4);
    static const uint64_t told[] = {31, 63, 48, 79};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(host_page.event[i].data, told[i]);
        assert_int_equal(host_page.event[i].type, 8);
    }
}

static void the_nth_call_fails(void **state) {
    (void) state;
    uint32_t status = 0;
    const struct fault_rule rule = {.status = 2, .skip = 2, .times = 2};
    int slot = fault_arm(&machine, "cuMemAlloc*", &rule);
    assert_int_equal(slot, 0);
    assert_int_equal(host_page.faults, 1);
    uint32_t g = host_page.fault[0].generation;
    static const enum sim_fault_action expected[] = {SIM_FAULT_NONE, SIM_FAULT_NONE, SIM_FAULT_FAIL,
                                                     SIM_FAULT_FAIL, SIM_FAULT_NONE};
    for (int i = 0; i < 5; i++)
        assert_int_equal(fault_judge(&machine, 0, g, 1, UINT32_MAX, &status), expected[i]);
    assert_int_equal(status, 2);
    assert_int_equal(host_page.faults, 0);
    assert_int_equal(fault_judge(&machine, SIM_FAULTS, g, 1, UINT32_MAX, &status), SIM_FAULT_NONE);
    assert_int_equal(fault_judge(&machine, UINT32_MAX, 1, 1, UINT32_MAX, &status), SIM_FAULT_NONE);
}

static void rules_end_by_name(void **state) {
    (void) state;
    uint32_t status = 0;
    const struct fault_rule hang = {.hang = true, .pid = 7};
    for (uint32_t i = 0; i < SIM_FAULTS; i++)
        assert_int_equal(fault_arm(&machine, i == 3 ? "nvml*" : "cu*", &hang), i);
    assert_int_equal(fault_arm(&machine, "cu*", &hang), -ENOSPC);
    uint32_t g = host_page.fault[3].generation;
    assert_int_equal(fault_judge(&machine, 3, g, 8, UINT32_MAX, &status), SIM_FAULT_NONE);
    assert_int_equal(fault_judge(&machine, 3, g, 7, UINT32_MAX, &status), SIM_FAULT_HANG);
    assert_int_equal(fault_release(&machine, "nvml"), 0);
    assert_int_equal(fault_release(&machine, "nvml*"), 1);
    assert_int_equal(host_page.fault[3].generation, g + 1);
    assert_int_equal(fault_release(&machine, NULL), SIM_FAULTS - 1);
    assert_int_equal(host_page.faults, 0);
}

static void memory_under_pressure(void **state) {
    (void) state;
    struct sim_session *s = process(1);
    struct sim_channel *c = session_channel(s, 0);
    uint64_t total = machine.gpu[0].page->memory_total, left = total - c->used;
    assert_int_equal(fault_pressure(&machine, 0, left + 1), -ENOMEM);
    assert_int_equal(fault_pressure(&machine, 0, left - 5), 0);
    assert_int_equal(channel_take(c, 6), -ENOMEM);
    assert_int_equal(channel_take(c, 5), 0);
    assert_int_equal(fault_pressure(&machine, 0, 0), 0);
    assert_int_equal(machine.gpu[0].page->memory_used, c->used);
}

static void requests_are_checked(void **state) {
    (void) state;
    struct sim_control good = {.magic = SIM_CONTROL_MAGIC, .op = SIM_DO_XID}, got, bad;
    assert_int_equal(control_parse(&good, sizeof(good), &got), 0);
    assert_int_equal(control_parse(&good, sizeof(good) - 1, &got), -EPROTO);
    bad = good;
    bad.op = SIM_DO_END;
    assert_int_equal(control_parse(&bad, sizeof(bad), &got), -EPROTO);
    bad = good;
    memset(bad.names, 'x', sizeof(bad.names));
    assert_int_equal(control_parse(&bad, sizeof(bad), &got), -EPROTO);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_machine_as_described),
        cmocka_unit_test(defaults_follow_the_driver),
        cmocka_unit_test(mistakes_are_told_with_their_line),
        cmocka_unit_test(failure_leaves_what_was),
        cmocka_unit_test(topology_follows_the_positions),
        cmocka_unit_test(instances_are_placed_as_on_the_card),
        TEST(an_xid_does_what_it_does),
        TEST(the_nth_call_fails),
        TEST(rules_end_by_name),
        TEST(memory_under_pressure),
        cmocka_unit_test(requests_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
