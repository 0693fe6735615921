// libFuzzer over the reader of run directories: `make fuzz`.

#include <cstddef>
#include <cstdint>

#include "fuzz/run_reader_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    millrace::fuzz::read_run_bytes({reinterpret_cast<const char*>(data), size});
    return 0;
}
