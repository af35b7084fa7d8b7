/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/mig/machine.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "gpu/mig/card_read.h"

#define LIBRARY "libnvidia-ml.so.1"
#define FILE_MAX ((size_t) 1 << 20)

static int read_card(struct mig_machine *m, unsigned int index, nvmlDevice_t *ret,
                     struct err *err) {
    nvmlReturn_t code = m->nvml.nvmlDeviceGetHandleByIndex_v2(index, ret);

    return code == NVML_SUCCESS ? gpu_mig_read(&m->nvml, *ret, &m->cards[m->n], err)
                                : gpu_mig_error(&m->nvml, code, "nvmlDeviceGetHandleByIndex", err);
}

static int read_cards(struct mig_machine *m, struct err *err) {
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

        if (read_card(m, i, &m->devices[m->n], &cause) < 0) {
            if (!m->incomplete)
                (void) err_set(&m->unread, EIO, "GPU %u: %s", i, cause.text);
            m->incomplete = true;
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

int mig_machine_open(struct mig_machine *machine, struct err *err) {
    nvmlReturn_t code;
    int r = nvml_load(LIBRARY, &machine->nvml, err);

    if (r < 0)
        return r;
    code = machine->nvml.nvmlInit_v2();
    if (code != NVML_SUCCESS)
        return gpu_mig_error(&machine->nvml, code, "nvmlInit", err);
    machine->open = true;
    return read_cards(machine, err);
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

const char *env_text(const char *name) {
    const char *value = secure_getenv(name);

    return value && value[0] ? value : NULL;
}

/* As Go's strconv.ParseBool. */
bool env_flag(const char *name) {
    static const char *const yes[] = {"1", "t", "T", "true", "True", "TRUE"};
    const char *value = env_text(name);

    for (size_t i = 0; value && i < sizeof(yes) / sizeof(yes[0]); i++)
        if (strcmp(value, yes[i]) == 0)
            return true;
    return false;
}
