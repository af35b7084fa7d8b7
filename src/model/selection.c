/* SPDX-License-Identifier: Apache-2.0 */
#include "model/selection.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/hash.h"
#include "model/placement_policies.h"

typedef int (*selection_take)(struct gpu_selection *selection, const char *text, size_t at);

/* Every word is compared with every card of the cluster. */
#define LIST_MAX 4096
#define LIST_WORDS_MAX 64

/* ---- kinds of values ---- */

static int check_list(const char *text) {
    size_t words = 1;
    if (strlen(text) > LIST_MAX)
        return -E2BIG;
    for (; (text = strchr(text, ',')); text++)
        words++;
    return words > LIST_WORDS_MAX ? -E2BIG : 0;
}

static int take_list(struct gpu_selection *selection, const char *text, size_t at) {
    char **list = (char **) (void *) ((char *) selection + at);
    int r = check_list(text);
    if (r < 0 || text[strspn(text, " ,")] == '\0')
        return r;
    free(*list);
    *list = strdup(text);
    return *list ? 0 : -ENOMEM;
}

static int take_topology(struct gpu_selection *selection, const char *text, size_t at) {
    static const char *const words[] = {"", "none", "best", "restricted"};
    (void) at;
    for (size_t i = 1; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcasecmp(text, words[i]) == 0) {
            selection->topology = (enum topology_policy) i;
            return 0;
        }
    return -EINVAL;
}

static int take_bool(struct gpu_selection *selection, const char *text, size_t at) {
    (void) at;
    if (strcasecmp(text, "true") != 0 && strcasecmp(text, "false") != 0)
        return -EINVAL;
    selection->numa_bind = strcasecmp(text, "true") == 0;
    return 0;
}

static int take_policy(struct gpu_selection *selection, const char *text, size_t at) {
#define WORD(id, word) word,
    static const char *const words[] = {PLACEMENT_POLICIES(WORD, WORD, WORD)};
#undef WORD
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcasecmp(text, words[i]) == 0) {
            memcpy((char *) selection + at, words[i], strlen(words[i]) + 1);
            return 0;
        }
    return -EINVAL;
}

/* One policy for both tiers. */
static int take_policies(struct gpu_selection *selection, const char *text, size_t at) {
    (void) at;
    int r = take_policy(selection, text, offsetof(struct gpu_selection, node_policy));
    return r < 0 ? r : take_policy(selection, text, offsetof(struct gpu_selection, card_policy));
}

/* HAMi's chain for cards: the name of a policy among other words. */
static int take_chain(struct gpu_selection *selection, const char *text, size_t at) {
    while (*text) {
        char word[POLICY_NAME_MAX] = "";
        size_t len = strcspn(text, ", ");
        if (len < sizeof(word))
            memcpy(word, text, len);
        if (strcasecmp(word, "topology-aware") == 0)
            selection->topology = TOPOLOGY_BEST;
        else if (strcasecmp(word, "numa") == 0)
            selection->numa_bind = true;
        else
            (void) take_policy(selection, word, at);
        text += len + (text[len] != '\0');
    }
    return 0;
}

/* ---- the names ---- */

/* Ours before those of other systems: they are read from the last to the first, and what an earlier
 * row says replaces what later ones have said. They are not in dialects.def: a row here is a
 * function and a member of this file's struct, and applies with resources of any dialect. */
static const struct row {
    const char *key;
    bool ours; /* a value that means nothing is an error */
    selection_take take;
    size_t at;
} rows[] = {
#define AT(member) offsetof(struct gpu_selection, member)
    {"elasticgpu.io/gpu-model", true, take_list, AT(use_models)},
    {"elasticgpu.io/gpu-model-avoid", true, take_list, AT(avoid_models)},
    {"elasticgpu.io/gpu-uuid", true, take_list, AT(use_uuids)},
    {"elasticgpu.io/gpu-uuid-avoid", true, take_list, AT(avoid_uuids)},
    {"elasticgpu.io/topology", true, take_topology, AT(topology)},
    {"elasticgpu.io/numa-bind", true, take_bool, AT(numa_bind)},
    {"elasticgpu.io/placement-policy", true, take_policies, AT(node_policy)},
    {"nvidia.com/use-gputype", false, take_list, AT(use_models)},
    {"nvidia.com/nouse-gputype", false, take_list, AT(avoid_models)},
    {"nvidia.com/use-gpuuuid", false, take_list, AT(use_uuids)},
    {"nvidia.com/nouse-gpuuuid", false, take_list, AT(avoid_uuids)},
    {"nvidia.com/use-gpuindexes", false, take_list, AT(use_indexes)},
    {"volcano.sh/vgpu-use-gpuuuid", false, take_list, AT(use_uuids)},
    {"volcano.sh/vgpu-nouse-gpuuuid", false, take_list, AT(avoid_uuids)},
    {"nvidia.com/numa-bind", false, take_bool, AT(numa_bind)},
    {"hami.io/node-scheduler-policy", false, take_policy, AT(node_policy)},
    {"hami.io/gpu-scheduler-policy", false, take_chain, AT(card_policy)},
#undef AT
};

int selection_parse(annotation_value value, const void *annotations, struct gpu_selection **ret) {
    struct gpu_selection *selection = NULL;
    for (size_t i = sizeof(rows) / sizeof(rows[0]); i-- > 0;) {
        const char *text = value(annotations, rows[i].key);
        if (!text)
            continue;
        if (!selection && !(selection = calloc(1, sizeof(*selection))))
            return -ENOMEM;
        int r = rows[i].take(selection, text, rows[i].at);
        if (r == -ENOMEM || r == -E2BIG || (r < 0 && rows[i].ours)) {
            selection_free(selection);
            return r;
        }
    }
    *ret = selection;
    return 0;
}

struct gpu_selection *selection_free(struct gpu_selection *selection) {
    if (selection) {
        free(selection->use_models);
        free(selection->avoid_models);
        free(selection->use_uuids);
        free(selection->avoid_uuids);
        free(selection->use_indexes);
        free(selection);
    }
    return NULL;
}

static bool copy_text(const char *from, char **ret) {
    *ret = from ? strdup(from) : NULL;
    return !from || *ret;
}

struct gpu_selection *selection_copy(const struct gpu_selection *selection) {
    struct gpu_selection *copy = malloc(sizeof(*copy));
    if (!copy)
        return NULL;
    *copy = *selection;
    bool use_models = copy_text(selection->use_models, &copy->use_models);
    bool avoid_models = copy_text(selection->avoid_models, &copy->avoid_models);
    bool use_uuids = copy_text(selection->use_uuids, &copy->use_uuids);
    bool avoid_uuids = copy_text(selection->avoid_uuids, &copy->avoid_uuids);
    bool use_indexes = copy_text(selection->use_indexes, &copy->use_indexes);
    bool whole = use_models && avoid_models && use_uuids && avoid_uuids && use_indexes;
    return whole ? copy : selection_free(copy);
}

/* ---- questions ---- */

/* Whether one of the words is a part of `text`, or with `whole` is all of it. */
static bool matches(const char *list, const char *text, bool whole) {
    while (*list) {
        char word[96];
        list += strspn(list, " ,");
        size_t len = strcspn(list, ","), trimmed = len;
        while (trimmed > 0 && list[trimmed - 1] == ' ')
            trimmed--;
        if (trimmed > 0 && trimmed < sizeof(word)) {
            memcpy(word, list, trimmed);
            word[trimmed] = '\0';
            if (whole ? strcasecmp(text, word) == 0 : strcasestr(text, word) != NULL)
                return true;
        }
        list += len;
    }
    return false;
}

static bool passes(const char *use, const char *avoid, const char *text, bool whole) {
    return (!use || matches(use, text, whole)) && (!avoid || !matches(avoid, text, whole));
}

bool selection_model(const struct gpu_selection *selection, const char *model) {
    return passes(selection->use_models, selection->avoid_models, model, false);
}

bool selection_uuid(const struct gpu_selection *selection, const char *uuid) {
    return passes(selection->use_uuids, selection->avoid_uuids, uuid, true);
}

bool selection_index(const struct gpu_selection *selection, uint32_t index) {
    char text[16];
    (void) snprintf(text, sizeof(text), "%" PRIu32, index);
    return passes(selection->use_indexes, NULL, text, true);
}

uint64_t selection_hash(const struct gpu_selection *selection) {
    uint64_t hash = HASH_START;
    if (selection) {
        hash = hash_text(hash, selection->use_models);
        hash = hash_text(hash, selection->avoid_models);
        hash = hash_text(hash, selection->use_uuids);
        hash = hash_text(hash, selection->avoid_uuids);
        hash = hash_text(hash, selection->use_indexes);
        hash = hash_text(hash, selection->node_policy);
        hash = hash_text(hash, selection->card_policy);
        const unsigned char rest[] = {(unsigned char) selection->topology, selection->numa_bind};
        hash = hash_bytes(hash, rest, sizeof(rest));
    }
    return hash ? hash : 1;
}
