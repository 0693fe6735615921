// libFuzzer over CSV and TSV tables: `make fuzz`.

#include <cstddef>
#include <cstdint>

#include "fuzz/table_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    millrace::fuzz::read_table_bytes({reinterpret_cast<const char*>(data), size});
    return 0;
}
