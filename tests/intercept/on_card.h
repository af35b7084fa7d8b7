/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the first card has in use, as a process without the library sees it: the program that the
 * environment's HOLDER names. Include books.h first. */

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

static FILE *on_card_ask, *on_card_answer;

/* Before CUDA is used. */
static void on_card_begin(void) {
    int in[2], out[2];

    CHECK(pipe(in) == 0 && pipe(out) == 0);
    if (fork() == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void) dup2(in[0], STDIN_FILENO);
        (void) dup2(out[1], STDOUT_FILENO);
        (void) close(in[1]);
        (void) unsetenv("LD_PRELOAD");
        (void) unsetenv("ALIQUOT_SHARE_DIR");
        (void) execl(getenv("HOLDER"), "holder", (char *) NULL);
        _exit(1);
    }
    (void) close(in[0]);
    (void) close(out[1]);
    on_card_ask = fdopen(in[1], "w");
    on_card_answer = fdopen(out[0], "r");
    CHECK(on_card_ask && on_card_answer);
}

static uint64_t on_card(void) {
    char line[256];

    (void) fputs("memory\n", on_card_ask);
    (void) fflush(on_card_ask);
    CHECK(fgets(line, sizeof(line), on_card_answer));
    return strtoull(line, NULL, 10);
}
