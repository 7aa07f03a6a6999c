// Softmax cross-entropy and its gradient in one launch; it follows the text of pack.cu.
// nn/loss.py is the specification.
//
//     loss = mean over B of (log sum_c exp(z_c) - z_label),   dz = (softmax(z) - one_hot) / B
//
// Grid: a block a run, a thread a sample at a time; the block is a power of two.
//
// Deterministic: the losses of samples are summed along a fixed tree. A label that is no class
// reads nothing outside.
//
// Bytes moved: z and dz, 2 sizeof(T) per logit.

extern __shared__ double shared_memory[];

inline __device__ float logarithm(float x) { return logf(x); }
inline __device__ double logarithm(double x) { return log(x); }

// z, dz (R, B, C), labels (R, B), loss (R). Shared: a T a thread.
template <typename T>
__global__ void softmax_loss(const T* __restrict__ z, const long long* __restrict__ labels,
                             T* __restrict__ loss, T* __restrict__ dz, int batch, int classes)
{
    T* sums = (T*)shared_memory;
    int thread = threadIdx.x, threads = blockDim.x;
    long long run = blockIdx.x;
    labels += run * batch;
    T sum = 0;
    for (int b = thread; b < batch; b += threads) {
        const T* row = z + (run * batch + b) * classes;
        T* out = dz + (run * batch + b) * classes;
        T top = row[0], total = 0, own = 0;
        for (int c = 1; c < classes; ++c) top = row[c] > top ? row[c] : top;
        for (int c = 0; c < classes; ++c) total += out[c] = exponential(row[c] - top);
        for (int c = 0; c < classes; ++c) {
            bool label = c == labels[b];
            if (label) own = row[c] - top;
            out[c] = (out[c] / total - T(label)) / batch;
        }
        sum += logarithm(total) - own;
    }
    sums[thread] = sum;
    __syncthreads();
    for (int half = threads / 2; half > 0; half /= 2) {
        if (thread < half) sums[thread] += sums[thread + half];
        __syncthreads();
    }
    if (thread == 0) loss[run] = sums[0] / batch;
}
