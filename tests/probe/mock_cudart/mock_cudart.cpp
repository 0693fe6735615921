// A stand-in for libcudart.so as PyTorch has it, a library of its own: it hands everything to the stand-in for CUDA, which must
// be loaded before.

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>

namespace {

struct Sizes {
    std::uint32_t x, y, z;
};

template <class... Words>
int hand_on(const char* name, Words... words) {
    static void* const cuda = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    const auto function = reinterpret_cast<int (*)(Words...)>(::dlsym(cuda, name));
    return function != nullptr ? function(words...) : 999;
}

}  // namespace

extern "C" {

/// `function`: 1 or 2, as mock_launch counts them from 0.
int cudaLaunchKernel(const void* function, Sizes grid, Sizes block, void** arguments, std::size_t, void* stream) {
    const int which = static_cast<int>(reinterpret_cast<std::uintptr_t>(function)) - 1;
    return hand_on("mock_launch", which, grid.x, block.x, arguments, reinterpret_cast<std::uint64_t>(stream));
}
int cudaGraphLaunch(void* graph, void* stream) { return hand_on("cudaGraphLaunch", graph, stream); }
int cudaMemsetAsync(void* to, int value, std::size_t bytes, void* stream) {
    return hand_on("cudaMemsetAsync", to, value, bytes, stream);
}
int cudaStreamSynchronize(void* stream) { return hand_on("cudaStreamSynchronize", stream); }
int cudaMalloc(void** pointer, std::size_t bytes) { return hand_on("cudaMalloc", pointer, bytes); }
int cudaFree(void* pointer) { return hand_on("cudaFree", pointer); }
}
