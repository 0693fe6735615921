// libFuzzer over the reader of profiler traces: `make fuzz`.

#include <cstddef>
#include <cstdint>

#include "fuzz/kineto_reader_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    millrace::fuzz::read_kineto_bytes({reinterpret_cast<const char*>(data), size});
    return 0;
}
