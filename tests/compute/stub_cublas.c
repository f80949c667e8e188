/*
 * A cuBLAS that computes on the processor, by the definition in NVIDIA's documentation of cublasGemmEx: matrices by columns,
 * with leading dimensions. Operands and results are in the memory of the simulated CUDA driver. CUBLAS_STUB names a fault:
 *   create N    cublasCreate_v2 returns N          status N K  every product from the K-th on returns N
 *   wrong K     a bit of the K-th product differs  hang K      no product returns from the K-th on
 *   other 0     a bit of every product differs
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { R_32F = 0, R_16F = 2, R_8I = 3, R_32I = 10, R_16BF = 14 };
enum { NOT_INITIALIZED = 1, ALLOC_FAILED = 3, INVALID_VALUE = 7, NOT_SUPPORTED = 15 };
#define BUSY (64u << 20) /* a product takes as long as the copy of so many bytes: the simulated clock runs for copies alone */

static void *stream;
static unsigned long long busy;
static long products;

static void *driver(const char *name)
{
    return dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), name);
}
#define CUDA(name, ...) ((int (*)())driver(#name))(__VA_ARGS__)

static bool fault(const char *kind, int *first, long *second)
{
    const char *wanted = getenv("CUBLAS_STUB");
    char found[16];
    return wanted != NULL && sscanf(wanted, "%15s %d %ld", found, first, second) >= 2 && strcmp(found, kind) == 0;
}

int cublasCreate_v2(void **handle)
{
    int status;
    long unused;
    *handle = &stream;
    if (fault("create", &status, &unused))
        return status;
    return CUDA(cuMemAlloc_v2, &busy, (size_t)BUSY) ? ALLOC_FAILED : 0;
}

int cublasSetStream_v2(void *handle, void *chosen)
{
    stream = chosen;
    return handle == NULL ? NOT_INITIALIZED : 0;
}

int cublasGetVersion_v2(void *handle, int *version)
{
    (void)handle;
    *version = 131000;
    return 0;
}

const char *cublasGetStatusString(int status)
{
    return status == 13 ? "the function failed to launch on the GPU" : "a status of the stub";
}

static size_t bytes_of(int type)
{
    return type == R_8I ? 1 : type == R_16F || type == R_16BF ? 2 : 4;
}

static double value(const void *matrix, int type, size_t at)
{
    const uint32_t upper = type == R_16BF ? (uint32_t)((const uint16_t *)matrix)[at] << 16 : 0;
    float number;
    memcpy(&number, &upper, 4);
    return type == R_8I     ? ((const int8_t *)matrix)[at]
           : type == R_16F  ? (double)((const _Float16 *)matrix)[at]
           : type == R_16BF ? number
                            : ((const float *)matrix)[at];
}

static void put(void *matrix, int type, size_t at, double number)
{
    const float rounded = (float)number;
    uint32_t bits;
    memcpy(&bits, &rounded, 4);
    if (type == R_32I)
        ((int32_t *)matrix)[at] = (int32_t)number;
    else if (type == R_16F)
        ((_Float16 *)matrix)[at] = (_Float16)number;
    else if (type == R_16BF)
        ((uint16_t *)matrix)[at] = (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
    else
        ((float *)matrix)[at] = rounded;
}

static void *fetched(unsigned long long address, size_t size)
{
    void *made = calloc(1, size);
    if (CUDA(cuMemcpyDtoH_v2, made, address, size) != 0)
        abort();
    return made;
}

static bool supported(int a, int b, int c, int compute)
{
    return a == b && (a == R_8I ? c == R_32I && compute == 72 : c == a && (compute == 68 || (compute == 77 && a == R_32F)));
}

static double factor(const void *pointer, int c)
{
    return c == R_32I ? *(const int32_t *)pointer : *(const float *)pointer;
}

int cublasGemmEx(void *handle, int transa, int transb, int m, int n, int k, const void *alpha, unsigned long long a, int atype,
                 int lda, unsigned long long b, int btype, int ldb, const void *beta, unsigned long long c, int ctype, int ldc,
                 int compute, int algorithm)
{
    const size_t acolumns = transa ? m : k, bcolumns = transb ? k : n;
    int first = 0, row, column, depth;
    long second = 0;
    products++;
    if (fault("status", &first, &second) && products >= second)
        return first;
    while (fault("hang", &first, &second) && products >= first)
        pause();
    if (handle != &stream || algorithm != -1)
        return INVALID_VALUE;
    if (!supported(atype, btype, ctype, compute) || (atype == R_8I && (lda % 4 || ldb % 4)))
        return NOT_SUPPORTED;
    if (lda < (transa ? k : m) || ldb < (transb ? n : k) || ldc < m)
        return INVALID_VALUE;
    CUDA(cuStreamSynchronize, stream);
    char *left = fetched(a, acolumns * lda * bytes_of(atype)), *right = fetched(b, bcolumns * ldb * bytes_of(btype));
    char *made = fetched(c, (size_t)n * ldc * bytes_of(ctype));
    for (column = 0; column < n; column++)
        for (row = 0; row < m; row++) {
            const size_t at = (size_t)column * ldc + row;
            double sum = 0;
            for (depth = 0; depth < k; depth++)
                sum += value(left, atype, transa ? (size_t)row * lda + depth : (size_t)depth * lda + row) *
                       value(right, btype, transb ? (size_t)depth * ldb + column : (size_t)column * ldb + depth);
            sum *= factor(alpha, ctype);
            put(made, ctype, at, factor(beta, ctype) == 0 ? sum : sum + factor(beta, ctype) * value(made, ctype, at));
        }
    if (fault("other", &first, &second) || (fault("wrong", &first, &second) && products == first))
        made[5] ^= 1;
    CUDA(cuMemcpyHtoD_v2, c, made, (size_t)n * ldc * bytes_of(ctype));
    free(left);
    free(right);
    free(made);
    return CUDA(cuMemcpyDtoDAsync_v2, busy, busy, (size_t)BUSY, stream) ? 14 : 0;
}
