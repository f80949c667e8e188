/* Modules: PTX text whose kernels are known by name and number of parameters. Nothing is compiled. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

#define MOST_KERNELS 32

/* Described in gpucheck/measure/engines/driver/kernels.ptx. */
static const struct { const char *name; enum kernel kernel; int parameters; } KNOWN[] = {
    {"fill", K_FILL, 3}, {"poison", K_POISON, 3}, {"compare", K_COMPARE, 5},
    {"copy", K_COPY, 3}, {"chain", K_CHAIN, 3},   {"chase", K_CHASE, 3},     {"spin", K_SPIN, 1},
};

struct function { char name[64]; enum kernel kernel; int parameters; struct module *module; };
struct module { struct module *next; CUcontext context; struct function functions[MOST_KERNELS]; int count; };
static struct module *modules;

static struct function *function_of(const void *handle)
{
    struct module *module;
    int number;
    for (module = modules; module != NULL; module = module->next)
        for (number = 0; number < module->count; number++)
            if (handle == &module->functions[number])
                return &module->functions[number];
    return NULL;
}

/* A copy of the text without comments, in which kernels could be named as well. */
static char *without_comments(const char *text)
{
    char *out = strdup(text), *to = out;
    const char *from = text;
    if (out == NULL)
        return NULL;
    while (*from != '\0') {
        if (strncmp(from, "//", 2) == 0) {
            from += strcspn(from, "\n");
        } else if (strncmp(from, "/*", 2) == 0) {
            const char *end = strstr(from + 2, "*/");
            from = end == NULL ? from + strlen(from) : end + 2;
        } else {
            *to++ = *from++;
        }
    }
    *to = '\0';
    return out;
}

static void read_function(struct module *module, const char *text)
{
    struct function *made = &module->functions[module->count];
    const char *list = strchr(text, '('), *end, *at;
    size_t row;
    if (module->count == MOST_KERNELS || sscanf(text, " %63[A-Za-z0-9_$]", made->name) != 1)
        return;
    made->kernel = K_NONE;
    made->parameters = 0;
    made->module = module;
    if (list != NULL && (end = strchr(list, ')')) != NULL)
        for (at = list; (at = strstr(at, ".param")) != NULL && at < end; at++)
            made->parameters++;
    for (row = 0; row < LENGTH(KNOWN); row++)
        if (strcmp(KNOWN[row].name, made->name) == 0 && KNOWN[row].parameters == made->parameters)
            made->kernel = KNOWN[row].kernel;
    module->count++;
}

/* Whether this GPU and driver would take the PTX. ISA 7.y belongs to CUDA 11.y, 8.y to 12.y, 9.y to 13.y. */
static CUresult check_text(const char *text, int gpu)
{
    const char *version = strstr(text, ".version"), *target = strstr(text, ".target");
    int major, minor, compute;
    if (version == NULL || target == NULL || sscanf(version, ".version %d.%d", &major, &minor) != 2 ||
        sscanf(target, ".target sm_%d", &compute) != 1)
        return INVALID_PTX;
    if (major > 6 && (major + 4) * 1000 + minor * 10 > driver_version() / 10 * 10)
        return UNSUPPORTED_PTX_VERSION;
    return compute > gpus[gpu].major * 10 + gpus[gpu].minor ? INVALID_PTX : SUCCESS;
}

EXPORT CUresult cuModuleLoadData(struct module **out, const void *image)
{
    GUARDED;
    CUcontext context;
    struct module *made;
    char *text, *at;
    CUresult result;
    TRY(enter(&context));
    if (out == NULL || image == NULL)
        return INVALID_VALUE;
    if (memcmp(image, "\x7f" "ELF", 4) == 0 || memcmp(image, "\x50\xed\x55\xba", 4) == 0)
        return NO_BINARY_FOR_GPU; /* machine code: there is no machine */
    if ((text = without_comments(image)) == NULL)
        return OUT_OF_MEMORY;
    if ((result = check_text(text, context->gpu)) != SUCCESS || (made = calloc(1, sizeof *made)) == NULL) {
        free(text);
        return result != SUCCESS ? result : OUT_OF_MEMORY;
    }
    made->context = context;
    for (at = text; (at = strstr(at, ".entry")) != NULL; at++)
        read_function(made, at + strlen(".entry"));
    free(text);
    made->next = modules;
    modules = made;
    *out = made;
    return SUCCESS;
}

EXPORT CUresult cuModuleGetFunction(struct function **out, struct module *module, const char *name)
{
    GUARDED;
    CUcontext context;
    const struct module *one;
    int number;
    TRY(enter(&context));
    if (out == NULL || name == NULL)
        return INVALID_VALUE;
    for (one = modules; one != NULL && one != module; one = one->next)
        ;
    if (one == NULL)
        return INVALID_HANDLE;
    for (number = 0; number < module->count; number++)
        if (strcmp(module->functions[number].name, name) == 0) {
            *out = &module->functions[number];
            return (*out)->kernel == K_NONE ? NOT_SUPPORTED : SUCCESS;
        }
    return NOT_FOUND;
}

/* The values of the parameters, 8 bytes each: from pointers to each, or from one buffer behind the keys 1 and 2. */
static bool read_arguments(unsigned long long *out, int count, void **parameters, void **extra)
{
    const char *buffer = NULL;
    size_t size = 0;
    int place;
    for (; parameters == NULL && extra != NULL && *extra != NULL; extra += 2)
        if (*extra == (void *)1)
            buffer = extra[1];
        else if (*extra == (void *)2)
            size = *(size_t *)extra[1];
    if (parameters == NULL && (buffer == NULL || size < (size_t)count * 8))
        return false;
    for (place = 0; place < count; place++)
        memcpy(&out[place], parameters != NULL ? parameters[place] : buffer + place * 8, 8);
    return true;
}

EXPORT CUresult cuLaunchKernel(struct function *function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                               unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared,
                               CUstream stream, void **parameters, void **extra)
{
    GUARDED;
    struct operation made = {.kind = KERNEL};
    const unsigned long long threads = (unsigned long long)block_x * block_y * block_z;
    CUcontext context;
    CUresult result = enter(&context);
    if (result == SUCCESS)
        result = check_stream(&stream, context);
    if (result != SUCCESS)
        return result;
    if ((function = function_of(function)) == NULL)
        return INVALID_HANDLE;
    if (function->module->context != stream->context)
        return INVALID_HANDLE;
    if (threads == 0 || threads > 1024 || (unsigned long long)grid_x * grid_y * grid_z == 0 || grid_y > 65535 ||
        grid_z > 65535 || shared > 49152)
        return INVALID_VALUE;
    made.kernel = function->kernel;
    if (!read_arguments(made.arguments, function->parameters, parameters, extra))
        return INVALID_VALUE;
    result = prepare_kernel(&made, stream->context);
    return result == SUCCESS ? push(stream, &made) : result;
}
