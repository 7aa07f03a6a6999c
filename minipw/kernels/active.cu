// Which units are not zero, in words of 32 samples; the pairwise kernels begin with this text.
//
//     list_active: for every word and unit a mask of the samples in which the unit is not
//     zero, and the values there, one after the other in the order of the samples
//
// Shapes: x (R, B, H), active (R, W, H), W = ceil(B / 32) words, values (R, W * 32 * H): a
// word's values begin at its share of the array and fill as much of it as there are.
//
// Grid: a block a word and run, a thread a unit; the block is a power of two.
// Deterministic: places come from counts. Bytes moved: x once from memory, and the lists:
// sizeof(T) (1 + K / H) + 8 / 32 per entry of x.

extern __shared__ double shared_memory[];

template <typename I>
struct alignas(2 * sizeof(I)) Pair {
    I i, j;
};

// active[unit].x: the mask; active[unit].y: the place of its first value in this word.
template <typename T>
__device__ T active_value(const T* values, uint2 unit, unsigned int bit)
{
    return values[unit.y + __popc(unit.x & (bit - 1))];
}

// The mask of 64 samples, of word `word` and, where there is one, the next.
inline __device__ unsigned long long mask_of_two(const uint2* active, int words, int units,
                                                 int word, int unit)
{
    const uint2* low = active + (long long)word * units;
    if (word + 1 == words) return low[unit].x;
    return low[unit].x | (unsigned long long)low[units + unit].x << 32;
}

// Copies the lists of `words` words. False, for all threads, where the values do not fit.
template <typename T>
__device__ bool stage(const uint2* active, const T* values, int units, int words, int room,
                      uint2* active_copy, T* values_copy)
{
    int base = 0;
    for (int word = 0; word < words; ++word) {
        const uint2* list = active + (long long)word * units;
        unsigned int first = list[0].y;
        uint2 last = list[units - 1];
        int count = (int)(last.y + __popc(last.x) - first);
        if (count > room - base) return false;
#pragma unroll 4
        for (int h = threadIdx.x; h < units; h += blockDim.x) {
            uint2 unit = list[h];
            unit.y = unit.y - first + base;
            active_copy[(long long)word * units + h] = unit;
        }
#pragma unroll 4
        for (int n = threadIdx.x; n < count; n += blockDim.x)
            values_copy[base + n] = values[first + n];
        base += count;
    }
    return true;
}

// Shared: an int a thread. The block is a power of two.
template <typename T>
__global__ void list_active(const T* __restrict__ x, uint2* __restrict__ active,
                            T* __restrict__ values, int batch, int units)
{
    int* sums = (int*)shared_memory;
    int thread = threadIdx.x, threads = blockDim.x, word = blockIdx.x, words = gridDim.x;
    long long run = blockIdx.y;
    int samples = min(32, batch - 32 * word);
    x += (run * batch + 32 * word) * units;
    active += (run * words + word) * units;
    values += run * words * 32 * units;
    unsigned int place = 32u * word * units;  // in the values of the run
    for (int start = 0; start < units; start += threads) {
        int h = start + thread;
        unsigned int mask = 0;
        if (h < units) {
#pragma unroll 8
            for (int s = 0; s < samples; ++s)
                if (x[(long long)s * units + h] != T(0)) mask |= 1u << s;
        }
        int count = __popc(mask);
        sums[thread] = count;
        __syncthreads();
        for (int step = 1; step < threads; step *= 2) {  // to sums over all threads up to here
            int before = thread >= step ? sums[thread - step] : 0;
            __syncthreads();
            sums[thread] += before;
            __syncthreads();
        }
        unsigned int own = place + sums[thread] - count;
        place += sums[threads - 1];
        if (h < units) active[h] = make_uint2(mask, own);
        for (; mask; mask &= mask - 1) values[own++] = x[(long long)(__ffs(mask) - 1) * units + h];
        __syncthreads();  // before the next sums
    }
}
