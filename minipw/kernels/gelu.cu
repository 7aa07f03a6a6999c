// GELU, exact and in the tanh approximation; it follows the text of pack.cu. nn/gelu.py is the
// specification.
//
//     y = x s(x),   dx = dy (s + x s')
//     exact:  s = Phi(x),  s' = exp(-x^2 / 2) / sqrt(2 pi)
//     tanh:   s = (1 + tanh u) / 2,  u = sqrt(2 / pi) (x + 0.044715 x^3),  s' = 2 s (1 - s) u'
//
// Grid: a thread N neighbouring entries (N = 4 where every array is aligned for one wide
// access). Deterministic: every entry is computed by itself.
//
// Bytes moved per entry: forward 3 sizeof(T) (x; y, s); backward 2 sizeof(T) (x, s) and
// 2 sizeof(T) a gradient (dy; dx).

inline __device__ float hyperbolic_tangent(float x) { return tanhf(x); }
inline __device__ double hyperbolic_tangent(double x) { return tanh(x); }
inline __device__ float error_complement(float x) { return erfcf(x); }
inline __device__ double error_complement(double x) { return erfc(x); }

template <typename T>
struct Constant {
    static constexpr T tanh_scale = T(0.79788456080286535588);      // sqrt(2 / pi)
    static constexpr T tanh_cubic = T(0.035677408136300125);        // 0.044715 tanh_scale
    static constexpr T half_root = T(0.70710678118654752440);       // 1 / sqrt(2)
    static constexpr T density_at_zero = T(0.39894228040143267794); // 1 / sqrt(2 pi)
};

// x, y, s (N packs).
template <typename T, int N, bool TANH>
__global__ void gelu_forward(const T* __restrict__ x, T* __restrict__ y, T* __restrict__ s,
                             long long packs)
{
    typedef Constant<T> Is;
    long long n = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= packs) return;
    Pack<T, N> in = ((const Pack<T, N>*)x)[n], out, share;
    for (int k = 0; k < N; ++k) {
        T a = in.at[k];
        if (TANH)
            share.at[k] =
                (hyperbolic_tangent((a * a * Is::tanh_cubic + Is::tanh_scale) * a) + 1) * T(0.5);
        else
            share.at[k] = T(0.5) * error_complement(-a * Is::half_root);
        out.at[k] = a * share.at[k];
    }
    ((Pack<T, N>*)y)[n] = out;
    ((Pack<T, N>*)s)[n] = share;
}

// dy, dx (gradients, N packs), x, s (N packs).
template <typename T, int N, bool TANH>
__global__ void gelu_backward(const T* __restrict__ dy, const T* __restrict__ x,
                              const T* __restrict__ s, T* __restrict__ dx, long long packs,
                              int gradients)
{
    typedef Constant<T> Is;
    long long n = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= packs) return;
    Pack<T, N> in = ((const Pack<T, N>*)x)[n], share = ((const Pack<T, N>*)s)[n], slope;
    for (int k = 0; k < N; ++k) {
        T a = in.at[k], half = share.at[k], d;
        if (TANH)
            d = (a * a * (3 * Is::tanh_cubic) + Is::tanh_scale) * (2 * half) * (1 - half);
        else
            d = exponential(T(-0.5) * a * a) * Is::density_at_zero;
        // y = x s(x)
        slope.at[k] = d * a + half;
    }
#pragma unroll 1
    for (int g = 0; g < gradients; ++g) {
        Pack<T, N> d = ((const Pack<T, N>*)dy)[g * packs + n];
        for (int k = 0; k < N; ++k) d.at[k] *= slope.at[k];
        ((Pack<T, N>*)dx)[g * packs + n] = d;
    }
}
