/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The daemon: a loop, the watches, an HTTP server, and the parts that do the work. */

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "kube/api/client.h"
#include "kube/api/event_writer.h"
#include "scheduler/cluster/endpoints.h"
#include "scheduler/cluster/gpu_status.h"
#include "scheduler/cluster/key_ages.h"
#include "scheduler/cluster/lease.h"
#include "scheduler/cluster/profiles.h"
#include "scheduler/cluster/version_skew.h"
#include "scheduler/cluster/workload_store.h"
#include "scheduler/daemon/policy_watch.h"
#include "scheduler/daemon/requeue.h"
#include "scheduler/daemon/watch.h"
#include "scheduler/dra/dra.h"
#include "scheduler/elastic/elastic.h"
#include "scheduler/extender/bind.h"
#include "scheduler/extender/extender.h"
#include "scheduler/extender/gate.h"
#include "scheduler/preemption/drain.h"
#include "scheduler/preemption/evict.h"
#include "scheduler/preemption/preempt.h"
#include "wire/http.h"
#include "wire/prom.h"

struct err;
struct agent_tls;
struct metrics_apis;
struct mig_orders;

enum verb { VERB_FILTER, VERB_PRIORITIZE, VERB_BIND, VERB_PREEMPT, VERBS };

struct verb_stats {
    uint64_t ok, failed;
    struct prom_histogram latency;
};

struct scheduler_options {
    const char *listen;
    const char *tls_cert, *tls_key;
    const char *metrics_listen;     /* NULL: only at `listen` */
    const char *webhook_listen;     /* NULL: no admission webhook */
    const char *metrics_api_listen; /* NULL: no metrics APIs */
    bool dra;                       /* watch ResourceClaims, and allocate those of ours */
    bool agent_tls;                 /* sign certificates of agents, and show one to them */
    const char *agent_token;        /* file with a token for the agents, or NULL */
    const char *api_server, *token_file, *ca_file; /* NULL: as in a pod */
    const char *name_space;                        /* where the signing key and the Lease live */
    const char *health;                            /* directory for health.h; NULL: none */
    const struct place_policy *policy;             /* of pods that name none; NULL: the default */
    /* Of the kube-scheduler in this pod; NULL: there is none. */
    const char *kube_scheduler_config;
    const char *identity; /* among the replicas; stays when the process is started again */
    const struct http_route *routes;         /* served at `listen`; userdata is the scheduler */
    const struct http_route *metrics_routes; /* served at `metrics_listen` */
};

struct scheduler {
    uv_loop_t *loop;
    struct scheduler_options options;
    struct kube_client *client;
    struct watch watches[WATCHES_MAX];
    size_t nwatches;
    struct http_server *http, *metrics_http;
    struct shared_page {
        struct buf text; /* "": was not made yet */
        uint64_t made_ms;
    } shared_pages[PROM_FORMATS]; /* of metrics_http, see pages.h */
    struct state *state;
    struct extender extender;
    struct binder binder;
    struct preempt preempt;
    struct evictor evictor;
    struct drainer drainer;
    struct event_writer *events;
    struct gpu_status gpu_status;
    struct requeue requeue;
    struct workload_store workload;
    struct endpoints endpoints;        /* all zero where nothing needs the authority */
    struct metrics_apis *metrics_apis; /* NULL: not wanted */
    struct agent_tls *agent_tls;       /* likewise */
    struct lease lease;
    struct profiles profiles; /* of the kube-scheduler in this pod; n == 0: there is none */
    struct version_skew skew; /* of the same */
    struct {
        char text[512];
        bool told;
    } stand_back; /* see stand_back.h */
    struct elastic elastic;
    struct dra dra; /* without options.dra nothing is in it */
    struct govern govern;
    struct mig_orders *mig;        /* MIG instances on demand, for pods */
    struct mig_orders *mig_claims; /* the same, for claims */
    struct gates gates;            /* rows in order; filled by make_parts() */
    struct json_parser *parser;    /* for one document at a time */
    struct signing_key *key;
    struct signing_verifier *verifier;
    uint64_t keys_ms; /* when the stored key was last read; UINT64_MAX during that */
    bool keys_unread; /* since the Lease was acquired; another replica may have changed them */
    bool keys_late;   /* requests in flight were sent before that */
    struct key_ages key_ages; /* of the public keys, while this replica acts */
    unsigned undecided;       /* writes that grant capacity, in flight */
    struct verb_stats stats[VERBS];
    uint64_t objects_refused; /* watched objects that could not be read */
    uv_timer_t beat;          /* several times a second: the Lease, the port */
    uv_timer_t tick;          /* once a second: audit, repair */
    uv_timer_t project;       /* soon after a change */
    uv_timer_t claims;        /* sooner after one that pods with ResourceClaims wait for */
    uint64_t claims_ms;       /* what the last run of them took */
    uv_timer_t retry_keys;
    uv_timer_t drain; /* the time between leaving the Services and the end */
    uv_signal_t on_term, on_int;
    bool watches_stale;                  /* one is broken, which was logged */
    bool health_fails;                   /* which was logged */
    bool port_taken, metrics_port_taken; /* by another replica on this node */
    bool stopping;
    bool failed; /* it cannot go on */
};

/* Starts everything on the loop. On an error the process is to end. */
int scheduler_start(struct scheduler *s, uv_loop_t *loop, const struct scheduler_options *options,
                    struct err *err);

/* Frees everything; the loop has ended. */
void scheduler_done(struct scheduler *s);

/* Whether every watch has delivered its list and the signing key is there. */
bool scheduler_has_started(const struct scheduler *s);

/* The same, and no watch has been broken for WATCH_STALE_MS. */
bool scheduler_is_ready(const struct scheduler *s);

/* The same, also in a replica that is ending: what it tells of the cluster is right. */
bool scheduler_knows_cluster(const struct scheduler *s);

/* The same, and this replica does not stand back (stand_back.h): it answers kube-scheduler. */
bool scheduler_answers(const struct scheduler *s);

/* Whether this replica leads: it holds the Lease, has read all earlier decisions, and has read the
 * signing key since. All unsolicited writes to the API server require this. */
bool scheduler_leads(const struct scheduler *s);

/* Milliseconds of a clock that does not jump. */
uint64_t scheduler_now(const struct scheduler *s);
uint64_t scheduler_clock(void *userdata); /* the same, for parts of the scheduler */
