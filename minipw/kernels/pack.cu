// N neighbouring numbers, read and written at once, and the exponential of both types; the
// elementwise kernels begin with this.

template <typename T, int N>
struct alignas(N * sizeof(T)) Pack {
    T at[N];
};

inline __device__ float exponential(float x) { return expf(x); }
inline __device__ double exponential(double x) { return exp(x); }
