// Importance and update of one parameter in one pass; it follows the text of pack.cu. rules.py
// is the specification.
//
//     Omega <- Omega + lambda u
//     theta <- theta - eta g (Omega + eps)^(-1/2)
//     Adagrad u = g^2;   S-MAS u = |gradient of the output norm|;   SGD theta <- theta - eta g
//
// Grid: a thread N neighbouring entries (N = 4 where every array is aligned for one wide
// access). Deterministic: every entry is computed by itself.
//
// Bytes moved per entry: SGD 3 sizeof(T) (theta, g; theta), Adagrad 5 sizeof(T) (theta,
// Omega, g; theta, Omega), S-MAS 6 sizeof(T) (one gradient more).

inline __device__ float square_root(float x) { return sqrtf(x); }
inline __device__ double square_root(double x) { return sqrt(x); }

// theta, gradient (N packs).
template <typename T, int N>
__global__ void update_sgd(T* __restrict__ theta, const T* __restrict__ gradient, long long packs,
                           T learning_rate)
{
    long long n = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= packs) return;
    Pack<T, N> t = ((Pack<T, N>*)theta)[n], g = ((const Pack<T, N>*)gradient)[n];
    for (int k = 0; k < N; ++k) t.at[k] -= g.at[k] * learning_rate;
    ((Pack<T, N>*)theta)[n] = t;
}

// theta, omega (N packs), gradient (N packs), or (2, N packs) for S-MAS.
template <typename T, int N, bool SMAS>
__global__ void update_importance(T* __restrict__ theta, T* __restrict__ omega,
                                  const T* __restrict__ gradient, long long packs,
                                  T learning_rate, T importance_lambda, T epsilon)
{
    long long n = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= packs) return;
    Pack<T, N> t = ((Pack<T, N>*)theta)[n], o = ((Pack<T, N>*)omega)[n];
    Pack<T, N> g = ((const Pack<T, N>*)gradient)[n], u = g;
    if (SMAS) u = ((const Pack<T, N>*)gradient)[packs + n];
    for (int k = 0; k < N; ++k) {
        T grown = SMAS ? (u.at[k] < T(0) ? -u.at[k] : u.at[k]) : u.at[k] * u.at[k];
        o.at[k] += grown * importance_lambda;
        t.at[k] -= g.at[k] / square_root(o.at[k] + epsilon) * learning_rate;
    }
    ((Pack<T, N>*)theta)[n] = t;
    ((Pack<T, N>*)omega)[n] = o;
}
