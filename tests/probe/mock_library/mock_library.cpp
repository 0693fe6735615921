// A library that needs the runtime and is awkward: MOCK_SLOW takes a while to be loaded, while its places are being filled;
// MOCK_OWN has a cudaMalloc of its own.

#include <cstddef>

namespace {
int answer() { return 1; }
using Answer = int (*)();
}  // namespace

extern "C" {

int cudaMalloc(void** pointer, std::size_t bytes);
int cudaFree(void* pointer);

#ifdef MOCK_SLOW
/// Calls nothing, as places are not filled yet.
Answer mock_library_resolver() {
    volatile long spent = 0;
    while (spent < 500'000'000) spent = spent + 1;
    return answer;
}
int mock_library_late() __attribute__((ifunc("mock_library_resolver")));
#else
int mock_library_late() { return answer(); }
#endif

#ifdef MOCK_OWN
int cudaMalloc(void** pointer, std::size_t) {
    *pointer = nullptr;
    return 42;
}
#endif

int mock_library_take() {
    int (*const late)() = mock_library_late;
    int (*volatile called)() = late;
    void* memory = nullptr;
    const int result = cudaMalloc(&memory, 10);
    if (memory != nullptr) cudaFree(memory);
    return result + 0 * called();
}
}
