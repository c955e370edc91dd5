/* load.c: loads the library, logs, and unloads it, twice: dlopen and dlclose. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

typedef void *(*open_function)(const char *, const char *const *);
typedef void (*set_function)(void *, double);

static void fill(void *to, void *library, const char *name)
{
    *(void **)to = dlsym(library, name);
}

static void *log_and_end(void *library)
{
    open_function open_gauge;
    set_function set;
    fill(&open_gauge, library, "telem_gauge_open");
    fill(&set, library, "telem_set");
    void *gauge = open_gauge("loaded", NULL);
    for (int i = 0; i < 100; i++) set(gauge, i);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc < 2) return 2;
    for (int i = 0; i < 2; i++) {
        void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        if (!library) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        pthread_t thread;
        pthread_create(&thread, NULL, log_and_end, library);
        pthread_join(thread, NULL);
        log_and_end(library);
        dlclose(library);
    }
    return 0;
}
