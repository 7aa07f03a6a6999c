// Gradients of the pairwise head, only from products that are not zero; it follows the text
// of active.cu. nn/pairwise.py is the specification.
//
//     dw_p = sum over the batch of  x[i_p] x[j_p] dy_c,  c = p mod C
//     dx_u = sum over the pairs p of unit u of  w_p dy_c x[the other unit of p]
//
// dx is computed where x_u is not zero; elsewhere k-WTA passes no gradient.
//
// Grid: pairwise_dw a block a chunk of pairs and run, a thread a pair at a time;
// pairwise_dx a block some units and run, a warp a unit, a lane a pair of it at a time.
//
// Shapes: pairs and w (R, P), dy (G, R, B, C), dw (G, R, P), dx (G, R, B, H), with G = 1 or
// 2 gradients; starts (R, H + 1), partner and weight (R, 2 P): the pairs of unit u, those
// with i = u and those with j = u, are entries starts[u] to starts[u + 1].
//
// Deterministic: dw_p is one thread's sum. For dx a lane adds to a column of its own in
// shared memory, and the lanes' columns are added in order. No sum depends on the block's
// size, on R or on the device.
//
// Bytes moved: dw a pair and the gradients, 2 sizeof(I) + G sizeof(T) per p; dx twice
// sizeof(I) + 4 + sizeof(T) per p, where a weight costs a sector of 32 bytes of the cache.
// A block copies the lists of its run, 8 W H + sizeof(T) times their values, from the cache.
//
// `room`: how many values fit into shared memory. Where a run has more, or room is
// negative, its lists are read where they are.

template <typename T, typename I, int G>
__device__ void gather_dw(const Pair<I>* __restrict__ pairs, const uint2* __restrict__ active,
                          const T* __restrict__ values, const T* __restrict__ dy,
                          long long dy_step, T* __restrict__ dw, long long dw_step, int words,
                          int units, int classes, int p, int end, int stride)
{
    int c = p % classes;
    for (; p < end; p += stride) {
        Pair<I> pair = pairs[p];
        T sum[G] = {};
        for (int word = 0; word < words; ++word) {
            const uint2* list = active + (long long)word * units;
            uint2 a = list[pair.i], b = list[pair.j];
            for (unsigned int both = a.x & b.x; both; both &= both - 1) {
                unsigned int bit = both & (0u - both);
                int sample = 32 * word + __ffs(both) - 1;
                // y_c += w_p z_p
                T z = active_value(values, a, bit) * active_value(values, b, bit);
                for (int g = 0; g < G; ++g) sum[g] += z * dy[g * dy_step + sample * classes + c];
            }
        }
        for (int g = 0; g < G; ++g) dw[g * dw_step + p] = sum[g];
    }
}

// Shared: the copies of all words, dy of the run between the lists and the values.
template <typename T, typename I, int G>
__global__ void pairwise_dw(const Pair<I>* __restrict__ pairs, const uint2* __restrict__ active,
                            const T* __restrict__ values, const T* __restrict__ dy,
                            T* __restrict__ dw, int pair_count, int classes, int units, int batch,
                            int rounds, int room)
{
    int thread = threadIdx.x, threads = blockDim.x, words = (batch + 31) / 32;
    long long run = blockIdx.y, runs = gridDim.y, outputs = batch * classes;
    uint2* active_copy = (uint2*)shared_memory;
    T* dy_copy = (T*)(active_copy + (long long)words * units);
    T* values_copy = dy_copy + G * outputs;
    pairs += run * pair_count;
    active += run * words * units;
    values += run * words * 32 * units;
    dy += run * outputs;
    dw += run * pair_count;
    bool staged = stage(active, values, units, words, room, active_copy, values_copy);
    if (staged)
        for (int n = thread; n < G * outputs; n += threads)
            dy_copy[n] = dy[n / outputs * runs * outputs + n % outputs];
    __syncthreads();
    int used = threads / classes * classes;
    int first = blockIdx.x * rounds * used, end = min(first + rounds * used, pair_count);
    if (thread >= used) return;
    if (staged)
        gather_dw<T, I, G>(pairs, active_copy, values_copy, dy_copy, outputs, dw,
                           runs * pair_count, words, units, classes, first + thread, end, used);
    else
        gather_dw<T, I, G>(pairs, active, values, dy, runs * outputs, dw, runs * pair_count, words,
                           units, classes, first + thread, end, used);
}

// The pairs of unit u are entries starts[u] to starts[u + 1] of `partner` and `weight`.
// Samples in which the unit is not zero are numbered as they come, over all words; up to
// 32 of them are gathered at once, each lane into its own column of sums (G, 32, 32).
template <typename T, typename I, int G>
__device__ void gather_dx(const I* __restrict__ partner, const int* __restrict__ weight,
                          const T* __restrict__ w, const uint2* __restrict__ active,
                          const T* __restrict__ values, const T* __restrict__ dy,
                          long long dy_step, T* __restrict__ dx, long long dx_step, T* sums,
                          int words, int units, int classes, int unit, int first, int end)
{
    int lane = threadIdx.x % 32;
    for (int from = 0, to; from < words; from = to) {
        int samples = 0;
        for (to = from; to < words; ++to) {  // as many words as have at most 32 samples
            int more = __popc(active[(long long)to * units + unit].x);
            if (samples + more > 32) break;
            samples += more;
        }
        if (samples == 0) continue;
        for (int g = 0; g < G; ++g)
            for (int k = 0; k < samples; ++k) sums[(32 * g + k) * 32 + lane] = 0;
        for (int e = first + lane; e < end; e += 32) {
            const uint2* other = active + partner[e];
            unsigned int meet = 0;
            for (int word = from; word < to; ++word)
                meet |= active[(long long)word * units + unit].x & other[(long long)word * units].x;
            if (!meet) continue;
            int p = weight[e], c = p % classes, before = 0;
            T w_p = w[p];
            for (int word = from; word < to; ++word) {
                unsigned int own = active[(long long)word * units + unit].x;
                uint2 b = other[(long long)word * units];
                for (unsigned int both = own & b.x; both; both &= both - 1) {
                    unsigned int bit = both & (0u - both);
                    int sample = 32 * word + __ffs(both) - 1;
                    int k = before + __popc(own & (bit - 1));
                    // z_p = x[i_p] x[j_p]
                    T slope = w_p * active_value(values, b, bit);
                    for (int g = 0; g < G; ++g)
                        sums[(32 * g + k) * 32 + lane] +=
                            slope * dy[g * dy_step + sample * classes + c];
                }
                before += __popc(own);
            }
        }
        __syncwarp();
        if (lane < samples) {  // this lane adds up the row of sample `lane`
            int word = from, k = lane;
            unsigned int own = active[(long long)word * units + unit].x;
            for (; k >= __popc(own); own = active[(long long)++word * units + unit].x)
                k -= __popc(own);
            for (; k > 0; --k) own &= own - 1;
            int sample = 32 * word + __ffs(own) - 1;
            for (int g = 0; g < G; ++g) {
                T sum = 0;
                for (int l = 0; l < 32; ++l) sum += sums[(32 * g + lane) * 32 + (lane + l) % 32];
                dx[g * dx_step + (long long)sample * units + unit] = sum;
            }
        }
        __syncwarp();  // before the sums are cleared
    }
}

// starts (R, H + 1), partner and weight (R, 2 P), dx zero at the start. `share`: units of a
// block. Shared: 1024 G T a warp, then as in pairwise_dw.
template <typename T, typename I, int G>
__global__ void pairwise_dx(const int* __restrict__ starts, const I* __restrict__ partner,
                            const int* __restrict__ weight, const T* __restrict__ w,
                            const uint2* __restrict__ active, const T* __restrict__ values,
                            const T* __restrict__ dy, T* __restrict__ dx, int pair_count,
                            int classes, int units, int batch, int share, int room)
{
    int thread = threadIdx.x, threads = blockDim.x, words = (batch + 31) / 32;
    int warp = thread / 32, warps = threads / 32;
    long long run = blockIdx.y, runs = gridDim.y, outputs = batch * classes;
    T* sums = (T*)shared_memory + 1024 * G * warp;
    uint2* active_copy = (uint2*)((T*)shared_memory + 1024 * G * warps);
    T* dy_copy = (T*)(active_copy + (long long)words * units);
    T* values_copy = dy_copy + G * outputs;
    starts += run * (units + 1);
    partner += run * 2 * pair_count;
    weight += run * 2 * pair_count;
    w += run * pair_count;
    active += run * words * units;
    values += run * words * 32 * units;
    dy += run * outputs;
    dx += run * batch * units;
    bool staged = stage(active, values, units, words, room, active_copy, values_copy);
    if (staged)
        for (int n = thread; n < G * outputs; n += threads)
            dy_copy[n] = dy[n / outputs * runs * outputs + n % outputs];
    __syncthreads();
    int end = min((int)(blockIdx.x + 1) * share, units);
    for (int unit = blockIdx.x * share + warp; unit < end; unit += warps) {
        if (staged)
            gather_dx<T, I, G>(partner, weight, w, active_copy, values_copy, dy_copy, outputs, dx,
                               runs * batch * units, sums, words, units, classes, unit,
                               starts[unit], starts[unit + 1]);
        else
            gather_dx<T, I, G>(partner, weight, w, active, values, dy, runs * outputs, dx,
                               runs * batch * units, sums, words, units, classes, unit,
                               starts[unit], starts[unit + 1]);
    }
}
