/* SPDX-License-Identifier: Apache-2.0 */
#include "intercept/resolve/elf.h"

#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096

/* Defined by every copy of this library: how they know each other, under whatever file name. */
__attribute__((visibility("default"))) extern const char aliquot_instance;
const char aliquot_instance = 1;

struct object {
    const char *path;
    const char *soname;
    uintptr_t base, low, high;
    const Elf64_Sym *symbols;
    const char *strings;
    const uint16_t *versions; /* NULL: unversioned */
    const uint32_t *gnu_hash;
    const uint32_t *sysv_hash;
    struct {
        const Elf64_Rela *first;
        size_t bytes;
    } relocations[2];                /* of data, of calls */
    uintptr_t relro_low, relro_high; /* made read-only once relocated */
};

/* glibc turns the addresses in a dynamic section into absolute ones, musl does not. */
static uintptr_t absolute(const struct object *o, Elf64_Addr value) {
    return value < o->base ? value + o->base : value;
}

static void read_dynamic(struct object *o, const Elf64_Dyn *dyn) {
    Elf64_Xword soname = 0;

    for (; dyn->d_tag != DT_NULL; dyn++) {
        uintptr_t address = absolute(o, dyn->d_un.d_ptr);

        switch (dyn->d_tag) {
        case DT_SYMTAB:
            o->symbols = (const Elf64_Sym *) address;
            break;
        case DT_STRTAB:
            o->strings = (const char *) address;
            break;
        case DT_VERSYM:
            o->versions = (const uint16_t *) address;
            break;
        case DT_GNU_HASH:
            o->gnu_hash = (const uint32_t *) address;
            break;
        case DT_HASH:
            o->sysv_hash = (const uint32_t *) address;
            break;
        case DT_SONAME:
            soname = dyn->d_un.d_val;
            break;
        case DT_RELA:
            o->relocations[0].first = (const Elf64_Rela *) address;
            break;
        case DT_RELASZ:
            o->relocations[0].bytes = dyn->d_un.d_val;
            break;
        case DT_JMPREL:
            o->relocations[1].first = (const Elf64_Rela *) address;
            break;
        case DT_PLTRELSZ:
            o->relocations[1].bytes = dyn->d_un.d_val;
            break;
        default:
            break;
        }
    }
    if (o->strings && soname)
        o->soname = o->strings + soname;
}

/* False for objects without symbols to look up. */
static bool object_read(const struct dl_phdr_info *info, struct object *ret) {
    struct object o = {.path = info->dlpi_name ? info->dlpi_name : "",
                       .base = info->dlpi_addr,
                       .low = UINTPTR_MAX};
    const Elf64_Dyn *dyn = NULL;

    for (int i = 0; i < info->dlpi_phnum; i++) {
        const Elf64_Phdr *p = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + p->p_vaddr;

        if (p->p_type == PT_LOAD) {
            o.low = start < o.low ? start : o.low;
            o.high = start + p->p_memsz > o.high ? start + p->p_memsz : o.high;
        } else if (p->p_type == PT_DYNAMIC) {
            dyn = (const Elf64_Dyn *) start;
        } else if (p->p_type == PT_GNU_RELRO) {
            o.relro_low = start;
            o.relro_high = start + p->p_memsz;
        }
    }
    if (!dyn)
        return false;
    read_dynamic(&o, dyn);
    if (!o.symbols || !o.strings || (!o.gnu_hash && !o.sysv_hash))
        return false;
    *ret = o;
    return true;
}

/* A definition under exactly this name, in its default version where there are versions. */
static bool defines(const struct object *o, uint32_t index, const char *name) {
    const Elf64_Sym *symbol = &o->symbols[index];
    unsigned int type = ELF64_ST_TYPE(symbol->st_info);

    return symbol->st_shndx != SHN_UNDEF && symbol->st_value != 0 &&
           (type == STT_FUNC || type == STT_OBJECT || type == STT_GNU_IFUNC ||
            type == STT_NOTYPE) &&
           (!o->versions || !(o->versions[index] & 0x8000)) &&
           strcmp(o->strings + symbol->st_name, name) == 0;
}

static const Elf64_Sym *find_gnu(const struct object *o, const char *name) {
    const uint32_t *table = o->gnu_hash;
    uint32_t nbuckets = table[0], first = table[1], bloom_words = table[2], hash = 5381, i;
    const uint32_t *buckets = table + 4 + bloom_words * (sizeof(Elf64_Addr) / 4),
                   *chain = buckets + nbuckets;

    for (const char *c = name; *c; c++)
        hash = hash * 33 + (unsigned char) *c;
    i = nbuckets ? buckets[hash % nbuckets] : 0;
    if (i < first)
        return NULL;
    for (;; i++) {
        if ((chain[i - first] | 1) == (hash | 1) && defines(o, i, name))
            return &o->symbols[i];
        if (chain[i - first] & 1)
            return NULL;
    }
}

static const Elf64_Sym *find_sysv(const struct object *o, const char *name) {
    const uint32_t *table = o->sysv_hash, *buckets = table + 2, *chain = buckets + table[0];
    uint32_t hash = 0;

    for (const char *c = name; *c; c++) {
        hash = (hash << 4) + (unsigned char) *c;
        hash ^= (hash >> 24) & 0xf0;
        hash &= 0x0fffffff;
    }
    for (uint32_t i = table[0] ? buckets[hash % table[0]] : 0; i; i = chain[i])
        if (defines(o, i, name))
            return &o->symbols[i];
    return NULL;
}

static void *find_symbol(const struct object *o, const char *name) {
    const Elf64_Sym *symbol = o->gnu_hash ? find_gnu(o, name) : find_sysv(o, name);

    if (!symbol)
        return NULL;
    if (ELF64_ST_TYPE(symbol->st_info) == STT_GNU_IFUNC)
        return ((void *(*) (void) )(o->base + symbol->st_value))();
    return (void *) (o->base + symbol->st_value);
}

static bool contains(const struct object *o, const void *address) {
    return (uintptr_t) address >= o->low && (uintptr_t) address < o->high;
}

static enum elf_kind kind_of(const struct object *o) {
    if (contains(o, &aliquot_instance))
        return ELF_SELF;
    if (find_symbol(o, "aliquot_instance"))
        return ELF_SHADOW;
    if (o->soname && strcmp(o->soname, "libcuda.so.1") == 0)
        return ELF_CUDA;
    if (o->soname && strcmp(o->soname, "libnvidia-ml.so.1") == 0)
        return ELF_NVML;
    return ELF_OTHER;
}

static bool starts_with(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool is_libc(const struct object *o) {
    const char *name = o->soname;

    if (!name) { /* musl's has none */
        const char *slash = strrchr(o->path, '/');
        name = slash ? slash + 1 : o->path;
    }
    return starts_with(name, "libc.so") || starts_with(name, "libdl.so") ||
           starts_with(name, "libc.musl") || starts_with(name, "ld-musl");
}

/* One walk over the objects, in load order. */
struct walk {
    bool (*visit)(const struct object *o, struct walk *walk); /* true: found, stop */
    const char *name;
    const void *address;
    enum elf_kind kind;
    void (*fill)(elf_lookup_fn *lookup, const void *object);
    bool passed; /* the caller's object is behind us */
    void *result;
};

static int on_object(struct dl_phdr_info *info, size_t size, void *arg) {
    struct walk *walk = arg;
    struct object o;

    (void) size;
    return object_read(info, &o) && walk->visit(&o, walk);
}

static bool visit_libc(const struct object *o, struct walk *walk) {
    if (is_libc(o))
        walk->result = find_symbol(o, walk->name);
    return walk->result != NULL;
}

void *elf_libc_symbol(const char *name) {
    struct walk walk = {.visit = visit_libc, .name = name};

    (void) dl_iterate_phdr(on_object, &walk);
    return walk.result;
}

static void *lookup_in(const void *object, const char *name) {
    return find_symbol(object, name);
}

static bool visit_driver(const struct object *o, struct walk *walk) {
    if (kind_of(o) != walk->kind)
        return false;
    walk->fill(lookup_in, o);
    return true;
}

bool elf_with_driver(enum elf_kind kind, void (*fill)(elf_lookup_fn *lookup, const void *object)) {
    struct walk walk = {.visit = visit_driver, .kind = kind, .fill = fill};

    return dl_iterate_phdr(on_object, &walk) != 0;
}

static bool visit_holder(const struct object *o, struct walk *walk) {
    if (!contains(o, walk->address))
        return false;
    walk->kind = kind_of(o);
    return true;
}

enum elf_kind elf_kind_of(const void *address, bool *ret_known) {
    struct walk walk = {.visit = visit_holder, .address = address, .kind = ELF_OTHER};

    *ret_known = dl_iterate_phdr(on_object, &walk) != 0;
    return walk.kind;
}

/* The main program is the first of the objects. */
static int on_first_object(struct dl_phdr_info *info, size_t size, void *arg) {
    struct walk *walk = arg;
    struct object o;

    (void) size;
    walk->passed = object_read(info, &o) && contains(&o, walk->address);
    return 1;
}

bool elf_in_program(const void *address) {
    struct walk walk = {.address = address};

    (void) dl_iterate_phdr(on_first_object, &walk);
    return walk.passed;
}

static bool visit_next(const struct object *o, struct walk *walk) {
    if (!walk->passed) {
        walk->passed = contains(o, walk->address);
        return false;
    }
    if (kind_of(o) != ELF_SELF && kind_of(o) != ELF_SHADOW)
        walk->result = find_symbol(o, walk->name);
    return walk->result != NULL;
}

static bool visit_before_us(const struct object *o, struct walk *walk) {
    if (contains(o, &aliquot_instance))
        return true; /* so far and no further */
    return visit_next(o, walk);
}

void *elf_definition_before_us(const void *caller, const char *name) {
    struct walk walk = {
        .visit = visit_before_us, .address = caller, .name = name, .passed = caller == NULL};

    (void) dl_iterate_phdr(on_object, &walk);
    return walk.result;
}

void *elf_definition_after(const void *caller, const char *name) {
    struct walk walk = {
        .visit = visit_next, .address = caller, .name = name, .passed = caller == NULL};

    (void) dl_iterate_phdr(on_object, &walk);
    return walk.result;
}

static void write_slot(const struct object *o, uintptr_t slot, void *value) {
    bool relro = slot >= o->relro_low && slot < o->relro_high;
    void *page = (void *) (slot & ~(uintptr_t) (PAGE - 1));

    if (relro && mprotect(page, PAGE, PROT_READ | PROT_WRITE) < 0)
        return;
    __atomic_store_n((void **) slot, value, __ATOMIC_RELEASE);
    if (relro)
        (void) mprotect(page, PAGE, PROT_READ);
}

static void replace_in(const struct object *o, const char *name, void *replacement) {
    for (size_t table = 0; table < 2; table++) {
        const Elf64_Rela *rela = o->relocations[table].first;
        size_t n = rela ? o->relocations[table].bytes / sizeof(*rela) : 0;

        for (size_t i = 0; i < n; i++) {
            size_t type = ELF64_R_TYPE(rela[i].r_info), symbol = ELF64_R_SYM(rela[i].r_info);

            if ((type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT) && symbol != 0 &&
                strcmp(o->strings + o->symbols[symbol].st_name, name) == 0)
                write_slot(o, o->base + rela[i].r_offset, replacement);
        }
    }
}

struct replacement {
    enum elf_kind kind;
    const char *name;
    void *function;
};

static int replace_on_object(struct dl_phdr_info *info, size_t size, void *arg) {
    const struct replacement *r = arg;
    struct object o;

    (void) size;
    if (object_read(info, &o) && kind_of(&o) == r->kind)
        replace_in(&o, r->name, r->function);
    return 0;
}

void elf_replace_import(enum elf_kind kind, const char *name, void *replacement) {
    struct replacement r = {.kind = kind, .name = name, .function = replacement};

    (void) dl_iterate_phdr(replace_on_object, &r);
}
