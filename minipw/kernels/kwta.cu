// k winners take all with subtraction; nn/kwta.py is the specification.
//
//     v = the (K + 1)-th largest of a row,  y = relu(x - v)
//     dx = dy on the winners;  dx at the unit of v = minus the sum of the winners' dy
//
// Grid: a block a row; its size is a power of two, at least 32.
//
// Deterministic: the threshold comes from counts, which are whole numbers, so the order
// of the atomic additions does not show; the winners' dy are summed along a fixed tree.
//
// Bytes moved per entry: forward reads x and writes y and won, 2 sizeof(T) + 1 (a row is
// read 6 times, 10 in double, but comes from memory once); backward reads dy and won and
// writes dx, 2 sizeof(T) + 1.
//
// A NaN in a row makes a y NaN, as in the specification, so that the loss is not finite
// and training stops; which unit is then the threshold unit is not specified.

extern __shared__ double shared_memory[];

template <typename T>
struct Bits;
template <>
struct Bits<float> {
    typedef unsigned int type;
    static __device__ type of(float x) { return __float_as_uint(x); }
};
template <>
struct Bits<double> {
    typedef unsigned long long type;
    static __device__ type of(double x) { return (type)__double_as_longlong(x); }
};

// An unsigned integer that is ordered as x is; -0.0 and 0.0 have the same.
template <typename T>
__device__ typename Bits<T>::type ordered_key(T x)
{
    typedef typename Bits<T>::type U;
    U bits = Bits<T>::of(x + T(0));  // -0.0 + 0.0 is 0.0
    U sign = U(1) << (8 * sizeof(U) - 1);
    return bits & sign ? ~bits : bits | sign;
}

// x, y (rows, units), won (rows, units), threshold_unit (rows).
// Shared: 256 + 16 counts and the threshold unit, 273 ints.
template <typename T>
__global__ void kwta_forward(const T* __restrict__ x, T* __restrict__ y, bool* __restrict__ won,
                             long long* __restrict__ threshold_unit, int units, int winners)
{
    typedef typename Bits<T>::type U;
    int* count = (int*)shared_memory;
    int* coarse = count + 256;
    int* lowest = coarse + 16;
    int thread = threadIdx.x, threads = blockDim.x;
    long long row = blockIdx.x;
    x += row * units;
    y += row * units;
    won += row * units;
    if (thread == 0) *lowest = units;

    // Digit by digit from the highest: the digits of v so far, and how many of the units
    // that share them are still to be passed on the way down to v.
    U digits = 0, known = 0;
    int above = winners;
    for (int shift = 8 * sizeof(U) - 8; shift >= 0; shift -= 8) {
        for (int n = thread; n < 256; n += threads) count[n] = 0;
        __syncthreads();
        for (int h = thread; h < units; h += threads) {
            U key = ordered_key(x[h]);
            if ((key & known) == digits) atomicAdd(&count[(key >> shift) & 255], 1);
        }
        __syncthreads();
        if (thread < 16) {
            int sum = 0;
            for (int n = 0; n < 16; ++n) sum += count[16 * thread + n];
            coarse[thread] = sum;
        }
        __syncthreads();
        int part = 15;
        for (; above >= coarse[part]; --part) above -= coarse[part];
        int digit = 16 * part + 15;
        for (; above >= count[digit]; --digit) above -= count[digit];
        digits |= U(digit) << shift;
        known |= U(255) << shift;
        __syncthreads();  // before the counts are cleared
    }

    for (int h = thread; h < units; h += threads) {
        if (ordered_key(x[h]) == digits) {
            atomicMin(lowest, h);
            break;
        }
    }
    __syncthreads();
    T v = x[*lowest];
    for (int h = thread; h < units; h += threads) {
        T excess = x[h] - v;
        excess = excess <= T(0) ? T(0) : excess;  // NaN stays
        y[h] = excess;
        won[h] = excess > T(0);
    }
    if (thread == 0) threshold_unit[row] = *lowest;
}

// dy, dx (gradients, rows, units), won (rows, units), threshold_unit (rows).
// Shared: a T a thread.
template <typename T>
__global__ void kwta_backward(const T* __restrict__ dy, const bool* __restrict__ won,
                              const long long* __restrict__ threshold_unit, T* __restrict__ dx,
                              int units, int rows)
{
    T* sums = (T*)shared_memory;
    int thread = threadIdx.x, threads = blockDim.x;
    long long row = blockIdx.x % rows;
    dy += (long long)blockIdx.x * units;
    dx += (long long)blockIdx.x * units;
    won += row * units;
    T sum = 0;
    for (int h = thread; h < units; h += threads) {
        // y = relu(x - v)
        T through = won[h] ? dy[h] : T(0);
        dx[h] = through;
        sum += through;
    }
    sums[thread] = sum;
    __syncthreads();
    for (int half = threads / 2; half > 0; half /= 2) {
        if (thread < half) sums[thread] += sums[thread + half];
        __syncthreads();
    }
    // v = x[threshold_unit]
    if (thread == 0) dx[threshold_unit[row]] = -sums[0];
}
