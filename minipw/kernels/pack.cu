// N neighbouring numbers, read and written at once; the elementwise kernels begin with this.

template <typename T, int N>
struct alignas(N * sizeof(T)) Pack {
    T at[N];
};
