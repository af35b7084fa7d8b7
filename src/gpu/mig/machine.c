/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/mig/machine.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "gpu/mig/card_read.h"
#include "mig/plan.h"

#define FILE_MAX ((size_t) 1 << 20)

static int read_card(struct mig_machine *m, unsigned int index, nvmlDevice_t *ret,
                     struct err *err) {
    nvmlReturn_t code = m->nvml.nvmlDeviceGetHandleByIndex_v2(index, ret);

    return code == NVML_SUCCESS ? gpu_mig_read(&m->nvml, *ret, &m->cards[m->n], err)
                                : gpu_mig_error(&m->nvml, code, "nvmlDeviceGetHandleByIndex", err);
}

/* The first of them is named. */
static void add_unread(struct mig_machine *m, unsigned int index, const char *why) {
    if (!m->incomplete)
        (void) err_set(&m->unread, EIO, "GPU %u: %s", index, why);
    m->incomplete = true;
}

static int read_cards(struct mig_machine *m, uint64_t left_out, struct err *err) {
    unsigned int count = 0;
    nvmlReturn_t code = m->nvml.nvmlDeviceGetCount_v2(&count);

    if (code != NVML_SUCCESS)
        return gpu_mig_error(&m->nvml, code, "nvmlDeviceGetCount", err);
    m->cards = calloc(MIG_MACHINE_CARDS_MAX, sizeof(*m->cards));
    if (!m->cards)
        return err_errno(err, ENOMEM, "cannot keep the cards");
    for (unsigned int i = 0; i < count && m->n < MIG_MACHINE_CARDS_MAX; i++) {
        nvmlPciInfo_t pci = {0};
        struct err cause;

        if (left_out >> i & 1) {
            add_unread(m, i, "it is left out: it does not answer");
            continue;
        }
        if (read_card(m, i, &m->devices[m->n], &cause) < 0) {
            add_unread(m, i, cause.text);
            continue;
        }
        if (m->nvml.nvmlDeviceGetPciInfo_v3)
            (void) m->nvml.nvmlDeviceGetPciInfo_v3(m->devices[m->n], &pci);
        m->of[m->n] = (struct mig_machine_card){
            .card = &m->cards[m->n],
            .index = i,
            .pci = {.device = pci.pciDeviceId, .subsystem = pci.pciSubSystemId}};
        m->n++;
    }
    return 0;
}

int mig_machine_open(struct mig_machine *machine, const char *library, uint64_t left_out,
                     struct err *err) {
    nvmlReturn_t code;
    int r = nvml_load(library, &machine->nvml, err);

    if (r < 0)
        return r;
    code = machine->nvml.nvmlInit_v2();
    if (code != NVML_SUCCESS)
        return gpu_mig_error(&machine->nvml, code, "nvmlInit", err);
    machine->open = true;
    return read_cards(machine, left_out, err);
}

int mig_machine_check(const struct mig_machine *machine, struct err *err) {
    return machine->incomplete ? err_set(err, EIO, "%s", machine->unread.text) : 0;
}

void mig_machine_close(struct mig_machine *machine) {
    if (machine->open && machine->nvml.nvmlShutdown)
        (void) machine->nvml.nvmlShutdown();
    free(machine->cards);
    machine->cards = NULL;
    machine->open = false;
}

static int read_file(struct mig_selection *s, struct err *err) {
    _cleanup_buf_ struct buf text = BUF_INIT(FILE_MAX);
    int r = file_read(strcmp(s->file, "-") == 0 ? "/dev/stdin" : s->file, FILE_MAX, &text, err);

    if (r >= 0)
        r = mig_file_parse(buf_str(&text), text.len, &s->configs, err);
    return r < 0 ? err_wrap(err, "%s", s->file) : 0;
}

int mig_selection_read(struct mig_selection *s, const struct mig_machine *machine,
                       struct err *err) {
    int r = s->file && s->file[0] ? read_file(s, err)
                                  : mig_generate(machine->of, machine->n, &s->configs, err);

    if (r < 0)
        return r;
    s->first = mig_file_select(&s->configs, s->name ? s->name : "", err);
    return s->first ? 0 : -EINVAL;
}

int mig_selection_spec(const struct mig_selection *s, const struct mig_machine_card *of,
                       const struct mig_spec **ret, struct err *err) {
    const struct mig_spec *spec = mig_file_match(&s->configs, s->first, of->index, of->pci);

    if (spec && !of->card->capable) {
        if (spec->enabled && !spec->all)
            return err_set(err, EOPNOTSUPP, "GPU %u has no MIG", of->index);
        spec = NULL;
    }
    *ret = spec;
    return 0;
}

int mig_selection_check(const struct mig_selection *s, const struct mig_machine *m, bool mode_only,
                        struct err *err) {
    for (uint32_t i = 0; i < m->n; i++) {
        const struct mig_card *card = m->of[i].card;
        struct mig_want want = {0};
        const struct mig_spec *spec;
        struct mig_plan plan;
        int r = mig_selection_spec(s, &m->of[i], &spec, err);

        if (r < 0)
            return r;
        if (!spec || !spec->enabled || mode_only || card->nprofiles == 0)
            continue;
        r = mig_want_devices(card, spec->devices, spec->ndevices, &want, err);
        if (r >= 0)
            r = mig_plan(card, &want, &plan, err);
        if (r < 0)
            return err_wrap(err, "GPU %u", m->of[i].index);
    }
    return 0;
}
