// Runs recorded launches again, each on memory of exactly its size, and compares.
//
// replay FILE: for every launch the number of the kernel, the grid, the threads, the bytes
// of shared memory and the arguments, before and after. Blocks are run in both orders.

#include <cstdio>
#include <cstdlib>

static std::FILE* file;

static long long number()
{
    long long n = 0;
    if (std::fread(&n, sizeof n, 1, file) != 1) std::exit(3);
    return n;
}

static std::unique_ptr<char[]> bytes(std::size_t size)
{
    std::unique_ptr<char[]> content(new char[size]);
    if (size && std::fread(content.get(), size, 1, file) != 1) std::exit(3);
    return content;
}

int main(int, char** argv)
{
    file = std::fopen(argv[1], "rb");
    if (!file) return 3;
    long long launches = number(), different = 0;
    for (long long n = 0; n < launches; ++n) {
        long long kernel = number();
        Launch launch;
        for (unsigned int& size : launch.grid) size = (unsigned int)number();
        launch.threads = (unsigned int)number();
        launch.shared = (std::size_t)number();
        long long count = number();
        std::vector<std::unique_ptr<char[]>> before, after;
        std::vector<std::size_t> sizes;
        std::vector<bool> is_array;
        for (long long a = 0; a < count; ++a) {
            is_array.push_back(number());
            sizes.push_back((std::size_t)number());
            before.push_back(bytes(sizes.back()));
            after.push_back(bytes(sizes.back()));
        }
        for (bool backwards : {false, true}) {
            std::vector<std::unique_ptr<char[]>> own;
            std::vector<void*> pointers(count), arguments(count);
            for (long long a = 0; a < count; ++a) {
                own.emplace_back(new (std::align_val_t(64)) char[sizes[a]]);
                std::memcpy(own[a].get(), before[a].get(), sizes[a]);
                pointers[a] = own[a].get();
                arguments[a] = is_array[a] ? (void*)&pointers[a] : pointers[a];
            }
            launch.backwards = backwards;
            launch.arguments = arguments.data();
            KERNELS[kernel](launch);
            for (long long a = 0; a < count; ++a) {
                if (std::memcmp(own[a].get(), after[a].get(), sizes[a]) != 0) {
                    std::printf("launch %lld, kernel %lld, argument %lld\n", n, kernel, a);
                    ++different;
                }
                ::operator delete[](own[a].release(), std::align_val_t(64));
            }
        }
    }
    std::printf("%lld launches, %lld arguments differ\n", launches, different);
    return different != 0;
}
