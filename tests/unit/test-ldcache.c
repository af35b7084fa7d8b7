/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka needs the four above first */
#include <cmocka.h>

#include "base/machine.h"
#include "gpu/driver/ldcache.h"

static const struct ldcache_library some[] = {
    {"libcuda.so.1", "/usr/lib/" MULTIARCH "/libcuda.so.1"},
    {"libcuda.so", "/usr/lib/" MULTIARCH "/libcuda.so"},
    {"libz9.so.10", "/a"},
    {"libz9.so.9", "/b"},
};
#define SOME (sizeof(some) / sizeof(some[0]))

static uint32_t word(const char *cache, size_t at) {
    uint32_t n;

    memcpy(&n, cache + at, sizeof(n));
    return n;
}

/* "NAME=PATH " for each entry, in the cache's order. */
static const char *listing(const char *cache, size_t len) {
    static char text[4096];
    size_t used = 0;

    assert_memory_equal(cache, "glibc-ld.so.cache1.1", 20);
    text[0] = 0;
    for (uint32_t i = 0; i < word(cache, 20); i++) {
        size_t at = 48 + (size_t) i * 24;

        assert_true(at + 24 <= len && word(cache, at + 4) < len && word(cache, at + 8) < len);
        assert_int_equal(word(cache, at), LDCACHE_MACHINE | 3u);
        used += (size_t) snprintf(text + used, sizeof(text) - used, "%s=%s ",
                                  cache + word(cache, at + 4), cache + word(cache, at + 8));
    }
    return text;
}

/* Numbers in names count by their value, and the order is from the last to the first. */
static void a_new_cache(void **state) {
    size_t len;
    char *made = ldcache_merge(NULL, 0, some, SOME, &len);

    (void) state;
    assert_non_null(made);
    assert_string_equal(listing(made, len), "libz9.so.10=/a libz9.so.9=/b "
                                            "libcuda.so.1=/usr/lib/" MULTIARCH "/libcuda.so.1 "
                                            "libcuda.so=/usr/lib/" MULTIARCH "/libcuda.so ");
    free(made);
}

static void into_another(void **state) {
    static const struct ldcache_library images[] = {
        {"libcuda.so.1", "/opt/libcuda.so.1"}, {"liba.so", "/c"}, {"libz9.so.9", "/d"}};
    size_t len, more;
    char *old = ldcache_merge(NULL, 0, images, 3, &len), *made;

    (void) state;
    made = ldcache_merge(old, len, some, SOME, &more);
    assert_non_null(made);
    assert_string_equal(listing(made, more),
                        "libz9.so.10=/a libz9.so.9=/b libz9.so.9=/d "
                        "libcuda.so.1=/usr/lib/" MULTIARCH "/libcuda.so.1 "
                        "libcuda.so.1=/opt/libcuda.so.1 "
                        "libcuda.so=/usr/lib/" MULTIARCH "/libcuda.so liba.so=/c ");
    free(made);
    /* And again: an image may have been made of such a container. */
    made = ldcache_merge(old, len, NULL, 0, &more);
    assert_int_equal(more, len);
    assert_memory_equal(made, old, len);
    free(made);
    free(old);
}

/* Each byte of a cache damaged in turn, and each of its beginnings: refused, or read within it. */
static void damage(void **state) {
    size_t len, more, refused = 0;
    char *old = ldcache_merge(NULL, 0, some, SOME, &len);

    (void) state;
    for (size_t i = 0; i < 2 * len; i++) {
        size_t part = i < len ? i : len; /* beginnings first */
        char *copy = malloc(part + 1), *made;

        memcpy(copy, old, part);
        if (i >= len)
            copy[i - len] = (char) ~copy[i - len];
        made = ldcache_merge(copy, part, some, SOME, &more);
        if (!made && part > 0) {
            assert_int_equal(errno, EBADMSG);
            refused++;
        }
        free(made);
        free(copy);
    }
    assert_true(refused > len);
    free(old);
}

/* Of two entries of a name the linker takes the first; entries for 32-bit programs are none. */
static void finding(void **state) {
    static const struct ldcache_library newer = {"libcuda.so.1", "/new/libcuda.so.1"};
    char path[64], small[8] = "as was";
    size_t len, more;
    char *old = ldcache_merge(NULL, 0, some, SOME, &len);
    char *made = ldcache_merge(old, len, &newer, 1, &more);

    (void) state;
    assert_true(ldcache_find(old, len, "libz9.so.10", path, sizeof(path)));
    assert_string_equal(path, "/a");
    assert_false(ldcache_find(old, len, "libz9.so", path, sizeof(path)));
    assert_true(ldcache_find(made, more, "libcuda.so.1", path, sizeof(path)));
    assert_string_equal(path, "/new/libcuda.so.1");
    assert_false(ldcache_find(made, more, "libcuda.so.1", small, sizeof(small)));
    assert_string_equal(small, "as was");
    for (size_t i = 0; i < SOME; i++)
        old[48 + i * 24] = 0x01;
    assert_false(ldcache_find(old, len, "libz9.so.10", path, sizeof(path)));
    for (size_t i = 0; i < more; i++)
        (void) ldcache_find(made, i, "libcuda.so.1", path, sizeof(path));
    assert_false(ldcache_find(NULL, 0, "libcuda.so.1", path, sizeof(path)));
    free(made);
    free(old);
}

/* No file has such a name or path. Without a bound each of the entries could have one string of
 * many MiB, and reading them would hold up the start of the container. */
static void long_strings(void **state) {
    static const size_t most[] = {255, 4095};
    static char text[4097];

    (void) state;
    for (size_t which = 0; which < 2; which++)
        for (size_t over = 0; over < 2; over++) {
            struct ldcache_library one = {which == 0 ? text : "liba.so", which == 1 ? text : "/a"};
            size_t len, more;
            char *old, *made;

            memset(text, 0, sizeof(text));
            memset(text, '1', most[which] + over);
            old = ldcache_merge(NULL, 0, &one, 1, &len);
            assert_non_null(old);
            made = ldcache_merge(old, len, some, SOME, &more);
            if (over)
                assert_true(!made && errno == EBADMSG);
            else
                assert_non_null(made);
            free(made);
            free(old);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_cache), cmocka_unit_test(into_another), cmocka_unit_test(damage),
        cmocka_unit_test(finding),     cmocka_unit_test(long_strings),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
