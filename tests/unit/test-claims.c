/* SPDX-License-Identifier: Apache-2.0 */

/* The claims controller: every rule of volumes and their claims, with the controller ended at every
 * write there is, before and after the write is done, with watches that lag behind each other, and
 * with two controllers at once. Whatever happens, the end is the same. */

#include "claims-world.h"

/* ---- what people do ---- */

#define CLASS(extra) "{\"provisioner\":\"elasticgpu.io/qgpu\"" extra "}"
#define CLAIM(extra)                                                                               \
    "{\"spec\":{\"resources\":{\"requests\":{\"elasticgpu.io/gpu-core\":10,"                       \
    "\"elasticgpu.io/gpu-memory\":\"4Gi\"}}" extra "}}"
#define OF_CLASS(name) ",\"elasticGPUClassName\":\"" name "\""
#define STATIC(core, memory, extra)                                                                \
    "{\"spec\":{\"capacity\":{\"elasticgpu.io/gpu-core\":" #core                                   \
    ",\"elasticgpu.io/gpu-memory\":\"" #memory "Gi\"},\"qGPU\":{\"gpuName\":\"gpu-a\"}" extra "}}"
#define LABELLED(core, labels)                                                                     \
    "{\"metadata\":{\"labels\":{" labels                                                           \
    "}},\"spec\":{\"capacity\":{\"elasticgpu.io/gpu-core\":" #core                                 \
    ",\"elasticgpu.io/gpu-memory\":\"5Gi\"},\"qGPU\":{\"gpuName\":\"gpu-a\"}}}"
#define SELECTOR(text) ",\"selector\":{" text "}"
#define OTHERS_CLASS(mode) "{\"provisioner\":\"acme.io/x\",\"bindingMode\":\"" mode "\"}"
#define README_CLAIM                                                                               \
    "{\"spec\":{\"egpuClassName\":\"gpushare-egpuclass\",\"resources\":{\"requests\":{"            \
    "\"gpushare.provisioner.elasticgpu.io/gpu-core\":10,"                                          \
    "\"gpushare.provisioner.elasticgpu.io/gpu-memory\":4}}}}"
#define WHOLE_CLASS "{\"provisioner\":\"elasticgpu.io/physical-gpu\"}"
#define CLAIM_OF(core, extra)                                                                      \
    "{\"spec\":{\"resources\":{\"requests\":{\"elasticgpu.io/gpu-core\":" #core "}}" extra "}}"
#define STATIC_WHOLE                                                                               \
    "{\"spec\":{\"capacity\":{\"elasticgpu.io/gpu-core\":200},\"physicalGPU\":{\"gpuNames\":["     \
    "\"gpu-d0\",\"gpu-d1\"]}}}"
#define CLAIM_REF(name, extra) ",\"claimRef\":{\"namespace\":\"ns\",\"name\":\"" name "\"" extra "}"

enum act { ADD, PATCH, DELETE, DESTROY, POD, WAITING_POD, NO_POD };

struct deed {
    enum act act;
    enum claims_kind kind;
    const char *name, *text;
};

static void key_for(const struct deed *d, char key[static 256]) {
    snprintf(key, 256, "%s%s", d->kind == CLAIMS_CLAIMS ? "ns/" : "", d->name);
}

#define CONTAINER(name)                                                                            \
    "{\"name\":\"" name "\",\"resources\":{\"limits\":{\"elasticgpu.io/slot\":\"1\"}}}"

static void use_pod(struct server *s, const struct deed *d) {
    char text[1024];
    struct object o = {.kind = CLAIMS_PODS};
    snprintf(o.key, sizeof(o.key), "uid-%s", d->name);
    snprintf(text, sizeof(text),
             "{\"metadata\":{\"uid\":\"uid-%s\",\"name\":\"%s\",\"namespace\":\"ns\","
             "\"annotations\":{%s}},\"spec\":{%s\"containers\":[" CONTAINER("main") "%s]}}",
             d->name, d->name, d->text, d->act == POD ? "\"nodeName\":\"node-a\"," : "",
             strstr(d->text, "/side\"") ? "," CONTAINER("side") : "");
    if (d->act != NO_POD)
        o.text = strdup(text);
    announce(s, &o);
    /* Kept among the objects, so that a controller that starts is shown it. */
    for (size_t i = 0; i < OBJECTS_MAX; i++) {
        struct object *at = &s->objects[i];
        if (d->act != NO_POD && !at->text) {
            *at = o;
            return;
        }
        if (d->act == NO_POD && at->text && at->kind == CLAIMS_PODS &&
            strcmp(at->key, o.key) == 0) {
            free(at->text);
            at->text = NULL;
            return;
        }
    }
}

static void destroy(struct server *s, struct object *o) {
    free(o->text);
    o->text = NULL;
    announce(s, o);
}

static void act(struct server *s, const struct deed *d) {
    char key[256];
    key_for(d, key);
    struct object *o = object_of(s, d->kind, key);
    if (d->act == POD || d->act == WAITING_POD || d->act == NO_POD)
        use_pod(s, d);
    else if (d->act == ADD)
        add_object(s, d->kind, d->kind == CLAIMS_CLAIMS ? "ns" : "", d->name, d->text);
    else if (!o)
        fail_msg("nothing to change: %s", key);
    else if (d->act == PATCH)
        put_object(s, o, d->text);
    else if (d->act == DELETE)
        delete_object(s, o);
    else
        destroy(s, o);
}

/* ---- stories: what is done one after the other, and what must be in the end ---- */

#define DEEDS_MAX 8

struct story {
    const char *name;
    struct deed deeds[DEEDS_MAX]; /* up to the first without a name */
    const char *end;
};

static const struct story stories[] = {
    {"a class makes one at once",
     {{ADD, CLAIMS_CLASSES, "fast", CLASS("")}, {ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS("fast"))}},
     "claim c Bound/Bound gpu=egpu-u2-c done=1 by=1 class=fast node= core=10 guard=1\n"
     "gpu egpu-u2-c Bound ns/c uid=u2-c by=1 on=gpu-a core=10 memory=4 guard=1\n"},
    {"the newest default class serves who names none",
     {{ADD, CLAIMS_CLASSES, "old",
       CLASS(",\"metadata\":{\"annotations\":{\"elasticgpu.io/is-default-class\":\"true\"}}")},
      {ADD, CLAIMS_CLASSES, "new",
       CLASS(",\"metadata\":{\"annotations\":{\"elasticgpu.io/is-default-class\":\"true\"}}")},
      {ADD, CLAIMS_CLAIMS, "c", CLAIM("")}},
     "claim c Bound/Bound gpu=egpu-u3-c done=1 by=1 class=new node= core=10 guard=1\n"
     "gpu egpu-u3-c Bound ns/c uid=u3-c by=1 on=gpu-a core=10 memory=4 guard=1\n"},
    {"the empty class is no class, whatever is the default",
     {{ADD, CLAIMS_CLASSES, "def",
       CLASS(",\"metadata\":{\"annotations\":{\"elasticgpu.io/is-default-class\":\"true\"}}")},
      {ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS(""))}},
     "claim c Pending/NoMatch gpu= done=0 by=0 class= node= core=0 guard=1\n"},
    {"the smallest that is large enough, the first by name",
     {{ADD, CLAIMS_EGPUS, "large", STATIC(40, 20, "")},
      {ADD, CLAIMS_EGPUS, "right", STATIC(20, 5, "")},
      {ADD, CLAIMS_EGPUS, "same", STATIC(20, 5, "")},
      {ADD, CLAIMS_EGPUS, "small", STATIC(5, 4, "")},
      {ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS(""))}},
     "claim c Bound/Bound gpu=right done=1 by=1 class= node= core=20 guard=1\n"
     "gpu large Available / uid= by=0 on=gpu-a core=40 memory=20 guard=1\n"
     "gpu right Bound ns/c uid=u5-c by=1 on=gpu-a core=20 memory=5 guard=1\n"
     "gpu same Available / uid= by=0 on=gpu-a core=20 memory=5 guard=1\n"
     "gpu small Available / uid= by=0 on=gpu-a core=5 memory=4 guard=1\n"},
    {"what is kept for a claim goes to it, and to no other",
     {{ADD, CLAIMS_EGPUS, "kept", STATIC(40, 20, CLAIM_REF("c", ""))},
      {ADD, CLAIMS_CLAIMS, "other", CLAIM(OF_CLASS(""))},
      {ADD, CLAIMS_EGPUS, "free", STATIC(10, 4, "")},
      {ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS(""))}},
     "claim c Bound/Bound gpu=kept done=1 by=1 class= node= core=40 guard=1\n"
     "claim other Bound/Bound gpu=free done=1 by=1 class= node= core=10 guard=1\n"
     "gpu free Bound ns/other uid=u2-other by=1 on=gpu-a core=10 memory=4 guard=1\n"
     "gpu kept Bound ns/c uid=u4-c by=0 on=gpu-a core=40 memory=20 guard=1\n"},
    {"what is kept for a claim has to be there, too",
     {{ADD, CLAIMS_EGPUS, "full", STATIC(95, 20, "")},
      {ADD, CLAIMS_EGPUS, "kept", STATIC(40, 20, CLAIM_REF("c", ""))},
      {ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS(""))}},
     "claim c Pending/NoMatch gpu= done=0 by=0 class= node= core=0 guard=1\n"
     "gpu full Available / uid= by=0 on=gpu-a core=95 memory=20 guard=1\n"
     "gpu kept PendingNoRoom ns/c uid= by=0 on=gpu-a core=40 memory=20 guard=1\n"},
    {"and so has what is named with its claim's uid",
     {{ADD, CLAIMS_EGPUS, "full", STATIC(95, 20, "")},
      {ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS("") ",\"elasticGPUName\":\"kept\"")},
      {ADD, CLAIMS_EGPUS, "kept", STATIC(40, 20, CLAIM_REF("c", ",\"uid\":\"u2-c\""))}},
     "claim c Pending/NoMatch gpu=kept done=0 by=0 class= node= core=0 guard=1\n"
     "gpu full Available / uid= by=0 on=gpu-a core=95 memory=20 guard=1\n"
     "gpu kept PendingNoRoom ns/c uid=u2-c by=0 on=gpu-a core=40 memory=20 guard=1\n"},
    {"a claim that says it was bound gets nothing by that",
     {{ADD, CLAIMS_EGPUS, "full", STATIC(95, 20, "")},
      {ADD, CLAIMS_EGPUS, "more", STATIC(40, 20, "")},
      {ADD, CLAIMS_CLAIMS, "c",
       "{\"metadata\":{\"annotations\":{\"elasticgpu.io/bind-completed\":\"yes\"}},\"spec\":{"
       "\"elasticGPUClassName\":\"\",\"elasticGPUName\":\"more\",\"resources\":{\"requests\":{"
       "\"elasticgpu.io/gpu-core\":10}}}}"}},
     "claim c Lost/ClaimMisbound gpu=more done=1 by=0 class= node= core=0 guard=1\n"
     "gpu full Available / uid= by=0 on=gpu-a core=95 memory=20 guard=1\n"
     "gpu more PendingNoRoom / uid= by=0 on=gpu-a core=40 memory=20 guard=1\n"},
    {"a claim that names its ElasticGPU waits for it",
     {{ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS("") ",\"elasticGPUName\":\"mine\"")},
      {ADD, CLAIMS_EGPUS, "mine", STATIC(40, 20, "")}},
     "claim c Bound/Bound gpu=mine done=1 by=0 class= node= core=40 guard=1\n"
     "gpu mine Bound ns/c uid=u1-c by=1 on=gpu-a core=40 memory=20 guard=1\n"},
    {"a claim that names one of another claim waits",
     {{ADD, CLAIMS_EGPUS, "theirs", STATIC(40, 20, CLAIM_REF("x", ""))},
      {ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS("") ",\"elasticGPUName\":\"theirs\"")}},
     "claim c Pending/NoMatch gpu=theirs done=0 by=0 class= node= core=0 guard=1\n"
     "gpu theirs Available ns/x uid= by=0 on=gpu-a core=40 memory=20 guard=1\n"},
    {"a claim of another class, or too small, is not served",
     {{ADD, CLAIMS_EGPUS, "g", STATIC(40, 20, OF_CLASS("a"))},
      {ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS("b"))}},
     "claim c Pending/NoClass gpu= done=0 by=0 class=b node= core=0 guard=1\n"
     "gpu g Available / uid= by=0 on=gpu-a core=40 memory=20 guard=1\n"},
    {"Delete takes away what was made",
     {{ADD, CLAIMS_CLASSES, "fast", CLASS("")},
      {ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS("fast"))},
      {DELETE, CLAIMS_CLAIMS, "c", NULL}},
     ""},
    {"Retain keeps it, for no claim, until an admin gives it back",
     {{ADD, CLAIMS_CLASSES, "keep", CLASS(",\"reclaimPolicy\":\"Retain\"")},
      {ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS("keep"))},
      {DELETE, CLAIMS_CLAIMS, "c", NULL},
      {ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS("keep") ",\"elasticGPUName\":\"egpu-u2-c\"")}},
     "claim c Pending/NoMatch gpu=egpu-u2-c done=0 by=0 class=keep node= core=0 guard=1\n"
     "gpu egpu-u2-c ReleasedClaimGone ns/c uid=u2-c by=1 on=gpu-a core=10 memory=4 guard=1\n"},
    {"a Released one without its claimRef is free again",
     {{ADD, CLAIMS_CLASSES, "keep", CLASS(",\"reclaimPolicy\":\"Retain\"")},
      {ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS("keep"))},
      {DELETE, CLAIMS_CLAIMS, "c", NULL},
      {PATCH, CLAIMS_EGPUS, "egpu-u2-c", "{\"spec\":{\"claimRef\":null}}"}},
     "gpu egpu-u2-c Available / uid= by=1 on=gpu-a core=10 memory=4 guard=1\n"},
    {"a claimRef with the uid of a claim that is gone is Released",
     {{ADD, CLAIMS_EGPUS, "g", STATIC(40, 20, CLAIM_REF("c", ",\"uid\":\"stale\""))},
      {ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS(""))}},
     "claim c Pending/NoMatch gpu= done=0 by=0 class= node= core=0 guard=1\n"
     "gpu g ReleasedClaimGone ns/c uid=stale by=0 on=gpu-a core=40 memory=20 guard=1\n"},
    {"a bound claim whose ElasticGPU vanishes is Lost, and gets no other",
     {{ADD, CLAIMS_EGPUS, "g", STATIC(40, 20, "")},
      {ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS(""))},
      {DESTROY, CLAIMS_EGPUS, "g", NULL},
      {ADD, CLAIMS_EGPUS, "h", STATIC(40, 20, "")}},
     "claim c Lost/ClaimLost gpu=g done=1 by=1 class= node= core=40 guard=1\n"
     "gpu h Available / uid= by=0 on=gpu-a core=40 memory=20 guard=1\n"},
    {"a half that is taken away is put back",
     {{ADD, CLAIMS_EGPUS, "g", STATIC(40, 20, "")},
      {ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS(""))},
      {PATCH, CLAIMS_EGPUS, "g", "{\"spec\":{\"claimRef\":null}}"}},
     "claim c Bound/Bound gpu=g done=1 by=1 class= node= core=40 guard=1\n"
     "gpu g Bound ns/c uid=u2-c by=1 on=gpu-a core=40 memory=20 guard=1\n"},
    {"an ElasticGPU that a claim has is not deleted under it",
     {{ADD, CLAIMS_EGPUS, "g", STATIC(40, 20, "")},
      {ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS(""))},
      {DELETE, CLAIMS_EGPUS, "g", NULL}},
     "claim c Bound/Bound gpu=g done=1 by=1 class= node= core=40 guard=1\n"
     "gpu g Bound ns/c uid=u2-c by=1 on=gpu-a core=40 memory=20 guard=1 deleting\n"},
    {"a claim that a pod uses is not deleted under it",
     {{ADD, CLAIMS_CLASSES, "fast", CLASS("")},
      {ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS("fast"))},
      {POD, CLAIMS_PODS, "p", "\"egpuc.elasticgpu.io/main\":\"c\""},
      {DELETE, CLAIMS_CLAIMS, "c", NULL}},
     "claim c Bound/Bound gpu=egpu-u2-c done=1 by=1 class=fast node= core=10 guard=1 deleting\n"
     "gpu egpu-u2-c Bound ns/c uid=u2-c by=1 on=gpu-a core=10 memory=4 guard=1\n"},
    {"when the pod is gone, so is the claim",
     {{ADD, CLAIMS_CLASSES, "fast", CLASS("")},
      {ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS("fast"))},
      {POD, CLAIMS_PODS, "p", "\"egpuc-main\":\"c\""},
      {DELETE, CLAIMS_CLAIMS, "c", NULL},
      {NO_POD, CLAIMS_PODS, "p", ""}},
     ""},
    {"a pod that waits for its node does not hold its claim",
     {{ADD, CLAIMS_CLASSES, "fast", CLASS("")},
      {ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS("fast"))},
      {WAITING_POD, CLAIMS_PODS, "p", "\"egpuc.elasticgpu.io/main\":\"c\""},
      {DELETE, CLAIMS_CLAIMS, "c", NULL}},
     ""},
    {"a class may go while claims of it exist",
     {{ADD, CLAIMS_CLASSES, "fast", CLASS("")},
      {ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS("fast"))},
      {DESTROY, CLAIMS_CLASSES, "fast", NULL},
      {ADD, CLAIMS_CLAIMS, "d", CLAIM(OF_CLASS("fast"))},
      {DELETE, CLAIMS_CLAIMS, "c", NULL}},
     "claim d Pending/NoClass gpu= done=0 by=0 class=fast node= core=0 guard=1\n"},
    {"two claims for one ElasticGPU: one gets it",
     {{ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS("") ",\"elasticGPUName\":\"g\"")},
      {ADD, CLAIMS_EGPUS, "g", STATIC(40, 20, "")},
      {ADD, CLAIMS_CLAIMS, "d", CLAIM(OF_CLASS("") ",\"elasticGPUName\":\"g\"")}},
     "claim c Bound/Bound gpu=g done=1 by=0 class= node= core=40 guard=1\n"
     "claim d Pending/NoMatch gpu=g done=0 by=0 class= node= core=0 guard=1\n"
     "gpu g Bound ns/c uid=u1-c by=1 on=gpu-a core=40 memory=20 guard=1\n"},
    {"WaitForFirstConsumer waits for a node",
     {{ADD, CLAIMS_CLASSES, "late", CLASS(",\"bindingMode\":\"WaitForFirstConsumer\"")},
      {ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS("late"))}},
     "claim c Pending/WaitForFirstConsumer gpu= done=0 by=0 class=late node= core=0 guard=1\n"},
    {"and is made on the node that was selected",
     {{ADD, CLAIMS_CLASSES, "late", CLASS(",\"volumeBindingMode\":\"WaitForFirstConsumer\"")},
      {ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS("late"))},
      {PATCH, CLAIMS_CLAIMS, "c",
       "{\"metadata\":{\"annotations\":{\"elasticgpu.io/selected-node\":\"node-b\"}}}"}},
     "claim c Bound/Bound gpu=egpu-u2-c done=1 by=1 class=late node=node-b core=10 guard=1\n"
     "gpu egpu-u2-c Bound ns/c uid=u2-c by=1 on=gpu-b core=10 memory=4 guard=1\n"},
    {"a selected node without room is unselected",
     {{ADD, CLAIMS_CLASSES, "late", CLASS(",\"bindingMode\":\"WaitForFirstConsumer\"")},
      {ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS("late"))},
      {PATCH, CLAIMS_CLAIMS, "c",
       "{\"metadata\":{\"annotations\":{\"elasticgpu.io/selected-node\":\"node-c\"}}}"}},
     "claim c Pending/WaitForFirstConsumer gpu= done=0 by=0 class=late node= core=0 guard=1\n"},
    {"what an admin made has to make sense",
     {{ADD, CLAIMS_EGPUS, "g",
       "{\"spec\":{\"capacity\":{\"elasticgpu.io/gpu-core\":200},\"physicalGPU\":{\"gpuNames\":["
       "\"gpu-a\"]}}}"},
      {ADD, CLAIMS_EGPUS, "h", STATIC(60, 1, "")},
      {ADD, CLAIMS_EGPUS, "i", STATIC(60, 1, "")}},
     "gpu g FailedMalformed / uid= by=0 on=gpu-a core=200 memory=0 guard=1\n"
     "gpu h Available / uid= by=0 on=gpu-a core=60 memory=1 guard=1\n"
     "gpu i PendingNoRoom / uid= by=0 on=gpu-a core=60 memory=1 guard=1\n"},
    {"a claim grows where its class lets it",
     {{ADD, CLAIMS_CLASSES, "grow", CLASS(",\"allowExpansion\":true")},
      {ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS("grow"))},
      {PATCH, CLAIMS_CLAIMS, "c",
       "{\"spec\":{\"resources\":{\"requests\":{\"elasticgpu.io/gpu-core\":30}}}}"}},
     "claim c Bound/Bound gpu=egpu-u2-c done=1 by=1 class=grow node= core=30 guard=1\n"
     "gpu egpu-u2-c Bound ns/c uid=u2-c by=1 on=gpu-a core=30 memory=4 guard=1\n"},
    {"and keeps what it has of the one where it asks for more of the other",
     {{ADD, CLAIMS_CLASSES, "grow", CLASS(",\"allowExpansion\":true")},
      {ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS("grow"))},
      {PATCH, CLAIMS_CLAIMS, "c",
       "{\"spec\":{\"resources\":{\"requests\":{\"elasticgpu.io/gpu-core\":5,"
       "\"elasticgpu.io/gpu-memory\":\"8Gi\"}}}}"}},
     "claim c Bound/Bound gpu=egpu-u2-c done=1 by=1 class=grow node= core=10 guard=1\n"
     "gpu egpu-u2-c Bound ns/c uid=u2-c by=1 on=gpu-a core=10 memory=8 guard=1\n"},
    {"an ElasticGPU in another dialect stays as it is",
     {{ADD, CLAIMS_CLASSES, "grow", CLASS(",\"allowExpansion\":true")},
      {ADD, CLAIMS_EGPUS, "g",
       "{\"spec\":{\"capacity\":{\"tke.cloud.tencent.com/qgpu-core\":20,"
       "\"tke.cloud.tencent.com/qgpu-memory\":5},\"qGPU\":{\"gpuName\":\"gpu-a\"}" OF_CLASS(
           "grow") "}}"},
      {ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS("grow"))},
      {PATCH, CLAIMS_CLAIMS, "c",
       "{\"spec\":{\"resources\":{\"requests\":{\"elasticgpu.io/gpu-core\":30}}}}"}},
     "claim c Bound/Bound gpu=g done=1 by=1 class=grow node= core=20 resize=NotAllowed guard=1\n"
     "gpu g Bound ns/c uid=u3-c by=1 on=gpu-a core=20 memory=5 guard=1\n"},
    {"and not where it does not, nor beyond the card",
     {{ADD, CLAIMS_CLASSES, "grow", CLASS(",\"allowVolumeExpansion\":true")},
      {ADD, CLAIMS_CLASSES, "fast", CLASS("")},
      {ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS("fast"))},
      {ADD, CLAIMS_CLAIMS, "d", CLAIM(OF_CLASS("grow"))},
      {PATCH, CLAIMS_CLAIMS, "c",
       "{\"spec\":{\"resources\":{\"requests\":{\"elasticgpu.io/gpu-core\":30}}}}"},
      {PATCH, CLAIMS_CLAIMS, "d",
       "{\"spec\":{\"resources\":{\"requests\":{\"elasticgpu.io/gpu-core\":95}}}}"}},
     "claim c Bound/Bound gpu=egpu-u3-c done=1 by=1 class=fast node= core=10 resize=NotAllowed "
     "guard=1\n"
     "claim d Bound/Bound gpu=egpu-u5-d done=1 by=1 class=grow node= core=10 resize=NoRoom "
     "guard=1\n"
     "gpu egpu-u3-c Bound ns/c uid=u3-c by=1 on=gpu-a core=10 memory=4 guard=1\n"
     "gpu egpu-u5-d Bound ns/d uid=u5-d by=1 on=gpu-a core=10 memory=4 guard=1\n"},
    {"a template becomes a claim of the pod's own",
     {{ADD, CLAIMS_CLASSES, "fast", CLASS("")},
      {POD, CLAIMS_PODS, "p",
       "\"egpuct.elasticgpu.io/"
       "main\":\"{\\\"elasticGPUClassName\\\":\\\"fast\\\",\\\"resources\\\":"
       "{\\\"requests\\\":{\\\"elasticgpu.io/gpu-core\\\":\\\"10\\\"}}}\""}},
     "claim p-main Bound/Bound gpu=egpu-u2-p-main done=1 by=1 class=fast node= core=10 guard=1\n"
     "gpu egpu-u2-p-main Bound ns/p-main uid=u2-p-main by=1 on=gpu-a core=10 memory=0 guard=1\n"},
    {"the spellings of the first examples",
     {{ADD, CLAIMS_CLASSES, "qgpu-class",
       CLASS(",\"reclaimPolicy\":\"Retain\",\"eGPUBindingMode\":\"Immediate\"")},
      {ADD, CLAIMS_CLAIMS, "qgpu-egpuc",
       "{\"spec\":{\"storageClassName\":\"qgpu-class\",\"resources\":{\"requests\":{"
       "\"tke.cloud.tencent.com/qgpu-core\":10,\"tke.cloud.tencent.com/qgpu-memory\":\"4Gi\"}}}}"}},
     "claim qgpu-egpuc Bound/Bound gpu=egpu-u2-qgpu-egpuc done=1 by=1 class=qgpu-class node= "
     "core=10 guard=1\n"
     "gpu egpu-u2-qgpu-egpuc Bound ns/qgpu-egpuc uid=u2-qgpu-egpuc by=1 on=gpu-a core=10 memory=4 "
     "guard=1\n"},
    {"of those with the labels of the selector, the smallest",
     {{ADD, CLAIMS_EGPUS, "small", STATIC(10, 5, "")},
      {ADD, CLAIMS_EGPUS, "slow", LABELLED(20, "\"tier\":\"slow\",\"old\":\"yes\"")},
      {ADD, CLAIMS_EGPUS, "fast", LABELLED(30, "\"tier\":\"fast\"")},
      {ADD, CLAIMS_CLAIMS, "c",
       CLAIM(OF_CLASS("") SELECTOR("\"matchLabels\":{\"tier\":\"fast\"}"))}},
     "claim c Bound/Bound gpu=fast done=1 by=1 class= node= core=30 guard=1\n"
     "gpu fast Bound ns/c uid=u4-c by=1 on=gpu-a core=30 memory=5 guard=1\n"
     "gpu slow Available / uid= by=0 on=gpu-a core=20 memory=5 guard=1\n"
     "gpu small Available / uid= by=0 on=gpu-a core=10 memory=5 guard=1\n"},
    {"a selector has expressions, too",
     {{ADD, CLAIMS_EGPUS, "small", STATIC(10, 5, "")},
      {ADD, CLAIMS_EGPUS, "slow", LABELLED(20, "\"tier\":\"slow\",\"old\":\"yes\"")},
      {ADD, CLAIMS_EGPUS, "fast", LABELLED(30, "\"tier\":\"fast\"")},
      {ADD, CLAIMS_CLAIMS, "c",
       CLAIM(OF_CLASS("") SELECTOR("\"matchExpressions\":[{\"key\":\"tier\",\"operator\":\"In\","
                                   "\"values\":[\"fast\",\"slow\"]}"
                                   ",{\"key\":\"old\",\"operator\":\"DoesNotExist\"}]"))},
      {ADD, CLAIMS_CLAIMS, "d",
       CLAIM(OF_CLASS("") SELECTOR(
           "\"matchExpressions\":[{\"key\":\"tier\",\"operator\":\"NotIn\",\"values\":[\"slow\"]},"
           "{\"key\":\"tier\",\"operator\":\"Exists\"}]"))},
      {ADD, CLAIMS_CLAIMS, "e",
       CLAIM(OF_CLASS("")
                 SELECTOR("\"matchExpressions\":[{\"key\":\"tier\",\"operator\":\"Near\"}]"))}},
     "claim c Bound/Bound gpu=fast done=1 by=1 class= node= core=30 guard=1\n"
     "claim d Pending/NoMatch gpu= done=0 by=0 class= node= core=0 guard=1\n"
     "claim e Pending/Malformed gpu= done=0 by=0 class= node= core=0 guard=1\n"
     "gpu fast Bound ns/c uid=u4-c by=1 on=gpu-a core=30 memory=5 guard=1\n"
     "gpu slow Available / uid= by=0 on=gpu-a core=20 memory=5 guard=1\n"
     "gpu small Available / uid= by=0 on=gpu-a core=10 memory=5 guard=1\n"},
    {"with a selector none is made",
     {{ADD, CLAIMS_CLASSES, "fast", CLASS("")},
      {ADD, CLAIMS_CLAIMS, "c",
       CLAIM(OF_CLASS("fast") SELECTOR("\"matchLabels\":{\"tier\":\"fast\"}"))}},
     "claim c Pending/NoMatch gpu= done=0 by=0 class=fast node= core=0 guard=1\n"},
    {"where a node was chosen, an ElasticGPU of another node does not serve",
     {{ADD, CLAIMS_CLASSES, "late", CLASS(",\"bindingMode\":\"WaitForFirstConsumer\"")},
      {ADD, CLAIMS_EGPUS, "there", STATIC(20, 5, OF_CLASS("late"))},
      {ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS("late"))},
      {PATCH, CLAIMS_CLAIMS, "c",
       "{\"metadata\":{\"annotations\":{\"elasticgpu.io/selected-node\":\"node-b\"}}}"}},
     "claim c Bound/Bound gpu=egpu-u3-c done=1 by=1 class=late node=node-b core=10 guard=1\n"
     "gpu egpu-u3-c Bound ns/c uid=u3-c by=1 on=gpu-b core=10 memory=4 guard=1\n"
     "gpu there Available / uid= by=0 on=gpu-a core=20 memory=5 guard=1\n"},
    {"and one of that node does",
     {{ADD, CLAIMS_CLASSES, "late", CLASS(",\"bindingMode\":\"WaitForFirstConsumer\"")},
      {ADD, CLAIMS_EGPUS, "here", STATIC(20, 5, OF_CLASS("late"))},
      {ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS("late"))},
      {PATCH, CLAIMS_CLAIMS, "c",
       "{\"metadata\":{\"annotations\":{\"elasticgpu.io/selected-node\":\"node-a\"}}}"}},
     "claim c Bound/Bound gpu=here done=1 by=1 class=late node=node-a core=20 guard=1\n"
     "gpu here Bound ns/c uid=u3-c by=1 on=gpu-a core=20 memory=5 guard=1\n"},
    {"class and claims of the README, with memory in GiB",
     {{ADD, CLAIMS_CLASSES, "gpushare-egpuclass",
       "{\"provisioner\":\"gpushare.provisioner.elasticgpu.io\",\"reclaimPolicy\":\"Retain\","
       "\"egpuBindingMode\":\"Immediate\"}"},
      {ADD, CLAIMS_CLAIMS, "gpushare-egpuc-1", README_CLAIM},
      {ADD, CLAIMS_CLAIMS, "gpushare-egpuc-2", README_CLAIM},
      {DELETE, CLAIMS_CLAIMS, "gpushare-egpuc-2", NULL}},
     "claim gpushare-egpuc-1 Bound/Bound gpu=egpu-u2-gpushare-egpuc-1 done=1 by=1 "
     "class=gpushare-egpuclass node= core=10 guard=1\n"
     "gpu egpu-u2-gpushare-egpuc-1 Bound ns/gpushare-egpuc-1 uid=u2-gpushare-egpuc-1 by=1 on=gpu-a "
     "core=10 memory=4 guard=1\n"
     "gpu egpu-u4-gpushare-egpuc-2 ReleasedClaimGone ns/gpushare-egpuc-2 uid=u4-gpushare-egpuc-2 "
     "by=1 on=gpu-a core=10 memory=4 guard=1\n"},
    {"whole cards are of one node",
     {{ADD, CLAIMS_CLASSES, "whole", WHOLE_CLASS},
      {ADD, CLAIMS_CLAIMS, "c", CLAIM_OF(200, OF_CLASS("whole"))},
      {ADD, CLAIMS_CLAIMS, "d", CLAIM_OF(100, OF_CLASS("whole"))}},
     "claim c Bound/Bound gpu=egpu-u2-c done=1 by=1 class=whole node= core=200 guard=1\n"
     "claim d Pending/ProvisioningFailed gpu= done=0 by=0 class=whole node= core=0 guard=1\n"
     "gpu egpu-u2-c Bound ns/c uid=u2-c by=1 on=gpu-d0+gpu-d1 core=200 memory=0 guard=1\n"},
    {"and a claim of one of several is served by a card of them",
     {{ADD, CLAIMS_CLASSES, "whole", WHOLE_CLASS},
      {ADD, CLAIMS_CLAIMS, "c", CLAIM_OF(100, OF_CLASS("whole"))},
      {ADD, CLAIMS_CLAIMS, "d", CLAIM_OF(200, OF_CLASS("whole"))},
      {ADD, CLAIMS_CLAIMS, "e", CLAIM_OF(100, OF_CLASS("whole"))},
      {DELETE, CLAIMS_CLAIMS, "c", NULL}},
     "claim d Pending/ProvisioningFailed gpu= done=0 by=0 class=whole node= core=0 guard=1\n"
     "claim e Bound/Bound gpu=egpu-u5-e done=1 by=1 class=whole node= core=100 guard=1\n"
     "gpu egpu-u5-e Bound ns/e uid=u5-e by=1 on=gpu-d1 core=100 memory=0 guard=1\n"},
    {"a class gives whole cards, or shares, and says what to ask",
     {{ADD, CLAIMS_CLASSES, "whole", WHOLE_CLASS},
      {ADD, CLAIMS_CLASSES, "fast", CLASS("")},
      {ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS("whole"))},
      {ADD, CLAIMS_CLAIMS, "d", CLAIM_OF(200, OF_CLASS("fast"))}},
     "claim c Pending/ProvisioningFailed gpu= done=0 by=0 class=whole node= core=0 guard=1\n"
     "claim d Pending/ProvisioningFailed gpu= done=0 by=0 class=fast node= core=0 guard=1\n"},
    {"whole cards that an admin has put together go to who asks for as many",
     {{ADD, CLAIMS_EGPUS, "pair", STATIC_WHOLE},
      {ADD, CLAIMS_EGPUS, "again", STATIC_WHOLE},
      {ADD, CLAIMS_CLAIMS, "one", CLAIM_OF(100, OF_CLASS(""))},
      {ADD, CLAIMS_CLAIMS, "two", CLAIM_OF(200, OF_CLASS(""))}},
     "claim one Pending/NoMatch gpu= done=0 by=0 class= node= core=0 guard=1\n"
     "claim two Bound/Bound gpu=pair done=1 by=1 class= node= core=200 guard=1\n"
     "gpu again PendingNoRoom / uid= by=0 on=gpu-d0+gpu-d1 core=200 memory=0 guard=1\n"
     "gpu pair Bound ns/two uid=u4-two by=1 on=gpu-d0+gpu-d1 core=200 memory=0 guard=1\n"},
    {"a provisioner that cannot make it says so",
     {{ADD, CLAIMS_CLASSES, "mig", "{\"provisioner\":\"elasticgpu.io/mig\"}"},
      {ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS("mig"))}},
     "claim c Pending/ProvisioningFailed gpu= done=0 by=0 class=mig node= core=0 guard=1\n"},
    {"a class of shares makes no MIG instance",
     {{ADD, CLAIMS_CLASSES, "fast", CLASS("")},
      {ADD, CLAIMS_CLAIMS, "c",
       "{\"spec\":{\"resources\":{\"requests\":{\"nvidia.com/mig-1g.10gb\":1}}" OF_CLASS(
           "fast") "}}"}},
     "claim c Pending/ProvisioningFailed gpu= done=0 by=0 class=fast node= core=0 guard=1\n"},
    {"a MIG instance of an admin goes to a claim of its profile",
     {{ADD, CLAIMS_EGPUS, "inst",
       "{\"spec\":{\"capacity\":{\"elasticgpu.io/gpu-core\":14,\"elasticgpu.io/gpu-memory\":"
       "\"10Gi\"},\"mig\":{\"gpuName\":\"gpu-a\",\"profile\":\"1g.10gb\"}}}"},
      {ADD, CLAIMS_CLAIMS, "other",
       "{\"spec\":{\"resources\":{\"requests\":{\"nvidia.com/mig-2g.20gb\":1}}" OF_CLASS("") "}}"},
      {ADD, CLAIMS_CLAIMS, "c",
       "{\"spec\":{\"resources\":{\"requests\":{\"nvidia.com/mig-1g.10gb\":1}}" OF_CLASS("") "}}"}},
     "claim c Bound/Bound gpu=inst done=1 by=1 class= node= core=14 guard=1\n"
     "claim other Pending/NoMatch gpu= done=0 by=0 class= node= core=0 guard=1\n"
     "gpu inst Bound ns/c uid=u3-c by=1 on=gpu-a core=14 memory=10 guard=1\n"},
    {"and says so before a pod is sent somewhere for it",
     {{ADD, CLAIMS_CLASSES, "mig",
       "{\"provisioner\":\"elasticgpu.io/mig\",\"bindingMode\":\"WaitForFirstConsumer\"}"},
      {ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS("mig"))}},
     "claim c Pending/ProvisioningFailed gpu= done=0 by=0 class=mig node= core=0 guard=1\n"},
    {"an external provisioner is asked, once a node was chosen",
     {{ADD, CLAIMS_CLASSES, "acme", OTHERS_CLASS("Immediate")},
      {ADD, CLAIMS_CLASSES, "late", OTHERS_CLASS("WaitForFirstConsumer")},
      {ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS("acme"))},
      {ADD, CLAIMS_CLAIMS, "d", CLAIM(OF_CLASS("late"))},
      {ADD, CLAIMS_CLAIMS, "e", CLAIM(OF_CLASS("late"))},
      {PATCH, CLAIMS_CLAIMS, "e",
       "{\"metadata\":{\"annotations\":{\"elasticgpu.io/selected-node\":\"node-b\"}}}"}},
     "claim c Pending/ExternalProvisioning gpu= done=0 by=0 class=acme node= core=0 asks=acme.io/x "
     "guard=1\n"
     "claim d Pending/WaitForFirstConsumer gpu= done=0 by=0 class=late node= core=0 guard=1\n"
     "claim e Pending/ExternalProvisioning gpu= done=0 by=0 class=late node=node-b core=0 "
     "asks=acme.io/x guard=1\n"},
    {"and what it makes is bound, and its own to take back",
     {{ADD, CLAIMS_CLASSES, "acme", OTHERS_CLASS("Immediate")},
      {ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS("acme"))},
      {ADD, CLAIMS_EGPUS, "theirs",
       "{\"metadata\":{\"annotations\":{\"elasticgpu.io/provisioned-by\":\"acme.io/x\"}},\"spec\":{"
       "\"capacity\":{\"elasticgpu.io/gpu-core\":10,\"elasticgpu.io/gpu-memory\":\"4Gi\"},"
       "\"reclaimPolicy\":\"Delete\",\"qGPU\":{\"gpuName\":\"gpu-b\"}" OF_CLASS("acme")
           CLAIM_REF("c", ",\"uid\":\"u2-c\"") "}}"},
      {ADD, CLAIMS_CLAIMS, "d", CLAIM(OF_CLASS("acme"))},
      {DELETE, CLAIMS_CLAIMS, "c", NULL}},
     "claim d Pending/ExternalProvisioning gpu= done=0 by=0 class=acme node= core=0 asks=acme.io/x "
     "guard=1\n"
     "gpu theirs ReleasedClaimGone ns/c uid=u2-c by=0 on=gpu-b core=10 memory=4 guard=1\n"},
    {"a share under MPS goes with its claim",
     {{ADD, CLAIMS_EGPUS, "g",
       "{\"metadata\":{\"annotations\":{\"elasticgpu.io/provisioned-by\":\"elasticgpu.io/mps\"}},"
       "\"spec\":{\"capacity\":{\"elasticgpu.io/gpu-core\":10},\"reclaimPolicy\":\"Delete\","
       "\"gpuShare\":{\"gpuName\":\"gpu-a\"}" CLAIM_REF("c", ",\"uid\":\"stale\"") "}}"}},
     ""},
};
#define STORIES (sizeof(stories) / sizeof(stories[0]))

/* Tells the story and returns its end. */
static char *play(struct server *s, const struct story *story) {
    for (size_t i = 0; i < DEEDS_MAX && story->deeds[i].name; i++) {
        act(s, &story->deeds[i]);
        run(s);
    }
    return tell(s);
}

static void expect(const struct story *story, const char *end, unsigned cut, uint32_t seed) {
    if (strcmp(end, story->end) != 0)
        fail_msg("%s (cut at %u, seed %u):\n%sis not\n%s", story->name, cut, seed, end, story->end);
}

static void test_rules(void **unused) {
    (void) unused;
    for (size_t i = 0; i < STORIES; i++) {
        struct server *s = calloc(1, sizeof(*s));
        start(s, 1, 1, 0, false);
        char *end = play(s, &stories[i]);
        expect(&stories[i], end, 0, 1);
        free(end);
        finish(s);
        free(s);
    }
}

/* Dies at the k-th write, for every k there is: the write lost, and the write done. */
static void test_crash_at_every_write(void **unused) {
    (void) unused;
    for (size_t i = 0; i < STORIES; i++) {
        bool dead = true;
        for (unsigned cut = 1; dead; cut++) {
            for (int undone = 0; undone < 2; undone++) {
                struct server *s = calloc(1, sizeof(*s));
                start(s, 1, cut, cut, undone);
                char *end = play(s, &stories[i]);
                expect(&stories[i], end, cut, cut);
                dead = s->dead;
                free(end);
                finish(s);
                free(s);
            }
        }
    }
}

/* Watches that lag behind each other in many ways, and a second controller that does the same. */
static void test_lagging_watches_and_two_controllers(void **unused) {
    (void) unused;
    for (size_t i = 0; i < STORIES; i++) {
        for (uint32_t seed = 1; seed <= 24; seed++) {
            struct server *s = calloc(1, sizeof(*s));
            start(s, 1 + seed % 2, seed * 7919, seed % 3 ? 0 : seed / 3, seed % 4 == 0);
            char *end = play(s, &stories[i]);
            expect(&stories[i], end, 0, seed);
            free(end);
            finish(s);
            free(s);
        }
    }
}

/* ---- races: which claim wins may differ, that only one does may not ---- */

static size_t count(const char *text, const char *what) {
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, what)); at++)
        n++;
    return n;
}

static void test_claims_race_for_one(void **unused) {
    static const struct deed deeds[] = {
        {ADD, CLAIMS_EGPUS, "g", STATIC(40, 20, "")},
        {ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS(""))},
        {ADD, CLAIMS_CLAIMS, "d", CLAIM(OF_CLASS(""))},
    };
    (void) unused;
    for (uint32_t seed = 1; seed <= 200; seed++) {
        struct server *s = calloc(1, sizeof(*s));
        start(s, 2, seed * 104729, seed % 16, seed & 1);
        for (size_t i = 0; i < sizeof(deeds) / sizeof(deeds[0]); i++)
            act(s, &deeds[i]);
        run(s);
        char *end = tell(s);
        assert_int_equal(count(end, " Bound/Bound gpu=g "), 1);
        assert_int_equal(count(end, " Pending/NoMatch "), 1);
        assert_int_equal(count(end, "gpu g Bound "), 1);
        free(end);
        finish(s);
        free(s);
    }
}

/* Seven claims of 30 percent each, and two cards: three on each, in any order. */
static void test_no_card_is_given_twice(void **unused) {
    (void) unused;
    for (uint32_t seed = 1; seed <= 60; seed++) {
        struct server *s = calloc(1, sizeof(*s));
        start(s, 2, seed * 15485863, seed, seed & 1);
        act(s, &(struct deed){ADD, CLAIMS_CLASSES, "fast", CLASS("")});
        for (int i = 0; i < 7; i++) {
            char name[8];
            snprintf(name, sizeof(name), "c%d", i);
            act(s, &(struct deed){
                       ADD, CLAIMS_CLAIMS, name,
                       "{\"spec\":{\"elasticGPUClassName\":\"fast\",\"resources\":{\"requests\":{"
                       "\"elasticgpu.io/gpu-core\":\"30\",\"elasticgpu.io/gpu-memory\":\"10Gi\"}}}"
                       "}"});
        }
        run(s);
        char *end = tell(s);
        assert_int_equal(count(end, " Bound/Bound "), 6);
        assert_int_equal(count(end, " Pending/ProvisioningFailed "), 1);
        free(end);
        finish(s);
        free(s);
    }
}

/* ---- what pods get ---- */

static void use_of(struct server *s, const char *pod, int want, struct claims_use *ret,
                   char text[static ERR_TEXT_MAX]) {
    const char *container;
    struct err why = {0};
    assert_int_equal(claims_use(s->controllers[0].claims, pod, 0, &container, ret, &why), want);
    memcpy(text, why.text, sizeof(why.text));
    if (want != -ENOENT)
        assert_string_equal(container, "main");
}

static void test_what_a_pod_gets(void **unused) {
    struct server *s = calloc(1, sizeof(*s));
    struct claims_use use;
    char why[ERR_TEXT_MAX];
    (void) unused;
    start(s, 1, 3, 0, false);
    act(s, &(struct deed){ADD, CLAIMS_CLASSES, "half", CLASS(",\"podsPerClaim\":2")});
    act(s, &(struct deed){POD, CLAIMS_PODS, "p", "\"elasticgpu.io/egpuc-main\":\"c\""});
    run(s);
    use_of(s, "uid-q", -ENOENT, &use, why);
    use_of(s, "uid-p", -EAGAIN, &use, why);
    assert_non_null(strstr(why, "does not exist"));
    act(s, &(struct deed){ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS("half"))});
    run(s);
    use_of(s, "uid-p", 0, &use, why);
    assert_int_equal(use.amount.core, 5);
    assert_int_equal(use.amount.memory, 2 * GIB);
    assert_string_equal(use.egpu->cards[0], "gpu-a");
    assert_string_equal(use.egpu->node, "node-a");
    /* Containers of a pod share it as pods do. */
    act(s, &(struct deed){POD, CLAIMS_PODS, "r",
                          "\"egpuc.elasticgpu.io/main\":\"c\",\"egpuc.elasticgpu.io/side\":\"c\""});
    run(s);
    use_of(s, "uid-r", 0, &use, why);
    assert_int_equal(use.amount.core, 2);
    assert_int_equal(use.amount.memory, GIB);
    act(s, &(struct deed){DESTROY, CLAIMS_EGPUS, "egpu-u2-c", NULL});
    run(s);
    use_of(s, "uid-p", -EAGAIN, &use, why);
    assert_non_null(strstr(why, "lost"));
    finish(s);
    free(s);
}

static void test_a_foreign_claim_is_not_adopted(void **unused) {
    struct server *s = calloc(1, sizeof(*s));
    struct claims_use use;
    char why[ERR_TEXT_MAX];
    (void) unused;
    start(s, 1, 5, 0, false);
    act(s, &(struct deed){ADD, CLAIMS_CLASSES, "fast", CLASS("")});
    act(s, &(struct deed){ADD, CLAIMS_CLAIMS, "p-main", CLAIM(OF_CLASS("fast"))});
    act(s, &(struct deed){POD, CLAIMS_PODS, "p",
                          "\"egpuct.elasticgpu.io/main\":\"{\\\"elasticGPUClassName\\\":"
                          "\\\"fast\\\"}\""});
    run(s);
    use_of(s, "uid-p", -EAGAIN, &use, why);
    assert_non_null(strstr(why, "not this pod's"));
    act(s, &(struct deed){POD, CLAIMS_PODS, "q", "\"egpuct.elasticgpu.io/main\":\"no JSON\""});
    run(s);
    assert_non_null(strstr(s->last_note, "ClaimTemplateInvalid"));
    finish(s);
    free(s);
}

static void test_a_first_consumer_gets_what_is_asked(void **unused) {
    struct server *s = calloc(1, sizeof(*s));
    struct claims_use use;
    char why[ERR_TEXT_MAX];
    (void) unused;
    start(s, 1, 9, 0, false);
    act(s, &(struct deed){ADD, CLAIMS_CLASSES, "late",
                          CLASS(",\"egpuBindingMode\":\"WaitForFirstConsumer\"")});
    act(s, &(struct deed){ADD, CLAIMS_CLAIMS, "c", CLAIM(OF_CLASS("late"))});
    act(s, &(struct deed){POD, CLAIMS_PODS, "p", "\"egpuc.elasticgpu.io/main\":\"c\""});
    run(s);
    use_of(s, "uid-p", 0, &use, why);
    assert_null(use.egpu);
    assert_int_equal(use.amount.core, 10);
    act(s, &(struct deed){ADD, CLAIMS_CLASSES, "mig",
                          "{\"provisioner\":\"elasticgpu.io/mig\",\"bindingMode\":"
                          "\"WaitForFirstConsumer\"}"});
    act(s, &(struct deed){
               ADD, CLAIMS_CLAIMS, "m",
               "{\"spec\":{\"resources\":{\"requests\":{\"nvidia.com/mig-1g.10gb\":1}}" OF_CLASS(
                   "mig") "}}"});
    act(s, &(struct deed){POD, CLAIMS_PODS, "q", "\"egpuc.elasticgpu.io/main\":\"m\""});
    run(s);
    use_of(s, "uid-q", -EAGAIN, &use, why);
    assert_non_null(strstr(why, "bindingMode: Immediate"));
    finish(s);
    free(s);
}

static void test_what_is_no_claim(void **unused) {
    static const char *const texts[] = {
        "{}",
        "{\"metadata\":{\"name\":\"c\",\"uid\":\"u\",\"resourceVersion\":\"1\"}}",
        "{\"metadata\":{\"name\":\"c\",\"namespace\":\"n\",\"resourceVersion\":\"1\"}}",
    };
    (void) unused;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct json_parser *p = NULL;
        struct json root;
        struct egpu_claim claim;
        struct err err;
        assert_int_equal(json_open(texts[i], strlen(texts[i]), &p, &root, NULL), 0);
        assert_int_equal(egpu_claim_parse(root, &claim, &err), -EINVAL);
        json_parser_free(p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_crash_at_every_write),
        cmocka_unit_test(test_lagging_watches_and_two_controllers),
        cmocka_unit_test(test_claims_race_for_one),
        cmocka_unit_test(test_no_card_is_given_twice),
        cmocka_unit_test(test_what_a_pod_gets),
        cmocka_unit_test(test_a_foreign_claim_is_not_adopted),
        cmocka_unit_test(test_a_first_consumer_gets_what_is_asked),
        cmocka_unit_test(test_what_is_no_claim),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
