// A library that imports the CUDA runtime (mock_cudart), as PyTorch does.

#include <cstddef>
#include <cstdint>

namespace {

struct Sizes {
    std::uint32_t x, y, z;
};

}  // namespace

extern "C" {

int cudaLaunchKernel(const void*, Sizes, Sizes, void**, std::size_t, void*);
int cudaGraphLaunch(void*, void*);
int cudaMemsetAsync(void*, int, std::size_t, void*);
int cudaMalloc(void**, std::size_t);
int cudaFree(void*);
int cudaStreamSynchronize(void*);

/// `launches` kernels, which have what they are given as arguments, and one set. Returns how many calls failed.
int mock_framework_step(void* weights, int launches) {
    float scale = 0.5F;
    void* arguments[] = {&weights, &scale};
    int failed = 0;
    for (std::uint32_t i = 1; i <= static_cast<std::uint32_t>(launches); ++i)
        failed += cudaLaunchKernel(reinterpret_cast<const void*>(1), {i, 1, 1}, {128, 1, 1}, arguments, 0, nullptr) != 0;
    return failed + (cudaMemsetAsync(weights, 0, 256, nullptr) != 0);
}

void* mock_framework_take(std::size_t bytes) {
    void* memory = nullptr;
    return cudaMalloc(&memory, bytes) == 0 ? memory : nullptr;
}
int mock_framework_give(void* memory) { return cudaFree(memory); }
int mock_framework_wait() { return cudaStreamSynchronize(nullptr); }
int mock_framework_graph() { return cudaGraphLaunch(reinterpret_cast<void*>(1), nullptr); }
}
