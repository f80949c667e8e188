/*
 * A SIMULATED libcuda.so.1: the part of the CUDA driver API that copies between GPUs need, without a GPU. One room a file:
 *
 *   machine.c   reading cuda.txt and machine.txt    memory.c    what device memory holds
 *   routes.c    how fast a copy is, and by what     storage.c   allocation    pinned.c    what it holds
 *   session.c   cuInit, versions, entering a call   copies.c    cuMemcpy*
 *   visible.c   which GPUs a process sees           kernels.c   the known kernels    modules.c   PTX
 *   device.c    what a GPU is                       arrival.c   what a copy puts at its destination, faults included
 *   context.c   contexts                            schedule.c  simulated time: queues, gates, shared links
 *   peers.c     peer access                         streams.c   streams and waits      events.c  events
 *   entry.c     cuGetProcAddress and its table      errors.c    names of errors
 *   shared.c    cuMemCreate, fabric handles, mappings
 *
 * The machine is a directory D, as for the simulated NVML library, whose table.c is compiled in:
 *   D/machine.txt    what the GPUs are (see nvml/simulator.h)
 *   D/cuda.txt       how fast copies are and what is wrong with them (see copies.py)
 *
 * Time is simulated. Work is queued, and done when a call waits for its end (synchronize, query, elapsed time) or a queue
 * is full; everything that was queued until then and waits for nothing starts at the same simulated instant. Only a wait
 * for a value that the host has not written, and a copy that never ends, take real time.
 */
#ifndef GPUCHECK_CUDA_DRIVER_H
#define GPUCHECK_CUDA_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_GPUS 128
#define MAX_LINKS 16      /* that one copy occupies */
#define MOST_PEERS 8      /* of a GPU that NVSwitch does not reach */
#define QUEUE_LENGTH 1024 /* operations that a stream takes before a call blocks */
#define HOST (-1)
#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))
#define EXPORT __attribute__((visibility("default")))

/* Codes and their meaning: cuda.h as packaged by cuda-bindings. */
typedef enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    DEVICE_UNAVAILABLE = 46,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY_FOR_GPU = 209,
    ECC_UNCORRECTABLE = 214,
    PEER_ACCESS_UNSUPPORTED = 217,
    INVALID_PTX = 218,
    NVLINK_UNCORRECTABLE = 220,
    UNSUPPORTED_PTX_VERSION = 222,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    PEER_ACCESS_ALREADY_ENABLED = 704,
    PEER_ACCESS_NOT_ENABLED = 705,
    CONTEXT_IS_DESTROYED = 709,
    TOO_MANY_PEERS = 711,
    MISALIGNED_ADDRESS = 716,
    LAUNCH_FAILED = 719,
    NOT_PERMITTED = 800,
    NOT_SUPPORTED = 801,
    SYSTEM_NOT_READY = 802,
    SYSTEM_DRIVER_MISMATCH = 803,
    UNKNOWN = 999,
} CUresult;

/* The caller returns what this call returns, unless it succeeds. */
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        const CUresult result_of_call = (call);                                                                        \
        if (result_of_call != SUCCESS)                                                                                 \
            return result_of_call;                                                                                     \
    } while (0)

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;

enum damage { WHOLE, UNTOUCHED, ZEROS, STALE, OTHER_PAIR, SHIFTED, BIT_FLIP };

/* What one ordered pair of GPUs is like. error: CUresult of every copy, SUCCESS for none. */
struct pair {
    double bytes_s, staged_bytes_s, latency_s, duplex;
    int links[MAX_LINKS], link_count;
    enum damage damage;
    bool stuck, access, nvlink;
    CUresult error;
};

/* A GPU that this process sees. number: among those that NVML counts. mig: of its MIG devices, or HOST (none). */
struct gpu {
    int number, mig, numa, major, minor, compute_mode;
    char prefix[40], name[128], bus_id[16], uuid[48];
    unsigned long long memory, used, taken;
    double host_bytes_s, host_duplex;
    int up[MAX_LINKS], down[MAX_LINKS], link_count;
};

/* What a copy costs: time = max(latency, setup + bytes / rate), the rate divided by how many share its busiest link. */
struct route {
    double bytes_s, setup_s, latency_s, duplex; /* duplex: of the rate, while an end also copies the other way */
    int links[MAX_LINKS + 2], link_count, opposite[2], opposite_count;
    const struct pair *pair; /* NULL: not from GPU to GPU, or through host memory */
};

struct stream;
typedef struct context {
    struct context *next;
    int gpu;
    unsigned int holders;
    bool alive;
    CUresult sticky; /* after it, every call returns this */
    bool peer[MAX_GPUS];
    struct stream *legacy;
} *CUcontext;

/* One recording of an event: what waits for it waits for this one, whatever the event is used for afterwards. */
struct mark { unsigned int holders; bool done; double at; };

typedef struct event {
    struct event *next;
    CUcontext context;
    unsigned int flags;
    struct mark *mark; /* the last recording, NULL before there is one */
} *CUevent;

enum kind { COPY, KERNEL, RECORD, WAIT_EVENT, WAIT_VALUE };
enum kernel { K_FILL, K_POISON, K_COMPARE, K_COPY, K_CHAIN, K_CHASE, K_SPIN, K_NONE };

struct operation {
    struct operation *next;
    enum kind kind;
    unsigned long long number; /* in the order of calls */
    unsigned long long dst, src, size, value; /* WAIT_VALUE: until `dst` holds `value` */
    int to, from;                              /* COPY: GPU or HOST */
    bool direct, started, illegal;
    unsigned int count; /* how many copies of the same, one after the other */
    double left, factor; /* part that is still to do; noise */
    struct route route;
    struct mark *mark; /* RECORD, WAIT_EVENT */
    enum kernel kernel;
    unsigned long long arguments[6];
};

typedef struct stream {
    struct stream *next;
    CUcontext context;
    unsigned int flags;
    struct operation *head, *tail;
    unsigned int length;
    bool closed;
} *CUstream;

/* machine.c */
extern double noise, drift;
extern unsigned int queue_length;
extern bool staged_copies_block; /* until what is queued before them is done */
bool machine_peek(void);
int machine_open(void); /* 0, or the CUresult that cuInit returns */
void machine_refresh(void);
const char *machine_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *cuda_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
long long machine_number(long long otherwise, const char *format, ...) __attribute__((format(printf, 2, 3)));
double cuda_number(double otherwise, const char *format, ...) __attribute__((format(printf, 2, 3)));
int driver_version(void);
bool machine_lost(int gpu);
bool machine_lacks(const char *node);
const char *machine_directory(void);

/* routes.c */
extern bool copies_are_remembered; /* some pair delivers the data of an earlier copy */
struct pair *pair_of(int from, int to);
bool routes_read(void);
struct route route_of(const struct operation *operation);
double chase_seconds(int gpu, int owner);

/* visible.c, device.c */
extern struct gpu gpus[MAX_GPUS];
extern int gpu_count;
CUresult visible_read(void);
bool offers_fabric_handles(int number);

/* session.c */
void *lock_session(void);
void unlock_session(void *held);
#define GUARDED __attribute__((cleanup(unlock_session), unused)) void *guard = lock_session()
void let_others(unsigned int tries); /* gives the lock away for a moment */
CUresult initialized(void);
CUresult stated_error(const char *call); /* that a test wants, or SUCCESS */
CUresult check_device(CUdevice device);
CUresult enter(CUcontext *context); /* the thread's context, or why there is none to work in */

/* context.c, peers.c */
extern CUcontext contexts;
CUresult check_context(CUcontext context);
CUcontext current_context(void);
bool may_access(CUcontext context, int gpu);

/* memory.c: device memory by address. Every range must lie inside one allocation. */
struct allocation {
    struct allocation *next;
    unsigned long long base, size, reserved;
    CUcontext context;
    struct piece **pieces; /* NULL: zeros */
    bool shared, reach[MAX_GPUS]; /* of cuMemCreate; the GPUs that cuMemSetAccess named */
};
enum { PIECE = 65536, WORDS = PIECE / 8 };
extern struct allocation *allocations;
struct allocation *allocation_of(unsigned long long address, unsigned long long size);
void memory_read(unsigned long long address, void *out, unsigned long long size);
void memory_write(unsigned long long address, const void *data, unsigned long long size);
void memory_fill(unsigned long long address, unsigned long long word, unsigned long long size);
void memory_pattern(unsigned long long address, unsigned long long key, unsigned long long words);
void memory_flip(unsigned long long address, unsigned long long size);
void memory_copy(unsigned long long to, unsigned long long from, unsigned long long size);
bool memory_is_pattern(unsigned long long address, unsigned long long key, unsigned long long words);
struct piece **memory_slot(unsigned long long address);
void memory_forget(struct allocation *allocation);
unsigned long long mix(unsigned long long word);
#define STRIDE 0x9E3779B97F4A7C15ULL
#define FLIP_EVERY 4096 /* words; a piece is a multiple of it */
#define FLIP_AT 100
#define FLIP_BIT 17

/* storage.c */
struct host_range {
    struct host_range *next;
    char *base;
    unsigned long long size;
    int file;
    bool late; /* late: data of a GPU is still to be written */
    struct shadow *shadows;
};
struct host_range *host_range_of(const void *address);
int owner_of(unsigned long long address, unsigned long long size); /* GPU, HOST, or -2: neither */
#define NO_OWNER (-2)
void storage_release(CUcontext context);
unsigned long long available(int gpu); /* bytes */

/* shared.c */
bool is_reserved(unsigned long long address);

/* pinned.c */
void host_to_device(unsigned long long to, const char *from, unsigned long long size);
void device_to_host(char *to, unsigned long long from, unsigned long long size);
void pinned_settle(struct host_range *range);
void pinned_settle_all(void);
extern struct host_range *host_ranges;

/* arrival.c */
void arrive(const struct operation *operation);

/* schedule.c, queue.c */
extern double now;
extern CUstream streams;
void advance(void);
CUresult push(CUstream stream, const struct operation *operation);
CUresult wait_for_stream(CUstream stream);
CUresult wait_for_context(CUcontext context);
CUresult wait_for_mark(struct mark *mark, CUcontext context);
void drop_work(CUcontext context);
bool is_sticky(CUresult code);
void seed_noise(unsigned long long seed);

/* streams.c, events.c, kernels.c */
CUresult check_stream(CUstream *stream, CUcontext context); /* puts the legacy stream in place of 0, 1 and 2 */
CUstream new_stream(CUcontext context, unsigned int flags);
CUresult check_event(CUevent event);
void mark_drop(struct mark *mark);
CUresult prepare_kernel(struct operation *made, CUcontext context);
bool run_kernel(const struct operation *operation, CUcontext context);
double kernel_seconds(const struct operation *operation, int gpu);

#endif
