// The batch of a step of R runs, and what is counted after it: training/stacked_runs.py.
//
//     gather_batch: the next rows of the data, permuted and scaled
//     tally: correct predictions, steps before the first loss that is not finite, position
//
// Grid: gather_batch a block a sample, a thread an input at a time; tally a block a run, a
// thread a sample at a time. Deterministic: sums of whole numbers alone.
//
// Bytes moved: gather_batch sizeof(S) + sizeof(T) per input (a permuted row comes from memory
// once); tally sizeof(T) per logit.

extern __shared__ double shared_memory[];

// data (N, D), labels (N), rows (n, samples), x (samples, D), y (samples), samples = R B;
// permutation (R, D) where PERMUTED; scale, shift (channels), for pixels alone.
template <typename T, typename S, bool PERMUTED>
__global__ void gather_batch(const S* __restrict__ data, const long long* __restrict__ labels,
                             const long long* __restrict__ rows,
                             const long long* __restrict__ position,
                             const long long* __restrict__ permutation,
                             const T* __restrict__ scale, const T* __restrict__ shift,
                             T* __restrict__ x, long long* __restrict__ y, int batch, int inputs,
                             int channels)
{
    long long sample = blockIdx.x, row = rows[*position * gridDim.x + sample];
    data += row * inputs;
    x += sample * inputs;
    permutation += sample / batch * inputs;
    for (int n = threadIdx.x; n < inputs; n += blockDim.x) {
        int from = PERMUTED ? (int)permutation[n] : n;
        T value = data[from];
        x[n] = sizeof(S) == 1 ? value * scale[from % channels] + shift[from % channels] : value;
    }
    if (threadIdx.x == 0) y[sample] = labels[row];
}

// z (R, B, C), labels (R, B), loss, correct, finite, finite_steps (R), position (1).
// Shared: an int.
template <typename T>
__global__ void tally(const T* __restrict__ z, const long long* __restrict__ labels,
                      const T* __restrict__ loss, long long* __restrict__ correct,
                      bool* __restrict__ finite, long long* __restrict__ finite_steps,
                      long long* __restrict__ position, int batch, int classes)
{
    int* count = (int*)shared_memory;
    long long run = blockIdx.x;
    if (threadIdx.x == 0) *count = 0;
    __syncthreads();
    for (int b = threadIdx.x; b < batch; b += blockDim.x) {
        const T* row = z + (run * batch + b) * classes;
        int best = 0;
        for (int c = 1; c < classes; ++c)
            if (row[c] > row[best]) best = c;
        if (best == labels[run * batch + b]) atomicAdd(count, 1);
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    correct[run] += *count;
    finite[run] = finite[run] && loss[run] - loss[run] == T(0);
    finite_steps[run] += finite[run];
    if (run == 0) ++*position;
}
