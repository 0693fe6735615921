// libFuzzer over the reader of Python sources: `make fuzz`.

#include <cstddef>
#include <cstdint>

#include "fuzz/python_source_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    millrace::fuzz::read_python_bytes({reinterpret_cast<const char*>(data), size});
    return 0;
}
