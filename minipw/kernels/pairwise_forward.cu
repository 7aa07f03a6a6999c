// The outputs of the pairwise head, only from products that are not zero; it follows the
// text of active.cu. nn/pairwise.py is the specification.
//
//     y_c = sum over p with p mod C = c of  w_p x[i_p] x[j_p]
//
// A thread takes pairs of one class. It ands the masks of the two units and visits the
// samples that are left: after k-WTA a share K^2 / H^2 of them.
//
// Grid: pairwise_forward a block a word, chunk of pairs and run; pairwise_sum a thread an
// output. Shapes: pairs and w (R, P), partial (R, chunks, B, C), y (R, B, C).
//
// Deterministic: a thread adds to a column of its own in shared memory, 32 samples long;
// columns, then chunks, are added in order. That order depends on P, C and the block, not
// on R or the device.
//
// Bytes moved: a pair and its weight, 2 sizeof(I) + sizeof(T) per p (again for each word
// if they do not stay in the cache); a block copies 8 H + sizeof(T) times the values of a
// word of its run, from the cache.
//
// `room`: how many values fit into shared memory. Where a word has more, or room is
// negative, its lists are read where they are.

template <typename T, typename I>
__device__ void add_products(const Pair<I>* __restrict__ pairs, const T* __restrict__ w,
                             const uint2* __restrict__ active, const T* __restrict__ values,
                             T* __restrict__ sums, int p, int end, int stride)
{
    if (p >= end) return;
    Pair<I> next = pairs[p];
    T next_weight = w[p];
    for (; p < end; p += stride) {
        uint2 a = active[next.i], b = active[next.j];
        T weight = next_weight;
        if (stride < end - p) {  // loaded early: the loop below hides the latency
            next = pairs[p + stride];
            next_weight = w[p + stride];
        }
        for (unsigned int both = a.x & b.x; both; both &= both - 1) {
            unsigned int bit = both & (0u - both);
            T z = active_value(values, a, bit) * active_value(values, b, bit);
            sums[(__ffs(both) - 1) * blockDim.x] += weight * z;
        }
    }
}

// partial (R, chunks, B, C). Shared: 32 T a thread, then the copies of one word.
template <typename T, typename I>
__global__ void pairwise_forward(const Pair<I>* __restrict__ pairs, const T* __restrict__ w,
                                 const uint2* __restrict__ active, const T* __restrict__ values,
                                 T* __restrict__ partial, int pair_count, int classes, int units,
                                 int batch, int rounds, int room)
{
    int thread = threadIdx.x, threads = blockDim.x;
    int word = blockIdx.x, words = gridDim.x, chunk = blockIdx.y;
    long long run = blockIdx.z;
    T* sums = (T*)shared_memory;
    uint2* active_copy = (uint2*)(sums + 32 * threads);
    T* values_copy = (T*)(active_copy + units);
    pairs += run * pair_count;
    w += run * pair_count;
    active += (run * words + word) * units;
    values += run * words * 32 * units;
    for (int s = 0; s < 32; ++s) sums[s * threads + thread] = 0;
    bool staged = stage(active, values, units, 1, room, active_copy, values_copy);
    __syncthreads();
    int used = threads / classes * classes;  // so that a thread keeps its class
    int first = chunk * rounds * used, end = min(first + rounds * used, pair_count);
    if (thread < used) {
        int p = first + thread;
        if (staged)
            add_products(pairs, w, active_copy, values_copy, sums + thread, p, end, used);
        else
            add_products(pairs, w, active, values, sums + thread, p, end, used);
    }
    __syncthreads();
    int outputs = min(32, batch - 32 * word) * classes;
    partial += ((run * gridDim.y + chunk) * batch + 32 * word) * classes;
    for (int n = thread; n < outputs; n += threads) {
        const T* row = sums + n / classes * threads;
        T sum = 0;
        for (int t = n % classes; t < used; t += classes) sum += row[t];
        partial[n] = sum;
    }
}

// partial (R, chunks, outputs), y (R, outputs).
template <typename T>
__global__ void pairwise_sum(const T* __restrict__ partial, T* __restrict__ y, long long total,
                             int outputs, int chunks)
{
    long long n = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= total) return;
    partial += n / outputs * chunks * outputs + n % outputs;
    T sum = 0;
#pragma unroll 8
    for (int chunk = 0; chunk < chunks; ++chunk) sum += partial[(long long)chunk * outputs];
    y[n] = sum;
}
