// libFuzzer over NumPy's arrays and archives: `make fuzz`.

#include <cstddef>
#include <cstdint>

#include "fuzz/array_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    millrace::fuzz::read_array_bytes({reinterpret_cast<const char*>(data), size});
    return 0;
}
