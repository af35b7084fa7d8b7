/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <cmocka.h>
#include <string.h>

#include "agent/config/node_config.h"
#include "base/buf.h"
#include "base/err.h"
#include "fail-malloc.h"
#include "wire/yaml.h"

#define NODE "node-1"

static const char *const sharings[] = {"none", "timeSlicing", "mps"};
static const char *const modes[] = {"-", "share", "whole", "mps", "mig"};

static void show_devices(struct buf *out, const struct yaml *v) {
    if (!v)
        buf_puts(out, "all");
    else if (v->text)
        buf_printf(out, "%s of them", v->text);
    for (const struct yaml *item = v ? v->first : NULL; item; item = item->next)
        buf_printf(out, "%s%s", item->text, item->next ? "+" : "");
}

/* What differs from the defaults. */
static void show(const struct node_config *c, struct buf *out) {
    if (c->mig_strategy)
        buf_printf(out, "mig=%d ", c->mig_strategy);
    if (c->driver_root)
        buf_printf(out, "root=%s ", c->driver_root);
    for (size_t i = 0; i < c->ngpus; i++)
        buf_printf(out, "[%s]=%s ", c->gpus[i].pattern, c->gpus[i].name);
    for (size_t i = 0; i < c->nmigs; i++)
        buf_printf(out, "mig[%s]=%s ", c->migs[i].pattern, c->migs[i].name);
    if (c->sharing)
        buf_printf(out, "%s%s ", sharings[c->sharing],
                   c->fail_requests_greater_than_one ? ",one" : "");
    for (size_t i = 0; i < c->nreplicas; i++) {
        buf_printf(out, "%s(", c->replicas[i].name);
        show_devices(out, c->replicas[i].devices);
        buf_printf(out, ")*%u=%s ", c->replicas[i].replicas, c->replicas[i].rename);
    }
    if (c->allocation_policy)
        buf_printf(out, "allocation=%d ", c->allocation_policy);
    for (size_t i = 0; i < c->ncards; i++) {
        buf_puts(out, "cards(");
        show_devices(out, c->cards[i].devices);
        buf_printf(out, ")=%s*%u%s ", modes[c->cards[i].mode + 1], c->cards[i].memory_scaling,
                   c->cards[i].dynamic ? ",dynamic" : "");
    }
    if (c->mig_config)
        buf_printf(out, "migConfig=%s%s ", c->mig_config, c->mig_dynamic ? ",dynamic" : "");
    if (c->memory_scaling)
        buf_printf(out, "scaling=%u ", c->memory_scaling);
    if (c->mode >= 0)
        buf_printf(out, "mode=%s ", modes[c->mode + 1]);
    buf_printf(out, "%s%s%s%s%s", c->gds ? "gds " : "", c->mofed ? "mofed " : "",
               c->gdrcopy ? "gdrcopy " : "", c->imex ? "imex " : "",
               c->imex_required ? "required " : "");
}

static const struct {
    const char *text, *meant;
} good[] = {
    {"version: v1", ""},
    {"{\"version\": \"v1\"}", ""},
    {"version: v1\nflags:\nresources:\nsharing:\nimex:\naliquot:\n", ""},
    /* The samples of NVIDIA's documentation. */
    {"version: v1\nflags:\n  migStrategy: \"none\"\n  failOnInitError: true\n"
     "  nvidiaDriverRoot: \"/\"\n  plugin:\n    passDeviceSpecs: false\n"
     "    deviceListStrategy: envvar\n    deviceIDStrategy: uuid\n",
     "root=/ "},
    {"version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - name: nvidia.com/gpu\n"
     "      replicas: 10\n",
     "timeSlicing nvidia.com/gpu(all)*10=nvidia.com/gpu "},
    {"version: v1\nsharing:\n  timeSlicing:\n    renameByDefault: true\n"
     "    failRequestsGreaterThanOne: true\n    resources:\n    - name: nvidia.com/gpu\n"
     "      replicas: 4\n    - name: nvidia.com/mig-1g.5gb\n      replicas: 2\n",
     "timeSlicing,one nvidia.com/gpu(all)*4=nvidia.com/gpu.shared "
     "nvidia.com/mig-1g.5gb(all)*2=nvidia.com/mig-1g.5gb.shared "},
    {"version: v1\nsharing:\n  mps:\n    renameByDefault: true\n    resources:\n"
     "    - name: nvidia.com/gpu\n      replicas: 10\n",
     "mps,one nvidia.com/gpu(all)*10=nvidia.com/gpu.shared "},
    {"version: v1\nflags:\n  migStrategy: mixed\n  gfd:\n    oneshot: false\n"
     "    noTimestamp: false\n    outputFile: "
     "/etc/kubernetes/node-feature-discovery/features.d/gfd\n"
     "    sleepInterval: 60s\nimex:\n  channelIDs: [0]\n  required: false\n",
     "mig=2 imex "},
    {"version: v1\nflags: {gdsEnabled: true, mofedEnabled: true, gdrcopyEnabled: true}\n"
     "imex: {channelIDs: [0], required: true}\n",
     "gds mofed gdrcopy imex required "},
    {"version: v1\nflags: {gdsEnabled: false}\nimex: {channelIDs: []}\n", ""},
    /* What NVIDIA's plugin parses and throws away. */
    {"version: v1\nresources:\n  gpus:\n  - pattern: \"A100-SXM4-40GB\"\n    name: a100\n"
     "  - pattern: '*'\n    name: nvidia.com/gpu\n  mig:\n  - {pattern: 1g.5gb, name: mig-small}\n",
     "[A100-SXM4-40GB]=nvidia.com/a100 [*]=nvidia.com/gpu mig[1g.5gb]=nvidia.com/mig-small "},
    {"version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - name: gpu\n      rename: tiny\n"
     "      devices: [0, '1', \"0:1\", GPU-b1028956-cfa2-0990-bf4a-5da9abb51763,\n"
     "        MIG-GPU-b1028956-cfa2-0990-bf4a-5da9abb51763/3/0]\n      replicas: 3\n"
     "    - {name: gpu, devices: 2, replicas: 5}\n    - {name: gpu, devices: all, replicas: 7}\n",
     "timeSlicing nvidia.com/gpu(0+1+0:1+GPU-b1028956-cfa2-0990-bf4a-5da9abb51763"
     "+MIG-GPU-b1028956-cfa2-0990-bf4a-5da9abb51763/3/0)*3=nvidia.com/tiny "
     "nvidia.com/gpu(2 of them)*5=nvidia.com/gpu nvidia.com/gpu(all)*7=nvidia.com/gpu "},
    {"version: v1\naliquot:\n  allocationPolicy: aligned\n"
     "  cards: [{devices: [0, GPU-1], mode: share, memoryScaling: 1.5}, {devices: all, mode: "
     "mig}]\n"
     "  mig: {config: all-balanced, dynamic: true}\n",
     "allocation=2 cards(0+GPU-1)=share*1500 cards(all)=mig*0 migConfig=all-balanced,dynamic "},
    {"version: v1\naliquot: {cards: [{devices: [1], dynamic: true}, {devices: all, mode: share, "
     "dynamic: false}]}\n",
     "cards(1)=-*0,dynamic cards(all)=share*0 "},
    /* Lists of other projects. */
    {"{\"nodeConfig\": [{\"name\": \"other\"}, {\"name\": \"node-1\", \"deviceMemoryScaling\": 2.5,"
     " \"cgroupDriver\": \"systemd\"}]}",
     "scaling=2500 "},
    {"{\"nodeconfig\": [{\"name\": \"node-1\", \"operatingmode\": \"mig\", "
     "\"devicememoryscaling\": 0.5, \"devicesplitcount\": 10, \"migstrategy\": \"single\","
     "\"filterdevices\": {\"uuid\": [], \"index\": []}}]}",
     "mig=1 scaling=500 mode=mig "},
    {"{\"nodeConfig\": [{\"name\": \"other\", \"deviceMemoryScaling\": 2}]}", ""},
};

static void good_files(void **state) {
    (void) state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        _cleanup_(node_config_freep) struct node_config *c = NULL;
        _cleanup_buf_ struct buf out = BUF_INIT(4096);
        struct err err = {0};

        if (node_config_parse(good[i].text, strlen(good[i].text), NODE, &c, &err) < 0)
            fail_msg("%s: %s", good[i].text, err.text);
        show(c, &out);
        assert_string_equal(buf_str(&out), good[i].meant);
    }
}

#define SLICE(rest) "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - " rest "\n"
#define LONG "a-name-of-thirty-two-characters--"
#define OURS(rest) "version: v1\naliquot:\n  " rest "\n"

static const struct {
    const char *text, *why;
} bad[] = {
    {"", "the configuration is empty; the least is: version: v1"},
    {"flags: {}", "line 1, column 1: the key 'version' is missing"},
    {"version: v2", "line 1, column 10: version: 'v2' is not a known version; expected v1"},
    {"version: v1\nflag: {}", "line 2, column 1: unknown key 'flag'; did you mean 'flags'?"},
    {"version: v1\nflags:\n  migStrategie: none",
     "line 3, column 3: unknown key 'migStrategie'; did you mean 'migStrategy'?"},
    {"version: v1\nflags:\n  migStrategy: all",
     "line 3, column 16: migStrategy: 'all' is not none, single or mixed"},
    {"version: v1\nflags: {nvidiaDriverRoot: run}",
     "line 2, column 27: nvidiaDriverRoot: expected an absolute path, not 'run'"},
    {"version: v1\nflags: [a]", "line 2, column 8: flags: expected a map of keys and values"},
    {"version: v1\nflags:\n  plugin: {passDeviceSpec: true}",
     "line 3, column 12: unknown key 'passDeviceSpec'; did you mean 'passDeviceSpecs'?"},
    {"version: v1\nresources:\n  migs: []", "unknown key 'migs'; did you mean 'mig'?"},
    {"version: v1\nresources:\n  gpus: [{name: a}]",
     "line 3, column 10: the key 'pattern' is missing"},
    {"version: v1\nresources:\n  gpus: [{pattern: '*', name: My_GPU}]",
     "line 3, column 31: name: 'My_GPU' is not the name of a resource"},
    {"version: v1\nresources:\n  gpus: [{pattern: '*', name: other.com/gpu}]",
     "'other.com/gpu' is not the name of a resource"},
    {"version: v1\nresources:\n  gpus: [{pattern: '*', name: "
     "a-name-of-a-resource-with-more-characters-than-allowed}]",
     "has more than 63 characters"},
    {"version: v1\nsharing:\n  timeSlicing: {}",
     "line 3, column 16: timeSlicing: the key 'resources' is missing"},
    {"version: v1\nsharing:\n  timeSlicing: {resources: []}",
     "resources: the list is empty: expected at least one resource"},
    {"version: v1\nsharing:\n  timeSlicing: {resources: [{name: gpu, replicas: 2}]}\n"
     "  mps: {resources: [{name: gpu, replicas: 2}]}",
     "line 4, column 8: mps: timeSlicing and mps exclude each other on a node"},
    {"version: v1\nflags: {migStrategy: single}\n"
     "sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}",
     "line 3, column 16: mps: it needs flags.migStrategy: none"},
    {SLICE("{name: gpu}"), "line 5, column 7: the key 'replicas' is missing"},
    {SLICE("{replicas: 2}"), "line 5, column 7: the key 'name' is missing"},
    {SLICE("{name: gpu, replicas: 1}"),
     "line 5, column 29: replicas: '1' is not a whole number from 2 to 1024"},
    {SLICE("{name: gpu, replicas: ten}"), "replicas: 'ten' is not a whole number"},
    {SLICE("{name: gpu, replicas: 2, devices: 0}"),
     "line 5, column 41: devices: expected all, a number of devices from 1 to 128"},
    {SLICE("{name: gpu, replicas: 2, devices: []}"), "devices: the list of devices is empty"},
    {SLICE("{name: gpu, replicas: 2, devices: most}"), "devices: expected all, a number"},
    {SLICE("{name: gpu, replicas: 2, devices: [0, one]}"),
     "line 5, column 45: 'one' is not a device: expected an index (0)"},
    {SLICE("{name: gpu, replicas: 2, devices: [0:1:2]}"), "'0:1:2' is not a device"},
    {SLICE("{name: gpu, replicas: 2, device: 1}"), "did you mean 'devices'?"},
    {"version: v1\nsharing: {mps: {resources: [{name: gpu, replicas: 49}]}}\n",
     "49 replicas of nvidia.com/gpu: MPS serves at most 48 clients of a card"},
    {OURS("health: {intervall: 1s}"), "unknown key 'intervall'; did you mean 'interval'?"},
    {OURS("health: {interval: 5}"), "line 3, column 22: interval: '5' is not between 100 ms"},
    {OURS("health: {interval: fast}"), "interval: 'fast' is not a duration like 1s"},
    {OURS("health: {interval: 10s, deadline: 4s}"),
     "line 3, column 11: health: deadline (4000 ms) is shorter than interval (10000 ms)"},
    {OURS("health: {fatalXids: [45, 99999]}"), "line 3, column 28: '99999' is not an XID"},
    {OURS("health: {ignoreXids: 94}"), "ignoreXids: expected a list, not a number"},
    {OURS("health: {recover: Auto}"),
     "recover: 'Auto' is not manual or auto; did you mean 'auto'?"},
    {OURS("health: {flapping: {times: 17}}"), "times: '17' is not a whole number from 0 to 16"},
    {OURS("reset: {policy: always}"), "policy: 'always' is not never, idle or drain"},
    {OURS("reset: {command: [nvidia-smi]}"), "command: expected a program by its absolute path"},
    {OURS("reset: {command: []}"), "command: expected a program by its absolute path"},
    {OURS("cards: [{mode: share}]"), "line 3, column 11: the key 'devices' is missing"},
    {OURS("cards: [{devices: all, mode: shared}]"), "did you mean 'share'?"},
    {OURS("cards: [{devices: all, allocator: kube-schedular}]"),
     "allocator: 'kube-schedular' is not none, aliquot or kube-scheduler; did you mean "
     "'kube-scheduler'?"},
    {OURS("cards: [{devices: all, memoryScaling: 0.5}]"),
     "memoryScaling: expected a factor from 1 to 16 like 1.5, not '0.5'"},
    {OURS("mig: {dynamic: perhaps}"), "dynamic: expected true or false"},
    {OURS("cards: [{devices: all, dynamic: perhaps}]"), "dynamic: expected true or false"},
    {OURS("mig: {config: " LONG LONG LONG LONG "}"),
     "line 3, column 17: config: the name of a configuration has at most 127 characters"},
    {"{\"nodeConfig\": [{\"deviceMemoryScaling\": 2}]}", "the key 'name' is missing"},
    {"{\"nodeConfig\": [{\"name\": \"other\", \"deviceMemoryScaling\": 20}]}",
     "deviceMemoryScaling: expected a number above 0, up to 16, not '20'"},
    {"{\"nodeconfig\": [{\"name\": \"node-1\", \"operatingmode\": \"hami\"}]}",
     "operatingmode: 'hami' is not hami-core, mps or mig"},
    {"{\"nodeconfig\": {}}", "nodeconfig: expected a list, not a map"},
};

static void bad_files(void **state) {
    (void) state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct node_config *c = NULL;
        struct err err = {0};
        int r = node_config_parse(bad[i].text, strlen(bad[i].text), NODE, &c, &err);

        if (r != -EINVAL || !strstr(err.text, bad[i].why))
            fail_msg("'%s': %d, '%s', not '%s'", bad[i].text, r, err.text, bad[i].why);
        assert_null(c);
    }
}

static void health_and_reset(void **state) {
    static const char text[] =
        "version: v1\naliquot:\n"
        "  health: {interval: 500ms, deadline: 3s, settle: 2s, fatalXids: [45, 13],\n"
        "    ignoreXids: [94], maxTemperature: 95, recover: manual,\n"
        "    flapping: {times: 5, within: 1h}}\n"
        "  reset: {policy: drain, command: [/bin/reset, UUID], timeout: 30s}\n";
    _cleanup_(node_config_freep) struct node_config *c = NULL;
    struct err err = {0};

    (void) state;
    if (node_config_parse(text, strlen(text), NODE, &c, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(c->health.interval_ms, 500);
    assert_int_equal(c->health.deadline_ms, 3000);
    assert_int_equal(c->health.settle_ms, 2000);
    assert_true(xid_set_has(&c->health.xids.fatal, 45) && xid_set_has(&c->health.xids.fatal, 13));
    assert_true(xid_set_has(&c->health.xids.ignored, 94));
    assert_false(xid_set_has(&c->health.xids.ignored, 45));
    assert_int_equal(c->health.max_temperature, 95);
    assert_false(c->health.recover);
    assert_int_equal(c->health.flapping_times, 5);
    assert_int_equal(c->health.flapping_within_ms, 3600000);
    assert_int_equal(c->health.reset, HEALTH_RESET_DRAIN);
    assert_int_equal(c->health.reset_timeout_ms, 30000);
    assert_string_equal(c->health.reset_command[0], "/bin/reset");
    assert_string_equal(c->health.reset_command[1], "UUID");
    assert_null(c->health.reset_command[2]);
}

static void without_a_file(void **state) {
    _cleanup_(node_config_freep) struct node_config *c = node_config_new();

    (void) state;
    assert_memory_equal(&c->health, &health_defaults, sizeof(health_defaults));
    assert_int_equal(c->sharing, CONFIG_SHARING_NONE);
    assert_int_equal(c->mode, -1);
}

/* As NVIDIA documents them: anywhere in the text, and the first that matches counts. */
static void patterns(void **state) {
    static const struct config_pattern rows[] = {
        {"A100-SXM4", "a"}, {"1g.*+me", "b"}, {"1g", "c"}, {"*H*0*HBM3", "d"}, {"", "e"}};
    static const struct {
        const char *text, *name;
    } cases[] = {
        {"NVIDIA A100-SXM4-40GB", "a"}, {"1g.5gb+me", "b"},    {"1g.5gb", "c"},   {"11g.5gb", "c"},
        {"NVIDIA H100 80GB HBM3", "d"}, {"NVIDIA HBM3", NULL}, {"2g.10gb", NULL}, {"", NULL},
    };

    (void) state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *name = node_config_name(rows, 4, cases[i].text);

        if (!name != !cases[i].name || (name && strcmp(name, cases[i].name) != 0))
            fail_msg("%s: %s", cases[i].text, name ? name : "none");
        assert_non_null(node_config_name(rows, 5, cases[i].text));
    }
}

/* What has no effect is named with its line. */
static void notes(void **state) {
    static const char text[] = "version: v1\nflags:\n  failOnInitError: true\n  plugin:\n"
                               "    deviceListStrategy: [envvar, cdi-cri]\n";
    _cleanup_(node_config_freep) struct node_config *c = NULL;

    (void) state;
    assert_int_equal(node_config_parse(text, strlen(text), NODE, &c, NULL), 0);
    assert_string_equal(buf_str(&c->notes),
                        "line 3: failOnInitError has no effect here: the agent waits for a driver "
                        "and reports that it has none\n"
                        "line 5: deviceListStrategy has no effect here: devices are given to "
                        "containers by CDI\n");
}

/* The channels can come from the environment. */
static void required_without_a_channel(void **state) {
    static const char text[] = "version: v1\nimex: {required: true}\n";
    struct config_overrides over = {0};
    size_t channels = 0;

    (void) state;
    while (strcmp(config_variable_name(channels), "IMEX_CHANNEL_IDS") != 0)
        channels++;
    for (size_t i = 0; i < 2; i++) {
        _cleanup_(node_config_freep) struct node_config *c = NULL;

        over.variables[channels] = i == 0 ? NULL : "0";
        assert_int_equal(node_config_parse(text, strlen(text), NODE, &c, NULL), 0);
        assert_int_equal(node_config_override(c, &over, NULL), 0);
        assert_string_equal(
            buf_str(&c->notes),
            i == 0 ? "imex.required has no effect here: imex.channelIDs names no channel\n" : "");
    }
}

static void overrides(void **state) {
    static const char text[] = "version: v1\nflags: {migStrategy: single}\n"
                               "aliquot: {health: {fatalXids: [45], ignoreXids: [79]}}\n";
    const struct config_overrides none = {0}, some = {.mig_strategy = "mixed",
                                                      .allocation_policy = "packed",
                                                      .disable_health_checks = "45,bad",
                                                      .enable_health_checks = "79"};
    const struct config_overrides single = {.mig_strategy = "single"},
                                  elsewhere = {.mig_strategy = "single", .gpu_is_elsewhere = true};
    const struct config_overrides wrong = {.mig_strategy = "mixd"};
    _cleanup_(node_config_freep) struct node_config *c = NULL;
    struct err err = {0};

    (void) state;
    assert_int_equal(node_config_parse(text, strlen(text), NODE, &c, NULL), 0);
    assert_int_equal(node_config_override(c, &none, &err), -EINVAL);
    assert_non_null(strstr(err.text, "add --served-elsewhere nvidia.com/gpu"));
    assert_int_equal(node_config_override(c, &elsewhere, &err), 0);
    assert_int_equal(c->mig_strategy, MIG_STRATEGY_SINGLE);
    assert_int_equal(node_config_override(c, &single, &err), -EINVAL);
    assert_int_equal(xid_action(&c->health.xids, 45), XID_TAKE_OUT);
    assert_int_equal(node_config_override(c, &some, &err), 0);
    assert_int_equal(c->mig_strategy, MIG_STRATEGY_MIXED);
    assert_int_equal(c->allocation_policy, CONFIG_PACKED);
    assert_int_not_equal(xid_action(&c->health.xids, 45), XID_TAKE_OUT);
    assert_int_equal(xid_action(&c->health.xids, 79), XID_TAKE_OUT);
    assert_non_null(strstr(buf_str(&c->notes), "'bad' is not an XID"));
    assert_int_equal(node_config_override(c, &wrong, &err), -EINVAL);
    assert_string_equal(err.text, "--mig-strategy ($MIG_STRATEGY) 'mixd' is not none, single or "
                                  "mixed; did you mean 'mixed'?");
}

/* Each switch of the file has a variable, which takes precedence in both directions. */
static void switches_by_variables(void **state) {
    static const struct {
        const char *variable, *key, *shown;
    } rows[] = {
        {"GDS_ENABLED", "flags: {gdsEnabled: ", "gds "},
        {"MOFED_ENABLED", "flags: {mofedEnabled: ", "mofed "},
        {"GDRCOPY_ENABLED", "flags: {gdrcopyEnabled: ", "gdrcopy "},
        {"IMEX_REQUIRED", "imex: {channelIDs: [0], required: ", "required "},
    };
    static const struct {
        const char *file, *variable;
        bool on;
    } cases[] = {{"true", NULL, true},     {"false", NULL, false}, {"false", "true", true},
                 {"true", "false", false}, {"false", "1", true},   {"true", "F", false}};

    (void) state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        size_t at = 0;

        while (strcmp(config_variable_name(at), rows[i].variable) != 0)
            at++;
        for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
            _cleanup_(node_config_freep) struct node_config *c = NULL;
            _cleanup_buf_ struct buf out = BUF_INIT(256);
            struct config_overrides over = {0};
            struct err err = {0};
            char text[128];

            over.variables[at] = cases[k].variable;
            (void) snprintf(text, sizeof(text), "version: v1\n%s%s}\n", rows[i].key, cases[k].file);
            assert_int_equal(node_config_parse(text, strlen(text), NODE, &c, &err), 0);
            assert_int_equal(node_config_override(c, &over, &err), 0);
            show(c, &out);
            if ((strstr(buf_str(&out), rows[i].shown) != NULL) != cases[k].on)
                fail_msg("%s, $%s=%s: %s", text, rows[i].variable,
                         cases[k].variable ? cases[k].variable : "", buf_str(&out));
        }
    }
}

/* kubelet and aliquot-scheduler would both give out what has one name. */
static void names_of_cards(void **state) {
    static const struct {
        const char *text, *why; /* NULL: they are accepted */
    } cases[] = {
        /* aliquot-scheduler gives out the replicas. */
        {"sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}]}}", NULL},
        {"sharing: {mps: {renameByDefault: true, resources: [{name: gpu, replicas: 2}]}}", NULL},
        {"sharing: {timeSlicing: {resources: [{name: gpu, rename: gpumem, replicas: 2}]}}",
         "sharing.timeSlicing offers nvidia.com/gpumem to kubelet"},
        {"sharing: {mps: {resources: [{name: gpu, rename: vcuda-core, replicas: 2}]}}",
         "sharing.mps offers nvidia.com/vcuda-core to kubelet"},
        {"sharing: {timeSlicing: {resources: [{name: gpu, rename: slice, replicas: 2}]}}", NULL},
        {"resources: {gpus: [{pattern: T4, name: t4}]}", NULL},
        {"resources: {gpus: [{pattern: T4, name: vcuda-core}]}",
         "resources.gpus offers nvidia.com/vcuda-core to kubelet, which aliquot-scheduler reads as "
         "a share: add --served-elsewhere nvidia.com/vcuda-core (to the scheduler, too)"},
        /* aliquot-scheduler gives out the whole cards. */
        {"resources: {gpus: [{pattern: T4, name: gpu}]}", NULL},
        {"aliquot: {cards: [{devices: all, mode: whole}]}", NULL},
    };
    const struct config_overrides none = {0};

    (void) state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        _cleanup_(node_config_freep) struct node_config *c = NULL;
        char text[256];
        struct err err = {0};

        (void) snprintf(text, sizeof(text), "version: v1\n%s\n", cases[i].text);
        assert_int_equal(node_config_parse(text, strlen(text), NODE, &c, NULL), 0);
        if (cases[i].why) {
            assert_int_equal(node_config_override(c, &none, &err), -EINVAL);
            if (!strstr(err.text, cases[i].why))
                fail_msg("%s: %s", text, err.text);
        } else if (node_config_override(c, &none, &err) < 0) {
            fail_msg("%s: %s", text, err.text);
        }
    }
}

/* A MIG instance under a name of shares would be taken for a share. */
static void names_of_mig_resources(void **state) {
    static const char format[] = "version: v1\nflags: {migStrategy: %s}\n"
                                 "resources: {mig: [{pattern: '*', name: %s}]}\n";
    static const struct {
        const char *strategy, *name;
        int result;
    } cases[] = {
        {"mixed", "gpu", -EINVAL},     {"mixed", "gpumem", -EINVAL}, {"mixed", "gpucores", -EINVAL},
        {"single", "gpumem", -EINVAL}, {"single", "gpu", 0},         {"mixed", "mig-1g.10gb", 0},
        {"mixed", "mine", 0},          {"none", "gpu", 0},
    };
    const struct config_overrides over = {.gpu_is_elsewhere = true};

    (void) state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        _cleanup_(node_config_freep) struct node_config *c = NULL;
        char text[256], message[64];
        struct err err = {0};

        (void) snprintf(text, sizeof(text), format, cases[i].strategy, cases[i].name);
        (void) snprintf(message, sizeof(message), "resources.mig[0]: nvidia.com/%s is a name of",
                        cases[i].name);
        assert_int_equal(node_config_parse(text, strlen(text), NODE, &c, NULL), 0);
        assert_int_equal(node_config_override(c, &over, &err), cases[i].result);
        if (cases[i].result < 0)
            assert_non_null(strstr(err.text, message));
    }
}

static void no_memory(void **state) {
    bool failed = true;

    (void) state;
    for (size_t nth = 1; failed; nth++) {
        _cleanup_(node_config_freep) struct node_config *c = NULL;
        const char *text = good[12].text;
        int r;

        fail_malloc_at(nth);
        r = node_config_parse(text, strlen(text), NODE, &c, NULL);
        failed = fail_malloc_end();
        assert_true(r == 0 || (failed && r == -ENOMEM));
        assert_true(nth < 1000);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_files),
        cmocka_unit_test(bad_files),
        cmocka_unit_test(health_and_reset),
        cmocka_unit_test(without_a_file),
        cmocka_unit_test(notes),
        cmocka_unit_test(required_without_a_channel),
        cmocka_unit_test(overrides),
        cmocka_unit_test(switches_by_variables),
        cmocka_unit_test(names_of_cards),
        cmocka_unit_test(names_of_mig_resources),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(patterns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
