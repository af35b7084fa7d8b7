/* SPDX-License-Identifier: Apache-2.0 */

/* Processes whose mappings are looked at: how many readings can be under way. The
 * readings, the processes and the ledger's file are played by this file. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "agent/audit/audit_internal.h"
#include "agent/audit/known.h"
#include "agent/audit/mapped.h"

#define PID 1000
#define MANY (KNOWN_WINDOW + 8)

struct mapped_query {
    int pid;
};

static struct mapped_query asked[2 * MANY];
static size_t nasked, nfreed;
static enum mapped_answer answer;

struct mapped_query *__wrap_mapped_query(int pid, dev_t device, ino_t inode);
enum mapped_answer __wrap_mapped_answer(const struct mapped_query *query);
struct mapped_query *__wrap_mapped_free(struct mapped_query *query);
uint64_t __wrap_procfs_life(int pid);
int __wrap_ledger_file_of(const struct ledger *ledger, dev_t *ret_device, ino_t *ret_inode);

struct mapped_query *__wrap_mapped_query(int pid, dev_t device, ino_t inode) {
    (void) device, (void) inode;
    assert_true(nasked < 2 * MANY);
    asked[nasked].pid = pid;
    return &asked[nasked++];
}

enum mapped_answer __wrap_mapped_answer(const struct mapped_query *query) {
    (void) query;
    return answer;
}

struct mapped_query *__wrap_mapped_free(struct mapped_query *query) {
    nfreed += query != NULL;
    return NULL;
}

uint64_t __wrap_procfs_life(int pid) {
    return (uint64_t) pid;
}

int __wrap_ledger_file_of(const struct ledger *ledger, dev_t *ret_device, ino_t *ret_inode) {
    (void) ledger;
    *ret_device = 1;
    *ret_inode = 1;
    return 0;
}

static struct audit *audit_new(void) {
    static struct shares shares;
    struct audit *a = calloc(1, sizeof(*a));

    assert_non_null(a);
    shares.loop = uv_default_loop();
    a->shares = &shares;
    nasked = nfreed = 0;
    answer = MAPPED_PENDING;
    return a;
}

/* A reading that does not end has a thread for as long. New processes take no place of it. */
static void a_pending_look_keeps_its_place(void **state) {
    static struct slot slots[MANY];
    struct audit *a = audit_new();

    (void) state;
    for (size_t i = 0; i < MANY; i++) {
        slots[i].ledger = (struct ledger *) &slots[i]; /* there is one */
        assert_true(audit_knows(a, &slots[i], PID));
    }
    assert_int_equal(nasked, KNOWN_WINDOW);
    assert_int_equal(nfreed, 0);
    answer = MAPPED_YES;
    for (size_t i = 0; i < MANY; i++)
        assert_true(audit_knows(a, &slots[i], PID));
    assert_int_equal(nasked, MANY); /* the places go to those that had none */
    free(a);
}

/* What a container keeps from being answered is bounded, however many processes it has. */
static void one_container_has_some_looks(void **state) {
    static struct slot slot;
    struct audit *a = audit_new();

    (void) state;
    slot.ledger = (struct ledger *) &slot;
    for (uint32_t i = 0; i < 10 * KNOWN_PROCESSES; i++)
        (void) audit_knows(a, &slot, PID + i);
    assert_int_equal(nasked, 16);
    assert_int_equal(nfreed, 0);
    free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pending_look_keeps_its_place),
        cmocka_unit_test(one_container_has_some_looks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
