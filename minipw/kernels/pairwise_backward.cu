// Gradients of the pairwise head, only from products that are not zero; it follows the text
// of active.cu. nn/pairwise.py is the specification.
//
//     dw_p = sum over the batch of  x[i_p] x[j_p] dy_c,  c = p mod C
//     dx_u = sum over the pairs p of unit u of  w_p dy_c x[the other unit of p]
//
// dx is computed where x_u is not zero; elsewhere k-WTA passes no gradient.
//
// Grid: pairwise_dw a block a chunk of pairs and run, a thread a pair at a time;
// pairwise_dx a warp a unit and run, a lane a pair of the unit at a time.
//
// Shapes: pairs and w (R, P), x (R, B, H), dy (G, R, B, C), dw (G, R, P), dx (G, R, B, H),
// with G = 1 or 2 gradients; starts (R, H + 1), partner and weight (R, 2 P): the pairs of unit
// u, those with i = u and those with j = u, are entries starts[u] to starts[u + 1].
//
// Deterministic: dw_p is one thread's sum; for dx a lane sums every 32nd pair of its unit, and
// the lanes' sums are added along a fixed tree. No sum depends on the block's size, on R or on
// the device.
//
// Bytes moved: dw a pair and the gradients, 2 sizeof(I) + G sizeof(T) per p; dx twice
// sizeof(I) + 4 + sizeof(T) per p, where a weight costs a sector of 32 bytes of the cache. A
// block of dw copies the lists of its run, 8 W H + sizeof(T) times their values, from the
// cache; for a unit of dx K / H of the rows of x come from there.
//
// `room` of dw: how many values fit into shared memory. Where a run has more, or room is
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
        for (int g = 0; g < G; ++g)
            for (int n = thread; n < outputs; n += threads)
                dy_copy[g * outputs + n] = dy[g * runs * outputs + n];
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

// The pairs of unit u are entries starts[u] to starts[u + 1] of `partner` and `weight`. The
// warp takes up to S of the samples in which its unit is not zero at once and keeps their sums
// in registers, so all lanes are busy. Shared: G C (S + 1) T a warp, dy of these samples.
template <typename T, typename I, int G, int S, bool SPARSE>
__global__ void pairwise_dx(const int* __restrict__ starts, const I* __restrict__ partner,
                            const int* __restrict__ weight, const T* __restrict__ w,
                            const uint2* __restrict__ active, const T* __restrict__ x,
                            const T* __restrict__ dy, T* __restrict__ dx, int pair_count,
                            int classes, int units, int batch, int class_bits)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, words = (batch + 31) / 32;
    int unit = blockIdx.x * (blockDim.x / 32) + warp;
    if (unit >= units) return;
    long long run = blockIdx.y, samples = gridDim.y * (long long)batch;  // of a gradient
    T* dy_copy = (T*)shared_memory + warp * G * classes * (S + 1);
    int first = starts[run * (units + 1) + unit], end = starts[run * (units + 1) + unit + 1];
    partner += run * 2 * pair_count;
    weight += run * 2 * pair_count;
    w += run * pair_count;
    active += run * words * units;
    x += run * batch * units;
    dy += run * batch * classes;
    dx += run * batch * units + unit;
    for (int word = 0; word < words; word += 2) {
        unsigned long long rest = mask_of_two(active, words, units, word, unit);
        while (rest) {
            int sample[S], count = 0;
            unsigned long long own = rest;
#pragma unroll
            for (int k = 0; k < S; ++k) {
                sample[k] = rest ? __ffsll(rest) - 1 : 0;
                count += rest != 0;
                rest &= rest - 1;
            }
            own ^= rest;
            T* column = dy_copy;
            for (unsigned long long left = own; left; left &= left - 1, ++column)
                for (int n = lane; n < G * classes; n += 32)
                    column[n * (S + 1)] =
                        dy[(n / classes * samples + __ffsll(left) - 1) * classes + n % classes];
            __syncwarp();
            T sum[G][S] = {};
            for (int e = first + lane; e < end; e += 32) {
                int other = partner[e], p = weight[e];
                unsigned long long both = own;
                if (SPARSE) {
                    both &= mask_of_two(active, words, units, word, other);
                    if (!both) continue;
                }
                int c = p & ((1 << class_bits) - 1);
                T w_p = __ldcg(w + (p >> class_bits) * classes + c);
                const T* slope = dy_copy + c * (S + 1);
#pragma unroll
                for (int k = 0; k < S; ++k) {
                    if (k % 4 == 0 && k >= count) break;
                    // z_p = x[i_p] x[j_p]
                    bool meet = !SPARSE || both >> sample[k] & 1;
                    T dz = meet ? w_p * x[sample[k] * units + other] : T(0);
                    for (int g = 0; g < G; ++g)
                        sum[g][k] += dz * slope[g * classes * (S + 1) + k];
                }
            }
#pragma unroll
            for (int k = 0; k < S; ++k) {
                if (k >= count) break;
                for (int g = 0; g < G; ++g) {
                    for (int half = 16; half > 0; half /= 2)
                        sum[g][k] += __shfl_xor_sync(~0u, sum[g][k], half);
                    if (lane == 0) dx[(g * samples + sample[k]) * units] = sum[g][k];
                }
            }
            __syncwarp();  // before dy of other samples
        }
        x += 64ll * units;
        dy += 64ll * classes;
        dx += 64ll * units;
    }
}
