/* SPDX-License-Identifier: Apache-2.0 */

/* `aliquot doctor`: what is wrong with the installation, and what to do. */

#include "cli/doctor/doctor.h"

#include <stdio.h>

#include "base/cleanup.h"
#include "cli/args.h"
#include "cli/kubectl_options.h"
#include "wire/json_write.h"

static struct port_forward arg_source = {.name_space = "aliquot-system"};
static bool arg_json;

static const struct {
    const char *name;
    void (*run)(struct doctor *d);
} checks[] = {
#define CHECK(text, name) {text, doctor_check_##name},
#include "cli/doctor/checks.def"
#undef CHECK
};

static const char *const levels[] = {
    [DOCTOR_OK] = "ok", [DOCTOR_UNSURE] = "unsure", [DOCTOR_WRONG] = "wrong"};

static void print_text(const struct doctor *d) {
    for (const struct doctor_finding *f = d->list; f < d->list + d->n; f++) {
        printf("%-8s %-14s %s\n", levels[f->level], f->check, f->text);
        if (f->remedy)
            printf("%-23s -> %s\n", "", f->remedy);
    }
}

static int print_json(const struct doctor *d, struct err *err) {
    _cleanup_buf_ struct buf out = BUF_INIT(0);
    struct json_writer w = {.out = &out};

    json_object_begin(&w, NULL);
    json_array_begin(&w, "findings");
    for (const struct doctor_finding *f = d->list; f < d->list + d->n; f++) {
        json_object_begin(&w, NULL);
        json_put_string(&w, "check", f->check);
        json_put_string(&w, "level", levels[f->level]);
        json_put_string(&w, "text", f->text);
        json_put_string(&w, "remedy", f->remedy);
        json_object_end(&w);
    }
    json_array_end(&w);
    json_object_end(&w);
    if (buf_error(&out) < 0 || puts(buf_str(&out)) < 0)
        return err_errno(err, out.error ? out.error : EIO, "cannot print");
    return 0;
}

static int examine(struct err *err) {
    _cleanup_(doctor_done) struct doctor d = {0};
    unsigned wrong = 0;
    int r = doctor_read(&d.evidence, &arg_source, err);

    if (r < 0)
        return r;
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
        d.check = checks[i].name;
        checks[i].run(&d);
        if (!json_valid(d.evidence.version.root))
            break; /* nothing answers */
    }
    if (d.out_of_memory)
        return err_errno(err, ENOMEM, "cannot list what was found");
    for (size_t i = 0; i < d.n; i++)
        wrong += d.list[i].level == DOCTOR_WRONG;
    if (arg_json)
        r = print_json(&d, err);
    else
        print_text(&d);
    return r == 0 && wrong > 0 ? err_set(err, EPROTO, "%u wrong", wrong) : r;
}

static const struct opt options[] = {
    SYSTEM_OPTION(&arg_source.name_space),
    {"scheduler", 0, "URL", "address of the scheduler, such as http://127.0.0.1:9401 on its host",
     opt_string, &arg_source.url},
    {"json", 0, NULL, "print JSON", opt_flag, &arg_json},
    KUBECTL_OPTIONS,
    OPT_END,
};

static const struct opt_usage usage = {
    .synopsis = "aliquot doctor [options]",
    .purpose =
        "Checks an installation of Aliquot: versions, admission, scheduler, metrics APIs,\n"
        "ResourceClaims, signing key, its pods, agents, drivers, what agents report of their\n"
        "nodes, other device plugins, clocks.\n"
        "Prints a line for each finding, with what to do. Nothing is changed: pods are tried\n"
        "by a dry run in namespace default.",
    .epilog = "Uses kubectl (or $KUBECTL) with your context. What its user may not read is\n"
              "\"unsure\". Exit status: 0; 1 when something is wrong; 2 for wrong arguments.",
};

int cmd_doctor(int argc, char **argv) {
    struct err err;
    int r = args_parse(options, &usage, argc, argv, NULL, 0, &err);
    bool understood = r == 0;

    if (understood)
        r = examine(&err);
    return args_exit("doctor", r, understood, &err);
}
