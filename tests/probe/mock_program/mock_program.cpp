// A program without an interpreter that uses the stand-in for CUDA; it goes on using it after the probe's own exit handler has
// run, since handlers run in the opposite order of their registration.

#include <stdlib.h>

#include <cstddef>
#include <cstdio>
#include <cstring>

extern "C" {
int cuInit(unsigned);
int cudaMalloc(void**, std::size_t);
int cudaFree(void*);
int cudaDeviceSynchronize();

__attribute__((noinline, visibility("default"))) void make_step() {
    void* memory = nullptr;
    cudaMalloc(&memory, 100);
    cudaFree(memory);
    cudaDeviceSynchronize();
    asm volatile("");  // the calls above are no tail calls
}
}

int main() {
    ::atexit([] {
        for (int i = 0; i < 100; ++i) make_step();
    });
    cuInit(0);
    std::puts("ready");
    std::fflush(stdout);
    for (char line[64]; std::fgets(line, sizeof line, stdin) != nullptr;) {
        make_step();
        std::puts("done");
        std::fflush(stdout);
    }
    return 5;
}
