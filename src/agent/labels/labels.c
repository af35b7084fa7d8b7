/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/labels/labels.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/os/pci.h"
#include "base/array.h"
#include "base/text.h"
#include "gpu/device.h"
#include "gpu/mig_single.h"
#include "model/mig_strategy.h"

#define NVIDIA "nvidia.com/"
#define OURS "elasticgpu.io/"
#define GPU NVIDIA "gpu"
#define PRODUCT_MAX 256

/* ---- a set ---- */

static int compare(const void *a, const void *b) {
    const struct label *left = a, *right = b;

    return strcmp(left->key, right->key);
}

static struct label *find(const struct label_set *set, const char *key) {
    for (size_t i = 0; i < set->n; i++)
        if (strcmp(set->labels[i].key, key) == 0)
            return &set->labels[i];
    return NULL;
}

void label_put(struct label_set *set, const char *key, const char *value) {
    struct label *label = find(set, key);

    if (!label && array_reserve(&set->labels, &set->room, set->n + 1, sizeof(*label)) < 0) {
        set->incomplete = true;
        return;
    }
    if (!label)
        label = &set->labels[set->n++];
    text_copy(label->key, sizeof(label->key), key);
    text_copy(label->value, sizeof(label->value), value);
}

/* "PREFIX.NAME" becomes that value, shortened to what the API server takes. */
__attribute__((format(printf, 4, 5))) static void put(struct label_set *set, const char *prefix,
                                                      const char *name, const char *format, ...) {
    char key[LABEL_KEY_SIZE], text[PRODUCT_MAX], value[LABEL_VALUE_SIZE];
    va_list ap;

    va_start(ap, format);
    (void) vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    (void) snprintf(key, sizeof(key), "%s.%s", prefix, name);
    text_copy(value, sizeof(value), text + strspn(text, "-_."));
    for (size_t len = strlen(value); len > 0 && !isalnum((unsigned char) value[len - 1]); len--)
        value[len - 1] = 0;
    label_put(set, key, value);
}

const char *label_find(const struct label_set *set, const char *key) {
    const struct label *label = find(set, key);

    return label ? label->value : NULL;
}

void label_set_done(struct label_set *set) {
    free(set->labels);
    *set = (struct label_set){0};
}

/* ---- texts ---- */

/* Drops what a label may not have, and joins the words by '-'. */
static void words_of(const char *text, char ret[static PRODUCT_MAX]) {
    size_t n = 0;
    bool gap = false;

    for (; *text && n + 2 < PRODUCT_MAX; text++) {
        if (*text == ' ') {
            gap = n > 0;
        } else if (isalnum((unsigned char) *text) || strchr("-_.", *text)) {
            if (gap)
                ret[n++] = '-';
            ret[n++] = *text;
            gap = false;
        }
    }
    ret[n] = 0;
}

static const struct {
    uint32_t major, minor; /* from this compute capability on, up to the next one */
    const char *family;
} families[] = {
    {1, 0, "tesla"},      {2, 0, "fermi"},        {3, 0, "kepler"}, {4, 0, "undefined"},
    {5, 0, "maxwell"},    {6, 0, "pascal"},       {7, 0, "volta"},  {7, 5, "turing"},
    {8, 0, "ampere"},     {8, 9, "ada-lovelace"}, {9, 0, "hopper"}, {10, 0, "blackwell"},
    {11, 0, "undefined"}, {12, 0, "blackwell"},   {13, 0, "rubin"}, {14, 0, "undefined"},
};

static const char *family_of(uint32_t major, uint32_t minor) {
    const char *found = "undefined";

    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++)
        if (major > families[i].major || (major == families[i].major && minor >= families[i].minor))
            found = families[i].family;
    return found;
}

/* ---- driver and machine ---- */

static void put_versions(const struct gpu_snapshot *s, struct label_set *ret) {
    static const char *const keys[][3] = {{"major", "minor", "rev"},
                                          {"major", "minor", "revision"}};
    static const char *const prefixes[] = {NVIDIA "cuda.driver", NVIDIA "cuda.driver-version"};
    char part[3][16] = {{0}};
    uint32_t cuda = s->devices[0].traits.cuda_version;
    unsigned major = cuda / 1000, minor = cuda % 1000 / 10;

    if (sscanf(s->driver_version, "%15[0-9].%15[0-9].%15[0-9]", part[0], part[1], part[2]) >= 2) {
        for (size_t i = 0; i < 2; i++)
            for (size_t j = 0; j < 3; j++)
                put(ret, prefixes[i], keys[i][j], "%s", part[j]);
        put(ret, prefixes[1], "full", "%s", s->driver_version);
    }
    if (cuda == 0)
        return;
    put(ret, NVIDIA "cuda.runtime", "major", "%u", major);
    put(ret, NVIDIA "cuda.runtime", "minor", "%u", minor);
    put(ret, NVIDIA "cuda.runtime-version", "major", "%u", major);
    put(ret, NVIDIA "cuda.runtime-version", "minor", "%u", minor);
    put(ret, NVIDIA "cuda.runtime-version", "full", "%u.%u", major, minor);
}

static bool is_card(const struct gpu_device *d) {
    return d->kind != GPU_MIG_INSTANCE;
}

static bool all_have(const struct gpu_snapshot *s, bool divided) {
    for (uint32_t i = 0; i < s->ndevices; i++)
        if (is_card(&s->devices[i]) && s->devices[i].divided != divided)
            return false;
    return true;
}

static bool shared_by_mps(const struct label_facts *f) {
    for (size_t i = 0; i < f->nsharing; i++)
        if (strcmp(f->sharing[i].strategy, "mps") == 0)
            return true;
    return false;
}

static void put_node(const struct label_facts *f, struct label_set *ret) {
    char machine[PRODUCT_MAX];
    bool capable = false;

    for (uint32_t i = 0; i < f->devices->ndevices; i++)
        capable |= f->devices->devices[i].traits.mig_capable != 0;
    words_of(f->machine ? f->machine : "unknown", machine);
    put(ret, GPU, "machine", "%s", machine);
    put(ret, GPU, "mode", "%s", f->pci->mode);
    put(ret, NVIDIA "mig", "capable", "%s", capable ? "true" : "false");
    put(ret, NVIDIA "mps", "capable", "%s",
        shared_by_mps(f) && all_have(f->devices, false) ? "true" : "false");
    if (f->strategy != MIG_STRATEGY_NONE)
        put(ret, NVIDIA "mig", "strategy", "%s", mig_strategy_name(f->strategy));
}

/* ---- resources ---- */

static const struct label_sharing *sharing_of(const struct label_facts *f, const char *resource) {
    for (size_t i = 0; i < f->nsharing; i++)
        if (strcmp(f->sharing[i].resource, resource) == 0)
            return &f->sharing[i];
    return NULL;
}

/* `sharing` is NULL for a resource that each device is offered once as; its labels say so by a
 * count of replicas of `replicas`. */
static void put_resource(struct label_set *ret, const char *resource, const char *product,
                         unsigned count, const struct label_sharing *sharing, unsigned replicas) {
    bool shared = sharing && sharing->replicas > 1;

    put(ret, resource, "product", "%s%s", product, shared && !sharing->renamed ? "-SHARED" : "");
    put(ret, resource, "count", "%u", count);
    put(ret, resource, "replicas", "%u", sharing ? sharing->replicas : replicas);
    put(ret, resource, "sharing-strategy", "%s", shared ? sharing->strategy : "none");
}

static void put_architecture(struct label_set *ret, const char *resource,
                             const struct gpu_device *d) {
    const struct gpu_traits *t = &d->traits;

    if (d->memory >> 20 != 0)
        put(ret, resource, "memory", "%llu", (unsigned long long) (d->memory >> 20));
    if (t->compute_major == 0)
        return;
    put(ret, resource, "family", "%s", family_of(t->compute_major, t->compute_minor));
    put(ret, resource, "compute.major", "%u", t->compute_major);
    put(ret, resource, "compute.minor", "%u", t->compute_minor);
}

/* Cards of that model, whether in MIG mode or not. */
static unsigned cards_of(const struct gpu_snapshot *s, const char *model) {
    unsigned n = 0;

    for (uint32_t i = 0; i < s->ndevices; i++)
        n += is_card(&s->devices[i]) && strcmp(s->devices[i].model, model) == 0;
    return n;
}

static unsigned all_cards(const struct gpu_snapshot *s) {
    unsigned n = 0;

    for (uint32_t i = 0; i < s->ndevices; i++)
        n += is_card(&s->devices[i]);
    return n;
}

static const struct gpu_device *first_card(const struct gpu_snapshot *s, bool divided) {
    for (uint32_t i = 0; i < s->ndevices; i++)
        if (is_card(&s->devices[i]) && s->devices[i].divided == divided)
            return &s->devices[i];
    return NULL;
}

const struct gpu_device *labels_first_card(const struct gpu_snapshot *s) {
    return first_card(s, false);
}

static void put_cards(const struct label_facts *f, struct label_set *ret) {
    const struct gpu_snapshot *s = f->devices;
    const struct gpu_device *whole = labels_first_card(s);
    const struct gpu_device *d = whole ? whole : first_card(s, true);
    char product[PRODUCT_MAX];

    words_of(d->model, product);
    /* Cards in MIG mode are not offered. */
    put_resource(ret, GPU, product, cards_of(s, d->model), whole ? sharing_of(f, GPU) : NULL,
                 whole ? 1 : 0);
    put_architecture(ret, GPU, d);
}

/* Devices of a group have one set of labels. */
static bool is_last_of(const struct gpu_snapshot *s, const struct gpu_device *d,
                       bool (*same)(const struct gpu_device *, const struct gpu_device *)) {
    for (const struct gpu_device *other = d + 1; other < s->devices + s->ndevices; other++)
        if (same(d, other))
            return false;
    return true;
}

static bool is_same_model(const struct gpu_device *a, const struct gpu_device *b) {
    return is_card(b) && strcmp(a->model, b->model) == 0;
}

static bool is_same_profile(const struct gpu_device *a, const struct gpu_device *b) {
    return b->kind == GPU_MIG_INSTANCE && strcmp(a->mig.profile, b->mig.profile) == 0;
}

/* For each model of several. The name of a label has at most 63 characters, of which the longest
 * suffix takes 14. */
static void put_models(const struct label_facts *f, struct label_set *ret) {
    const struct gpu_snapshot *s = f->devices;

    for (uint32_t i = 0; i < s->ndevices; i++) {
        const struct gpu_device *d = &s->devices[i];
        char product[PRODUCT_MAX], prefix[LABEL_KEY_SIZE];

        if (!is_card(d) || cards_of(s, d->model) == all_cards(s) ||
            !is_last_of(s, d, is_same_model))
            continue;
        words_of(d->model, product);
        (void) snprintf(prefix, sizeof(prefix), OURS "%.*s",
                        (int) (LABEL_VALUE_SIZE - sizeof(".compute.major")), product);
        put(ret, prefix, "count", "%u", cards_of(s, d->model));
        put_architecture(ret, prefix, d);
    }
}

/* ---- MIG instances ---- */

static bool is_instance(const struct gpu_device *d) {
    return d->kind == GPU_MIG_INSTANCE;
}

static unsigned instances_of(const struct gpu_snapshot *s, const char *profile) {
    unsigned n = 0;

    for (uint32_t i = 0; i < s->ndevices; i++)
        n += is_instance(&s->devices[i]) && strcmp(s->devices[i].mig.profile, profile) == 0;
    return n;
}

static void put_instance(const struct label_facts *f, const struct gpu_device *d,
                         const char *resource, struct label_set *ret) {
    const struct gpu_device *parent = gpu_find(f->devices, d->parent);
    const struct gpu_mig *m = &d->mig;
    char product[PRODUCT_MAX], name[LABEL_KEY_SIZE];
    const struct {
        const char *name;
        uint64_t value;
    } attributes[] = {
        {"memory", d->memory >> 20},       {"multiprocessors", m->multiprocessors},
        {"slices.gi", m->gi_slices},       {"slices.ci", m->ci_slices},
        {"engines.copy", m->copy_engines}, {"engines.decoder", m->decoders},
        {"engines.encoder", m->encoders},  {"engines.jpeg", m->jpegs},
        {"engines.ofa", m->ofas},
    };

    words_of(parent ? parent->model : d->model, product);
    mig_resource_name(m->profile, name, sizeof(name));
    (void) snprintf(product + strlen(product), sizeof(product) - strlen(product), "-MIG-%s",
                    name + strlen(MIG_RESOURCE_PREFIX));
    put_resource(ret, resource, product, instances_of(f->devices, m->profile),
                 sharing_of(f, resource), 1);
    for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++)
        put(ret, resource, attributes[i].name, "%llu", (unsigned long long) attributes[i].value);
}

static void put_mixed(const struct label_facts *f, struct label_set *ret) {
    for (uint32_t i = 0; i < f->devices->ndevices; i++) {
        const struct gpu_device *d = &f->devices->devices[i];
        char resource[LABEL_KEY_SIZE];

        if (!is_instance(d) || !is_last_of(f->devices, d, is_same_profile))
            continue;
        mig_resource_name(d->mig.profile, resource, sizeof(resource));
        put_instance(f, d, resource, ret);
    }
}

static void put_single(const struct label_facts *f, struct label_set *ret) {
    const struct gpu_snapshot *s = f->devices;
    const struct gpu_device *card = first_card(s, true);
    char product[PRODUCT_MAX];

    if (!card)
        return;
    if (gpu_mig_check_single(s, NULL) == 0) {
        for (uint32_t i = 0; i < s->ndevices; i++)
            if (is_instance(&s->devices[i])) {
                put_instance(f, &s->devices[i], GPU, ret);
                return;
            }
    }
    words_of(card->model, product);
    put(ret, GPU, "product", "%s-MIG-INVALID", product);
    put(ret, GPU, "count", "0");
    put(ret, GPU, "replicas", "0");
    put(ret, GPU, "sharing-strategy", "%s", "");
    put(ret, GPU, "memory", "0");
}

/* ---- all ---- */

/* The same text for each card of the domain; of cards that belong to several there is no label. */
static void put_clique(const struct gpu_snapshot *s, struct label_set *ret) {
    const struct gpu_traits *first = NULL;
    uint8_t u[16];

    for (uint32_t i = 0; i < s->ndevices; i++) {
        const struct gpu_traits *t = &s->devices[i].traits;

        if (!is_card(&s->devices[i]) || !t->fabric_attached)
            continue;
        if (first && (t->fabric_clique != first->fabric_clique ||
                      memcmp(t->fabric_cluster, first->fabric_cluster, sizeof(u)) != 0))
            return;
        first = t;
    }
    if (!first)
        return;
    memcpy(u, first->fabric_cluster, sizeof(u));
    put(ret, GPU, "clique",
        "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x.%u", u[0], u[1], u[2],
        u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15],
        first->fabric_clique);
}

/* Of a guest: whether all its vGPUs are licensed. */
static void put_licence(const struct gpu_snapshot *s, struct label_set *ret) {
    bool vgpu = false, licensed = true;

    for (uint32_t i = 0; i < s->ndevices; i++) {
        vgpu |= s->devices[i].traits.vgpu != 0;
        licensed &= s->devices[i].traits.unlicensed == 0;
    }
    if (vgpu)
        put(ret, OURS "vgpu", "licensed", "%s", licensed ? "true" : "false");
}

static void put_vgpu(const struct pci_facts *pci, struct label_set *ret) {
    put(ret, NVIDIA "vgpu", "present", "%s", pci->vgpu ? "true" : "false");
    if (!pci->vgpu)
        return;
    put(ret, NVIDIA "vgpu", "host-driver-version", "%s", pci->vgpu_version);
    put(ret, NVIDIA "vgpu", "host-driver-branch", "%s", pci->vgpu_branch);
}

int labels_of_node(const struct label_facts *facts, struct label_set *ret) {
    static void (*const strategies[MIG_STRATEGIES])(const struct label_facts *,
                                                    struct label_set *) = {
        [MIG_STRATEGY_SINGLE] = put_single,
        [MIG_STRATEGY_MIXED] = put_mixed,
    };

    *ret = (struct label_set){0};
    put_vgpu(facts->pci, ret);
    if (all_cards(facts->devices) > 0) {
        put_versions(facts->devices, ret);
        put_node(facts, ret);
        put_cards(facts, ret);
        put_models(facts, ret);
        put_clique(facts->devices, ret);
        put_licence(facts->devices, ret);
        if (strategies[facts->strategy])
            strategies[facts->strategy](facts, ret);
    }
    if (ret->incomplete) {
        label_set_done(ret);
        return -ENOMEM;
    }
    qsort(ret->labels, ret->n, sizeof(ret->labels[0]), compare);
    return 0;
}
