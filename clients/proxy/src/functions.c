/*
 * functions.c: calls of functions of a program that was compiled with -finstrument-functions.
 *
 * The compiler puts a call of __cyg_profile_func_enter into each function. A table without locks leads from the address
 * to the counter; an address that is new is looked up in the symbol tables of the file that it was loaded from, which
 * has static functions, too. No other program is asked.
 */
#include "internal.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SLOTS = 1 << 17,
    /* More are not counted: a table that is nearly full is slow. */
    FUNCTIONS_MAX = SLOTS / 2,
    SYMBOL_BYTES_MAX = PROXY__NAME_BYTES_MAX / 2
};
#define TABLE_BYTES_MAX ((uint64_t)1 << 30)

pthread_mutex_t proxy__functions = PTHREAD_MUTEX_INITIALIZER;
__thread int proxy__within __attribute__((tls_model("initial-exec")));

static struct {
    _Atomic uintptr_t address;
    _Atomic(struct MetricProxyValue *) value;
} slots[SLOTS];
static uint32_t taken;

/* ---- symbols of a file ------------------------------------------------------------------------------------------- */

struct symbol {
    uint64_t address, bytes;
    uint32_t name;
    /* Of several at one address the one that others see counts. */
    uint32_t rank;
};

/* A file that functions were met in. Kept: there are few. */
struct object {
    struct object *next;
    char *path;
    struct symbol *symbols;
    size_t count;
    char *names;
    uint64_t names_bytes;
};

static struct object *objects;

static bool read_whole(int file, void *to, uint64_t bytes, uint64_t at)
{
    char *put = to;
    while (bytes) {
        ssize_t got = pread(file, put, bytes, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        put += got;
        at += (uint64_t)got;
        bytes -= (uint64_t)got;
    }
    return true;
}

/* A section's bytes with a zero behind them, to be freed. */
static void *read_section(int file, const ElfW(Shdr) *section)
{
    if (section->sh_type == SHT_NOBITS || section->sh_size == 0 || section->sh_size > TABLE_BYTES_MAX) return NULL;
    char *bytes = malloc(section->sh_size + 1);
    if (bytes && !read_whole(file, bytes, section->sh_size, section->sh_offset)) {
        free(bytes);
        return NULL;
    }
    if (bytes) bytes[section->sh_size] = 0;
    return bytes;
}

static uint32_t rank_of(const ElfW(Sym) *symbol)
{
    unsigned char binding = ELF64_ST_BIND(symbol->st_info);
    return binding == STB_GLOBAL ? 0 : binding == STB_WEAK ? 1 : 2;
}

static int by_address(const void *one, const void *other)
{
    const struct symbol *a = one, *b = other;
    if (a->address != b->address) return a->address < b->address ? -1 : 1;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    return a->name < b->name ? -1 : a->name > b->name;
}

static void keep_functions(struct object *object, const ElfW(Sym) *table, size_t count)
{
    object->symbols = malloc(count * sizeof *object->symbols);
    for (size_t i = 0; object->symbols && i < count; i++) {
        unsigned char type = ELF64_ST_TYPE(table[i].st_info);
        bool is_function = type == STT_FUNC || type == STT_GNU_IFUNC;
        if (!is_function || table[i].st_shndx == SHN_UNDEF || table[i].st_name >= object->names_bytes) continue;
        object->symbols[object->count++] =
            (struct symbol){table[i].st_value, table[i].st_size, table[i].st_name, rank_of(&table[i])};
    }
    if (object->count) qsort(object->symbols, object->count, sizeof *object->symbols, by_address);
}

/* The table of all symbols; of a stripped file that of those that others see. */
static void read_symbols(struct object *object, int file)
{
    ElfW(Ehdr) head;
    if (!read_whole(file, &head, sizeof head, 0) || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0) return;
    if (head.e_shentsize != sizeof(ElfW(Shdr)) || head.e_shnum == 0) return;
    ElfW(Shdr) *sections = malloc(head.e_shnum * sizeof *sections);
    const ElfW(Shdr) *found = NULL;
    if (!sections || !read_whole(file, sections, head.e_shnum * sizeof *sections, head.e_shoff)) {
        free(sections);
        return;
    }
    for (size_t i = 0; i < head.e_shnum; i++)
        if (sections[i].sh_type == SHT_SYMTAB || (sections[i].sh_type == SHT_DYNSYM && !found)) found = &sections[i];
    if (found && found->sh_link < head.e_shnum) {
        ElfW(Sym) *table = read_section(file, found);
        object->names = read_section(file, &sections[found->sh_link]);
        object->names_bytes = object->names ? sections[found->sh_link].sh_size : 0;
        if (table && object->names) keep_functions(object, table, found->sh_size / sizeof *table);
        free(table);
    }
    free(sections);
}

static struct object *object_of(const char *path)
{
    for (struct object *at = objects; at; at = at->next)
        if (strcmp(at->path, path) == 0) return at;
    struct object *made = calloc(1, sizeof *made);
    if (!made || !(made->path = strdup(path))) {
        free(made);
        return NULL;
    }
    int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat about;
    if (file >= 0 && fstat(file, &about) == 0 && S_ISREG(about.st_mode)) read_symbols(made, file);
    if (file >= 0) close(file);
    made->next = objects;
    objects = made;
    return made;
}

/* The name of the function that `address`, as the file has it, is in; NULL if the file does not say. */
static const char *symbol_at(const struct object *object, uint64_t address)
{
    size_t low = 0, high = object->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (object->symbols[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0) return NULL;
    const struct symbol *found = &object->symbols[low - 1];
    while (found > object->symbols && found[-1].address == found->address) found--;
    if (address != found->address && address >= found->address + found->bytes) return NULL;
    return object->names + found->name;
}

/* ---- addresses --------------------------------------------------------------------------------------------------- */

struct place {
    uintptr_t address;
    uint64_t in_file;
    char path[4096];
    bool is_found;
};

static int look_in(struct dl_phdr_info *info, size_t bytes, void *context)
{
    struct place *place = context;
    (void)bytes;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + part->p_vaddr;
        if (part->p_type != PT_LOAD || place->address < begin || place->address - begin >= part->p_memsz) continue;
        place->in_file = place->address - info->dlpi_addr;
        place->is_found = true;
        snprintf(place->path, sizeof place->path, "%s", info->dlpi_name ? info->dlpi_name : "");
        return 1;
    }
    return 0;
}

/* As it stands in names: without .so, with underscores for slashes and dots. */
static void put_path(char *to, size_t room, const char *path)
{
    size_t at = 0;
    while (*path && at + 1 < room) {
        if (strncmp(path, ".so", 3) == 0) {
            path += 3;
            continue;
        }
        to[at++] = *path == '/' || *path == '.' ? '_' : *path;
        path++;
    }
    to[at] = 0;
}

static struct MetricProxyValue *look_up(uintptr_t address)
{
    struct place place = {.address = address};
    char path[PROXY__NAME_BYTES_MAX / 2 - 32], name[PROXY__NAME_BYTES_MAX], doc[PROXY__NAME_BYTES_MAX + 32];
    char whole[PROXY__NAME_BYTES_MAX + 8];
    dl_iterate_phdr(look_in, &place);
    if (place.is_found && !place.path[0]) {
        ssize_t bytes = readlink("/proc/self/exe", place.path, sizeof place.path - 1);
        place.path[bytes > 0 ? bytes : 0] = 0;
    }
    if (!place.is_found) strcpy(place.path, "Unknown");
    struct object *object = place.is_found ? object_of(place.path) : NULL;
    const char *symbol = object ? symbol_at(object, place.in_file) : NULL;
    put_path(path, sizeof path, place.path);
    if (symbol && *symbol && proxy__is_utf8(symbol, strlen(symbol)))
        snprintf(name, sizeof name, "%.*s_%s", (int)proxy__cut(symbol, strlen(symbol), SYMBOL_BYTES_MAX - 32), symbol,
                 path);
    else
        snprintf(name, sizeof name, "0x%llx_%s", (unsigned long long)(place.is_found ? place.in_file : address), path);
    if (!proxy__is_utf8(name, strlen(name)))
        for (char *at = name; *at; at++)
            if ((unsigned char)*at >= 0x80) *at = '?';
    snprintf(whole, sizeof whole, "func__%s", name);
    snprintf(doc, sizeof doc, "Number of calls to %s", name);
    return proxy__declare(PROXY__COUNTER, whole, doc);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static uint32_t first_slot(uintptr_t address)
{
    return (uint32_t)((uint64_t)address * UINT64_C(0x9e3779b97f4a7c15) >> 47) % SLOTS;
}

/* The slot of that address, or the free one where it belongs. */
static uint32_t find_slot(uintptr_t address)
{
    uint32_t at = first_slot(address);
    for (;; at = (at + 1) % SLOTS) {
        uintptr_t found = atomic_load_explicit(&slots[at].address, memory_order_acquire);
        if (found == address || found == 0) return at;
    }
}

static __attribute__((noinline)) struct MetricProxyValue *meet(uintptr_t address)
{
    pthread_mutex_lock(&proxy__functions);
    uint32_t at = find_slot(address);
    struct MetricProxyValue *value = atomic_load(&slots[at].value);
    if (!value && taken < FUNCTIONS_MAX && (value = look_up(address))) {
        taken++;
        atomic_store(&slots[at].value, value);
        atomic_store_explicit(&slots[at].address, address, memory_order_release);
    }
    pthread_mutex_unlock(&proxy__functions);
    if (value) proxy__wake();
    return value;
}

static struct MetricProxyValue *value_of(uintptr_t address)
{
    uint32_t at = find_slot(address);
    if (__builtin_expect(atomic_load_explicit(&slots[at].address, memory_order_acquire) == address, 1))
        return atomic_load_explicit(&slots[at].value, memory_order_relaxed);
    return meet(address);
}

struct MetricProxyValue *metric_proxy_get_func(struct MetricProxyClient *client, size_t function, size_t callsite)
{
    (void)callsite;
    if (!client || !function || proxy__within) return NULL;
    proxy__within++;
    struct MetricProxyValue *value = value_of(function);
    proxy__within--;
    return value;
}

METRIC_PROXY_API void __cyg_profile_func_enter(void *function, void *callsite);

/* Without metric_proxy_init: a library that is preloaded begins by itself with the first function. */
void __cyg_profile_func_enter(void *function, void *callsite)
{
    (void)callsite;
    /* A function of an allocator that is called from here is not counted. */
    if (proxy__within) return;
    proxy__within++;
    static _Atomic int has_begun;
    if (__builtin_expect(!atomic_load_explicit(&has_begun, memory_order_acquire), 0)) {
        proxy__begin();
        atomic_store_explicit(&has_begun, 1, memory_order_release);
    }
    if (function) metric_proxy_counter_inc(value_of((uintptr_t)function), 1);
    proxy__within--;
}
