/* SPDX-License-Identifier: Apache-2.0 */

/* `aliquot mig export` and `aliquot mig generate-config`. */

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "cli/args.h"
#include "cli/mig/environment.h"
#include "cli/mig/mig.h"
#include "gpu/mig/machine.h"

#define OUTPUT_MAX ((size_t) 4 << 20)

static const struct opt_usage export_usage = {
    .synopsis = "aliquot mig export [-o yaml|json] [-l LABEL]",
    .purpose = "Prints the division of the GPUs as a configuration file, for aliquot mig apply or "
               "mig-parted.",
};

static const struct opt_usage generate_usage = {
    .synopsis = "aliquot mig generate-config [-o yaml|json] [-f FILE]",
    .purpose =
        "Prints the configurations that the GPUs can have, under the names that NVIDIA gives them.",
};

static int check_format(const char *format, struct err *err) {
    if (strcmp(format, "yaml") == 0 || strcmp(format, "json") == 0)
        return 0;
    return err_set(err, EINVAL, "--output-format %s: expected yaml or json", format);
}

static int write_file(const struct mig_file *file, const char *format, const char *path,
                      struct err *err) {
    _cleanup_buf_ struct buf text = BUF_INIT(OUTPUT_MAX);
    int r;

    if (strcmp(format, "json") == 0) {
        mig_file_write_json(file, &text);
        buf_putc(&text, '\n');
    } else {
        mig_file_write_yaml(file, &text);
    }
    r = buf_error(&text);
    if (r < 0)
        return err_errno(err, -r, "cannot write the configuration");
    if (path)
        return file_replace(path, text.data, text.len, 0644, err);
    if (fwrite(text.data, 1, text.len, stdout) != text.len || fflush(stdout) != 0)
        return err_errno(err, EIO, "cannot write the configuration");
    return 0;
}

static int export_cards(const char *label, const char *format, struct err *err) {
    _cleanup_machine_ struct mig_machine m = {0};
    _cleanup_mig_file_ struct mig_file file = {0};
    int r = check_format(format, err);

    if (r >= 0)
        r = mig_machine_open(&m, MIG_MACHINE_LIBRARY, 0, err);
    if (r >= 0)
        r = mig_export(m.of, m.n, label, &file, err);
    if (r >= 0)
        r = write_file(&file, format, NULL, err);
    return r >= 0 ? mig_machine_check(&m, err) : r;
}

int mig_export_command(int argc, char **argv, bool debug) {
    const char *format = env_text("MIG_PARTED_OUTPUT_FORMAT");
    const char *label = env_text("MIG_PARTED_CONFIG_LABEL");
    const struct opt options[] = {
        {"output-format", 'o', "FORMAT", "yaml (default) or json", opt_string, &format},
        {"config-label", 'l', "LABEL", "the name of the configuration (default: current)",
         opt_string, &label},
        OPT_END,
    };
    struct err err;
    int r = args_parse(options, &export_usage, argc, argv, NULL, 0, &err);

    (void) debug;
    if (r >= 0)
        r = export_cards(label ? label : "current", format ? format : "yaml", &err);
    return mig_exit("export", r, &err);
}

static int generate(const char *path, const char *format, struct err *err) {
    _cleanup_machine_ struct mig_machine m = {0};
    _cleanup_mig_file_ struct mig_file file = {0};
    uint32_t capable = 0;
    int r = check_format(format, err);

    if (r >= 0)
        r = mig_machine_open(&m, MIG_MACHINE_LIBRARY, 0, err);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < m.n; i++)
        capable += m.of[i].card->capable;
    if (capable == 0)
        return err_set(err, EOPNOTSUPP, "no GPU of this machine has MIG");
    r = mig_generate(m.of, m.n, &file, err);
    return r >= 0 ? write_file(&file, format, path, err) : r;
}

int mig_generate_command(int argc, char **argv, bool debug) {
    const char *format = env_text("MIG_PARTED_OUTPUT_FORMAT");
    const char *path = env_text("MIG_PARTED_OUTPUT_FILE");
    const struct opt options[] = {
        {"output-file", 'f', "FILE", "the file to write (default: standard output)", opt_string,
         &path},
        {"output-format", 'o', "FORMAT", "yaml (default) or json", opt_string, &format},
        OPT_END,
    };
    struct err err;
    int r = args_parse(options, &generate_usage, argc, argv, NULL, 0, &err);

    (void) debug;
    if (r >= 0)
        r = generate(path, format ? format : "yaml", &err);
    return mig_exit("generate-config", r, &err);
}
