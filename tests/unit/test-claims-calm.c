/* SPDX-License-Identifier: Apache-2.0 */

/* What is at rest is not looked at in every pass. Whatever people do, in any order: when the
 * controller has come to rest, one that starts anew and looks at everything has nothing to write
 * either. */

#include "claims-world.h"

#define ROUNDS 600
#define DEEDS 14

#define POD_TEXT(name, notes, node)                                                                \
    "{\"metadata\":{\"uid\":\"uid-" name "\",\"name\":\"" name "\",\"namespace\":\"ns\","          \
    "\"annotations\":{" notes "}},\"spec\":{" node                                                 \
    "\"containers\":[{\"name\":\"main\",\"resources\":{\"limits\":{\"elasticgpu.io/slot\":\"1\"}}" \
    "}]}}"
#define ON_A "\"nodeName\":\"node-a\","
#define TEMPLATE                                                                                   \
    "\"egpuct.elasticgpu.io/main\":\"{\\\"elasticGPUClassName\\\":\\\"k\\\",\\\"resources\\\":{"   \
    "\\\"requests\\\":{\\\"elasticgpu.io/gpu-core\\\":10}}}\""
#define CLAIM(core, extra)                                                                         \
    "{\"spec\":{\"resources\":{\"requests\":{\"elasticgpu.io/gpu-core\":" #core "}}" extra "}}"
#define STATIC(core, extra)                                                                        \
    "{\"spec\":{\"capacity\":{\"elasticgpu.io/gpu-core\":" #core                                   \
    "},\"qGPU\":{\"gpuName\":\"gpu-a\"}" extra "}}"
#define CLASS(extra) "{\"provisioner\":\"elasticgpu.io/qgpu\"" extra "}"
#define NOTES(text) "{\"metadata\":{\"annotations\":{" text "}}}"

enum act { PUT, CHANGE, DELETE, DESTROY, SETTLE };

struct deed {
    enum act act;
    enum claims_kind kind;
    const char *name, *text;
};

static const struct deed deeds[] = {
    {PUT, CLAIMS_CLASSES, "k", CLASS("")},
    {PUT, CLAIMS_CLASSES, "k", CLASS(",\"allowExpansion\":true,\"reclaimPolicy\":\"Retain\"")},
    {PUT, CLAIMS_CLASSES, "k", CLASS(",\"bindingMode\":\"WaitForFirstConsumer\"")},
    {PUT, CLAIMS_CLASSES, "k", "{\"provisioner\":\"acme.io/x\"}"},
    {CHANGE, CLAIMS_CLASSES, "k", "{\"allowExpansion\":true}"},
    {CHANGE, CLAIMS_CLASSES, "k", NOTES("\"elasticgpu.io/is-default-class\":\"true\"")},
    {DESTROY, CLAIMS_CLASSES, "k", NULL},
    {PUT, CLAIMS_CLAIMS, "c", CLAIM(10, ",\"elasticGPUClassName\":\"k\"")},
    {PUT, CLAIMS_CLAIMS, "c", CLAIM(10, "")},
    {PUT, CLAIMS_CLAIMS, "c", CLAIM(10, ",\"elasticGPUClassName\":\"\"")},
    {PUT, CLAIMS_CLAIMS, "d", CLAIM(11, ",\"elasticGPUClassName\":\"\"")},
    {PUT, CLAIMS_CLAIMS, "d", CLAIM(11, ",\"elasticGPUClassName\":\"\",\"elasticGPUName\":\"g\"")},
    {PUT, CLAIMS_CLAIMS, "p-main", CLAIM(10, ",\"elasticGPUClassName\":\"k\"")},
    {CHANGE, CLAIMS_CLAIMS, "c", CLAIM(30, "")},
    {CHANGE, CLAIMS_CLAIMS, "c", CLAIM(20, "")},
    {CHANGE, CLAIMS_CLAIMS, "c",
     "{\"spec\":{\"resources\":{\"requests\":{\"elasticgpu.io/gpu-memory\":\"50Gi\"}}}}"},
    {CHANGE, CLAIMS_CLAIMS, "c", "{\"spec\":{\"elasticGPUName\":null}}"},
    {CHANGE, CLAIMS_CLAIMS, "c", "{\"spec\":{\"elasticGPUName\":\"g\"}}"},
    {CHANGE, CLAIMS_CLAIMS, "d", "{\"spec\":{\"elasticGPUName\":\"h\"}}"},
    {CHANGE, CLAIMS_CLAIMS, "c", NOTES("\"elasticgpu.io/bind-completed\":null")},
    {CHANGE, CLAIMS_CLAIMS, "c", NOTES("\"elasticgpu.io/selected-node\":\"node-b\"")},
    {CHANGE, CLAIMS_CLAIMS, "c", NOTES("\"elasticgpu.io/provisioner\":null")},
    {CHANGE, CLAIMS_CLAIMS, "d", "{\"status\":null}"},
    {CHANGE, CLAIMS_CLAIMS, "p-main", "{\"metadata\":{\"ownerReferences\":null}}"},
    {DELETE, CLAIMS_CLAIMS, "c", NULL},
    {DELETE, CLAIMS_CLAIMS, "d", NULL},
    {DELETE, CLAIMS_CLAIMS, "p-main", NULL},
    {DESTROY, CLAIMS_CLAIMS, "c", NULL},
    {DESTROY, CLAIMS_CLAIMS, "d", NULL},
    {DESTROY, CLAIMS_CLAIMS, "p-main", NULL},
    {PUT, CLAIMS_EGPUS, "g", STATIC(12, "")},
    {PUT, CLAIMS_EGPUS, "h", STATIC(15, "")},
    {PUT, CLAIMS_EGPUS, "h", STATIC(11, ",\"reclaimPolicy\":\"Delete\"")},
    {PUT, CLAIMS_EGPUS, "g",
     STATIC(12, ",\"claimRef\":{\"namespace\":\"ns\",\"name\":\"d\",\"uid\":\"stale\"}")},
    {PUT, CLAIMS_EGPUS, "g", STATIC(12, ",\"claimRef\":{\"namespace\":\"ns\",\"name\":\"c\"}")},
    {CHANGE, CLAIMS_EGPUS, "g", "{\"spec\":{\"claimRef\":null}}"},
    {CHANGE, CLAIMS_EGPUS, "h",
     "{\"spec\":{\"claimRef\":{\"namespace\":\"ns\",\"name\":\"c\",\"uid\":null}}}"},
    {CHANGE, CLAIMS_EGPUS, "g", "{\"spec\":{\"claimRef\":{\"name\":\"c\"}}}"},
    {CHANGE, CLAIMS_EGPUS, "g", "{\"status\":null}"},
    {CHANGE, CLAIMS_EGPUS, "g", "{\"status\":{\"phase\":\"Bound\"}}"},
    {CHANGE, CLAIMS_EGPUS, "h", "{\"status\":{\"phase\":\"Failed\"}}"},
    {CHANGE, CLAIMS_EGPUS, "g", "{\"spec\":{\"capacity\":{\"elasticgpu.io/gpu-core\":16}}}"},
    {CHANGE, CLAIMS_EGPUS, "h", "{\"spec\":{\"qGPU\":null}}"},
    {DELETE, CLAIMS_EGPUS, "g", NULL},
    {DELETE, CLAIMS_EGPUS, "h", NULL},
    {DESTROY, CLAIMS_EGPUS, "g", NULL},
    {DESTROY, CLAIMS_EGPUS, "h", NULL},
    {PUT, CLAIMS_PODS, "uid-p", POD_TEXT("p", TEMPLATE, "")},
    {PUT, CLAIMS_PODS, "uid-p", POD_TEXT("p", TEMPLATE, ON_A)},
    {PUT, CLAIMS_PODS, "uid-q", POD_TEXT("q", "\"egpuc.elasticgpu.io/main\":\"c\"", "")},
    {PUT, CLAIMS_PODS, "uid-q", POD_TEXT("q", "\"egpuc.elasticgpu.io/main\":\"c\"", ON_A)},
    {DESTROY, CLAIMS_PODS, "uid-p", NULL},
    {DESTROY, CLAIMS_PODS, "uid-q", NULL},
    {SETTLE, CLAIMS_PODS, "", NULL},
};

/* Kept among the objects, so that a controller that starts is shown it. */
static void put_pod(struct server *s, const struct deed *d, struct object *o) {
    for (size_t i = 0; !o && i < OBJECTS_MAX; i++)
        o = s->objects[i].text ? NULL : &s->objects[i];
    assert_non_null(o);
    free(o->text);
    *o = (struct object){.kind = CLAIMS_PODS, .text = strdup(d->text)};
    snprintf(o->key, sizeof(o->key), "%s", d->name);
    announce(s, o);
}

static void act(struct server *s, const struct deed *d) {
    char key[256];
    bool claim = d->kind == CLAIMS_CLAIMS;
    snprintf(key, sizeof(key), "%s%s", claim ? "ns/" : "", d->name);
    struct object *o = object_of(s, d->kind, key);
    if (d->act == SETTLE)
        s->settled = !s->settled;
    else if (d->act == PUT && d->kind == CLAIMS_PODS)
        put_pod(s, d, o);
    else if (d->act == PUT && !o)
        add_object(s, d->kind, claim ? "ns" : "", d->name, d->text);
    else if (d->act == CHANGE && o)
        put_object(s, o, d->text);
    else if (d->act == DELETE && o)
        delete_object(s, o);
    else if (d->act == DESTROY && o) {
        free(o->text);
        o->text = NULL;
        announce(s, o);
    }
}

/* What is under way when the next comes differs: it comes after a few steps, or after rest. */
static void live(struct server *s, const struct deed **done, size_t *n) {
    for (*n = 0; *n < DEEDS; (*n)++) {
        done[*n] = &deeds[draw(s, sizeof(deeds) / sizeof(deeds[0]))];
        act(s, done[*n]);
        if (draw(s, 2) == 0)
            run(s);
        for (uint32_t steps = draw(s, 6); steps > 0; steps--)
            step(s);
    }
    run(s);
}

static void test_rest_is_rest(void **unused) {
    (void) unused;
    for (uint32_t seed = 1; seed <= ROUNDS; seed++) {
        const struct deed *done[DEEDS];
        size_t n;
        struct server *s = calloc(1, sizeof(*s));
        start(s, 1, seed * 7919, 0, false);
        live(s, done, &n);
        char *rest = tell(s);
        start_controller(s, 0);
        run(s);
        char *anew = tell(s);
        if (strcmp(rest, anew) != 0) {
            for (size_t i = 0; i < n; i++)
                print_message("%d %d %s %s\n", done[i]->act, done[i]->kind, done[i]->name,
                              done[i]->text ? done[i]->text : "");
            fail_msg("seed %u: at rest\n%sbut looked at anew\n%s", seed, rest, anew);
        }
        free(rest);
        free(anew);
        finish(s);
        free(s);
    }
}

/* What was made for a claim is its own, though it asks for more by the time it is bound. */
static void test_a_claim_asks_for_more_while_it_is_made(void **unused) {
    static const struct {
        const char *class, *end;
    } rows[] = {
        {CLASS(",\"allowExpansion\":true"), "core=20 guard=1"},
        {CLASS(""), "core=10 resize=NotAllowed guard=1"},
    };
    (void) unused;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct server *s = calloc(1, sizeof(*s));
        start(s, 1, 1, 0, false);
        act(s, &(struct deed){PUT, CLAIMS_CLASSES, "k", rows[i].class});
        act(s,
            &(struct deed){PUT, CLAIMS_CLAIMS, "c", CLAIM(10, ",\"elasticGPUClassName\":\"k\"")});
        while (!object_of(s, CLAIMS_EGPUS, "egpu-u2-c"))
            step(s);
        act(s, &(struct deed){CHANGE, CLAIMS_CLAIMS, "c", CLAIM(20, "")});
        run(s);
        char *end = tell(s);
        if (!strstr(end, "claim c Bound/Bound gpu=egpu-u2-c ") || !strstr(end, rows[i].end))
            fail_msg("%s", end);
        free(end);
        finish(s);
        free(s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rest_is_rest),
        cmocka_unit_test(test_a_claim_asks_for_more_while_it_is_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
