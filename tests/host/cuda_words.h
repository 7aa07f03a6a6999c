// The words of CUDA C++ that the kernels use, for a host compiler.
//
// The threads of a block are threads of the process, so a missing __syncthreads() is a data
// race that a thread sanitizer sees. Blocks with shared memory run one after the other; it is
// filled with NaN before every block, and poisoned past what was asked for.

#pragma once

#include <algorithm>
#include <atomic>
#include <barrier>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define POISON(place, bytes) ASAN_POISON_MEMORY_REGION(place, bytes)
#define UNPOISON(place, bytes) ASAN_UNPOISON_MEMORY_REGION(place, bytes)
#else
#define POISON(place, bytes)
#define UNPOISON(place, bytes)
#endif

#define __global__
#define __device__
#define __shared__

struct uint3 {
    unsigned int x, y, z;
};
struct alignas(8) uint2 {
    unsigned int x, y;
};
inline uint2 make_uint2(unsigned int x, unsigned int y) { return {x, y}; }

inline thread_local uint3 threadIdx, blockIdx;
inline thread_local int turn;  // of a shuffle
inline uint3 blockDim, gridDim;
constexpr std::size_t SHARED_BYTES = 232448;  // of an sm_90
alignas(128) double shared_memory[SHARED_BYTES / sizeof(double)];

struct Barriers {
    std::barrier<> threads, block_end;
    std::vector<std::unique_ptr<std::barrier<>>> warps;

    explicit Barriers(int count) : threads(count), block_end(count)
    {
        for (int first = 0; first < count; first += 32)
            warps.push_back(std::make_unique<std::barrier<>>(std::min(32, count - first)));
    }
};
inline Barriers* barriers;

inline void __syncthreads() { barriers->threads.arrive_and_wait(); }
inline void __syncwarp() { barriers->warps[threadIdx.x / 32]->arrive_and_wait(); }

using std::min;
inline int __popc(unsigned int x) { return std::popcount(x); }
inline int __ffs(unsigned int x) { return __builtin_ffs((int)x); }
inline int __ffsll(unsigned long long x) { return __builtin_ffsll((long long)x); }
template <typename T>
T __ldcg(const T* place)
{
    return *place;
}
template <typename T>
T __shfl_xor_sync(unsigned int, T value, int other)
{
    static double values[2][1024];
    T* place = (T*)values[turn ^= 1];  // a lane may be one shuffle ahead of the others
    place[threadIdx.x] = value;
    __syncwarp();
    return place[threadIdx.x ^ (unsigned int)other];
}
inline unsigned int __float_as_uint(float x) { return std::bit_cast<unsigned int>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline int atomicAdd(int* place, int value) { return std::atomic_ref<int>(*place).fetch_add(value); }
inline int atomicMin(int* place, int value)
{
    std::atomic_ref<int> at(*place);
    int old = at.load();
    while (value < old && !at.compare_exchange_weak(old, value)) {
    }
    return old;
}

// What a launch looks like to the caller: arguments[n] points to the n-th argument.
struct Launch {
    unsigned int grid[3], threads;
    std::size_t shared;
    bool backwards;  // the last block first
    void** arguments;
};

template <typename... A, std::size_t... N>
void run(void (*kernel)(A...), const Launch& launch, std::index_sequence<N...>)
{
    const unsigned int* grid = launch.grid;
    long long blocks = (long long)grid[0] * grid[1] * grid[2];
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {launch.threads, 1, 1};
    Barriers own((int)launch.threads);
    barriers = &own;
    char* memory = (char*)shared_memory;
    auto work = [&](unsigned int thread) {
        threadIdx = {thread, 0, 0};
        turn = 0;
        for (long long n = 0; n < blocks; ++n) {
            long long b = launch.backwards ? blocks - 1 - n : n;
            blockIdx.x = (unsigned int)(b % grid[0]);
            blockIdx.y = (unsigned int)(b / grid[0] % grid[1]);
            blockIdx.z = (unsigned int)(b / grid[0] / grid[1]);
            if (thread == 0) std::memset(memory, 0xff, launch.shared);
            if (launch.shared) own.block_end.arrive_and_wait();
            kernel(*(std::remove_cv_t<A>*)launch.arguments[N]...);
            if (launch.shared) own.block_end.arrive_and_wait();
        }
    };
    POISON(memory + launch.shared, SHARED_BYTES - launch.shared);
    std::vector<std::thread> threads;
    for (unsigned int n = 1; n < launch.threads; ++n) threads.emplace_back(work, n);
    work(0);
    for (std::thread& thread : threads) thread.join();
    UNPOISON(memory, SHARED_BYTES);
}

template <typename... A>
void run(void (*kernel)(A...), const Launch& launch)
{
    run(kernel, launch, std::index_sequence_for<A...>());
}

// One letter an argument: p for a pointer, else i or f and the size in bytes.
template <typename A>
void describe(char*& text)
{
    if (std::is_pointer_v<A>) {
        *text++ = 'p';
        return;
    }
    *text++ = std::is_floating_point_v<A> ? 'f' : 'i';
    *text++ = (char)('0' + sizeof(A));
}

template <typename... A>
void signature(void (*)(A...), char* text)
{
    (describe<A>(text), ...);
    *text = 0;
}
