/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/daemon/config.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "abi/nvml.h"
#include "base/num.h"
#include "base/units.h"
#include "sim/daemon/machine.h"
#include "sim/mig.h"

#define SECOND_NS 1000000000ull
#define SLICE_NS 2000000ull
#define SAMPLE_NS (SECOND_NS / 6)
#define LINE_MAX_BYTES 512u
#define NVSWITCHES_MAX 32u
#define NUMA_MAX 64u
#define CPUS_MAX 1024u
#define LIMITS_BRANCH 615u /* the first driver with memory limits of control groups */

/* -- values ---------------------------------------------------------------------------------- */

static int bad_value(struct err *err, const char *value, const char *expected) {
    return err_set(err, EINVAL, "'%s' is not %s", value, expected);
}

static int parse_number(const char *value, uint64_t max, uint32_t *ret, struct err *err) {
    uint64_t n;
    if (num_parse_u64(value, max, &n) < 0)
        return err_set(err, EINVAL, "'%s' is not a number from 0 to %llu", value,
                       (unsigned long long) max);
    *ret = (uint32_t) n;
    return 0;
}

static int parse_choice(const char *value, const char *no, const char *yes, bool *ret,
                        struct err *err) {
    if (strcmp(value, yes) != 0 && strcmp(value, no) != 0)
        return err_set(err, EINVAL, "'%s' is neither '%s' nor '%s'", value, no, yes);
    *ret = strcmp(value, yes) == 0;
    return 0;
}

int config_parse_duration(const char *value, uint64_t min, uint64_t max, uint64_t *ret,
                          struct err *err) {
    static const struct {
        const char *unit;
        uint64_t ns;
    } units[] = {{"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", SECOND_NS}};
    char digits[24];
    size_t n = strspn(value, "0123456789");
    uint64_t number;
    if (n == 0 || n >= sizeof(digits))
        return bad_value(err, value, "a time such as 2ms");
    memcpy(digits, value, n);
    digits[n] = '\0';
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(value + n, units[i].unit) != 0)
            continue;
        if (num_parse_u64(digits, max / units[i].ns, &number) < 0 || number * units[i].ns < min)
            return err_set(err, EINVAL, "'%s' is not between %llu us and %llu ms", value,
                           (unsigned long long) min / 1000u, (unsigned long long) max / 1000000u);
        *ret = number * units[i].ns;
        return 0;
    }
    return bad_value(err, value, "a time with its unit: ns, us, ms or s");
}

/* -- the machine ----------------------------------------------------------------------------- */

/* The CUDA version of each driver branch; a branch in between has that of the one before. */
static uint32_t cuda_of_branch(uint32_t branch) {
    static const struct {
        uint32_t branch, cuda;
    } known[] = {{615, 13040}, {610, 13030}, {595, 13020}, {590, 13010}, {580, 13000},
                 {575, 12090}, {570, 12080}, {565, 12070}, {560, 12060}, {555, 12050},
                 {550, 12040}, {545, 12030}, {535, 12020}, {530, 12010}, {525, 12000}};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (branch >= known[i].branch)
            return known[i].cuda;
    return 0;
}

static int set_driver(struct sim_config *c, const char *value, struct err *err) {
    unsigned int branch, minor, patch = 0;
    int end = 0;
    size_t len = strlen(value);
    bool two = sscanf(value, "%3u.%3u%n", &branch, &minor, &end) == 2 && (size_t) end == len;
    bool three =
        sscanf(value, "%3u.%3u.%2u%n", &branch, &minor, &patch, &end) == 3 && (size_t) end == len;
    if ((!two && !three) || len >= sizeof(c->driver) || !isdigit((unsigned char) *value))
        return bad_value(err, value, "a driver version such as 570.124.06");
    if (cuda_of_branch(branch) == 0 || branch > 615)
        return err_set(err, EINVAL, "driver %s: branches 525 to 615 can be simulated", value);
    memcpy(c->driver, value, len + 1);
    c->cuda = cuda_of_branch(branch);
    c->limits = branch < LIMITS_BRANCH ? SIM_MEMORY_OFF : SIM_MEMORY_MISC;
    c->host_pids = branch < 545; /* from then on the driver answers in the reader's namespace */
    return 0;
}

/* After `driver`, which has it or not. */
static int set_limits(struct sim_config *c, const char *value, struct err *err) {
    static const char *const names[] = {
        [SIM_MEMORY_OFF] = "off", [SIM_MEMORY_MISC] = "misc", [SIM_MEMORY_DMEM] = "dmem"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(value, names[i]) != 0)
            continue;
        if (i != SIM_MEMORY_OFF && c->cuda < cuda_of_branch(LIMITS_BRANCH))
            return err_set(err, EINVAL, "memory limits need driver %u; name it first",
                           LIMITS_BRANCH);
        c->limits = (enum sim_memory_accounting) i;
        return 0;
    }
    return bad_value(err, value, "off, misc or dmem");
}

static int set_numa_nodes(struct sim_config *c, const char *value, struct err *err) {
    uint32_t n = 0;
    int r = parse_number(value, NUMA_MAX, &n, err);
    if (r == 0 && n == 0)
        return err_set(err, EINVAL, "a machine has at least one NUMA node");
    if (r == 0)
        c->numa_nodes = n;
    return r;
}

/* The guest finds ten bytes each in PCI config space. */
static int set_host_text(char ret[static 11], const char *value, struct err *err) {
    size_t n = strlen(value);
    if (n == 0 || n > 10)
        return bad_value(err, value, "a text of 1 to 10 characters");
    memcpy(ret, value, n + 1);
    return 0;
}

static int set_host_driver(struct sim_config *c, const char *value, struct err *err) {
    return set_host_text(c->host_driver, value, err);
}

static int set_host_branch(struct sim_config *c, const char *value, struct err *err) {
    return set_host_text(c->host_branch, value, err);
}

static int set_cpus(struct sim_config *c, const char *value, struct err *err) {
    return parse_number(value, CPUS_MAX, &c->cpus_per_node, err);
}

static const struct {
    const char *key;
    int (*set)(struct sim_config *c, const char *value, struct err *err);
} machine_keys[] = {
    {"driver", set_driver},      {"memory-limits", set_limits},    {"numa", set_numa_nodes},
    {"cpus-per-node", set_cpus}, {"host-driver", set_host_driver}, {"host-branch", set_host_branch},
};

/* Keys that choose between two words; the second sets the bool at `at`. */
static const struct {
    const char *key, *no, *yes;
    size_t at;
} machine_choices[] = {
    {"pids", "namespace", "host", offsetof(struct sim_config, host_pids)},
    {"kernels", "built-in", "timing-only", offsetof(struct sim_config, timing_only)},
    {"clock", "real", "stepped", offsetof(struct sim_config, stepped)},
    {"virtualization", "none", "vgpu", offsetof(struct sim_config, vgpu)},
    {"accounting", "off", "on", offsetof(struct sim_config, accounting)},
    {"fork", "keep", "close", offsetof(struct sim_config, fork_closes)},
    {"mig-change", "at-once", "reset", offsetof(struct sim_config, mig_needs_reset)},
    {"dead-pids", "hidden", "listed", offsetof(struct sim_config, lists_dead)},
};

static const struct {
    const char *key;
    uint64_t min_ns, max_ns;
    size_t at; /* of the nanoseconds */
} machine_durations[] = {
    {"slice", 10000, SECOND_NS, offsetof(struct sim_config, slice_ns)},
    {"context-switch", 0, SECOND_NS, offsetof(struct sim_config, switch_ns)},
    {"sample", 10000000, 10 * SECOND_NS, offsetof(struct sim_config, sample_ns)},
};

/* -- GPUs ------------------------------------------------------------------------------------ */

static void gpu_use_model(struct sim_gpu_config *g, const struct sim_model *model) {
    g->model = model;
    g->memory = model->memory;
    g->context = model->context_mib * MIB;
    g->ecc = model->ecc;
}

static int set_model(struct sim_gpu_config *g, const char *value, struct err *err) {
    const struct sim_model *model = model_find(value);
    if (!model)
        return err_set(err, EINVAL, "no model '%s'; `aliquot sim --help` lists them", value);
    gpu_use_model(g, model);
    return 0;
}

static int set_memory(struct sim_gpu_config *g, const char *value, struct err *err) {
    uint64_t bytes;
    if (num_parse_size(value, &bytes) < 0 || bytes < 64 * MIB || bytes > (uint64_t) 1 << 48 ||
        bytes % MIB != 0)
        return bad_value(err, value, "a size of whole MiB, such as 80Gi, from 64Mi on");
    g->memory = bytes;
    return 0;
}

static int set_context(struct sim_gpu_config *g, const char *value, struct err *err) {
    uint64_t bytes;
    if (num_parse_size(value, &bytes) < 0 || bytes > g->memory)
        return bad_value(err, value, "a size, such as 416Mi, of at most the card's memory");
    g->context = bytes;
    return 0;
}

static int set_uuid(struct sim_gpu_config *g, const char *value, struct err *err) {
    static const char shape[] = "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    bool ok = strlen(value) == sizeof(shape) - 1;
    for (size_t i = 0; ok && shape[i]; i++)
        ok = shape[i] == 'x'
                 ? isxdigit((unsigned char) value[i]) && !isupper((unsigned char) value[i])
                 : value[i] == shape[i];
    if (!ok)
        return bad_value(err, value, "a UUID: GPU- and 32 small hexadecimal digits with dashes");
    memcpy(g->uuid, value, sizeof(shape));
    return 0;
}

static int set_serial(struct sim_gpu_config *g, const char *value, struct err *err) {
    size_t n = strlen(value);
    if (n == 0 || n >= 30 || strspn(value, "0123456789") != n)
        return bad_value(err, value, "a serial number of up to 29 digits");
    memcpy(g->serial, value, n + 1);
    return 0;
}

static int set_pci(struct sim_gpu_config *g, const char *value, struct err *err) {
    unsigned int domain, bus, device;
    int end = 0;
    if (sscanf(value, "%4x:%2x:%2x%n", &domain, &bus, &device, &end) != 3 ||
        (strcmp(value + end, "") != 0 && strcmp(value + end, ".0") != 0) || device > 0x1f ||
        !isxdigit((unsigned char) *value))
        return bad_value(err, value, "a PCI address such as 0000:07:00.0");
    g->pci_domain = domain;
    g->pci_bus = bus;
    g->pci_device = device;
    g->has_pci = true;
    return 0;
}

static int set_numa(struct sim_gpu_config *g, const char *value, struct err *err) {
    return parse_number(value, NUMA_MAX - 1, &g->numa, err);
}

static int set_root(struct sim_gpu_config *g, const char *value, struct err *err) {
    return parse_number(value, 4095, &g->root, err);
}

static int set_bridge(struct sim_gpu_config *g, const char *value, struct err *err) {
    return parse_number(value, 4095, &g->bridge, err);
}

static int set_ecc(struct sim_gpu_config *g, const char *value, struct err *err) {
    return parse_choice(value, "off", "on", &g->ecc, err);
}

/* Whether the geometry fits on the card is seen once its memory is known. */
static int set_mig(struct sim_gpu_config *g, const char *value, struct err *err) {
    size_t n = strlen(value);
    if (strcmp(value, "off") == 0) {
        g->mig[0] = '\0';
        return 0;
    }
    if (n == 0 || n >= sizeof(g->mig))
        return bad_value(err, value, "off, on, or a list such as 3g.40gb,1g.10gb");
    (void) snprintf(g->mig, sizeof(g->mig), "%s", strcmp(value, "on") == 0 ? "-" : value);
    return 0;
}

const char *config_licence_name(enum sim_licence licence) {
    static const char *const names[] = {[SIM_LICENSED] = "licensed",
                                        [SIM_UNLICENSED] = "unlicensed",
                                        [SIM_LICENCE_EXPIRED] = "expired"};
    return names[licence];
}

int config_parse_licence(const char *value, enum sim_licence *ret, struct err *err) {
    for (size_t i = 0; i < SIM_LICENCES; i++)
        if (strcmp(value, config_licence_name((enum sim_licence) i)) == 0) {
            *ret = (enum sim_licence) i;
            return 0;
        }
    return bad_value(err, value, "licensed, unlicensed or expired");
}

static int set_licence(struct sim_gpu_config *g, const char *value, struct err *err) {
    g->has_licence = true;
    return config_parse_licence(value, &g->licence, err);
}

/* Appends the bytes of a text of hexadecimal digits, dashes left out. False: it has other
 * characters or another number of digits. */
static bool parse_uuid(const char *text, size_t len, uint8_t ret[static 16]) {
    size_t n = 0;
    memset(ret, 0, 16);
    for (size_t i = 0; i < len; i++) {
        const char *digits = "0123456789abcdef", *at = text[i] ? strchr(digits, text[i]) : NULL;
        if (text[i] == '-')
            continue;
        if (!at || n == 32)
            return false;
        ret[n / 2] = (uint8_t) (ret[n / 2] << 4 | (at - digits));
        n++;
    }
    return n == 32;
}

/* The cluster's UUID and the number of the clique in it; or how far it is from knowing them. */
static int set_fabric(struct sim_gpu_config *g, const char *value, struct err *err) {
    const char *dot = strchr(value, '.');
    uint64_t clique = 0;
    if (strcmp(value, "in-progress") == 0 || strcmp(value, "not-started") == 0) {
        g->fabric_state =
            *value == 'i' ? NVML_GPU_FABRIC_STATE_IN_PROGRESS : NVML_GPU_FABRIC_STATE_NOT_STARTED;
        return 0;
    }
    if (!dot || !parse_uuid(value, (size_t) (dot - value), g->cluster) ||
        num_parse_u64(dot + 1, UINT32_MAX, &clique) < 0)
        return bad_value(err, value, "UUID.CLIQUE, in-progress or not-started");
    g->clique = (uint32_t) clique;
    g->fabric_state = NVML_GPU_FABRIC_STATE_COMPLETED;
    return 0;
}

static const struct {
    const char *key;
    int (*set)(struct sim_gpu_config *g, const char *value, struct err *err);
    bool single; /* no two GPUs can have the same */
} gpu_keys[] = {
    {"model", set_model, false},
    {"memory", set_memory, false},
    {"context", set_context, false},
    {"uuid", set_uuid, true},
    {"serial", set_serial, true},
    {"pci", set_pci, true},
    {"numa", set_numa, false},
    {"pcie-root", set_root, false},
    {"pcie-switch", set_bridge, false},
    {"ecc", set_ecc, false},
    {"mig", set_mig, false},
    {"licence", set_licence, false},
    {"fabric", set_fabric, false},
};

void config_init(struct sim_config *ret) {
    struct err ignored;
    memset(ret, 0, sizeof(*ret));
    (void) set_driver(ret, SIM_DRIVER_VERSION, &ignored);
    ret->slice_ns = SLICE_NS;
    ret->sample_ns = SAMPLE_NS;
    ret->numa_nodes = 1;
}

/* Default topology: a host bridge of its own, on the first node. */
static void gpu_init(struct sim_gpu_config *g, uint32_t minor) {
    memset(g, 0, sizeof(*g));
    g->root = 4096 + minor;
    g->bridge = 4096 + minor;
}

int config_add_gpu(struct sim_config *c, const struct sim_model *model) {
    if (c->ngpus == SIM_MAX_GPUS)
        return -ENOSPC;
    struct sim_gpu_config *g = &c->gpu[c->ngpus];
    gpu_init(g, c->ngpus++);
    gpu_use_model(g, model);
    return 0;
}

/* -- NVLink ---------------------------------------------------------------------------------- */

static uint32_t links_used(const struct sim_config *c, uint32_t gpu) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < SIM_MAX_GPUS; i++)
        sum += c->links[gpu][i];
    return sum;
}

static int set_switches(struct sim_config *c, const char *value, struct err *err) {
    return parse_number(value, NVSWITCHES_MAX, &c->nvswitches, err);
}

/* "0-1 = 4" */
static int set_pair(struct sim_config *c, const char *key, const char *value, struct err *err) {
    unsigned int a, b;
    uint32_t n = 0;
    int end = 0;
    if (sscanf(key, "%2u-%2u%n", &a, &b, &end) != 2 || key[end] || !isdigit((unsigned char) *key) ||
        a == b)
        return err_set(err, EINVAL, "'%s' is neither 'switches' nor two GPUs such as 0-1", key);
    if (a >= c->ngpus || b >= c->ngpus)
        return err_set(err, EINVAL, "there is no GPU %u above this line", a >= c->ngpus ? a : b);
    int r = parse_number(value, SIM_MAX_LINKS, &n, err);
    if (r < 0)
        return r;
    if (c->links[a][b])
        return err_set(err, EINVAL, "the links of GPUs %u and %u are given twice", a, b);
    c->links[a][b] = c->links[b][a] = (uint8_t) n;
    const unsigned int ends[] = {a, b};
    for (int i = 0; i < 2; i++) {
        const struct sim_model *model = c->gpu[ends[i]].model;
        if (model && links_used(c, ends[i]) > model->nvlinks)
            return err_set(err, EINVAL, "GPU %u (%s) has %u NVLinks", ends[i], model->alias,
                           model->nvlinks);
    }
    return 0;
}

/* -- the file -------------------------------------------------------------------------------- */

enum section { SECTION_NONE, SECTION_MACHINE, SECTION_GPU, SECTION_NVLINK };

struct parser {
    struct sim_config *config;
    enum section section;
    bool had_machine;
    uint32_t first, last; /* the GPUs of the section */
};

static char *trim(char *s) {
    s += strspn(s, " \t\r");
    size_t n = strlen(s);
    while (n > 0 && strchr(" \t\r", s[n - 1]))
        s[--n] = '\0';
    return s;
}

static int open_gpus(struct parser *p, const char *range, struct err *err) {
    unsigned int first, last;
    int end = 0;
    size_t len = strlen(range);
    if (isdigit((unsigned char) *range) && sscanf(range, "%2u%n", &first, &end) == 1 &&
        (size_t) end == len)
        last = first;
    else if (!isdigit((unsigned char) *range) ||
             sscanf(range, "%2u-%2u%n", &first, &last, &end) != 2 || (size_t) end != len)
        return err_set(err, EINVAL, "'%s' is neither a GPU nor a range such as 0-7", range);
    if (last < first || last >= SIM_MAX_GPUS)
        return err_set(err, EINVAL, "GPUs are numbered 0 to %u", SIM_MAX_GPUS - 1);
    if (first > p->config->ngpus)
        return err_set(err, EINVAL, "GPU %u is missing: they are described in their order",
                       p->config->ngpus);
    p->section = SECTION_GPU;
    p->first = first;
    p->last = last;
    while (p->config->ngpus <= last) {
        gpu_init(&p->config->gpu[p->config->ngpus], p->config->ngpus);
        p->config->ngpus++;
    }
    return 0;
}

static int open_section(struct parser *p, char *line, struct err *err) {
    size_t n = strlen(line);
    if (line[n - 1] != ']')
        return err_set(err, EINVAL, "a section ends with ']'");
    line[n - 1] = '\0';
    char *name = trim(line + 1);
    if (strcmp(name, "machine") == 0) {
        if (p->had_machine || p->section != SECTION_NONE)
            return err_set(err, EINVAL, "[machine] comes once, before all other sections");
        p->had_machine = true;
        p->section = SECTION_MACHINE;
        return 0;
    }
    if (strcmp(name, "nvlink") == 0) {
        p->section = SECTION_NVLINK;
        return 0;
    }
    if (strncmp(name, "gpu", 3) == 0 && strchr(" \t", name[3]) && name[3])
        return open_gpus(p, trim(name + 3), err);
    return err_set(err, EINVAL, "no section [%s]; there are [machine], [gpu N] and [nvlink]", name);
}

static int set_machine_key(struct parser *p, const char *key, const char *value, struct err *err) {
    char *config = (char *) p->config;
    for (size_t i = 0; i < sizeof(machine_keys) / sizeof(machine_keys[0]); i++)
        if (strcmp(machine_keys[i].key, key) == 0)
            return machine_keys[i].set(p->config, value, err);
    for (size_t i = 0; i < sizeof(machine_choices) / sizeof(machine_choices[0]); i++)
        if (strcmp(machine_choices[i].key, key) == 0)
            return parse_choice(value, machine_choices[i].no, machine_choices[i].yes,
                                (bool *) (config + machine_choices[i].at), err);
    for (size_t i = 0; i < sizeof(machine_durations) / sizeof(machine_durations[0]); i++)
        if (strcmp(machine_durations[i].key, key) == 0)
            return config_parse_duration(
                value, machine_durations[i].min_ns, machine_durations[i].max_ns,
                (uint64_t *) (void *) (config + machine_durations[i].at), err);
    return err_set(err, EINVAL, "[machine] has no key '%s'", key);
}

static int set_gpu_key(struct parser *p, const char *key, const char *value, struct err *err) {
    for (size_t i = 0; i < sizeof(gpu_keys) / sizeof(gpu_keys[0]); i++) {
        if (strcmp(gpu_keys[i].key, key) != 0)
            continue;
        if (gpu_keys[i].single && p->first != p->last)
            return err_set(err, EINVAL, "no two GPUs have the same %s", key);
        for (uint32_t g = p->first; g <= p->last; g++) {
            if (!p->config->gpu[g].model && gpu_keys[i].set != set_model)
                return err_set(err, EINVAL, "the model of GPU %u comes first", g);
            int r = gpu_keys[i].set(&p->config->gpu[g], value, err);
            if (r < 0)
                return r;
        }
        return 0;
    }
    return err_set(err, EINVAL, "[gpu] has no key '%s'", key);
}

static int set_key(struct parser *p, char *line, struct err *err) {
    char *sign = strchr(line, '=');
    if (!sign)
        return err_set(err, EINVAL, "'%s' is neither a section nor 'key = value'", line);
    *sign = '\0';
    const char *key = trim(line), *value = trim(sign + 1);
    switch (p->section) {
    case SECTION_MACHINE:
        return set_machine_key(p, key, value, err);
    case SECTION_GPU:
        return set_gpu_key(p, key, value, err);
    case SECTION_NVLINK:
        return strcmp(key, "switches") == 0 ? set_switches(p->config, value, err)
                                            : set_pair(p->config, key, value, err);
    default:
        return err_set(err, EINVAL, "'%s' is before the first section", key);
    }
}

static int parse_line(struct parser *p, const char *text, size_t len, struct err *err) {
    char buffer[LINE_MAX_BYTES];
    if (len >= sizeof(buffer))
        return err_set(err, EINVAL, "a line is longer than %u bytes", LINE_MAX_BYTES - 1);
    if (memchr(text, 0, len))
        return err_set(err, EINVAL, "a byte of zero");
    memcpy(buffer, text, len);
    buffer[len] = '\0';
    buffer[strcspn(buffer, "#")] = '\0';
    char *line = trim(buffer);
    if (!*line)
        return 0;
    return *line == '[' ? open_section(p, line, err) : set_key(p, line, err);
}

/* Is `list` ("3g.40gb,1g.10gb"; "-": none) a way to divide a card with that much memory? */
static int check_mig(const struct sim_model *model, uint64_t memory, const char *list,
                     struct err *err) {
    size_t n;
    uint8_t taken = 0;
    if (!mig_profiles(model, &n))
        return err_set(err, EINVAL, "%s cannot be divided", model->name);
    if (memory != model->memory)
        return err_set(err, EINVAL, "%s is divided only with its own memory", model->name);
    if (strcmp(list, "-") == 0)
        return 0;
    for (;;) {
        size_t len = strcspn(list, ",");
        const struct mig_profile *p = mig_find(model, list, len);
        if (!p)
            return err_set(err, EINVAL, "%s has no MIG profile '%.*s'", model->name, (int) len,
                           list);
        int start = mig_place(model, p, taken);
        if (start < 0)
            return err_set(err, ENOSPC, "no room for %s beside the instances before it", p->name);
        taken |= mig_bits(p, start);
        if (!list[len])
            return 0;
        list += len + 1;
    }
}

/* As config_describe_gpu() says it in the card's own page. */
static struct sim_position position_of(const struct sim_config *c, uint32_t minor) {
    struct sim_page page = {0};
    config_describe_gpu(c, minor, "", &page);
    return (struct sim_position){page.pci_domain, page.pci_bus, page.pci_device, page.pci_id};
}

/* No two cards have a name in common; places that were not given count, too. */
static int check_names(const struct sim_config *c, uint32_t gpu, struct err *err) {
    const struct sim_gpu_config *g = &c->gpu[gpu];
    const struct sim_position at = position_of(c, gpu);
    for (uint32_t k = 0; k < gpu; k++) {
        const struct sim_gpu_config *other = &c->gpu[k];
        const struct sim_position there = position_of(c, k);
        const char *same = NULL;
        if (g->uuid[0] && strcmp(g->uuid, other->uuid) == 0)
            same = "uuid";
        else if (g->serial[0] && strcmp(g->serial, other->serial) == 0)
            same = "serial";
        else if (at.pci_domain == there.pci_domain && at.pci_bus == there.pci_bus &&
                 at.pci_device == there.pci_device)
            same = "pci";
        if (same)
            return err_set(err, EINVAL, "GPUs %u and %u have the same %s", k, gpu, same);
    }
    return 0;
}

static int check_guest(const struct sim_config *c, struct err *err) {
    if (!c->vgpu && (c->host_driver[0] || c->host_branch[0]))
        return err_set(err, EINVAL, "only a guest has a host: virtualization = vgpu is missing");
    for (uint32_t i = 0; i < c->ngpus; i++) {
        if (c->vgpu && c->gpu[i].mig[0])
            return err_set(err, EINVAL, "GPU %u: a vGPU has no MIG mode", i);
        if (!c->vgpu && c->gpu[i].has_licence)
            return err_set(err, EINVAL,
                           "GPU %u: only a vGPU has a licence: virtualization = vgpu is missing",
                           i);
    }
    return 0;
}

/* What can only be judged when all is read. */
static int check_config(const struct sim_config *c, struct err *err) {
    if (c->ngpus == 0)
        return err_set(err, EINVAL, "no [gpu]");
    if (check_guest(c, err) < 0)
        return -EINVAL;
    for (uint32_t i = 0; i < c->ngpus; i++) {
        const struct sim_gpu_config *g = &c->gpu[i];
        if (!g->model)
            return err_set(err, EINVAL, "GPU %u has no model", i);
        if (g->numa >= c->numa_nodes)
            return err_set(err, EINVAL, "GPU %u: no NUMA node %u; [machine] says numa = %u", i,
                           g->numa, c->numa_nodes);
        if (g->context > g->memory)
            return err_set(err, EINVAL, "GPU %u: a context does not fit into its memory", i);
        if (c->nvswitches > 0 && (g->model->nvlinks == 0 || links_used(c, i) > 0))
            return err_set(err, EINVAL, "GPU %u (%s) has no NVLink for the switches", i,
                           g->model->alias);
        if (g->fabric_state && g->model->architecture < NVML_DEVICE_ARCH_HOPPER)
            return err_set(err, EINVAL, "GPU %u: only models from Hopper on belong to a fabric", i);
        int r = check_names(c, i, err);
        if (r < 0)
            return r;
        r = g->mig[0] ? check_mig(g->model, g->memory, g->mig, err) : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

int config_parse(const char *name, const char *text, size_t len, struct sim_config *ret,
                 struct err *err) {
    static struct sim_config config; /* large; one thread parses */
    struct parser p = {.config = &config};
    struct err why;
    unsigned int number = 0;
    config_init(&config);
    for (size_t at = 0; at < len;) {
        const char *newline = memchr(text + at, '\n', len - at);
        size_t n = newline ? (size_t) (newline - text) - at : len - at;
        number++;
        if (parse_line(&p, text + at, n, &why) < 0)
            return err_set(err, EINVAL, "%s:%u: %s", name, number, why.text);
        at += n + 1;
    }
    if (check_config(&config, &why) < 0)
        return err_set(err, EINVAL, "%s: %s", name, why.text);
    *ret = config;
    return 0;
}

/* -- into the pages -------------------------------------------------------------------------- */

static uint8_t level_between(const struct sim_gpu_config *a, const struct sim_gpu_config *b) {
    if (a == b)
        return 0; /* NVML_TOPOLOGY_INTERNAL */
    if (a->bridge == b->bridge && a->root == b->root)
        return 10; /* SINGLE */
    if (a->root == b->root)
        return 30;                       /* HOSTBRIDGE */
    return a->numa == b->numa ? 40 : 50; /* NODE, SYSTEM */
}

static void describe_hypervisor(const struct sim_config *c, struct sim_host *h) {
    h->vgpu = c->vgpu;
    if (!c->vgpu)
        return;
    (void) snprintf(h->host_driver, sizeof(h->host_driver), "%.10s",
                    c->host_driver[0] ? c->host_driver : c->driver);
    if (c->host_branch[0])
        memcpy(h->host_branch, c->host_branch, sizeof(h->host_branch));
    else
        (void) snprintf(h->host_branch, sizeof(h->host_branch), "r%.3s_00", h->host_driver);
}

void config_describe_host(const struct sim_config *c, struct sim_host *h) {
    describe_hypervisor(c, h);
    h->magic = SIM_MAGIC;
    h->ngpus = c->ngpus;
    memcpy(h->driver, c->driver, sizeof(h->driver));
    h->cuda = c->cuda;
    h->host_pids = c->host_pids;
    h->limits = c->limits != SIM_MEMORY_OFF;
    h->timing_only = c->timing_only;
    h->fork_closes = c->fork_closes;
    h->sample_us = (uint32_t) (c->sample_ns / 1000u);
    h->numa_nodes = c->numa_nodes;
    h->cpus_per_node = c->cpus_per_node;
    h->nvswitches = c->nvswitches;
    for (uint32_t a = 0; a < c->ngpus; a++)
        h->position[a] = position_of(c, a);
    for (uint32_t a = 0; a < c->ngpus; a++)
        for (uint32_t b = 0; b < c->ngpus; b++)
            h->level[a][b] = level_between(&c->gpu[a], &c->gpu[b]);
}

static void describe_links(const struct sim_config *c, uint32_t minor, struct sim_page *p) {
    const struct sim_model *model = c->gpu[minor].model;
    if (c->nvswitches > 0)
        for (; p->nvlinks < model->nvlinks; p->nvlinks++)
            p->nvlink_peer[p->nvlinks] = (uint8_t) (SIM_LINK_SWITCH | p->nvlinks % c->nvswitches);
    for (uint32_t i = 0; i < c->ngpus; i++)
        for (uint32_t n = 0; n < c->links[minor][i] && p->nvlinks < SIM_MAX_LINKS; n++)
            p->nvlink_peer[p->nvlinks++] = (uint8_t) i;
}

static void take_uuid(struct sim_page *p, const char *text) {
    size_t n = 0;
    (void) snprintf(p->uuid, sizeof(p->uuid), "%s", text);
    for (const char *at = text + 4; *at && n < 32; at++) {
        if (*at == '-')
            continue;
        uint8_t digit = (uint8_t) (*at <= '9' ? *at - '0' : *at - 'a' + 10);
        p->uuid_bytes[n / 2] = (uint8_t) (p->uuid_bytes[n / 2] << 4 | digit);
        n++;
    }
}

void config_describe_gpu(const struct sim_config *c, uint32_t minor, const char *seed,
                         struct sim_page *p) {
    const struct sim_gpu_config *g = &c->gpu[minor];
    machine_describe(p, minor, g->model, seed);
    p->memory_total = g->memory;
    p->context_bytes = g->context;
    p->ecc = g->ecc;
    p->numa = g->numa;
    if (g->uuid[0])
        take_uuid(p, g->uuid);
    if (g->serial[0])
        memcpy(p->serial, g->serial, sizeof(p->serial));
    if (g->has_pci) {
        p->pci_domain = g->pci_domain;
        p->pci_bus = g->pci_bus;
        p->pci_device = g->pci_device;
    }
    p->setting[SIM_SETTING_ACCOUNTING] = c->accounting;
    p->fabric_state = g->fabric_state;
    p->clique = g->clique;
    memcpy(p->cluster, g->cluster, sizeof(p->cluster));
    /* Behind switches of its own node a card has completed, in no cluster. */
    if (!p->fabric_state && c->nvswitches > 0)
        p->fabric_state = NVML_GPU_FABRIC_STATE_COMPLETED;
    describe_links(c, minor, p);
}
