/* SPDX-License-Identifier: Apache-2.0 */

/* Signs assignments for make bench-scale, as the scheduler would: reads lines of UID, node and
 * assignment, separated by tabs, and writes the signature of each. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "kube/objects/signing.h"

#define KEY_MAX 8192

int main(int argc, char **argv) {
    _cleanup_buf_ struct buf pem = BUF_INIT(4 * KEY_MAX);
    struct signing_key *key = NULL;
    struct err err = {0};
    char *line = NULL, signature[SIGNATURE_TEXT_MAX];
    size_t size = 0;
    if (argc != 2 || file_read(argv[1], KEY_MAX, &pem, &err) < 0 ||
        signing_key_load(pem.data, pem.len, &key, &err) < 0) {
        fprintf(stderr, "sign: want the file of a private key: %s\n", err.text);
        return EXIT_FAILURE;
    }
    while (getline(&line, &size, stdin) > 0) {
        char *rest = line, *uid = strsep(&rest, "\t"), *node = strsep(&rest, "\t");
        const char *text = strsep(&rest, "\n");
        if (!node || !text || assignment_sign(key, uid, node, text, signature, &err) < 0) {
            fprintf(stderr, "sign: %s\n", err.text);
            return EXIT_FAILURE;
        }
        puts(signature);
    }
    free(line);
    signing_key_free(key);
    return EXIT_SUCCESS;
}
